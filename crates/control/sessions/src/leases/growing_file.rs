//! A file that its writer appends to, and now and then replaces by another one.
//!
//! *Non-goals.* What is in it, and which files come before it.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// How many bytes are read at once.
const CHUNK: usize = 1 << 18;

/// The file as it was opened, and how much of it was read.
#[derive(Debug)]
pub(super) struct GrowingFile {
    file: File,
    inode: u64,
    offset: u64,
}

impl GrowingFile {
    /// The file at `path`. Nothing of it is read yet.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let inode = file.metadata()?.ino();
        Ok(Self { file, inode, offset: 0 })
    }

    /// Whether the file that has its name now, with this `metadata`, is this one, and no shorter
    /// than what was read.
    pub(super) fn is_still(&self, metadata: &Metadata) -> bool {
        self.inode == metadata.ino() && self.offset <= metadata.len()
    }

    /// Brings what is new to `feed`, if there is more than what was read by this `metadata`: to
    /// look there costs less than to read. Returns whether there was some.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn read_new(
        &mut self,
        metadata: &Metadata,
        feed: impl FnMut(&[u8]),
    ) -> io::Result<bool> {
        Ok(self.offset < metadata.len() && self.read_on(feed)? > 0)
    }

    /// Brings what is new to `feed`. Returns how many bytes that was.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn read_on(&mut self, feed: impl FnMut(&[u8])) -> io::Result<u64> {
        let read = read_to_end(&mut self.file, feed)?;
        self.offset += read;
        Ok(read)
    }
}

/// Brings all that is left of `file` to `feed`, in pieces. Returns how many bytes that was.
///
/// # Errors
/// If it cannot be read.
pub(super) fn read_to_end(file: &mut File, mut feed: impl FnMut(&[u8])) -> io::Result<u64> {
    let mut chunk = vec![0; CHUNK];
    let mut total = 0;
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(total),
            read => {
                feed(&chunk[..read]);
                total += read as u64;
            }
        }
    }
}
