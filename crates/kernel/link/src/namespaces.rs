//! The network namespaces that can be found: the named ones (`ip netns`), and those of running
//! processes (containers).
//!
//! One that is only mounted elsewhere, without any process in it, is not found.

use narrows_escape::shell;
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Their files, each with the beginning of a command that runs in the namespace. Those of processes
/// come after those with a name, and the same namespace may come several times.
pub(crate) fn files() -> impl Iterator<Item = (PathBuf, String)> {
    let named = entries("/run/netns").map(|path| {
        let prefix = format!("ip netns exec {} ", shell(&last(&path)));
        (path, prefix)
    });
    let of_processes = entries("/proc")
        .filter(|path| last(path).parse::<u32>().is_ok())
        .map(|path| (path.join("ns/net"), format!("nsenter -t {} -n ", last(&path))));
    named.chain(of_processes)
}

/// Their inode numbers. The kernel gives the number of one that is gone to another one.
pub fn inodes() -> HashSet<u64> {
    files().filter_map(|(path, _)| fs::metadata(path).ok()).map(|file| file.ino()).collect()
}

fn entries(directory: &str) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path())
}

fn last(path: &Path) -> std::borrow::Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_of_this_process_is_found() {
        let own = fs::metadata("/proc/self/ns/net").unwrap().ino();
        assert!(inodes().contains(&own));
    }
}
