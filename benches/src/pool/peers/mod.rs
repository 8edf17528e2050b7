//! The pools that Loxley is measured against, each behind the traits of [`contract`](super::contract).

mod chili;
mod forte;
mod rayon;

pub(crate) use chili::Chili;
pub(crate) use forte::Forte;
pub(crate) use rayon::Rayon;
