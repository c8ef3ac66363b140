//! Abandoned namespaces, recognized by their names.
//!
//! A namespace's name ends in `PID-N`: the process that owns it, and a number for each of its
//! testbeds. If no process has that id, nothing else will remove the namespace: even its guard was
//! killed. A namespace whose process is alive is never touched.

use crate::guard::Guard;
use crate::namespace::DIRECTORY;
use anyhow::Result;
use std::fs;
use std::path::Path;

/// How the names of the namespaces of a [bed](crate::bed) begin.
pub(crate) const PREFIXES: [&str; 4] = ["nrw-cli-", "nrw-shp-", "nrw-srv-", "nrw-far-"];
/// And of a [diamond](crate::diamond), in the order of its nodes.
pub(crate) const OF_DIAMONDS: [&str; 6] =
    ["nrw-west-", "nrw-left-", "nrw-fast-", "nrw-slow-", "nrw-right-", "nrw-east-"];
/// And of a [website](crate::web): the client's, the balancer's, and those of its servers.
pub(crate) const OF_WEBSITES: [&str; 6] =
    ["nrw-users-", "nrw-balancer-", "nrw-web1-", "nrw-web2-", "nrw-web3-", "nrw-web4-"];

/// And of a [switch](crate::wires), and of a box of a [fleet](crate::fleet) without traffic.
pub(crate) const OF_SWITCH: &str = "nrw-wires-";
pub(crate) const OF_BOX: &str = "nrw-box-";

/// Removes the namespaces of ended processes, with all processes that still run in them. Returns
/// their names.
pub fn sweep() -> Result<Vec<String>> {
    let Ok(entries) = fs::read_dir(DIRECTORY) else {
        return Ok(Vec::new()); // no namespace was ever named here
    };
    let names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| is_stale(name, |pid| Path::new(&format!("/proc/{pid}")).exists()))
        .collect();
    if !names.is_empty() {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        drop(Guard::over(&names)?);
    }
    Ok(names)
}

fn is_stale(name: &str, lives: impl Fn(u32) -> bool) -> bool {
    let of_fleets = [OF_SWITCH, OF_BOX];
    let mut prefixes = PREFIXES.iter().chain(&OF_DIAMONDS).chain(&OF_WEBSITES).chain(&of_fleets);
    prefixes
        .find_map(|prefix| name.strip_prefix(prefix))
        .and_then(|tag| tag.split('-').next()?.parse().ok())
        .is_some_and(|pid| !lives(pid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_names_of_dead_processes_are_stale() {
        let lives = |pid| pid == 7;
        assert!(is_stale("nrw-cli-8-0", lives));
        assert!(is_stale("nrw-shp-8", lives));
        assert!(is_stale("nrw-left-8-3", lives));
        assert!(is_stale("nrw-web4-8-3", lives));
        assert!(!is_stale("nrw-srv-7-0", lives));
        assert!(!is_stale("nrw-srv-eight", lives));
        assert!(!is_stale("nrw-other-8", lives));
        assert!(!is_stale("blue", lives));
    }
}
