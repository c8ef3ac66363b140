//! Two ports and two ends: `client ══ port-a … port-b ══ server`. The ends are in namespaces of
//! their own, the ports in the initial one, as on a real machine.

use crate::qemu::MACS;
use anyhow::{Context, Result, bail};
use narrows_testbed::{Namespace, process};
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// The ports.
pub const PORTS: [&str; 2] = ["port-a", "port-b"];
/// How long a device may take to appear.
const APPEAR: Duration = Duration::from_secs(10);
/// The VLAN of both ends.
pub const VLAN: u16 = 7;
/// Offloads that produce frames which no wire could carry: without a checksum, larger than the MTU,
/// or with their tag beside them.
const OFFLOADS: [[&str; 2]; 5] =
    [["tx", "off"], ["tso", "off"], ["gso", "off"], ["gro", "off"], ["txvlan", "off"]];

/// The source or destination of traffic.
#[derive(Clone, Debug)]
pub struct End {
    /// Its namespace.
    pub namespace: Namespace,
    /// Its address.
    pub ip: Ipv4Addr,
    /// Its address inside the VLAN.
    pub tagged_ip: Ipv4Addr,
    /// Its device.
    pub device: &'static str,
}

impl End {
    /// Has its device send only what a wire can carry.
    pub fn switch_offloads_off(&self) {
        // Drivers support different subsets.
        for pair in OFFLOADS {
            let _ = self.namespace.run("ethtool", &[&["-K", self.device], &pair[..]].concat());
        }
    }

    /// Sets its device up, with its addresses. The device is in its namespace already.
    pub fn set_up(&self) -> Result<()> {
        let Self { namespace, ip, tagged_ip, device } = self;
        self.switch_offloads_off();
        let vlan = format!("{device}.{VLAN}");
        let id = VLAN.to_string();
        let tagged = ["link", "add", "link", device, "name", &vlan, "type", "vlan", "id", &id];
        for words in [
            &["link", "set", "lo", "up"][..],
            &["link", "set", device, "up"],
            &["addr", "add", &format!("{ip}/24"), "dev", device],
            &tagged,
            &["link", "set", &vlan, "up"],
            &["addr", "add", &format!("{tagged_ip}/24"), "dev", &vlan],
        ] {
            namespace.run("ip", words)?;
        }
        Ok(())
    }
}

/// Ports and ends.
#[derive(Debug)]
pub struct Bed {
    /// Client and server.
    pub ends: [End; 2],
    driver: String,
}

impl Bed {
    /// Finds the devices, names them, and sets the ends up.
    pub fn up(driver: &str) -> Result<Self> {
        let ends = [("client", 1), ("server", 2)].map(|(device, number)| {
            anyhow::Ok(End {
                namespace: Namespace::create(&format!("nrw-{device}"))?,
                ip: Ipv4Addr::new(198, 18, 0, number),
                tagged_ip: Ipv4Addr::new(198, 18, 7, number),
                device,
            })
        });
        let [client, server] = ends;
        let bed = Self { ends: [client?, server?], driver: driver.to_owned() };
        for (end, port) in [0, 1].into_iter().zip(PORTS) {
            if bed.has_hardware() {
                let [end_mac, port_mac] = [[MACS[0], MACS[1]], [MACS[3], MACS[2]]][end];
                adopt(end_mac, bed.ends[end].device)?;
                let names = ["link", "set", bed.ends[end].device, "netns"];
                ip(&[&names[..], &[bed.ends[end].namespace.name()]].concat())?;
                adopt(port_mac, port)?;
                ip(&["link", "set", port, "up"])?;
                bed.ends[end].set_up()?;
            } else {
                bed.cable(end)?;
            }
        }
        Ok(bed)
    }

    /// Whether the ports are devices on a bus.
    pub fn has_hardware(&self) -> bool {
        self.driver != "veth"
    }

    /// Lays the cable of a veth between an end and its port.
    fn cable(&self, end: usize) -> Result<()> {
        let End { namespace, device, .. } = &self.ends[end];
        let queues = ["numtxqueues", "2", "numrxqueues", "2"];
        ip(&[
            &["link", "add", PORTS[end]][..],
            &queues,
            &["type", "veth", "peer", "name", device, "netns", namespace.name()],
            &queues,
        ]
        .concat())?;
        run(&["ethtool", "-K", PORTS[end], "tx", "off"])?;
        ip(&["link", "set", PORTS[end], "up"])?;
        self.ends[end].set_up()
    }

    /// Sets a new MTU on both ends and, by `ports`, on the ports.
    pub fn set_mtu(&self, mtu: u32, ports: impl FnOnce(&str) -> Result<()>) -> Result<()> {
        let mtu = mtu.to_string();
        for End { namespace, device, .. } in &self.ends {
            namespace.run("ip", &["link", "set", device, "mtu", &mtu])?;
        }
        let [a, b] = PORTS;
        ports(&format!("ip link set {a} mtu {mtu} && ip link set {b} mtu {mtu}"))
    }

