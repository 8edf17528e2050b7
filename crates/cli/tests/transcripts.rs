//! The command line as a person sees it. Each `cmd/*.trycmd` is a transcript that must stay true.
//! `TRYCMD=overwrite cargo test -p loxley-cli` writes what the command says now.

#[test]
fn transcripts() {
    trycmd::TestCases::new().case("tests/cmd/*.trycmd");
}
