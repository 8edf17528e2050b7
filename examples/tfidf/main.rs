//! TF-IDF search, built and queried in parallel, with the same result to the last bit.
//!
//! ```console
//! $ cargo run --release --example tfidf            # 50,000 documents
//! $ cargo run --release --example tfidf -- 5000    # fewer
//! ```
//!
//! The example makes a corpus whose documents differ in length by a factor of thousands, builds an
//! inverted index of it and answers a batch of queries: sequentially, and then in parallel with the
//! items divided in four ways ([`strategy`]). It checks that every result equals the sequential one
//! exactly and shows for each way how much faster it was and how well the work was balanced: the
//! busiest worker over the mean one, the time that all were busy, the longest piece over the median
//! one, and how unequal the queues were.
//!
//! What to look for. Equal chunks lose where the costs are uneven. Size-weighted chunks repair that
//! for the index, where the length of a document tells what it costs, but not for the queries,
//! where one popular word costs more than many rare ones. Dynamic and stealing need no estimate;
//! stealing also needs no shared counter, which matters once items are small or workers are many.
#![expect(
    clippy::print_stdout,
    reason = "an example shows its result to the reader"
)]

mod corpus;
mod index;
mod strategy;

use std::error::Error;
use std::time::{Duration, Instant};

use loxley_balance::figures::{Figure, straggler_ratio};
use loxley_balance::{BalanceReport, Sketch};
use loxley_pool::Pool;

use corpus::Corpus;
use index::Index;
use strategy::{Runner, Strategy};

const SEED: u64 = 1938;
const TOP: usize = 10;
/// Each way is tried this often, in turns; the fastest time counts, as the machine has other work.
const TRIES: usize = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let documents = match std::env::args().nth(1) {
        Some(text) => text.parse()?,
        None => 50_000,
    };
    let pool = Pool::builder().build()?;
    let corpus = Corpus::new(SEED, documents, documents / 50);
    println!(
        "{documents} documents of {} words, {} queries, {} workers",
        corpus.documents.iter().map(Vec::len).sum::<usize>(),
        corpus.queries.len(),
        pool.workers()
    );
    println!(
        "the longest document has {:.0} times the words of the median one\n",
        length_ratio(&corpus).unwrap_or(f64::NAN)
    );
    compare(&pool, &corpus).iter().for_each(Comparison::print);
    Ok(())
}

fn length_ratio(corpus: &Corpus) -> Option<f64> {
    let mut lengths = Sketch::default();
    for document in &corpus.documents {
        lengths.record(document.len() as u64);
    }
    straggler_ratio(&lengths)
}

/// One phase of the program, run in all ways.
struct Comparison {
    phase: &'static str,
    workers: usize,
    /// The sequential one first.
    trials: Vec<Trial>,
}

/// One run of a phase in one way.
struct Trial {
    strategy: Strategy,
    elapsed: Duration,
    balance: BalanceReport,
}

/// Builds and searches in all ways.
///
/// # Panics
///
/// Panics if any of them finds anything else than the sequential one.
fn compare(pool: &Pool, corpus: &Corpus) -> [Comparison; 2] {
    let (build, index) = compare_phase("build the index", pool, |runner| {
        Index::build(corpus, runner)
    });
    let (search, _) = compare_phase("answer the queries", pool, |runner| {
        index.search(&corpus.queries, TOP, runner)
    });
    [build, search]
}