    /// Removes the first port as unbinding its driver does, calls `gone`, and brings it back.
    pub fn lose_port(&self, gone: impl FnOnce() -> Result<()>) -> Result<()> {
        if !self.has_hardware() {
            ip(&["link", "del", PORTS[0]])?;
            gone()?;
            return self.cable(0);
        }
        let device = fs::canonicalize(format!("/sys/class/net/{}/device", PORTS[0]))?;
        let driver = fs::canonicalize(device.join("driver"))?;
        let name = device.file_name().context("a device has a name")?.as_encoded_bytes().to_vec();
        fs::write(driver.join("unbind"), &name).context("cannot unbind the driver")?;
        let seen = gone();
        fs::write(driver.join("bind"), &name).context("cannot bind the driver again")?;
        adopt(MACS[1], PORTS[0])?;
        ip(&["link", "set", PORTS[0], "up"])?;
        seen
    }

    /// The maximum number of queue pairs of a port.
    pub fn most_queues(&self) -> Option<u32> {
        let said = run(&["ethtool", "-l", PORTS[0]]).ok()?;
        most_combined(&said)
    }

    /// The length of the RX ring of the first port, if its driver reports it.
    pub fn rx_ring(&self) -> Option<Ring> {
        Ring::parse(&run(&["ethtool", "-g", PORTS[0]]).ok()?)
    }

    /// The command that gives both ports `count` queue pairs. Their peers, if any, are changed
    /// first: a veth with a program accepts no more transmit queues than it can receive from.
    pub fn queues_command(&self, count: u32) -> String {
        let [a, b] = PORTS;
        if self.has_hardware() {
            return format!("ethtool -L {a} combined {count} && ethtool -L {b} combined {count}");
        }
        let [client, server] = self.ends.each_ref().map(|End { namespace, device, .. }| {
            format!("ip netns exec {} ethtool -L {device}", namespace.name())
        });
        [client, server, format!("ethtool -L {a}"), format!("ethtool -L {b}")]
            .map(|command| format!("{command} rx {count} tx {count}"))
            .join(" && ")
    }
}

/// The length of a card's RX ring, in frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// The present length.
    pub now: u32,
    /// The maximum length.
    pub most: u32,
}

impl Ring {
    /// What `ethtool -g` prints.
    fn parse(said: &str) -> Option<Self> {
        let (maxima, current) = said.split_once("Current")?;
        let [now, most] = [current, maxima].map(|text| number(text, "RX:"));
        Some(Self { now: now?, most: most? }).filter(|ring| ring.most > 0)
    }
}

/// The pre-set maximum in the output of `ethtool -l`, of pairs or of RX queues.
fn most_combined(said: &str) -> Option<u32> {
    let maxima = said.split("Current").next()?;
    number(maxima, "Combined:").filter(|count| *count > 0).or_else(|| number(maxima, "RX:"))
}

/// The number after `name`, at the beginning of a line of `ethtool`'s output.
fn number(said: &str, name: &str) -> Option<u32> {
    said.lines().find_map(|line| line.trim().strip_prefix(name))?.trim().parse().ok()
}

/// Waits for the device with this address and gives it a name.
fn adopt(mac: &str, name: &str) -> Result<()> {
    let begin = Instant::now();
    loop {
        if let Some(found) = by_address(mac) {
            if found != name {
                let _ = ip(&["link", "set", &found, "down"]);
                ip(&["link", "set", &found, "name", name])?;
            }
            return Ok(());
        }
        if begin.elapsed() > APPEAR {
            bail!("no device with the address {mac}");
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// The card with this address. A VLAN or a bridge with the same address does not count.
fn by_address(mac: &str) -> Option<String> {
    let entries = fs::read_dir("/sys/class/net").ok()?.flatten();
    let mut cards = entries.map(|entry| entry.path()).filter(|path| path.join("device").exists());
    let has = |path: &Path| {
        fs::read_to_string(path.join("address")).is_ok_and(|address| address.trim() == mac)
    };
    cards.find(|path| has(path))?.file_name()?.to_str().map(str::to_owned)
}

/// Runs `ip` in the first namespace.
pub fn ip(words: &[&str]) -> Result<String> {
    process::run(Command::new("ip").args(words))
}

/// Runs any program in the first namespace.
pub fn run(words: &[&str]) -> Result<String> {
    let (program, arguments) = words.split_first().context("no program")?;
    process::run(Command::new(program).args(arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_has_a_present_and_a_greatest_length() {
        let igb = "Ring parameters for port-a:\nPre-set maximums:\nRX:\t\t\t4096\n\
                   RX Mini:\t\tn/a\nTX:\t\t\t4096\nCurrent hardware settings:\n\
                   RX:\t\t\t256\nRX Mini:\t\tn/a\nTX:\t\t\t256\n";
        assert_eq!(Ring::parse(igb), Some(Ring { now: 256, most: 4096 }));
        assert_eq!(Ring::parse("netlink error: Operation not supported\n"), None);
        assert_eq!(Ring::parse(&igb.replace("4096", "0")), None);
    }

    #[test]
    fn the_most_queues_are_the_preset_maximum() {
        let igb = "Channel parameters for eth0:\nPre-set maximums:\nRX:\t\tn/a\nTX:\t\tn/a\n\
                   Other:\t\t1\nCombined:\t8\nCurrent hardware settings:\nCombined:\t2\n";
        assert_eq!(most_combined(igb), Some(8));
        let veth = "Channel parameters for port-a:\nPre-set maximums:\nRX:\t\t2\nTX:\t\t2\n\
                    Other:\t\tn/a\nCombined:\t0\nCurrent hardware settings:\nRX:\t\t1\n";
        assert_eq!(most_combined(veth), Some(2));
        assert_eq!(most_combined("netlink error: Operation not supported\n"), None);
    }
}
