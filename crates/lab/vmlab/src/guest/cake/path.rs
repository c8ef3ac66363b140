//! The forwarders between client and server, and their limits.

use super::netlink::{ACK, CREATE, Conversation, attribute};
use crate::cake::{Load, ONE_WAY_MS, System};
use crate::root::NARROWS;
use anyhow::{Context, Result};
use narrows_testbed::bed::{CLIENT, PORT_B, SERVER, tc};
use narrows_testbed::bridge::Bridge;
use narrows_testbed::narrows::Instance;
use narrows_testbed::{Testbed, steering};
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::net::if_::if_nametoindex;
use std::net::Ipv4Addr;
use std::path::Path;

/// The number of queues of devices with several.
pub const QUEUES: u16 = 4;
/// The server's second address: another host.
pub const OTHER_IP: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 3);

/// `RTM_NEWQDISC`.
const NEW_QDISC: u16 = 36;
/// `TC_H_ROOT`.
const ROOT: u32 = u32::MAX;
/// `TCA_KIND` and `TCA_OPTIONS`.
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
/// `TCA_CAKE_BASE_RATE64`, in bytes per second.
const BASE_RATE: u16 = 2;
/// `TCA_CAKE_FLOW_MODE`, and its value for `dual-dsthost`.
const FLOW_MODE: u16 = 5;
const DUAL_DSTHOST: u32 = 6;

/// The beds: for the bridge, for Narrows with one queue, and for Narrows with several.
pub fn beds() -> Result<[Testbed; 3]> {
    let beds = [Testbed::up(QUEUES.into())?, Testbed::up(1)?, Testbed::up(QUEUES.into())?];
    for bed in &beds {
        prepare(bed)?;
    }
    steering::by_port(beds[0].shaper(), PORT_B, QUEUES)?;
    Ok(beds)
}

/// Adds the path's delay, gives the server its second address, and lets ports select queues.
///
/// `netem` delays at both ends, and so releases the sender's socket, as a real cable does. Without
/// it, a packet in the bridge's qdisc still counts as not sent: TCP holds back, and there is hardly
/// ever a backlog.
fn prepare(bed: &Testbed) -> Result<()> {
    let server = bed.server();
    for (namespace, device) in [(bed.client(), CLIENT), (server, SERVER)] {
        let netem = format!("netem limit 100000 delay {ONE_WAY_MS}ms");
        tc(namespace, &format!("qdisc replace dev {device} root {netem}"))?;
    }
    server.run("ip", &["addr", "add", &format!("{OTHER_IP}/24"), "dev", SERVER])?;
    // An acknowledgement for each segment: a delayed one would look like a queue.
    let route = format!("route change 198.18.0.0/24 dev {SERVER} quickack 1");
    server.run("ip", &route.split(' ').collect::<Vec<_>>())?;
    // A connection must not inherit metrics of an earlier one.
    bed.client().set("ipv4.tcp_no_metrics_save", "1")?;
    if bed.queues() > 1 {
        steering::by_port(bed.client(), CLIENT, QUEUES)?;
    }
    Ok(())
}

/// The beds with their forwarders.
pub struct Paths<'a> {
    kernel: (&'a Testbed, Bridge<'a>),
    one: (&'a Testbed, Instance),
    four: (&'a Testbed, Instance),
}

impl<'a> Paths<'a> {
    /// Starts all.
    pub fn over([kernel, one, four]: &'a [Testbed; 3]) -> Result<Self> {
        let start = |bed| Instance::start(bed, Path::new(NARROWS), &["--fail-closed"]);
        Ok(Self {
            kernel: (kernel, Bridge::over(kernel)?),
            one: (one, start(one)?),
            four: (four, start(four)?),
        })
    }

    /// Configures a system with a limit, as `load` needs it, without state of the previous one.
    pub fn shape(&self, system: System, limit: Option<u64>, load: Load) -> Result<&'a Testbed> {
        let by_hosts = matches!(load, Load::HostsTcp | Load::HostsUdp);
        match system {
            System::Bridge => self.linux(None, by_hosts),
            System::LinuxCake => self.linux(limit.map(|limit| ("cake", limit)), by_hosts),
            System::LinuxCakeMq => self.linux(limit.map(|limit| ("cake_mq", limit)), by_hosts),
            System::NarrowsOne => narrows(&self.one, limit, by_hosts),
            System::NarrowsFour => narrows(&self.four, limit, by_hosts),
        }
    }

    /// The options of both kinds by netlink: an older `tc` only supports `cake`.
    fn linux(&self, qdisc: Option<(&str, u64)>, by_hosts: bool) -> Result<&'a Testbed> {
        let bed = self.kernel.0;
        // There may be none.
        let _ = tc(bed.shaper(), &format!("qdisc del dev {PORT_B} root"));
        let Some((kind, limit)) = qdisc else { return Ok(bed) };
        let mut options = attribute(BASE_RATE, &(limit * 1_000_000 / 8).to_ne_bytes());
        if by_hosts {
            options.extend(attribute(FLOW_MODE, &DUAL_DSTHOST.to_ne_bytes()));
        }
        bed.shaper()
            .enter(|| {
                let index = if_nametoindex(PORT_B)?;
                let mut request = [0; 4].to_vec(); // family
                for word in [index, 0, ROOT, 0] {
                    request.extend(word.to_ne_bytes());
                }
                request.extend(attribute(KIND, format!("{kind}\0").as_bytes()));
                request.extend(attribute(OPTIONS, &options));
                Conversation::begin(NETLINK_ROUTE)?.ask(NEW_QDISC, ACK | CREATE, &request)
            })
            .with_context(|| format!("cannot add {kind}"))?;
        Ok(bed)
    }
}

fn narrows<'a>(
    (bed, instance): &(&'a Testbed, Instance),
    limit: Option<u64>,
    by_hosts: bool,
) -> Result<&'a Testbed> {
    let root = format!("qdisc replace dev {PORT_B} root");
    instance.tc(&format!("{root} noqueue"))?;
    if let Some(limit) = limit {
        let flows = if by_hosts { "dual-dsthost" } else { "" };
        instance.tc(&format!("{root} cake bandwidth {limit}mbit {flows}"))?;
    }
    Ok(bed)
}
