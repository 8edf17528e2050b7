//! A corpus made up from a seed: words by popularity, documents of very unequal length.
//!
//! Documents lie in the order of the archives they came from, short notes first and books last, as
//! they would on disk. So a range of documents says little about how many words are in it. The
//! queries come in the order of who asks: people first, who type a few words, then a program that
//! sends whole pages.

use loxley_balance::Rng;

/// How many different words there are.
pub(crate) const VOCABULARY: u32 = 1 << 16;

/// How many archives the documents come from, each with longer ones than the last.
const ARCHIVES: usize = 40;

/// Shortest document of the first archive, in words.
const SHORTEST: f64 = 10.0;

/// How much longer the documents of the last archive are than those of the first.
const GROWTH: f64 = 16.0;

/// No document is longer than this many times the shortest of its archive.
const LONGEST: f64 = 1_000.0;

/// Shape of the power law of lengths: few documents hold many of the words.
const SHAPE: f64 = 1.3;

/// A word, by number.
pub(crate) type Word = u32;

/// What is indexed, and what is asked.
pub(crate) struct Corpus {
    pub(crate) documents: Vec<Vec<Word>>,
    pub(crate) queries: Vec<Vec<Word>>,
}

impl Corpus {
    /// The corpus that `seed` names.
    pub(crate) fn new(seed: u64, documents: usize, queries: usize) -> Self {
        let root = Rng::new(seed);
        let documents: Vec<Vec<Word>> = (0..documents)
            .map(|number| {
                let archive = number * ARCHIVES / documents;
                document(&mut root.numbered_child("document", number as u64), archive)
            })
            .collect();
        let queries = (0..queries)
            .map(|number| {
                let is_page = number * 20 / queries == 19;
                let mut rng = root.numbered_child("query", number as u64);
                query(&mut rng, &documents, is_page)
            })
            .collect();
        Self { documents, queries }
    }
}

fn document(rng: &mut Rng, archive: usize) -> Vec<Word> {
    let shortest = SHORTEST * GROWTH.powf(archive as f64 / ARCHIVES as f64);
    let stretch = (1.0 - rng.unit_f64()).powf(-1.0 / SHAPE).min(LONGEST);
    let length = (shortest * stretch) as usize;
    (0..length).map(|_| word(rng)).collect()
}

/// A word by Zipf's law: the n-th most popular one comes up about 1/n as often as the first.
fn word(rng: &mut Rng) -> Word {
    let rank = f64::from(VOCABULARY).powf(rng.unit_f64()) as u32 - 1;
    // Multiplying by an odd number permutes the vocabulary, so that popular words are everywhere.
    rank.wrapping_mul(0x9e37_79b1) % VOCABULARY
}

/// Some words of some document: a few, or a whole page of them ("more like this").
fn query(rng: &mut Rng, documents: &[Vec<Word>], is_page: bool) -> Vec<Word> {
    let document = &documents[rng.index(documents.len())];
    let length = if is_page { 100 } else { 1 + rng.index(6) };
    (0..length)
        .map(|_| document[rng.index(document.len())])
        .collect()
}
