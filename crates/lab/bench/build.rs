//! Compiles the C programs beside which `bench xdp` measures to BPF objects. Without the feature
//! `kernel` there is nothing to compile.

#[cfg(feature = "kernel")]
#[path = "../../kernel/bpf/compile.rs"]
mod compile;

#[cfg(not(feature = "kernel"))]
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
}

#[cfg(feature = "kernel")]
fn main() {
    println!("cargo:rerun-if-changed=../../kernel/bpf/compile.rs");
    // Headers of which one measures a part.
    println!("cargo:rerun-if-changed=../../kernel/bpf/src/programs");
    compile::compiled("src/xdp/programs");
}
