//! Compiles the programs that guests give to Narrows.

#[path = "../../kernel/bpf/compile.rs"]
mod compile;

fn main() {
    println!("cargo:rerun-if-changed=../../kernel/bpf/compile.rs");
    compile::compiled("src/guest/programs");
}
