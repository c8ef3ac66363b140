//! The programs of a guest with another processor: unpacked from Debian's packages for it, since
//! the host's do not run there.

use crate::apt::Apt;
use crate::architecture::Architecture;
use anyhow::{Context, Result};
use narrows_testbed::process;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where programs are in Debian.
const PROGRAMS: [&str; 2] = ["usr/bin", "usr/sbin"];

/// A folder with the packages' files.
#[derive(Debug)]
pub struct Foreign {
    root: PathBuf,
    architecture: Architecture,
}

impl Foreign {
    /// Unpacks `packages`, and all that they depend on, below `folder`.
    pub fn unpack(
        apt: &Apt,
        packages: &[&str],
        architecture: Architecture,
        folder: &Path,
    ) -> Result<Self> {
        let root = folder.join("programs").join(architecture.debian());
        if root.exists() {
            fs::remove_dir_all(&root)?; // of an earlier run, perhaps of an older version
        }
        fs::create_dir_all(&root)?;
        apt.unpack(&apt.closure(packages)?, &root)?;
        Ok(Self { root, architecture })
    }

    /// The path of a program.
    pub fn find(&self, program: &str) -> Option<PathBuf> {
        PROGRAMS
            .iter()
            .map(|folder| self.root.join(folder).join(program))
            .find(|path| path.exists())
    }

    /// The program that leaves out of others what only a debugger reads.
    pub fn strip(&self) -> Command {
        Command::new(format!("{}-strip", self.architecture.triple()))
    }

    /// Where a program finds libraries, without the first slash.
    pub fn place(&self) -> String {
        format!("usr/lib/{}", self.architecture.triple())
    }

    /// The loader, and the link by which programs find it.
    pub fn loader(&self) -> Result<(String, String)> {
        let link = self.architecture.loader();
        let name = Path::new(link).file_name().and_then(|name| name.to_str());
        let name = name.context("a loader has a name")?;
        Ok((format!("usr/{link}"), format!("{}/{name}", self.architecture.triple())))
    }

    /// The libraries of `programs`, including the loader.
    pub fn libraries_of(&self, programs: &[PathBuf]) -> Result<BTreeSet<PathBuf>> {
        let mut found = BTreeSet::new();
        let mut to_read = programs.to_vec();
        while let Some(path) = to_read.pop() {
            let said = process::run(Command::new("readelf").arg("-d").arg(&path))?;
            for name in needed(&said) {
                let library = self.root.join(self.place()).join(name);
                if found.insert(library.clone()) {
                    to_read.push(library);
                }
            }
        }
        Ok(found)
    }
}

/// The names of libraries in what `readelf -d` prints; none of a static program.
fn needed(readelf: &str) -> impl Iterator<Item = &str> {
    readelf
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .filter_map(|line| line.split_once('[')?.1.split_once(']'))
        .map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_readelf() {
        let said = "Dynamic section at offset 0xfd58 contains 29 entries:\n\
                    \x20 Tag        Type                         Name/Value\n \
                    0x0000000000000001 (NEEDED)             Shared library: [libmnl.so.0]\n \
                    0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]\n \
                    0x000000000000000c (INIT)               0x4000\n";
        assert_eq!(needed(said).collect::<Vec<_>>(), ["libmnl.so.0", "libc.so.6"]);
        assert_eq!(needed("There is no dynamic section in this file.\n").count(), 0);
    }
}
