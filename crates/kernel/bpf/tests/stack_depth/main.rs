//! The programs use no more stack than the verifier of any kernel allows.

mod chains;

use std::path::Path;

#[test]
fn no_chain_of_calls_uses_more_stack_than_any_kernel_allows() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/programs");
    chains::check(Path::new(env!("OUT_DIR")), &sources);
}
