//! One program for all targets: `LOXLEY_FUZZ_TARGET` names one, `LOXLEY_FUZZ_CORPUS` the directory into which
//! its seeds go before libFuzzer reads it.
#![no_main]

use std::path::Path;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use loxley_fuzz::{TARGETS, Target};

static CHOSEN: OnceLock<Target> = OnceLock::new();

fuzz_target!(
    init: choose(),
    |input: &[u8]| (CHOSEN.get().expect("a target was chosen").run)(input)
);

fn choose() {
    let name = std::env::var("LOXLEY_FUZZ_TARGET").unwrap_or_default();
    let target = loxley_fuzz::target(&name).unwrap_or_else(|| {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        panic!("LOXLEY_FUZZ_TARGET names one of {}", names.join(", "))
    });
    if let Some(corpus) = std::env::var_os("LOXLEY_FUZZ_CORPUS") {
        for (number, seed) in (target.seeds)().iter().enumerate() {
            let path = Path::new(&corpus).join(format!("seed-{number}"));
            std::fs::write(path, seed).expect("the corpus takes a seed");
        }
    }
    let _ = CHOSEN.set(target);
}
