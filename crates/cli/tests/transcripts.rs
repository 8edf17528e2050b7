//! The command line as a person sees it. Each `cmd/*.trycmd` is a transcript that must stay true.
//! `TRYCMD=overwrite cargo test -p loxley-cli` writes what the command says now.

#[test]
fn transcripts() {
    trycmd::TestCases::new().case("tests/cmd/*.trycmd");
}

/// A page for each command, and each says what the command is for.
#[test]
fn manual_pages_are_written() {
    let folder = tempfile::tempdir().expect("a directory");
    let pages = folder.path().join("man1");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_loxley"))
        .arg("man")
        .arg(&pages)
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{output:?}");
    for name in [
        "loxley",
        "loxley-run",
        "loxley-sem",
        "loxley-server-token-create",
    ] {
        let page = std::fs::read_to_string(pages.join(format!("{name}.1")));
        let page = page.unwrap_or_else(|error| panic!("{name}.1: {error}"));
        assert!(page.contains(&format!(".TH {name} 1")), "{page}");
        assert!(
            page.contains(".SH DESCRIPTION") && page.contains("Examples:"),
            "{page}"
        );
    }
}
