//! Compiles the C programs to BPF objects and generates their typed skeletons.

use libbpf_cargo::SkeletonBuilder;
use std::path::PathBuf;

const PROGRAMS: &str = "src/programs";

fn main() {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // Debian keeps the kernel's <asm/…> headers in a folder named after the machine, where a
    // compiler for the BPF target does not look.
    let machine = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target");
    let headers = format!("-I/usr/include/{machine}-linux-gnu");
    // The objects name their sources by the place in the repository, whatever machine builds them.
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets the folder");
    let places = format!("-ffile-prefix-map={here}=crates/bpf");
    println!("cargo:rerun-if-changed={PROGRAMS}");
    for file in std::fs::read_dir(PROGRAMS).expect("the programs are there") {
        let source = file.expect("the folder can be read").path();
        let name = source.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(program) = name.strip_suffix(".bpf.c") else { continue };
        println!("cargo:rerun-if-changed={}", source.display());
        SkeletonBuilder::new()
            .source(&source)
            .clang_args([headers.as_str(), places.as_str(), "-mcpu=v3", "-Wall", "-Werror"])
            .build_and_generate(out.join(format!("{program}.skel.rs")))
            .unwrap_or_else(|error| {
                panic!("{name} did not compile (is clang installed? `make deps` installs it): {error:#}")
            });
    }
}
