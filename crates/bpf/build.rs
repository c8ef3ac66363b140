//! Compiles the C programs to BPF objects and generates their typed skeletons.

use libbpf_cargo::SkeletonBuilder;
use std::path::PathBuf;

fn main() {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for program in ["steer"] {
        let source = format!("src/programs/{program}.bpf.c");
        println!("cargo:rerun-if-changed={source}");
        // Debian keeps the kernel's <asm/…> headers in a folder named after the machine,
        // where a compiler for the BPF target does not look.
        let machine = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target");
        let headers = format!("-I/usr/include/{machine}-linux-gnu");
        SkeletonBuilder::new()
            .source(&source)
            .clang_args([headers.as_str(), "-mcpu=v3", "-Wall", "-Werror"])
            .build_and_generate(out.join(format!("{program}.skel.rs")))
            .unwrap_or_else(|error| {
                panic!("{source} did not compile (is clang installed? `make deps` installs it): {error:#}")
            });
    }
}
