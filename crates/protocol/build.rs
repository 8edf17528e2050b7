//! Compiles the `.proto` file with a compiler written in Rust: nothing has to be installed first.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let files = protox::compile(["proto/agent.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .bytes(".")
        .compile_fds(files)?;
    Ok(())
}
