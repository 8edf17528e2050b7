//! The index and the search: plain code that does not know how its loops are run.
//!
//! ```text
//! documents --count--> words of each document --turn over--> postings of each word
//!                                   |                              |
//!                                   +----------> norms <---- rarity of each word
//! ```
//! Three loops build the index (over documents, over shards of the vocabulary, over documents
//! again) and one answers the queries. Every number is summed inside one item of a loop, in the
//! order of the words, so the result has the same bits however the items are spread over workers.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::mem;
use std::sync::OnceLock;

use super::corpus::{Corpus, VOCABULARY, Word};

/// How a loop over independent items is run.
pub(crate) trait Loop {
    /// Calls `item` once with every index of `costs`, which estimate what each item costs.
    fn for_each(&self, costs: &[u64], item: impl Fn(usize) + Sync);

    /// What `item` returns for every index, in order.
    fn map<T: Send + Sync>(&self, costs: &[u64], item: impl Fn(usize) -> T + Sync) -> Vec<T> {
        let slots: Vec<OnceLock<T>> = costs.iter().map(|_| OnceLock::new()).collect();
        self.for_each(costs, |index| {
            assert!(
                slots[index].set(item(index)).is_ok(),
                "item {index} ran twice"
            );
        });
        let value = |slot: OnceLock<T>| slot.into_inner().expect("every item has run");
        slots.into_iter().map(value).collect()
    }
}

/// How often one word occurs in one document.
#[derive(Debug, PartialEq)]
struct Posting {
    document: u32,
    count: u32,
}

/// An inverted index with what TF-IDF needs.
#[derive(Debug, PartialEq)]
pub(crate) struct Index {
    /// By word; documents ascending.
    postings: Vec<Vec<Posting>>,
    /// By word: the logarithm of how few documents have it.
    rarity: Vec<f64>,
    /// By document: the length of its vector of weights.
    norms: Vec<f64>,
}

/// One answer to a query.
#[derive(Debug, PartialEq)]
pub(crate) struct Hit {
    pub(crate) document: u32,
    pub(crate) cosine: f64,
}

/// The vocabulary is turned over in this many pieces.
const SHARDS: usize = 32;

/// How many words a shard has.
const SHARD: u32 = VOCABULARY / SHARDS as u32;

impl Index {
    pub(crate) fn build(corpus: &Corpus, how: &impl Loop) -> Self {
        let lengths: Vec<u64> = corpus
            .documents
            .iter()
            .map(|words| words.len() as u64)
            .collect();
        let counts = how.map(&lengths, |document| {
            Counts::new(&corpus.documents[document])
        });

        let shards = how.map(&[1; SHARDS], |shard| postings(&counts, shard));
        let postings: Vec<Vec<Posting>> = shards.into_iter().flatten().collect();
        let documents = corpus.documents.len() as f64;
        let rarity: Vec<f64> = postings
            .iter()
            .map(|postings| (documents / postings.len().max(1) as f64).ln())
            .collect();

        let distinct: Vec<u64> = counts
            .iter()
            .map(|counts| counts.words.len() as u64)
            .collect();
        let norms = how.map(&distinct, |document| norm(&counts[document].words, &rarity));
        Self {
            postings,
            rarity,
            norms,
        }
    }

    /// The best `top` documents for each query.
    pub(crate) fn search(
        &self,
        queries: &[Vec<Word>],
        top: usize,
        how: &impl Loop,
    ) -> Vec<Vec<Hit>> {
        let lengths: Vec<u64> = queries.iter().map(|words| words.len() as u64).collect();
        how.map(&lengths, |query| self.answer(&queries[query], top))
    }

