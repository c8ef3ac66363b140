//! Compiles the C programs to BPF objects and generates their typed skeletons.

#[path = "compile.rs"]
mod compile;

fn main() {
    println!("cargo:rerun-if-changed=compile.rs");
    for (program, mut builder) in compile::compiled("src/programs") {
        let skeleton = compile::out().join(format!("{program}.skel.rs"));
        builder.generate(skeleton).unwrap_or_else(|error| panic!("{program}: {error:#?}"));
    }
    #[cfg(feature = "stepped")]
    stepped();
}

/// Compiles the tree also for the host: its meter, and its departure times. `src/stepped` replaces
/// the kernel's helpers; it comes before the headers of libbpf.
#[cfg(feature = "stepped")]
fn stepped() {
    println!("cargo:rerun-if-changed=src/stepped");
    let mut build = cc::Build::new();
    build.include("src/stepped").include("src/programs");
    build.file("src/stepped/stepped.c").file("src/stepped/departures.c");
    // The kernel's callbacks have parameters that not all use.
    build.extra_warnings(false);
    // As the kernel's code is compiled: numbers wrap, and memory has no type.
    build.opt_level(2).flag("-fno-strict-aliasing").flag("-fwrapv").compile("stepped");
}
