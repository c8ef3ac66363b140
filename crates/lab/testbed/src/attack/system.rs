//! The systems between the flood and the server, or in the server itself.

use super::placement::Cores;
use crate::Testbed;
use crate::bed::PORT_A;
use crate::bridge::Bridge;
use crate::narrows::Instance;
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Stdio;

/// The limit of each source, in packets per second: several times what the client sends.
const PER_SOURCE: u32 = 200_000;

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum System {
    /// A bridge, and no filter.
    Bridge,
    /// Narrows, and no filter.
    Unfiltered,
    /// A program at the ingress of the bridge's port that drops all UDP, in the driver: the least
    /// that a filter costs on this machine.
    DropXdp,
    /// nftables at the ingress of the bridge's port, with a set of the blocklist.
    Nftables,
    /// The blocklist in front of the workers.
    Blocklist,
    /// The blocklist in front of the XDP plane.
    BlocklistXdp,
    /// No filter, against invented sources.
    UnfilteredSpoofed,
    /// A rate for each source in front of the workers, against invented sources.
    PerSource,
    /// A rate for each source in front of the XDP plane, against invented sources.
    PerSourceXdp,
    /// The server itself is flooded, and has no filter.
    Server,
    /// It drops all UDP in its driver: the least that a filter costs.
    ServerDropXdp,
    /// It has nftables at the ingress of its port, with a set of the blocklist.
    ServerNftables,
    /// It has the blocklist in its driver.
    ServerBlocklist,
    /// The same, and what passes is received on the core of its processes.
    ServerBlocklistRps,
    /// It has no filter, against invented sources.
    ServerSpoofed,
    /// It has a rate for each source in its driver, against invented sources.
    ServerPerSource,
}

impl System {
    pub(super) const ALL: [Self; 16] = [
        Self::Bridge,
        Self::DropXdp,
        Self::Unfiltered,
        Self::Nftables,
        Self::Blocklist,
        Self::BlocklistXdp,
        Self::UnfilteredSpoofed,
        Self::PerSource,
        Self::PerSourceXdp,
        Self::Server,
        Self::ServerDropXdp,
        Self::ServerNftables,
        Self::ServerBlocklist,
        Self::ServerBlocklistRps,
        Self::ServerSpoofed,
        Self::ServerPerSource,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Bridge => "bridge",
            Self::DropXdp => "bridge, xdp drop",
            Self::Unfiltered => "narrows",
            Self::Nftables => "bridge, nftables blocklist",
            Self::Blocklist => "narrows, blocklist",
            Self::BlocklistXdp => "narrows xdp, blocklist",
            Self::UnfilteredSpoofed => "narrows, spoofed",
            Self::PerSource => "narrows, per source, spoofed",
            Self::PerSourceXdp => "narrows xdp, per source, spoofed",
            Self::Server => "server itself",
            Self::ServerDropXdp => "server itself, xdp drop",
            Self::ServerNftables => "server itself, nftables blocklist",
            Self::ServerBlocklist => "server itself, narrows blocklist",
            Self::ServerBlocklistRps => "server itself, narrows blocklist, rps",
            Self::ServerSpoofed => "server itself, spoofed",
            Self::ServerPerSource => "server itself, narrows per source, spoofed",
        }
    }

    /// Whether it handles spoofed sources.
    pub(super) fn is_spoofed(self) -> bool {
        use System::{PerSource, PerSourceXdp, ServerPerSource, ServerSpoofed, UnfilteredSpoofed};
        matches!(
            self,
            UnfilteredSpoofed | PerSource | PerSourceXdp | ServerSpoofed | ServerPerSource
        )
    }

    /// Whether the server itself is flooded, and nothing stands in front of it.
    pub(super) fn is_server(self) -> bool {
        use System::{
            ServerBlocklist, ServerBlocklistRps, ServerDropXdp, ServerNftables, ServerPerSource,
            ServerSpoofed,
        };
        matches!(
            self,
            Self::Server
                | ServerDropXdp
                | ServerNftables
                | ServerBlocklist
                | ServerBlocklistRps
                | ServerSpoofed
                | ServerPerSource
        )
    }
}

/// A system at work. It ends when dropped.
pub(super) enum Under<'a> {
    Bridge { _filter: Option<Instance>, _bridge: Bridge<'a> },
    Narrows(Box<Instance>),
    Server { _filter: Option<Box<Instance>> },
}

