//! The testbed's requirements of the machine, checked before anything is changed.

use nix::unistd::geteuid;
use std::env;
use std::path::Path;

/// A program that the testbed calls, and the Debian package that brings it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tool {
    program: &'static str,
    package: &'static str,
}

/// Namespaces, devices and addresses.
pub const IP: Tool = Tool { program: "ip", package: "iproute2" };
/// Who is behind which port of a bridge.
pub const BRIDGE: Tool = Tool { program: "bridge", package: "iproute2" };
/// Qdiscs of the kernel.
pub const TC: Tool = Tool { program: "tc", package: "iproute2" };
/// Offloads, which a veth must not have here.
pub const ETHTOOL: Tool = Tool { program: "ethtool", package: "ethtool" };
/// Round trips.
pub const PING: Tool = Tool { program: "ping", package: "iputils-ping" };
/// TCP and UDP flows from real sockets.
pub const IPERF3: Tool = Tool { program: "iperf3", package: "iperf3" };
/// Which thread goes first.
pub const CHRT: Tool = Tool { program: "chrt", package: "util-linux" };
/// Sessions of their own.
pub const SETSID: Tool = Tool { program: "setsid", package: "util-linux" };
/// The kernel's packet filter.
pub const NFT: Tool = Tool { program: "nft", package: "nftables" };
/// Frames as they arrive, VLAN tags included.
pub const TCPDUMP: Tool = Tool { program: "tcpdump", package: "tcpdump" };
/// Routes from neighbours.
pub const BIRD: Tool = Tool { program: "bird", package: "bird2" };
/// A web server.
pub const NGINX: Tool = Tool { program: "nginx", package: "nginx" };
/// Messages between agents.
pub const NATS: Tool = Tool { program: "nats-server", package: "nats-server" };
/// Services of the kernel's balancer.
pub const IPVSADM: Tool = Tool { program: "ipvsadm", package: "ipvsadm" };
/// Requests of HTTP.
pub const WRK: Tool = Tool { program: "wrk", package: "wrk" };

/// Why the testbed cannot run here, with what to do about it.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Refusal {
    /// Namespaces and raw sockets are for root.
    #[error(
        "this makes network namespaces and raw sockets, which only root may: run it again with sudo"
    )]
    NotRoot,
    /// Programs are not installed.
    #[error("not installed: {programs}; on Debian or Ubuntu: apt-get install {packages}")]
    MissingTools {
        /// The programs, comma separated.
        programs: String,
        /// The packages that bring them, space separated.
        packages: String,
    },
}

/// Whether this process is root.
pub fn is_root() -> bool {
    geteuid().is_root()
}

/// Refuses without root or without one of `tools`.
pub fn check(tools: &[Tool]) -> Result<(), Refusal> {
    if !is_root() {
        return Err(Refusal::NotRoot);
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let installed =
        |tool: &Tool| env::split_paths(&path).any(|dir| is_file(&dir.join(tool.program)));
    match missing(tools, installed) {
        None => Ok(()),
        Some(refusal) => Err(refusal),
    }
}

fn is_file(path: &Path) -> bool {
    path.is_file()
}

fn missing(tools: &[Tool], installed: impl Fn(&Tool) -> bool) -> Option<Refusal> {
    let absent: Vec<&Tool> = tools.iter().filter(|tool| !installed(tool)).collect();
    if absent.is_empty() {
        return None;
    }
    let mut packages: Vec<&str> = absent.iter().map(|tool| tool.package).collect();
    packages.sort_unstable();
    packages.dedup();
    let programs: Vec<&str> = absent.iter().map(|tool| tool.program).collect();
    Some(Refusal::MissingTools { programs: programs.join(", "), packages: packages.join(" ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let refusal = missing(&[IP, TC, IPERF3], |tool| tool.program == "nothing").unwrap();
        assert_eq!(
            refusal.to_string(),
            "not installed: ip, tc, iperf3; on Debian or Ubuntu: apt-get install iperf3 iproute2"
        );
    }

    #[test]
    fn nothing_is_refused_where_everything_is_there() {
        assert_eq!(missing(&[IP, PING], |_| true), None);
    }
}
