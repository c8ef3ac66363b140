//! The programs beside which `bench xdp` measures use no more stack than any kernel's verifier
//! allows.

#[path = "../../../kernel/bpf/tests/stack_depth/chains.rs"]
mod chains;

use std::path::Path;

#[test]
fn no_chain_of_calls_uses_more_stack_than_any_kernel_allows() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/xdp/programs");
    chains::check(Path::new(env!("OUT_DIR")), &sources);
}
