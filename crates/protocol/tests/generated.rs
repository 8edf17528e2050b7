//! The committed code is what the `.proto` file says.

use std::path::Path;

#[test]
fn the_committed_code_is_what_the_protocol_file_says() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let protocol = here.join("proto");
    let fresh = tempfile::tempdir().unwrap();
    let files = protox::compile([protocol.join("agent.proto")], [&protocol]).unwrap();
    tonic_prost_build::configure()
        .bytes(".")
        .out_dir(fresh.path())
        .compile_fds(files)
        .unwrap();
    let fresh = std::fs::read_to_string(fresh.path().join("loxley.agent.v1.rs")).unwrap();
    let committed = here.join("src/generated.rs");
    if std::env::var_os("LOXLEY_UPDATE").is_some() {
        std::fs::write(&committed, &fresh).unwrap();
    }
    assert!(
        std::fs::read_to_string(&committed).unwrap() == fresh,
        "src/generated.rs is not what proto/agent.proto says: LOXLEY_UPDATE=1 cargo test -p loxley-protocol"
    );
}
