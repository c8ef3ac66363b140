//! The ports of an instance, as the options of `narrows run` name them.

use clap::Args;
use narrows_forwarding::stick::Pair;
use narrows_forwarding::{Forwarding, ForwardingError, NoVlan};

/// The ports that an instance joins: two interfaces, VLANs of one, those of a router, a switch or a
/// host.
#[derive(Args)]
pub struct Joined {
    /// The two interfaces, separated by a comma.
    #[arg(
        long, value_name = "A,B", value_parser = parse_ports,
        required_unless_present_any = ["stick", "router", "switch", "port"],
        conflicts_with_all = ["stick", "vlans", "router", "switch", "port"],
    )]
    ports: Option<[String; 2]>,

    /// Join VLANs of this one interface ("router on a stick"). A frame of a VLAN leaves through the
    /// same interface with the tag of the other VLAN of its pair. Each VLAN is a port, and `tc`
    /// names it A.VID, such as eth1.100 (vlanVID, where that has more than 15 characters).
    #[arg(long, value_name = "A", requires = "vlans", conflicts_with_all = ["router", "switch", "port"])]
    stick: Option<String>,

    /// Pairs of VLANs for --stick, at most 32: a number is a VLAN of 802.1Q, and one with an s
    /// before it, such as s100, an outer VLAN of 802.1ad. Frames of other VLANs, and those without
    /// a tag, go to the kernel.
    #[arg(
        long, value_name = "X:Y", value_parser = parse_pair, value_delimiter = ',',
        requires = "stick",
    )]
    vlans: Vec<Pair>,

    /// Route between these interfaces: the kernel's routes, rules and neighbours say where a frame
    /// leaves, and whatever needs more than that goes to the kernel. Each interface is a port, and
    /// its VLANs are routed with it: one port is enough. When this process is gone, the kernel
    /// routes by itself (docs/router.md).
    #[arg(
        long, value_name = "A,B,C", value_delimiter = ',', conflicts_with_all = ["switch", "port"],
    )]
    router: Vec<String>,

    /// Switch between these interfaces: they are ports of one kernel bridge, which learns, ages,
    /// floods, and knows spanning tree and VLANs. Frames between stations that it knows leave in
    /// the driver, and all others through the bridge. Where there is none, Narrows makes one. It
    /// forwards by itself when this process is gone (docs/switch.md).
    #[arg(long, value_name = "A,B,C", value_delimiter = ',', conflicts_with = "port")]
    switch: Vec<String>,

    /// Protect this host itself: filters, sets and policers at the ingress of these interfaces, one
    /// or more, run in their drivers, and this host's own stack gets what they pass. What leaves is
    /// the kernel's. It runs in the plane `xdp`, and when this process is gone the kernel receives
    /// as without it (docs/attack.md). Services that it balances are answered at each of them, and
    /// the way to a server may lead through any (docs/balance.md).
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    port: Vec<String>,
}

impl Joined {
    /// How they are joined.
    pub fn forwarding(&self) -> Result<Forwarding, ForwardingError> {
        if !self.port.is_empty() {
            return Forwarding::host(&self.port);
        }
        match (&self.ports, &self.stick) {
            (Some([a, b]), _) => Forwarding::wire(a, b),
            (None, None) if self.router.is_empty() => Forwarding::switch(&self.switch),
            (None, None) => Forwarding::router(&self.router),
            (None, device) => Forwarding::stick(device.as_deref().unwrap_or(""), &self.vlans),
        }
    }
}

/// `eth1,eth2`.
pub fn parse_ports(text: &str) -> Result<[String; 2], String> {
    match text.split(',').collect::<Vec<_>>()[..] {
        [a, b] if !a.is_empty() && !b.is_empty() => Ok([a.to_owned(), b.to_owned()]),
        _ => Err("two interface names separated by a comma, such as eth1,eth2".to_owned()),
    }
}

/// `100:200`.
pub fn parse_pair(text: &str) -> Result<Pair, String> {
    let Some((one, other)) = text.split_once(':') else {
        return Err("two VLANs separated by a colon, such as 100:200".to_owned());
    };
    let tag = |word: &str| word.parse().map_err(|error: NoVlan| error.to_string());
    Ok((tag(one)?, tag(other)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        joined: Joined,
    }

    fn words(line: &str) -> Result<String, String> {
        let line = Line::try_parse_from(format!("narrows {line}").split_whitespace());
        let line = line.map_err(|error| error.to_string())?;
        Ok(line.joined.forwarding().map_err(|error| error.to_string())?.words())
    }

    #[test]
    fn ports_are_two_interfaces_or_vlans_of_one_or_those_of_a_router_a_switch_or_a_host() {
        for good in [
            "--ports a,b",
            "--stick a --vlans 100:200",
            "--stick a --vlans s1:2,3:s4",
            "--router a,b,c",
            "--router a",
            "--switch a,b,c",
            "--port a",
            "--port a,b",
        ] {
            assert_eq!(words(good).unwrap(), good);
        }
        for (wrong, why) in [
            ("", "--ports"),
            ("--ports a", "separated by a comma"),
            ("--ports a,b --stick c --vlans 1:2", "cannot be used with"),
            ("--stick a", "--vlans"),
            ("--vlans 1:2", "--stick"),
            ("--stick a --vlans 100", "separated by a colon"),
            ("--stick a --vlans 100:4095", "1 to 4094"),
            ("--stick a --vlans 1:2,2:3", "named twice"),
            ("--router a,b --ports c,d", "cannot be used with"),
            ("--router a,b,a", "named twice"),
            ("--switch a,b --router c,d", "cannot be used with"),
            ("--port a --ports b,c", "cannot be used with"),
            ("--port a --router b", "cannot be used with"),
            ("--port a,a", "named twice"),
            ("--switch a", "a switch has 2 to 64 ports"),
            ("--switch a,b,b", "named twice"),
        ] {
            let refusal = words(wrong).unwrap_err();
            assert!(refusal.contains(why), "{wrong}: {refusal}");
        }
    }
}
