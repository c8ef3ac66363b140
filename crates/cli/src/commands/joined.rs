//! The ports of an instance, as the options of `narrows run` name them.

use anyhow::bail;
use clap::Args;
use narrows_forwarding::pattern::{Pattern, is_pattern};
use narrows_forwarding::stick::Pair;
use narrows_forwarding::{Forwarding, NoVlan};

/// The ports that an instance joins: two interfaces, VLANs of one, those of a router, a switch or a
/// host.
#[derive(Args)]
pub struct Joined {
    /// The two interfaces, separated by a comma; with --plane host as many as there are, and
    /// patterns such as "veth*" or "tap?": each interface that one matches has an instance of its
    /// own, whenever it comes (docs/host.md).
    #[arg(
        long, value_name = "A,B", value_delimiter = ',',
        required_unless_present_any = ["stick", "router", "switch", "port"],
        conflicts_with_all = ["stick", "vlans", "router", "switch", "port"],
    )]
    ports: Vec<String>,

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

    /// With --plane host: those of the ports at which what arrives is shaped, too. Each gets an
    /// ifb while Narrows runs, a port called `ifb4` and its name, such as ifb4eth0, whose policy is
    /// for what arrives (docs/host.md).
    #[arg(
        long, value_name = "A,B", value_delimiter = ',',
        conflicts_with_all = ["stick", "router", "switch"],
    )]
    ifb: Vec<String>,
}

/// The ports of a host that shapes what it sends itself: names, and patterns of names.
pub struct Own {
    pub names: Vec<String>,
    pub patterns: Vec<Pattern>,
}

impl Joined {
    /// The names and patterns of --ports, if there is a pattern among them; then each interface has
    /// an instance of its own.
    pub fn patterns(&self) -> anyhow::Result<Option<Own>> {
        let (patterns, names): (Vec<String>, _) =
            self.ports.iter().cloned().partition(|word| is_pattern(word));
        if patterns.is_empty() {
            return Ok(None);
        }
        let patterns = patterns.iter().map(|word| word.parse()).collect::<Result<_, _>>()?;
        Ok(Some(Own { names, patterns }))
    }

    /// Whether what arrives is to be shaped, too.
    pub fn has_ifbs(&self) -> bool {
        !self.ifb.is_empty()
    }

    /// How they are joined. At a host that shapes what it sends itself, they are not.
    pub fn forwarding(&self, is_of_host: bool) -> anyhow::Result<Forwarding> {
        let all = [&self.ports, &self.router, &self.switch, &self.port, &self.ifb];
        let all = all.into_iter().flatten();
        if let Some(pattern) = all.chain(&self.stick).find(|word| is_pattern(word)) {
            bail!(
                "\"{pattern}\" is a pattern, and only --plane host --ports takes patterns: name the \
                 interfaces"
            );
        }
        if self.ports.iter().any(String::is_empty) {
            bail!("--ports: an interface has no name; separate them by commas, as in eth1,eth2");
        }
        if is_of_host {
            let ports = if self.port.is_empty() { &self.ports } else { &self.port };
            if ports.is_empty() {
                bail!(
                    "--plane host shapes what this host itself sends: name its interfaces with \
                     --ports, and leave out --stick, --router and --switch"
                );
            }
            return Ok(Forwarding::host(ports)?.with_ifbs(&self.ifb)?);
        }
        if !self.ifb.is_empty() {
            bail!("--ifb shapes what arrives for this host: add --plane host, or leave out --ifb");
        }
        Ok(match (&self.ports[..], &self.stick) {
            _ if !self.port.is_empty() => Forwarding::host(&self.port)?,
            ([a, b], _) => Forwarding::wire(a, b)?,
            ([], Some(device)) => Forwarding::stick(device, &self.vlans)?,
            ([], None) if self.router.is_empty() => Forwarding::switch(&self.switch)?,
            ([], None) => Forwarding::router(&self.router)?,
            _ => bail!(
                "--ports joins two interfaces, separated by a comma, such as eth1,eth2: use --router \
                 or --switch for more, and --plane host for what this host itself sends"
            ),
        })
    }
}

/// `eth1,eth2`.
pub fn parse_ports(text: &str) -> Result<[String; 2], String> {
    match text.split(',').collect::<Vec<_>>()[..] {
        [a, b] if !a.is_empty() && !b.is_empty() => {
            [a, b].into_iter().try_for_each(narrows_tc::check_device_name)?;
            if a == b {
                return Err(format!("both ports are \"{a}\": name two different interfaces"));
            }
            Ok([a.to_owned(), b.to_owned()])
        }
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
        Ok(line.joined.forwarding(false).map_err(|error| error.to_string())?.words())
    }

    #[test]
    fn the_ports_of_a_host_that_shapes_what_it_sends_are_as_many_as_there_are() {
        let of_host = |line: &str| {
            let line = Line::parse_from(format!("narrows {line}").split_whitespace());
            let forwarding = line.joined.forwarding(true).map_err(|error| error.to_string())?;
            Ok::<_, String>(forwarding.words())
        };
        assert_eq!(of_host("--ports a"), Ok("--port a".to_owned()));
        assert_eq!(of_host("--ports a,b,c"), Ok("--port a,b,c".to_owned()));
        assert_eq!(of_host("--port a"), Ok("--port a".to_owned()));
        assert!(of_host("--router a,b").unwrap_err().contains("leave out --stick, --router"));
        assert!(of_host("--ports a,").unwrap_err().contains("has no name"));
        assert_eq!(of_host("--ports a,b --ifb a"), Ok("--port a,b --ifb a".to_owned()));
        assert!(of_host("--ports a --ifb b").unwrap_err().contains("none of the ports"));
        assert!(words("--ports a,b --ifb a").unwrap_err().contains("add --plane host"));
    }

    #[test]
    fn patterns_are_told_from_names_and_only_for_what_this_host_sends() {
        let line = |line: &str| Line::parse_from(format!("narrows {line}").split_whitespace());
        let own = line("--ports eth0,veth*,tap?,eth1").joined.patterns().unwrap().unwrap();
        assert_eq!(own.names, ["eth0", "eth1"]);
        assert_eq!(own.patterns.iter().map(Pattern::as_str).collect::<Vec<_>>(), ["veth*", "tap?"]);
        assert!(line("--ports eth0").joined.patterns().unwrap().is_none());
        assert!(line("--ports a/*").joined.patterns().is_err());
        for wrong in ["--ports veth*,a", "--router a,veth*", "--switch a,b?", "--port veth*"] {
            let refusal = words(wrong).unwrap_err();
            assert!(refusal.contains("only --plane host --ports"), "{wrong}: {refusal}");
        }
        assert!(words("--stick a* --vlans 1:2").unwrap_err().contains("is a pattern"));
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