impl<'a> Under<'a> {
    /// Starts `system` over `bed`; the blocklist is `list`.
    pub(super) fn start(
        bed: &'a Testbed,
        system: System,
        program: &Path,
        list: &[Ipv4Addr],
        cores: Cores,
    ) -> Result<Self> {
        let core = cores.shaper.to_string();
        let narrows = |plane: &[&str]| {
            let words = [&["--fail-closed", "--cores", &core], plane].concat();
            let instance =
                Instance::start(bed, program, if plane.is_empty() { &words } else { plane })?;
            instance.tc(&format!("qdisc add dev {PORT_A} clsact"))?;
            Ok::<_, anyhow::Error>(instance)
        };
        // In the driver, as at a NIC.
        let xdp: &[&str] = &["--plane", "xdp", "--xdp", "native"];
        let server = |more: &[&str]| {
            let words = [&["run", "--port", PORT_A, "--xdp", "native"], more].concat();
            let instance = Instance::start_command(bed, program, &words)?;
            instance.tc(&format!("qdisc add dev {PORT_A} clsact"))?;
            Ok::<_, anyhow::Error>(instance)
        };
        let drop_udp =
            || Instance::start_in(bed.shaper(), program, &["bench", "drain", PORT_A, "--udp"]);
        Ok(match system {
            System::Server | System::ServerSpoofed => Self::Server { _filter: None },
            System::ServerDropXdp => Self::Server { _filter: Some(drop_udp()?.into()) },
            System::ServerNftables => {
                nftables(bed, list)?;
                Self::Server { _filter: None }
            }
            System::ServerBlocklist => {
                Self::Server { _filter: Some(block(server(&[])?, list)?.into()) }
            }
            System::ServerBlocklistRps => {
                let server = server(&["--rps", &cores.ends.to_string()])?;
                Self::Server { _filter: Some(block(server, list)?.into()) }
            }
            System::ServerPerSource => Self::Server { _filter: Some(limit(server(&[])?)?.into()) },
            System::Bridge => Self::Bridge { _filter: None, _bridge: Bridge::over(bed)? },
            System::DropXdp => {
                let bridge = Bridge::over(bed)?;
                Self::Bridge { _filter: Some(drop_udp()?), _bridge: bridge }
            }
            System::Nftables => {
                let bridge = Bridge::over(bed)?;
                nftables(bed, list)?;
                Self::Bridge { _filter: None, _bridge: bridge }
            }
            System::Unfiltered | System::UnfilteredSpoofed => Self::Narrows(narrows(&[])?.into()),
            System::Blocklist => Self::Narrows(block(narrows(&[])?, list)?.into()),
            System::PerSource => Self::Narrows(limit(narrows(&[])?)?.into()),
            System::BlocklistXdp => {
                bed.take_redirected(true)?;
                Self::Narrows(block(narrows(xdp)?, list)?.into())
            }
            System::PerSourceXdp => {
                bed.take_redirected(true)?;
                Self::Narrows(limit(narrows(xdp)?)?.into())
            }
        })
    }

    /// Narrows itself.
    pub(super) fn instance(&self) -> Option<&Instance> {
        match self {
            Self::Bridge { .. } | Self::Server { .. } => None,
            Self::Narrows(instance) => Some(instance),
        }
    }
}

/// Makes `instance` drop packets from the addresses in `list`.
pub(super) fn block(instance: Instance, list: &[Ipv4Addr]) -> Result<Instance> {
    let mut text = format!("create blocklist hash:ip maxelem {}\n", list.len());
    for address in list {
        let _ = writeln!(text, "add blocklist {address}");
    }
    feed(instance.command("set").arg("restore"), &text)?;
    let words = "ingress protocol ip pref 10 basic match ipset(blocklist src) action drop";
    instance.tc(&format!("filter add dev {PORT_A} {words}"))?;
    Ok(instance)
}

/// Makes `instance` limit each source.
pub(super) fn limit(instance: Instance) -> Result<Instance> {
    instance.tc(&format!(
        "filter add dev {PORT_A} ingress protocol ip pref 20 matchall action police pkts_rate \
         {PER_SOURCE} pkts_burst {PER_SOURCE} conform-exceed drop/continue per src newcomers 1000"
    ))?;
    Ok(instance)
}

/// A set of `list` in nftables, at the earliest hook there is.
fn nftables(bed: &Testbed, list: &[Ipv4Addr]) -> Result<()> {
    let mut text = format!(
        "add table netdev nrw\n\
         add set netdev nrw blocklist {{ type ipv4_addr; size {}; }}\n\
         add chain netdev nrw ingress {{ type filter hook ingress device {PORT_A} priority 0; }}\n\
         add rule netdev nrw ingress ip saddr @blocklist drop\n",
        list.len() * 2
    );
    for part in list.chunks(4096) {
        let each: Vec<String> = part.iter().map(Ipv4Addr::to_string).collect();
        let _ = writeln!(text, "add element netdev nrw blocklist {{ {} }}", each.join(", "));
    }
    feed(bed.shaper().command("nft").args(["-f", "-"]), &text)
        .context("nftables at the netdev hook is what this is held against")
}

/// Runs `command` with `text` on its standard input.
fn feed(command: &mut std::process::Command, text: &str) -> Result<()> {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(text.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{command:?}: {}", said.trim());
    Ok(())
}
