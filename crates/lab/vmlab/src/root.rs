//! The guest's root: the host's programs with their libraries, and this program as its init. A
//! guest of another processor has Debian's programs [for it](crate::foreign).
//! The rest comes from the release of its kernel: modules, and [xdp-tools](crate::tools).

use crate::apt::find;
use crate::archive::Archive;
use crate::foreign::Foreign;
use anyhow::{Context, Result};
use narrows_testbed::process;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Programs that the checks or Narrows call, each with its package in Debian.
const PROGRAMS: [(&str, &str); 11] = [
    ("ip", "iproute2"),
    ("bridge", "iproute2"),
    ("tc", "iproute2"),
    ("nft", "nftables"),
    ("ethtool", "ethtool"),
    ("ping", "iputils-ping"),
    ("tcpdump", "tcpdump"),
    ("sh", "dash"),
    ("kmod", "kmod"),
    ("dmesg", "util-linux"),
    ("chrt", "util-linux"),
];
/// Empty folders for mounts.
const FOLDERS: [&str; 8] = ["proc", "sys", "dev", "run", "tmp", "root", "var", "etc"];
/// The users: tcpdump looks for the one as which it is to run.
const USERS: (&str, &str) = ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n");
/// Where Narrows is in the guest.
pub const NARROWS: &str = "/usr/bin/narrows";
/// Where the words of a command of Narrows are in the guest, one a line, if it is to run one.
pub const COMMAND: &str = "/command";

/// An archive with a command's words, to follow that of everything else.
pub fn command(words: &str) -> Vec<u8> {
    let mut archive = Archive::default();
    let lines: Vec<&str> = words.split_whitespace().collect();
    archive.file(&COMMAND[1..], lines.join("\n").as_bytes());
    archive.finish()
}

/// The packages of these programs.
pub fn packages() -> Vec<&'static str> {
    let packages: BTreeSet<&str> = PROGRAMS.iter().map(|(_, package)| *package).collect();
    packages.into_iter().collect()
}

/// The programs that are built here.
#[derive(Clone, Copy, Debug)]
pub struct Built<'a> {
    /// The one under test.
    pub narrows: &'a Path,
    /// This one, for the guest's processor.
    pub init: &'a Path,
}

/// An archive of everything but what comes from the release of the kernel. Programs are the host's,
/// or `foreign`.
pub fn archive(built: Built, foreign: Option<&Foreign>, folder: &Path) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    for name in FOLDERS {
        archive.directory(name);
    }
    archive.link("var/run", "../run");
    archive.file(USERS.0, USERS.1.as_bytes());
    for name in ["bin", "sbin", "lib", "lib64"] {
        archive.directory(&format!("usr/{name}"));
        archive.link(name, &format!("usr/{name}"));
    }
    let mut programs = Vec::new();
    for (name, _) in PROGRAMS {
        let path = foreign.map_or_else(|| find(name), |foreign| foreign.find(name));
        let path = path.with_context(|| format!("{name} is not installed"))?;
        archive.file(&format!("usr/bin/{name}"), &fs::read(&path)?);
        programs.push(path);
    }
    archive.link("usr/sbin/modprobe", "../bin/kmod");
    for (place, path) in [(&NARROWS[1..], built.narrows), ("init", built.init)] {
        let stripped = folder.join("stripped");
        let mut strip = foreign.map_or_else(|| Command::new("strip"), Foreign::strip);
        process::run(strip.arg("-o").arg(&stripped).arg(path))?;
        archive.file(place, &fs::read(&stripped)?);
        programs.push(path.to_owned());
    }
    match foreign {
        None => host_libraries(&programs, &mut archive)?,
        Some(foreign) => foreign_libraries(foreign, &programs, &mut archive)?,
    }
    Ok(archive.finish())
}

/// Adds the libraries of the host's `programs`, where they are.
fn host_libraries(programs: &[PathBuf], archive: &mut Archive) -> Result<()> {
    let mut libraries = BTreeSet::new();
    for program in programs {
        libraries.extend(libraries_of(program)?);
    }
    for library in libraries {
        let text = library.to_str().context("a library's path is no text")?;
        let inside = text.trim_start_matches("/usr").trim_start_matches('/');
        archive.file(&format!("usr/{inside}"), &fs::read(&library)?);
    }
    Ok(())
}

/// Adds the libraries of `programs`, and the link by which these find the loader.
fn foreign_libraries(foreign: &Foreign, programs: &[PathBuf], archive: &mut Archive) -> Result<()> {
    for library in foreign.libraries_of(programs)? {
        let name = library.file_name().and_then(OsStr::to_str).context("a name is no text")?;
        archive.file(&format!("{}/{name}", foreign.place()), &fs::read(&library)?);
    }
    let (link, loader) = foreign.loader()?;
    archive.link(&link, &loader);
    Ok(())
}

/// The libraries of a program, including the loader.
fn libraries_of(program: &Path) -> Result<Vec<PathBuf>> {
    // ldd fails for a static program, which needs none.
    let said = process::run(Command::new("ldd").arg(program)).unwrap_or_default();
    Ok(parse(&said))
}

fn parse(ldd: &str) -> Vec<PathBuf> {
    let words = |line: &'_ str| -> Option<PathBuf> {
        let path = line.split_whitespace().find(|word| word.starts_with('/'))?;
        Some(PathBuf::from(path))
    };
    ldd.lines().filter_map(words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_the_loader_are_read_from_ldd() {
        let said = "\tlinux-vdso.so.1 (0x00007ffd)\n\
                    \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f01)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f02)\n";
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(parse(said), expected.map(PathBuf::from));
        assert!(parse("\tstatically linked\n").is_empty());
    }
}
