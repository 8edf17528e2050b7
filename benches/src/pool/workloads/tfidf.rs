//! The flagship example on every pool: documents and queries of very unequal cost.
//!
//! The corpus, the index and the search are the files of the example itself.

#[path = "../../../../examples/tfidf/corpus.rs"]
mod corpus;
#[path = "../../../../examples/tfidf/index.rs"]
mod index;

use std::time::Instant;

use crate::pool::contract::{ForkJoin, ForkJoinWorkload, Sequential};
use corpus::Corpus;
use index::{Hit, Index, Loop};

/// How many answers a query gets.
const TOP: usize = 10;

/// Building the index; the figure is milliseconds.
pub(crate) struct Build {
    corpus: Corpus,
    expected: Index,
}

/// Answering a batch of queries; the figure is milliseconds.
pub(crate) struct Search {
    corpus: Corpus,
    index: Index,
    expected: Vec<Vec<Hit>>,
}

impl Build {
    pub(crate) fn new(documents: usize) -> Self {
        let corpus = Corpus::new(1938, documents, 0);
        let expected = Index::build(&corpus, &On(&Sequential));
        Self { corpus, expected }
    }
}

impl Search {
    pub(crate) fn new(documents: usize) -> Self {
        let corpus = Corpus::new(1938, documents, documents / 50);
        let index = Index::build(&corpus, &On(&Sequential));
        let expected = index.search(&corpus.queries, TOP, &On(&Sequential));
        Self {
            corpus,
            index,
            expected,
        }
    }
}

impl ForkJoinWorkload for Build {
    fn figure<P: ForkJoin>(&self, pool: &P) -> f64 {
        let start = Instant::now();
        let index = Index::build(&self.corpus, &On(pool));
        let elapsed = start.elapsed();
        assert!(index == self.expected, "the index is the sequential one");
        elapsed.as_secs_f64() * 1e3
    }
}

impl ForkJoinWorkload for Search {
    fn figure<P: ForkJoin>(&self, pool: &P) -> f64 {
        let start = Instant::now();
        let hits = self.index.search(&self.corpus.queries, TOP, &On(pool));
        let elapsed = start.elapsed();
        assert!(hits == self.expected, "the hits are the sequential ones");
        elapsed.as_secs_f64() * 1e3
    }
}

/// The loops of the example on any pool, in the pool's own way.
struct On<'a, P>(&'a P);

impl<P: ForkJoin> Loop for On<'_, P> {
    fn for_each(&self, costs: &[u64], item: impl Fn(usize) + Sync) {
        self.0.for_each(costs.len(), item);
    }
}
