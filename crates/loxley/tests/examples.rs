//! Every example runs, and what it asserts holds.

macro_rules! examples {
    ($($name:ident $path:literal)*) => {
        $(#[path = $path] mod $name;)*

        $(#[test]
        fn $name() {
            $name::main().unwrap();
        })*
    };
}

examples! {
    basic "../../../examples/basic.rs"
    pull_stealing "../../../examples/pull_stealing.rs"
    cascading_failure "../../../examples/cascading_failure.rs"
    priorities "../../../examples/priorities.rs"
    dag "../../../examples/dag.rs"
    deadlines "../../../examples/deadlines.rs"
    speculation "../../../examples/speculation.rs"
    quotas "../../../examples/quotas.rs"
    health_check "../../../examples/health_check.rs"
    orchestrator "../../../examples/orchestrator.rs"
}