/// Runs one phase in all ways, in turns; returns the fastest trial of each and what it computes.
fn compare_phase<T: PartialEq + Send>(
    phase: &'static str,
    pool: &Pool,
    run: impl Fn(&Runner<'_>) -> T + Sync,
) -> (Comparison, T) {
    let (first, expected) = trial(pool, Strategy::Sequential, &run);
    let mut trials = vec![first];
    for strategy in (0..TRIES).flat_map(|_| Strategy::ALL) {
        let (trial, result) = trial(pool, strategy, &run);
        assert!(
            result == expected,
            "{phase}: {strategy} differs from sequential"
        );
        trials.push(trial);
    }
    let fastest = |strategy: Strategy| {
        let of_strategy = trials.extract_if(.., |trial| trial.strategy == strategy);
        of_strategy.min_by_key(|trial| trial.elapsed)
    };
    let comparison = Comparison {
        phase,
        workers: pool.workers(),
        trials: Strategy::ALL.into_iter().filter_map(fastest).collect(),
    };
    (comparison, expected)
}

fn trial<T: Send>(
    pool: &Pool,
    strategy: Strategy,
    run: impl Fn(&Runner<'_>) -> T + Sync,
) -> (Trial, T) {
    let runner = Runner::new(pool, strategy);
    let start = Instant::now();
    let (result, seen_by_pool) = pool.measure(|| run(&runner));
    let elapsed = start.elapsed();
    // The runner timed every item; only the pool sees its queues.
    let mut balance = runner.balance();
    balance.queue_depth_variance = seen_by_pool.queue_depth_variance;
    let trial = Trial {
        strategy,
        elapsed,
        balance,
    };
    (trial, result)
}

impl Comparison {
    fn print(&self) {
        println!(
            "{:22}{:>9} {:>8} {:>10} {:>15} {:>13} {:>12} {:>11}",
            self.phase,
            "ms",
            "speedup",
            "efficiency",
            "load imbalance",
            "utilization",
            "stragglers",
            "queues"
        );
        let sequential = self.trials[0].elapsed.as_secs_f64();
        for trial in &self.trials {
            let seconds = trial.elapsed.as_secs_f64();
            let speedup = sequential / seconds;
            let workers = match trial.strategy {
                Strategy::Sequential => 1,
                _ => self.workers,
            };
            println!(
                "  {:20}{:>9.1} {:>8.2} {:>8.0} % {:>15} {:>13} {:>12} {:>11}",
                trial.strategy,
                seconds * 1e3,
                speedup,
                speedup / workers as f64 * 100.0,
                cell(&trial.balance.load_imbalance),
                cell(&trial.balance.utilization),
                cell(&trial.balance.straggler_ratio),
                cell(&trial.balance.queue_depth_variance),
            );
        }
        println!();
    }
}

/// A figure with a mark whether it met its target.
fn cell(figure: &Figure) -> String {
    let mark = if figure.met() == Some(true) {
        "ok"
    } else {
        "--"
    };
    match figure.value {
        Some(value) if figure.is_share => format!("{:.0} % {mark}", value * 100.0),
        Some(value) => format!("{value:.2} {mark}"),
        None => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_strategy_finds_what_the_sequential_code_finds() {
        let pool = Pool::builder().workers(3).build().unwrap();
        for comparison in compare(&pool, &Corpus::new(7, 120, 20)) {
            assert_eq!(comparison.trials.len(), 5);
            for trial in &comparison.trials {
                assert!(trial.balance.load_imbalance.value >= Some(1.0));
            }
        }
    }

    #[test]
    fn a_document_is_the_best_answer_to_itself() {
        let pool = Pool::builder().workers(2).build().unwrap();
        let mut corpus = Corpus::new(3, 80, 0);
        corpus.queries = corpus.documents.clone();
        let runner = Runner::new(&pool, Strategy::Stealing);
        let hits = Index::build(&corpus, &runner).search(&corpus.queries, 1, &runner);
        for (document, hits) in (0..).zip(&hits) {
            assert_eq!(hits[0].document, document);
            assert!((hits[0].cosine - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn the_seed_names_the_corpus() {
        let (one, two) = (Corpus::new(5, 50, 5), Corpus::new(5, 50, 5));
        assert_eq!(one.documents, two.documents);
        assert_eq!(one.queries, two.queries);
        assert_ne!(one.documents, Corpus::new(6, 50, 5).documents);
    }
}
