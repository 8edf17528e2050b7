//! The `loxley` command; everything it does is in the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    loxley_cli::main()
}
