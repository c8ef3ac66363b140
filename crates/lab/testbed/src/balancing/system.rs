//! The balancers that are compared.

use super::{SERVICE_PORT, addresses};
use crate::bed::{PORT_A, SERVER_IP};
use crate::narrows::Instance;
use crate::process;
use crate::requirements::{self, IPVSADM};
use crate::{Rounds, Testbed};
use anyhow::{Context, Result};
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Where IPVS lists its services, if the kernel has it.
const IPVS: &str = "/proc/net/ip_vs";
/// What each CPU has counted in a network namespace. The totals are two seconds old.
const IPVS_STATS: &str = "/proc/thread-self/net/ip_vs_stats_percpu";

/// How a server is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scheduler {
    /// By a hash of the client's address and port.
    Mh,
    /// In turns.
    Rr,
}

impl Scheduler {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Mh => "mh",
            Self::Rr => "rr",
        }
    }

    /// Its words in a line of a service.
    const fn words(self) -> &'static str {
        match self {
            Self::Mh => "mh -b mh-port",
            Self::Rr => "rr",
        }
    }
}

/// How packets reach a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    /// With another MAC address.
    Route,
    /// In an IP packet.
    Tunnel,
}

impl Way {
    pub(super) const fn option(self) -> &'static str {
        match self {
            Self::Route => "-g",
            Self::Tunnel => "-i",
        }
    }
}

/// A balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum System {
    /// None: a program of a few instructions sends frames back.
    XdpTx,
    /// The kernel's.
    Ipvs(Scheduler, Way),
    /// Narrows at a host's port.
    Narrows(Scheduler, Way),
}

impl System {
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let ways = || {
            let schedulers = [Scheduler::Mh, Scheduler::Rr].into_iter();
            schedulers.flat_map(|scheduler| [Way::Route, Way::Tunnel].map(|way| (scheduler, way)))
        };
        let ipvs = ways().map(|(scheduler, way)| Self::Ipvs(scheduler, way));
        let narrows = ways().map(|(scheduler, way)| Self::Narrows(scheduler, way));
        [Self::XdpTx].into_iter().chain(ipvs).chain(narrows)
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::XdpTx => "xdp-tx",
            Self::Ipvs(..) => "kernel-ipvs",
            Self::Narrows(..) => "narrows",
        }
    }

    /// What it does, if it balances.
    pub(super) const fn balances(self) -> Option<(Scheduler, Way)> {
        match self {
            Self::XdpTx => None,
            Self::Ipvs(scheduler, way) | Self::Narrows(scheduler, way) => Some((scheduler, way)),
        }
    }

    /// Why it cannot run here.
    pub(super) fn absent(self) -> Option<String> {
        let Self::Ipvs(..) = self else { return None };
        if !Path::new(IPVS).exists() {
            // What fails here shows in the next line.
            let _ =
                process::run(Command::new("modprobe").args(["-q", "ip_vs", "conn_tab_bits=20"]));
        }
        match Path::new(IPVS).exists() {
            false => Some("this kernel has no IPVS (module ip_vs)".to_owned()),
            true => requirements::check(&[IPVSADM]).err().map(|refusal| refusal.to_string()),
        }
    }

    /// Starts it in the middle of `bed`.
    pub(super) fn start<'a>(
        self,
        bed: &'a Testbed,
        servers: u16,
        options: &Rounds,
    ) -> Result<Running<'a>> {
        let program = &options.program;
        let lines = |(scheduler, way)| lines(scheduler, way, servers);
        Ok(match self {
            Self::XdpTx => {
                let words = ["bench", "verdict", PORT_A, "tx"];
                Running::XdpTx { _gives: Instance::start_command(bed, program, &words)? }
            }
            Self::Ipvs(scheduler, way) => {
                let mut ipvsadm = bed.shaper().command("ipvsadm");
                process::run_with(ipvsadm.arg("-R"), &lines((scheduler, way)))?;
                Running::Ipvs(bed)
            }
            Self::Narrows(scheduler, way) => {
                let words = ["run", "--port", PORT_A, "--xdp", "native"];
                let instance = Instance::start_command(bed, program, &words)?;
                let mut restore = instance.command("balance");
                process::run_with(restore.arg("restore"), &lines((scheduler, way)))?;
                Running::Narrows(instance)
            }
        })
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self.balances() {
            None => Ok(()),
            Some((scheduler, way)) => write!(f, " {} {}", scheduler.name(), way.option()),
        }
    }
}

/// The service and its servers, as `ipvsadm -R` and `narrows balance restore` read them.
fn lines(scheduler: Scheduler, way: Way, servers: u16) -> String {
    let service = format!("-t {SERVER_IP}:{SERVICE_PORT}");
    let mut lines = format!("-A {service} -s {}\n", scheduler.words());
    for server in addresses(servers) {
        lines.push_str(&format!("-a {service} -r {server}:{SERVICE_PORT} {}\n", way.option()));
    }
    lines
}

/// What runs; it ends when dropped, or with the bed.
pub(super) enum Running<'a> {
    XdpTx { _gives: Instance },
    Ipvs(&'a Testbed),
    Narrows(Instance),
}

impl Running<'_> {
    /// The packets that it has balanced, by its own account.
    pub(super) fn balanced(&self) -> Result<Option<u64>> {
        match self {
            Self::XdpTx { .. } => Ok(None),
            Self::Ipvs(bed) => {
                let text = bed.shaper().enter(|| Ok(fs::read_to_string(IPVS_STATS)?))?;
                parse(&text).map(Some).with_context(|| format!("{IPVS_STATS} is {text}"))
            }
            Self::Narrows(instance) => {
                let show = instance.show()?;
                let port = show.port(PORT_A).context("narrows show does not list the port")?;
                Ok(Some(port.balance.get("balanced").copied().unwrap_or(0)))
            }
        }
    }
}

/// The packets that came in: in hexadecimal, a line for each CPU below two of titles.
fn parse(stats: &str) -> Option<u64> {
    let lines = stats.lines().skip(2).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let of_cpus = lines.take_while(|words| words.first().is_some_and(|word| *word != "~"));
    let packets = of_cpus.map(|words| u64::from_str_radix(words.get(2)?, 16).ok());
    packets.reduce(|sum, one| Some(sum? + one?))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_read_the_same_lines() {
        assert_eq!(
            lines(Scheduler::Mh, Way::Tunnel, 1),
            "-A -t 198.18.0.2:80 -s mh -b mh-port\n-a -t 198.18.0.2:80 -r 198.19.0.1:80 -i\n"
        );
    }

    #[test]
    fn packets_are_the_sum_of_what_cpus_have_counted() {
        let stats = "       Total Incoming Outgoing         Incoming         Outgoing\n\
                     CPU    Conns  Packets  Packets            Bytes            Bytes\n  \
                     0        A       1F        0              7C0                0\n  \
                     1        0        1        0               40                0\n  \
                     ~        A       20        0              800                0\n\n";
        assert_eq!(parse(stats), Some(32));
        assert_eq!(parse(""), None);
    }
}
