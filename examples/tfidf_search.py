"""Parallel TF-IDF search over a corpus that this script makes itself.

Run it as a whole, or cell by cell in an editor that knows ``# %%``:

    python examples/tfidf_search.py            # 2,000 documents
    python examples/tfidf_search.py 20000      # more

Documents differ in length as real ones do, a few are very long, so equal counts of documents are not equal
work. That is what the executor is for.
"""

# %% [markdown]
# ## A corpus
# Words follow Zipf's law, lengths a heavy tail. The same seed makes the same corpus.

# %%
import collections
import heapq
import math
import random
import sys
import time

import loxley

DOCUMENTS = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 2_000
VOCABULARY = 5_000


def make_document(number):
    chance = random.Random(number)
    length = min(int(20 * chance.paretovariate(1.2)), 20_000)
    ranks = (int(VOCABULARY ** chance.random()) for _ in range(length))
    return " ".join(f"w{rank}" for rank in ranks)


# %% [markdown]
# ## How should this work be divided?
# A sample of the costs decides: here, the lengths of some documents.


# %%
def ask_for_advice():
    sample = [len(make_document(number)) for number in range(200)]
    advice = loxley.advise(sample, parts=4, predictable=False)
    print(f"advice: {advice.strategy}, because {advice.explanation}")


# %% [markdown]
# ## The index
# Term frequencies of each document, in parallel. Each call gets one number and makes its document
# itself; `map` sizes its pieces by how long calls take.


# %%
def count_terms(number):
    words = make_document(number).split()
    total = len(words) or 1
    return {word: count / total for word, count in collections.Counter(words).items()}


def build_index(executor, documents):
    postings = collections.defaultdict(list)
    for number, frequencies in enumerate(executor.map(count_terms, range(documents))):
        for word, frequency in frequencies.items():
            postings[word].append((number, frequency))
    rarity = {word: math.log(documents / len(found)) for word, found in postings.items()}
    return dict(postings), rarity


# %% [markdown]
# ## Searching
# Queries are uneven too: a common word has long postings. An urgent query goes first.


# %%
def search(postings, rarity, query, best=3):
    scores = collections.defaultdict(float)
    for word in query.split():
        for number, frequency in postings.get(word, ()):
            scores[number] += frequency * rarity[word]
    return heapq.nlargest(best, scores.items(), key=lambda found: (found[1], -found[0]))


def keep_index(index):
    """Runs once in each process; `loxley.local` is what stays there between calls."""
    loxley.local.index = index


def find(query):
    return query, search(*loxley.local.index, query)


# %%
def main():
    ask_for_advice()
    begin = time.perf_counter()
    with loxley.Executor() as executor:
        index = build_index(executor, DOCUMENTS)
        built = time.perf_counter() - begin
        print(f"indexed {DOCUMENTS} documents, {len(index[0])} words, in {built:.2f} s")
        print(executor.report())
    queries = [f"w{10 + number} w{200 + 7 * number} w{3_000 + number}" for number in range(50)]
    with loxley.Executor(initializer=keep_index, initargs=(index,)) as executor:
        urgent = executor.options(priority=5).submit(find, "w1 w4000")
        found = dict(executor.map(find, queries))
        query, best = urgent.result()
    print(f"{query!r}: {[(number, round(score, 4)) for number, score in best]}")
    assert found[queries[0]] == search(*index, queries[0]), "the same as without processes"
    print(f"{len(found)} queries answered, {sum(map(bool, found.values()))} with documents")


if __name__ == "__main__":
    main()