    /// The best `top` documents by cosine; of equals, the first.
    fn answer(&self, query: &[Word], top: usize) -> Vec<Hit> {
        let query = count(query);
        let length = norm(&query, &self.rarity);
        let mut best = BinaryHeap::with_capacity(top + 1);
        Products::with(self.norms.len(), |products| {
            for &(word, count) in &query {
                let rarity = self.rarity[word as usize];
                let weight = f64::from(count) * rarity * rarity;
                for posting in &self.postings[word as usize] {
                    products.add(posting.document, weight * f64::from(posting.count));
                }
            }
            products.take_each(|document, product| {
                best.push(Hit {
                    document,
                    cosine: product / (length * self.norms[document as usize]),
                });
                if best.len() > top {
                    best.pop();
                }
            });
        });
        best.into_sorted_vec()
    }
}

impl Eq for Hit {}

impl PartialOrd for Hit {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The best comes first.
impl Ord for Hit {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_cosine = other.cosine.total_cmp(&self.cosine);
        by_cosine.then(self.document.cmp(&other.document))
    }
}

/// The scalar product of one query with every document. Most are zero, so a worker keeps the table
/// from query to query and clears only what was touched.
#[derive(Default)]
struct Products {
    by_document: Vec<f64>,
    touched: Vec<u32>,
}

impl Products {
    /// Gives `body` the table of this thread, with all of `documents` at zero.
    fn with(documents: usize, body: impl FnOnce(&mut Self)) {
        thread_local! {
            static TABLE: RefCell<Products> = RefCell::default();
        }
        TABLE.with_borrow_mut(|table| {
            if table.by_document.len() < documents {
                table.by_document.resize(documents, 0.0);
            }
            body(table);
        });
    }

    fn add(&mut self, document: u32, product: f64) {
        let sum = &mut self.by_document[document as usize];
        if *sum == 0.0 {
            self.touched.push(document);
        }
        *sum += product;
    }

    /// Calls `body` with everything that is not zero, and clears it.
    fn take_each(&mut self, mut body: impl FnMut(u32, f64)) {
        for document in self.touched.drain(..) {
            let product = mem::take(&mut self.by_document[document as usize]);
            body(document, product);
        }
    }
}

/// The words of one document, ascending, each with how often it occurs.
struct Counts {
    words: Vec<(Word, u32)>,
    /// Where each shard of the vocabulary begins in `words`.
    shard_starts: [u32; SHARDS + 1],
}

impl Counts {
    fn new(document: &[Word]) -> Self {
        let words = count(document);
        let start = |shard: usize| words.partition_point(|&(word, _)| word < first_word(shard));
        Self {
            shard_starts: std::array::from_fn(|shard| start(shard) as u32),
            words,
        }
    }

    fn of_shard(&self, shard: usize) -> &[(Word, u32)] {
        &self.words[self.shard_starts[shard] as usize..self.shard_starts[shard + 1] as usize]
    }
}

fn count(document: &[Word]) -> Vec<(Word, u32)> {
    let mut sorted = document.to_vec();
    sorted.sort_unstable();
    sorted
        .chunk_by(|left, right| left == right)
        .map(|same| (same[0], same.len() as u32))
        .collect()
}

/// The postings of each word of one shard: first how many, then which.
fn postings(counts: &[Counts], shard: usize) -> Vec<Vec<Posting>> {
    let index = |word: Word| (word - first_word(shard)) as usize;
    let mut documents_with = [0; SHARD as usize];
    for counts in counts {
        for &(word, _) in counts.of_shard(shard) {
            documents_with[index(word)] += 1;
        }
    }
    let mut postings = documents_with.map(Vec::with_capacity);
    for (document, counts) in (0..).zip(counts) {
        for &(word, count) in counts.of_shard(shard) {
            postings[index(word)].push(Posting { document, count });
        }
    }
    postings.into()
}

fn first_word(shard: usize) -> Word {
    shard as Word * SHARD
}

fn norm(words: &[(Word, u32)], rarity: &[f64]) -> f64 {
    let squares = words
        .iter()
        .map(|&(word, count)| (f64::from(count) * rarity[word as usize]).powi(2));
    squares.sum::<f64>().sqrt()
}
