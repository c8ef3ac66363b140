//! Compiles the programs that guests give to Narrows.

#[path = "../../kernel/bpf/compile.rs"]
mod compile;

fn main() {
    println!("cargo:rerun-if-changed=../../kernel/bpf/compile.rs");
    for (program, mut builder) in compile::programs("src/guest/programs") {
        builder
            .obj(compile::out().join(format!("{program}.bpf.o")))
            .build()
            .unwrap_or_else(|error| panic!("{}", compile::failed(&program, &error)));
    }
}
