//! Benchmarks of Loxley beside its peers.

fn main() {}
