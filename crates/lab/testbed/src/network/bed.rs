//! The testbed: three namespaces and two cables; or four in a row, with room for a delay between
//! the client and the shaper.

use crate::guard::Guard;
use crate::namespace::Namespace;
use crate::requirements::{self, ETHTOOL, IP};
use crate::{process, stale};
use anyhow::{Context, Result};
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The client's device.
pub const CLIENT: &str = "cli0";
/// The shaper's device that faces the client.
pub const PORT_A: &str = "port-a";
/// The shaper's device that faces the server.
pub const PORT_B: &str = "port-b";
/// The server's device.
pub const SERVER: &str = "srv0";

/// The device between client and shaper that faces the client, if there is one.
pub const FAR_A: &str = "far-a";
/// The device that faces the shaper.
pub const FAR_B: &str = "far-b";

/// The client's address. Both addresses are in RFC 2544's range for benchmarks.
pub const CLIENT_IP: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// The server's address.
pub const SERVER_IP: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);

/// The client's MAC address.
pub const CLIENT_MAC: [u8; 6] = [0x02, b'n', b'r', b'w', 0, 1];
/// The server's MAC address.
pub const SERVER_MAC: [u8; 6] = [0x02, b'n', b'r', b'w', 0, 2];
/// An unused MAC address. A frame to it is forwarded like any other, counted by the server's device
/// and then discarded, which is the cheapest way to receive it.
pub const SINK_MAC: [u8; 6] = [0x02, b'n', b'r', b'w', 0, 3];

/// The default number of queues per device.
pub const QUEUES: u32 = 4;

/// Offloads that produce frames which no wire could carry: without a checksum, or larger than the
/// MTU.
pub(crate) const OFFLOADS: [&str; 10] =
    ["tx", "off", "tso", "off", "gso", "off", "gro", "off", "sg", "off"];

/// Numbers the testbeds of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// One end of the bed: the source or destination of traffic.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// Its namespace.
    pub namespace: &'a Namespace,
    /// Its device.
    pub device: &'static str,
    /// Its address.
    pub ip: Ipv4Addr,
}

impl End<'_> {
    /// Makes its peer send what XDP programs redirect to it, or not: a `veth` does only while its
    /// peer polls (NAPI), as it does with GRO on.
    pub fn take_redirected(&self, does: bool) -> Result<()> {
        let state = if does { "on" } else { "off" };
        self.namespace.run("ethtool", &["-K", self.device, "gro", state]).map(drop)
    }
}

/// Three namespaces in a row, ready for traffic as soon as something forwards in the middle.
/// Removed when dropped, or when this process ends in any other way.
#[derive(Debug)]
pub struct Testbed {
    client: Namespace,
    shaper: Namespace,
    server: Namespace,
    far: Option<Namespace>,
    queues: u32,
    // Last, so that it is dropped after everything above.
    _guard: Guard,
}

impl Testbed {
    /// Builds a testbed whose devices have `queues` queues each, after sweeping away
    /// [what is stale](crate::stale).
    pub fn up(queues: u32) -> Result<Self> {
        Self::build(queues, false)
    }

    /// Builds a testbed with a namespace between client and shaper, in which something must
    /// forward, too.
    pub fn distant(queues: u32) -> Result<Self> {
        Self::build(queues, true)
    }

    fn build(queues: u32, is_distant: bool) -> Result<Self> {
        requirements::check(&[IP, ETHTOOL])?;
        stale::sweep()?;
        let tag = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let names = stale::PREFIXES.map(|prefix| format!("{prefix}{tag}"));
        let used = if is_distant { &names[..] } else { &names[..3] };
        let guard = Guard::over(&used.iter().map(String::as_str).collect::<Vec<_>>())?;
        let [client, shaper, server, far] = &names;
        let far = is_distant.then(|| Namespace::create(far)).transpose()?;
        let bed = Self {
            client: Namespace::create(client)?,
            shaper: Namespace::create(shaper)?,
            server: Namespace::create(server)?,
            far,
            queues,
            _guard: guard,
        };
        bed.quieten()?;
        bed.connect()?;
        Ok(bed)
    }

    /// Makes the ports send what XDP programs redirect to them, or not.
    pub fn take_redirected(&self, does: bool) -> Result<()> {
        self.ends().iter().try_for_each(|end| end.take_redirected(does))
    }

    /// Makes the shaper's box the server, as far as the client can tell: [`PORT_A`] gets the
    /// server's addresses, and nothing has to forward.
    pub fn serve_at_the_port(&self) -> Result<()> {
        let [client_mac, server_mac] = [CLIENT_MAC, SERVER_MAC].map(written);
        batch(
            &["-n", self.shaper.name()],
            &format!(
                "link set {PORT_A} address {server_mac}\n\
                 addr add {SERVER_IP}/24 dev {PORT_A}\n\
                 neigh replace {CLIENT_IP} lladdr {client_mac} dev {PORT_A} nud permanent\n"
            ),
        )
    }

