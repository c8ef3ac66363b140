//! Where the control sockets are.
//!
//! They are found by name alone: a folder per network namespace, and in it a file per instance,
//! called after its ports.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where the folders of all namespaces are.
pub const RUN_DIR: &str = "/run/narrows";
/// The suffix of sockets.
pub const SOCKET: &str = "sock";

/// The folder of the network namespace that this process is in.
///
/// # Errors
/// If `/proc` does not tell which one that is.
pub fn folder() -> io::Result<PathBuf> {
    let namespace = std::fs::metadata("/proc/self/ns/net")?.ino();
    Ok(Path::new(RUN_DIR).join(format!("net-{namespace}")))
}

/// The file in `folder` with the suffix `extension`, of the instance that joins `ports`.
pub fn file(folder: &Path, ports: &[String; 2], extension: &str) -> PathBuf {
    folder.join(format!("{},{}.{extension}", ports[0], ports[1]))
}
