//! An archive for the kernel's initial root: cpio, "newc" format
//! (Documentation/driver-api/early-userspace/buffer-format.rst).

use std::collections::BTreeSet;
use std::path::Path;

/// File types in `mode`.
const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

/// An archive in memory. Concatenated archives are one archive.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    directories: BTreeSet<String>,
    entries: u32,
}

impl Archive {
    /// Adds a directory, and those above it.
    pub fn directory(&mut self, path: &str) {
        if path.is_empty() || self.directories.contains(path) {
            return;
        }
        self.parent(path);
        self.directories.insert(path.to_owned());
        self.entry(path, DIRECTORY | 0o755, &[]);
    }

    /// Adds an executable file.
    pub fn file(&mut self, path: &str, content: &[u8]) {
        self.parent(path);
        self.entry(path, FILE | 0o755, content);
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: &str, target: &str) {
        self.parent(path);
        self.entry(path, LINK | 0o777, target.as_bytes());
    }

    /// The archive with its end marker.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn parent(&mut self, path: &str) {
        if let Some(parent) = Path::new(path).parent().and_then(Path::to_str) {
            self.directory(parent);
        }
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let (links, no) = (1, 0);
        let fields = [
            self.entries,
            mode,
            no, // owner
            no, // group
            links,
            no, // time
            content.len() as u32,
            no, // device: two numbers
            no,
            no, // device that a node stands for: two numbers
            no,
            path.len() as u32 + 1,
            no, // checksum, which this format has not
        ];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(path.bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend(content);
        self.align();
    }

    /// Names and contents begin at multiples of four.
    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    #[test]
    fn cpio_lists_what_was_added_parents_first() {
        let mut archive = Archive::default();
        archive.file("usr/bin/tool", b"seven b");
        archive.link("bin", "usr/bin");
        archive.file("usr/bin/other", b"");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let Ok(mut cpio) = Command::new("cpio")
            .args(["--list", "--quiet"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
        else {
            println!("skipped: no cpio here");
            return;
        };
        cpio.stdin.take().unwrap().write_all(&bytes).unwrap();
        let output = cpio.wait_with_output().unwrap();
        let listed = String::from_utf8(output.stdout).unwrap();
        assert_eq!(listed, "usr\nusr/bin\nusr/bin/tool\nbin\nusr/bin/other\n");
    }
}