    /// Makes the shaper's box the client, as far as the server can tell: [`PORT_B`] gets the
    /// client's addresses. Its stack sends super-packets, which are cut into frames behind its
    /// queues: so the server's device counts what a wire would carry.
    pub fn send_from_the_port(&self) -> Result<End<'_>> {
        let [client_mac, server_mac] = [CLIENT_MAC, SERVER_MAC].map(written);
        batch(
            &["-n", self.shaper.name()],
            &format!(
                "link set {PORT_B} address {client_mac}\n\
                 addr add {CLIENT_IP}/24 dev {PORT_B}\n\
                 neigh replace {SERVER_IP} lladdr {server_mac} dev {PORT_B} nud permanent\n"
            ),
        )?;
        self.shaper.run("ethtool", &["-K", PORT_B, "tx", "on", "sg", "on", "gso", "on"])?;
        Ok(End { namespace: &self.shaper, device: PORT_B, ip: CLIENT_IP })
    }

    /// The source of traffic.
    pub fn client(&self) -> &Namespace {
        &self.client
    }

    /// Where the forwarder under test runs, between [`PORT_A`] and [`PORT_B`].
    pub fn shaper(&self) -> &Namespace {
        &self.shaper
    }

    /// The destination of traffic.
    pub fn server(&self) -> &Namespace {
        &self.server
    }

    /// The namespace between client and shaper of a [distant](Self::distant) bed: its ports are
    /// [`FAR_A`] and [`FAR_B`].
    pub fn far(&self) -> Option<&Namespace> {
        self.far.as_ref()
    }

    /// Client and server.
    pub fn ends(&self) -> [End<'_>; 2] {
        [
            End { namespace: &self.client, device: CLIENT, ip: CLIENT_IP },
            End { namespace: &self.server, device: SERVER, ip: SERVER_IP },
        ]
    }

    /// Queues of each device.
    pub fn queues(&self) -> u32 {
        self.queues
    }

    /// Prevents the kernel from sending anything on its own, before there is a device to send on: a
    /// test counts every frame.
    fn quieten(&self) -> Result<()> {
        for namespace in [&self.client, &self.shaper, &self.server].into_iter().chain(&self.far) {
            // A kernel without IPv6 is quiet already.
            for scope in ["all", "default"] {
                let _ = namespace.set(&format!("ipv6.conf.{scope}.disable_ipv6"), "1");
            }
        }
        Ok(())
    }

    fn connect(&self) -> Result<()> {
        let n = self.queues;
        let (cli, shp, srv) = (self.client.name(), self.shaper.name(), self.server.name());
        let [client_mac, server_mac] = [CLIENT_MAC, SERVER_MAC].map(written);
        let queues = format!("numtxqueues {n} numrxqueues {n}");
        let client = format!("link add name {CLIENT} netns {cli} address {client_mac} {queues}");
        let to_client = match &self.far {
            None => format!("{client} type veth peer name {PORT_A} netns {shp} {queues}\n"),
            Some(far) => format!(
                "{client} type veth peer name {FAR_A} netns {far} {queues}\n\
                 link add name {FAR_B} netns {far} {queues} type veth \
                 peer name {PORT_A} netns {shp} {queues}\n",
                far = far.name()
            ),
        };
        batch(
            &[],
            &format!(
                "{to_client}\
                 link add name {PORT_B} netns {shp} {queues} type veth \
                 peer name {SERVER} netns {srv} address {server_mac} {queues}\n"
            ),
        )?;
        let mut devices = vec![
            (&self.client, CLIENT),
            (&self.shaper, PORT_A),
            (&self.shaper, PORT_B),
            (&self.server, SERVER),
        ];
        devices.extend(self.far.iter().flat_map(|far| [(far, FAR_A), (far, FAR_B)]));
        for (namespace, device) in devices {
            let arguments: Vec<&str> = ["-K", device].into_iter().chain(OFFLOADS).collect();
            namespace.run("ethtool", &arguments)?;
        }
        for (namespace, device, own, other, mac) in [
            (cli, CLIENT, CLIENT_IP, SERVER_IP, server_mac),
            (srv, SERVER, SERVER_IP, CLIENT_IP, client_mac),
        ] {
            batch(
                &["-n", namespace],
                &format!(
                    "link set lo up\n\
                     link set {device} up\n\
                     addr add {own}/24 dev {device}\n\
                     neigh replace {other} lladdr {mac} dev {device} nud permanent\n"
                ),
            )?;
        }
        if let Some(far) = &self.far {
            let lines = format!("link set lo up\nlink set {FAR_A} up\nlink set {FAR_B} up\n");
            batch(&["-n", far.name()], &lines)?;
        }
        batch(
            &["-n", shp],
            &format!("link set lo up\nlink set {PORT_A} up\nlink set {PORT_B} up\n"),
        )
    }
}

/// A MAC address as `ip` reads it.
pub fn written(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Runs `ip -batch` over `lines`.
pub(crate) fn batch(arguments: &[&str], lines: &str) -> Result<()> {
    process::run_with(Command::new("ip").args(arguments).args(["-batch", "-"]), lines)
        .with_context(|| format!("ip refused a line of\n{lines}"))
        .map(drop)
}

/// Runs a command of `ip` in a namespace, given in words.
pub(crate) fn ip(namespace: &Namespace, words: &str) -> Result<String> {
    let words: Vec<&str> = words.split_whitespace().collect();
    process::run(Command::new("ip").args(["-n", namespace.name()]).args(words))
}

/// Runs a kernel command in a namespace with `tc`, given in words.
pub fn tc(namespace: &Namespace, words: &str) -> Result<String> {
    let words: Vec<&str> = words.split_whitespace().collect();
    process::run(Command::new("tc").args(["-n", namespace.name()]).args(words))
}

/// Runs many of them at once, one a line.
pub fn tc_batch(namespace: &Namespace, lines: &str) -> Result<()> {
    let mut tc = Command::new("tc");
    process::run_with(tc.args(["-n", namespace.name(), "-batch", "-"]), lines).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_addresses_are_written_as_ip_reads_them() {
        assert_eq!(written(SERVER_MAC), "02:6e:72:77:00:02");
    }
}
