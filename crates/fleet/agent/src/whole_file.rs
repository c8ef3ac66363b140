//! Files that are written as a whole: what is there never has half of one, or the mode of another.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Writes the file at `path`, whose folder is there, with this `mode`. It stays after a loss of
/// power.
///
/// # Errors
/// If it cannot be written. It is as before then.
pub(crate) fn write(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let beside = path.with_extension("new");
    match std::fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        // Left by one that was interrupted.
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&beside, path)?;
    // The name is part of the folder's content.
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}
