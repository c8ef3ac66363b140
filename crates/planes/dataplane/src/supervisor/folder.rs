//! The folder of one supervisor: the socket where its processes report, and the policy file of
//! each.
//!
//! It is in that of the [control sockets](narrows_control::place), which only its owner may enter,
//! and is called after the process. So two supervisors in one network namespace have nothing in
//! common. What a killed one has left, the next one removes.

use narrows_control::place::file;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

/// How the names of these folders begin.
const PREFIX: &str = "keeper-";
/// The socket in it.
const SOCKET: &str = "notify";

/// The folder of this process. Removed with all that is in it when dropped.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Makes it in `parent`, and removes those that killed processes have left there.
    pub(super) fn make(parent: &Path) -> io::Result<Self> {
        clear(parent);
        let path = parent.join(format!("{PREFIX}{}", std::process::id()));
        DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    /// Where its socket is.
    pub(super) fn socket(&self) -> PathBuf {
        self.0.join(SOCKET)
    }

    /// Where the policy of the process that joins `ports` is.
    pub(super) fn policy(&self, ports: &[String]) -> PathBuf {
        file(&self.0, ports, "tc")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The next supervisor would remove it, too.
        let _ = fs::remove_dir_all(&self.0);
        if let Some(parent) = self.0.parent() {
            // Unless somebody else has a place in it.
            let _ = fs::remove_dir(parent);
        }
    }
}

/// Removes the folders in `parent` at whose socket nobody receives.
pub(crate) fn clear(parent: &Path) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    for folder in folders.map(|entry| entry.path()) {
        let socket = folder.join(SOCKET);
        let asked = UnixDatagram::unbound().and_then(|sender| sender.connect(&socket));
        // Without a socket it may be that of one that is just starting.
        if asked.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            let _ = fs::remove_dir_all(&folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_supervisor_left_is_removed_and_what_a_running_one_has_stays() {
        let parent = std::env::temp_dir().join(format!("nrw-folder-{}", std::process::id()));
        let [left, running] =
            ["left", "running"].map(|name| parent.join(format!("{PREFIX}{name}")));
        for folder in [&left, &running] {
            fs::create_dir_all(folder).unwrap();
        }
        drop(UnixDatagram::bind(left.join(SOCKET)).unwrap());
        let _receiver = UnixDatagram::bind(running.join(SOCKET)).unwrap();
        let own = Folder::make(&parent).unwrap();
        assert!(!left.exists() && running.exists() && own.0.exists());
        let policy = own.policy(&["veth1".to_owned()]);
        assert_eq!(policy.file_name().unwrap(), "veth1.tc");
        fs::write(&policy, "").unwrap();
        drop(own);
        assert_eq!(fs::read_dir(&parent).unwrap().count(), 1);
        fs::remove_dir_all(&parent).unwrap();
    }
}
