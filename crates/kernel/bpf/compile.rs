// How C programs become BPF objects. Part of the build scripts of this crate and of the benchmarks,
// which have reference programs of their own.

use libbpf_cargo::SkeletonBuilder;
use std::path::{Path, PathBuf};

/// The programs in `folder`, by name, each with a builder that is set up for it.
///
/// # Panics
/// As build scripts do, where something is missing.
pub fn programs(folder: &str) -> Vec<(String, SkeletonBuilder)> {
    // Debian keeps the kernel's <asm/…> headers in a folder named after the machine, where a
    // compiler for the BPF target does not look.
    let machine = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target");
    let headers = format!("-I/usr/include/{machine}-linux-gnu");
    // The objects name their sources by the place in the repository, whatever machine builds them.
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets the folder");
    let here = Path::new(&here);
    let root = here.ancestors().nth(3).expect("a crate is in a folder of crates");
    let places = format!("-ffile-prefix-map={}/=", root.display());
    println!("cargo:rerun-if-changed={folder}");
    let mut programs = Vec::new();
    for file in std::fs::read_dir(folder).expect("the programs are there") {
        let source = file.expect("the folder can be read").path();
        let name = source.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(program) = name.strip_suffix(".bpf.c").map(str::to_owned) else { continue };
        println!("cargo:rerun-if-changed={}", source.display());
        let mut builder = SkeletonBuilder::new();
        builder.source(&source).clang_args([
            headers.as_str(),
            places.as_str(),
            "-mcpu=v3",
            "-Wall",
            "-Werror",
        ]);
        programs.push((program, builder));
    }
    programs
}

/// Where a build script writes to.
pub fn out() -> PathBuf {
    PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"))
}

/// The words for a program that does not compile.
pub fn failed(program: &str, error: &dyn std::fmt::Debug) -> String {
    format!(
        "{program}.bpf.c did not compile (is clang installed? `make deps` installs it): {error:#?}"
    )
}
