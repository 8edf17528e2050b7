//! The pools that Loxley is measured against, each behind the traits of [`contract`](super::contract).

mod chili;
mod crossbeam;
mod forte;
mod rayon;
mod tokio;

pub(crate) use chili::Chili;
pub(crate) use crossbeam::Crossbeam;
pub(crate) use forte::Forte;
pub(crate) use rayon::Rayon;
pub(crate) use tokio::Tokio;
