//! The workloads, one file each, written once against the traits of [`contract`](super::contract).

mod heavy_tail;
mod tree;

pub(crate) use heavy_tail::HeavyTail;
pub(crate) use tree::Tree;
