// How C programs become BPF objects. Part of the build scripts of this crate and of the benchmarks,
// which have reference programs of their own.

use libbpf_cargo::SkeletonBuilder;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

/// Compiles the programs in `folder` to objects in [`out`]. Returns each by its name, with a
/// builder that makes its skeleton.
///
/// # Panics
/// As build scripts do, where something is missing.
pub fn compiled(folder: &str) -> Vec<(String, SkeletonBuilder)> {
    let mut programs = programs(folder);
    for (program, builder) in &mut programs {
        let object = out().join(format!("{program}.bpf.o"));
        builder
            .obj(&object)
            .reference_obj(true)
            .build()
            .unwrap_or_else(|error| panic!("{}", failed(program, &error)));
        if let Err(error) = shorten(&object) {
            println!("cargo:warning={program}.bpf.o is twice as long as need be: {error}");
        }
    }
    programs
}

/// The programs in `folder`, by name, each with a builder that is set up for it.
fn programs(folder: &str) -> Vec<(String, SkeletonBuilder)> {
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
    for file in fs::read_dir(folder).expect("the programs are there") {
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

/// Takes from `object` what nothing reads: which line of which file each instruction is of, and the
/// names of labels. That is half of it. The types stay.
fn shorten(object: &Path) -> io::Result<()> {
    let [old, new] = ["lines", "no-lines"].map(|name| object.with_extension(name));
    objcopy(&["--dump-section", &format!(".BTF.ext={}", old.display())], object)?;
    fs::write(&new, without_lines(&fs::read(&old)?)?)?;
    let update = format!(".BTF.ext={}", new.display());
    objcopy(&["--update-section", &update, "--wildcard", "--strip-symbol=LBB*"], object)
}

fn objcopy(words: &[&str], object: &Path) -> io::Result<()> {
    let output = Command::new("llvm-objcopy").args(words).arg(object).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

/// A section `.BTF.ext` without its second part (Documentation/bpf/btf.rst, section 4.2): a header
/// of two, one and one bytes, then words: its own length, and where each of three parts begins
/// behind it, with the part's length.
fn without_lines(section: &[u8]) -> io::Result<Vec<u8>> {
    let unknown = || io::Error::other("its .BTF.ext is of an unknown form");
    let word = |at: usize| -> Option<usize> {
        let bytes = section.get(4 + 4 * at..)?.first_chunk()?;
        Some(u32::from_ne_bytes(*bytes) as usize)
    };
    let part = |number: usize| -> Option<&[u8]> {
        let from = word(0)? + word(1 + 2 * number)?;
        section.get(from..from + word(2 + 2 * number)?)
    };
    let (functions, relocations) = part(0).zip(part(2)).ok_or_else(unknown)?;
    let lens = [functions.len(), 0, relocations.len()];
    let mut shorter = section.get(..4).ok_or_else(unknown)?.to_vec();
    let mut push = |word: usize| shorter.extend((word as u32).to_ne_bytes());
    push(4 * 8);
    let mut from = 0;
    for len in lens {
        push(from);
        push(len);
        from += len;
    }
    shorter.extend(functions);
    shorter.extend(relocations);
    Ok(shorter)
}

/// The words for a program that does not compile.
fn failed(program: &str, error: &dyn std::fmt::Debug) -> String {
    format!(
        "{program}.bpf.c did not compile (is clang installed? `make deps` installs it): {error:#?}"
    )
}
