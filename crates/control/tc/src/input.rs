//! Files that somebody else may have put where a policy is expected.
//!
//! A process that forwards packets must not wait for a file, nor fill its memory with one. So only
//! regular files are read, without waiting, up to a limit.

use std::fs::{FileType, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// The largest file that is read: the policy of half a million subscribers.
pub const INPUT_MAX: u64 = 256 << 20;

/// Reads the regular file at `path`, of at most [`INPUT_MAX`] bytes. Never waits for another
/// process.
///
/// # Errors
/// If it cannot be read, is something else than a file, or is larger.
pub fn read_input(path: &Path) -> io::Result<Vec<u8>> {
    read_up_to(path, INPUT_MAX)
}

fn read_up_to(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let facts = file.metadata()?;
    if !facts.is_file() {
        let what = format!("it is {}, not a file", name(facts.file_type()));
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let what = format!("it is larger than {} MiB", most >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(bytes)
}

fn name(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_dir() => "a folder",
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;
    use std::process::Command;

    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            let path = std::env::temp_dir().join(format!("nrw-input-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn only_regular_files_up_to_the_limit_are_read() {
        let folder = Folder::new();
        let at = |name: &str| folder.0.join(name);
        let refused = |path: &Path| read_up_to(path, 1 << 20).unwrap_err().to_string();
        fs::write(at("file"), b"some \xff text").unwrap();
        assert_eq!(read_up_to(&at("file"), 11).unwrap(), b"some \xff text");
        assert!(read_up_to(&at("file"), 10).is_err());
        // Sparse, and larger than the machine's memory.
        fs::File::create(at("huge")).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(refused(&at("huge")), "it is larger than 1 MiB");
        assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        assert_eq!(refused(&at("pipe")), "it is a pipe, not a file");
        let _listener = UnixListener::bind(at("socket")).unwrap();
        assert!(read_up_to(&at("socket"), 1).is_err());
        assert_eq!(refused(&folder.0), "it is a folder, not a file");
        assert_eq!(refused(Path::new("/dev/zero")), "it is a device, not a file");
        std::os::unix::fs::symlink(at("loop"), at("loop")).unwrap();
        assert!(read_up_to(&at("loop"), 1).is_err());
        assert_eq!(read_up_to(&at("none"), 1).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
