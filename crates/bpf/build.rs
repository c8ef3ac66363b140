//! Compiles the C programs to BPF objects and generates their typed skeletons.

#[path = "compile.rs"]
mod compile;

fn main() {
    println!("cargo:rerun-if-changed=compile.rs");
    for (program, mut builder) in compile::programs("src/programs") {
        builder
            .build_and_generate(compile::out().join(format!("{program}.skel.rs")))
            .unwrap_or_else(|error| panic!("{}", compile::failed(&program, &error)));
    }
}
