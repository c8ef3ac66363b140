//! Where the control sockets are.
//!
//! A folder per network namespace, and in it a file per instance, called after its ports. Where
//! that name would be too long for a socket, it has the first of them and how many more there are.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where the folders of all namespaces are.
pub const RUN_DIR: &str = "/run/narrows";
/// The longest name without its suffix: a socket's path has at most 107 bytes.
const STEM_MAX: usize = 64;
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
pub fn file(folder: &Path, ports: &[String], extension: &str) -> PathBuf {
    folder.join(format!("{}.{extension}", stem(ports)))
}

fn stem(ports: &[String]) -> String {
    let all = ports.join(",");
    match ports.split_first() {
        Some((first, rest)) if all.len() > STEM_MAX => format!("{first}+{}", rest.len()),
        _ => all,
    }
}

/// Whether a file called `stem` may be of an instance that has the port `dev`.
pub(crate) fn may_have(stem: &str, dev: &str) -> bool {
    // Names may have commas, too.
    stem.contains('+') || format!(",{stem},").contains(&format!(",{dev},"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_found_by_each_of_its_ports() {
        let ports: Vec<String> = (100..164).map(|vid| format!("enp1s0f0np0.{vid}")).collect();
        for some in [&ports[..2], &ports[..4], &ports[..]] {
            let stem = stem(some);
            assert!(stem.len() <= STEM_MAX, "{stem}");
            assert!(some.iter().all(|port| may_have(&stem, port)), "{stem}");
        }
        assert!(!may_have("eth1,eth2", "eth") && !may_have("eth1,eth2", "eth22"));
        assert!(may_have("a,b,c", "a,b"), "a port's name may have a comma");
    }
}
