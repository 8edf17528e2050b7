//! The `loxley` command.

fn main() {}
