//! The guest's root: the host's programs with their libraries, and this program as its init.
//! The rest comes from the release of its kernel: modules, and [xdp-tools](crate::tools).

use crate::apt::find;
use crate::archive::Archive;
use anyhow::{Context, Result};
use narrows_testbed::process;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Programs that the checks or Narrows call.
const PROGRAMS: [&str; 11] =
    ["ip", "bridge", "tc", "nft", "ethtool", "ping", "tcpdump", "sh", "kmod", "dmesg", "chrt"];
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

/// An archive of everything that is the host's. `narrows` is the program under test.
pub fn archive(narrows: &Path, folder: &Path) -> Result<Vec<u8>> {
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
    let mut libraries = BTreeSet::new();
    for name in PROGRAMS {
        let path = find(name).with_context(|| format!("{name} is not installed"))?;
        libraries.extend(libraries_of(&path)?);
        archive.file(&format!("usr/bin/{name}"), &fs::read(&path)?);
    }
    archive.link("usr/sbin/modprobe", "../bin/kmod");
    let own = std::env::current_exe()?;
    for (place, path) in [(&NARROWS[1..], narrows), ("init", &own)] {
        libraries.extend(libraries_of(path)?);
        let stripped = folder.join("stripped");
        process::run(Command::new("strip").arg("-o").arg(&stripped).arg(path))?;
        archive.file(place, &fs::read(&stripped)?);
    }
    for library in libraries {
        let text = library.to_str().context("a library's path is no text")?;
        let inside = text.trim_start_matches("/usr").trim_start_matches('/');
        archive.file(&format!("usr/{inside}"), &fs::read(&library)?);
    }
    Ok(archive.finish())
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
