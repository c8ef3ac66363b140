//! What the kernel's routing depends on besides routes: whether it forwards at all, which checks it
//! makes, which rules choose a table, and which addresses are this host's own.
//!
//! A router in XDP looks routes up by itself ([`crate::routes`]), or asks the kernel for a packet's
//! route (`bpf_fib_lookup`), and has to do what the kernel would have done. The helper answers only
//! one of the kernel's questions. It does not check sources, and it has a shorter way that is right
//! only under a condition ([`RoutingFacts::ipv4_direct`]). The answers to the others are here.
//!
//! * Everything comes over netlink, except the size of the table `local`. The settings of
//!   `/proc/sys/net` are read by index ([`DeviceRouting`]), so no name needs to be a file's.
//! * [`crate::LinkEvent::Routing`] and [`crate::LinkEvent::Addresses`] say when to read again.
//!
//! Non-goals: routes and neighbours; changing any of this.

use crate::address::local_addresses;
use crate::link::all;
use crate::netlink::{Request, dump, stream};
use crate::status::{each, u32_at};
use crate::{LinkError, LinkStatus};
use narrows_forwarding::Tag;
use std::fs;
use std::net::IpAddr;

const IPV4: u8 = libc::AF_INET as u8;
const IPV6: u8 = libc::AF_INET6 as u8;

const NETCONFA_IFINDEX: u16 = 1;
const NETCONFA_FORWARDING: u16 = 2;
const NETCONFA_RP_FILTER: u16 = 3;
/// The index that stands for all interfaces (`NETCONFA_IFINDEX_ALL`).
const ALL: u32 = u32::MAX;
/// `struct netconfmsg`, padded.
const NETCONF_HEADER: usize = 4;

const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_SUPPRESS_IFGROUP: u16 = 13;
const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
const FRA_TABLE: u16 = 15;
const FRA_PAD: u16 = 18;
const FRA_PROTOCOL: u16 = 21;
/// `FR_ACT_TO_TBL`: the rule names a table.
const TO_TABLE: u8 = 1;
/// `struct fib_rule_hdr`: family, lengths of prefixes, TOS, table, padding, action, flags.
const RULE_HEADER: usize = 12;

const LOCAL: u8 = libc::RT_TABLE_LOCAL;
const DEFAULT_RULES: [(u8, u32, u32); 5] = [
    (IPV4, 0, LOCAL as u32),
    (IPV4, 32766, libc::RT_TABLE_MAIN as u32),
    (IPV4, 32767, libc::RT_TABLE_DEFAULT as u32),
    (IPV6, 0, LOCAL as u32),
    (IPV6, 32766, libc::RT_TABLE_MAIN as u32),
];

const RTA_TABLE: u16 = 15;
/// `struct rtmsg`: family, lengths of prefixes, TOS, table, protocol, scope, type, flags.
const ROUTE_HEADER: usize = 12;

/// What routing by way of some devices depends on, at one time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RoutingFacts {
    /// The devices, in the order in which they were asked for.
    pub devices: Vec<DeviceRouting>,
    /// Their VLANs that are up, and belong to no bridge or the like.
    pub vlans: Vec<VlanRouting>,
    /// Whether the kernel forwards IPv6 at all (`net.ipv6.conf.all.forwarding`); none without
    /// IPv6. For IPv4, only the devices' own settings count.
    pub ipv6_forwarding: Option<bool>,
    /// The addresses of this host, of all interfaces, each once, in order. None of them may be the
    /// source of a packet that arrives.
    pub local: Vec<IpAddr>,
    /// The rules (`ip rule`) other than those that every namespace has.
    pub rules: Vec<Rule>,
    /// For IPv4 and for IPv6, whether the tables `local` and `main` are all that the kernel looks
    /// into: the rules are those that every namespace has, and there is no VRF.
    pub two_tables: [bool; 2],
    /// Whether the MTU of a path counts for IPv4 packets that are forwarded
    /// (`net.ipv4.ip_forward_use_pmtu`).
    pub ipv4_uses_path_mtu: bool,
    /// Whether `BPF_FIB_LOOKUP_DIRECT`, which looks into the table `main` only, finds the same IPv4
    /// route as the kernel does. Only true if that is proven, by three facts:
    ///
    /// * The tables `local` and `main` are in one, so that it finds this host's own addresses, too.
    ///   They are until the first rule is added or the first VRF is made, and never again. The
    ///   kernel does not say so. But `/proc/net/fib_triestat` counts more routes in `local` than a
    ///   listing of `local` has, namely those of `main`.
    /// * The rules are those that every namespace has, and there is no VRF.
    /// * The table `default`, which the kernel looks into last, has no route.
    ///
    /// A namespace without any route does not prove it, and a route in `default` that comes later
    /// disproves it without an event. There is no such thing for IPv6: its tables are never in one,
    /// so that the short way does not know this host's own addresses.
    pub ipv4_direct: bool,
}

/// What routing by way of one device depends on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeviceRouting {
    /// Its index.
    pub ifindex: u32,
    /// Its MAC address; zeros if it has none.
    pub mac: [u8; 6],
    /// Whether IPv4 packets that arrive there are forwarded (`net.ipv4.conf.DEV.forwarding`); none
    /// if it has no IPv4.
    pub ipv4_forwarding: Option<bool>,
    /// Whether `bpf_fib_lookup` forwards IPv6 packets that arrive there
    /// (`net.ipv6.conf.DEV.forwarding`); none if it has no IPv6. The kernel itself goes by
    /// [`RoutingFacts::ipv6_forwarding`].
    pub ipv6_forwarding: Option<bool>,
    /// How IPv4 sources are checked: the stricter of the device's setting and that of all.
    pub rp_filter: RpFilter,
    /// The bridge, bond or team that it is a part of: that, and not the device, has addresses and
    /// routes. A VRF does not count: its devices route as such.
    pub master: Option<u32>,
}

/// What routing by way of a VLAN of a device depends on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VlanRouting {
    /// The index of the device that it is a VLAN of.
    pub lower: u32,
    /// The tag of its frames, which leave with priority 0.
    pub tag: Tag,
    /// Its own device.
    pub device: DeviceRouting,
}

/// How the sources of packets are checked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum RpFilter {
    /// Not at all (0).
    #[default]
    Off,
    /// There has to be a route to the source (2).
    Loose,
    /// The route to the source has to be by way of the device (1).
    Strict,
}

impl RpFilter {
    /// The effective one of a device's setting and that of all: the kernel takes the larger
    /// number.
    fn effective(device: u32, all: u32) -> Self {
        match device.max(all) {
            0 => Self::Off,
            1 => Self::Strict,
            _ => Self::Loose,
        }
    }
}

/// A rule (`ip rule`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Whether it is one for IPv6.
    pub ipv6: bool,
    /// Its priority, by which `ip rule` lists it.
    pub priority: u32,
    /// Whether it asks for a mark. A packet in XDP has none.
    pub marked: bool,
}

impl RoutingFacts {
    /// Reads them for the devices with these indices, in the namespace of the calling thread. With
    /// a full table, this takes the kernel some 100 ms.
    ///
    /// # Errors
    ///
    /// If the kernel does not list interfaces, addresses, settings or rules. A device that is gone
    /// has no settings.
    pub fn read(devices: &[u32]) -> Result<Self, LinkError> {
        let links = all()?;
        let (ipv4, ipv6) = (settings(IPV4)?, settings(IPV6)?);
        let (mut rules, is_usual_v4) = rules(IPV4)?;
        let (rules_v6, is_usual_v6) = self::rules(IPV6)?;
        rules.extend(rules_v6);
        let has_vrf = links.iter().any(is_vrf);
        let two_tables = [is_usual_v4, is_usual_v6].map(|is_usual| is_usual && !has_vrf);
        // That of the thread's namespace. Without the file it is as by default.
        let uses_path_mtu = fs::read_to_string("/proc/sys/net/ipv4/ip_forward_use_pmtu");
        let ipv6_forwarding = Settings::of(ALL, &ipv6).map(|all| all.forwarding);
        let routing_of = |ifindex| DeviceRouting::of(ifindex, &ipv4, &ipv6, &links);
        let vlan = |link: &LinkStatus| {
            let (lower, tag) = link.plain_vlan().filter(|(lower, _)| devices.contains(lower))?;
            let device = routing_of(link.ifindex);
            let is_interface = link.up && device.master.is_none();
            is_interface.then_some(VlanRouting { lower, tag, device })
        };
        Ok(Self {
            devices: devices.iter().copied().map(routing_of).collect(),
            vlans: links.iter().filter_map(vlan).collect(),
            ipv6_forwarding,
            local: local_addresses()?,
            rules,
            two_tables,
            ipv4_uses_path_mtu: uses_path_mtu.is_ok_and(|value| value.trim() != "0"),
            ipv4_direct: two_tables[0] && is_direct()?,
        })
    }
}

impl RoutingFacts {
    /// Whether for packets that arrive at `device` a look-up of the longest prefix in the tables
    /// `local` and `main` finds what the kernel would, of IPv4 and of IPv6.
    pub fn two_tables_suffice(&self, device: &DeviceRouting) -> [bool; 2] {
        let forwards_v6 =
            self.ipv6_forwarding == Some(true) && device.ipv6_forwarding == Some(true);
        let forwards_v4 = device.ipv4_forwarding == Some(true) && !self.ipv4_uses_path_mtu;
        [forwards_v4 && self.two_tables[0], forwards_v6 && self.two_tables[1]]
    }
}

impl DeviceRouting {
    fn of(ifindex: u32, ipv4: &[Settings], ipv6: &[Settings], links: &[LinkStatus]) -> Self {
        let (of_it, of_all) = (Settings::of(ifindex, ipv4), Settings::of(ALL, ipv4));
        let link = links.iter().find(|link| link.ifindex == ifindex);
        let rp_filter = |settings: Option<&Settings>| settings.map_or(0, |it| it.rp_filter);
        Self {
            ifindex,
            mac: link.map_or([0; 6], |link| link.mac),
            ipv4_forwarding: of_it.map(|it| it.forwarding),
            ipv6_forwarding: Settings::of(ifindex, ipv6).map(|it| it.forwarding),
            rp_filter: RpFilter::effective(rp_filter(of_it), rp_filter(of_all)),
            master: link.and_then(|link| master(link, links)),
        }
    }
}

/// What has the addresses and routes of `device` in its place.
pub(crate) fn master(device: &LinkStatus, links: &[LinkStatus]) -> Option<u32> {
    let master = device.master?;
    let is_vrf = |link: &LinkStatus| link.ifindex == master && is_vrf(link);
    (!links.iter().any(is_vrf)).then_some(master)
}

fn is_vrf(link: &LinkStatus) -> bool {
    link.kind.as_deref() == Some("vrf")
}

/// What the kernel announces of an interface's settings of one family, or of those of all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Settings {
    ifindex: u32,
    forwarding: bool,
    rp_filter: u32,
}

impl Settings {
    fn of(ifindex: u32, all: &[Self]) -> Option<&Self> {
        all.iter().find(|settings| settings.ifindex == ifindex)
    }

    /// Reads the body of a message about them. None if it is truncated or names no interface.
    fn parse(body: &[u8]) -> Option<Self> {
        let (mut ifindex, mut forwarding, mut rp_filter) = (None, false, 0);
        each(body.get(NETCONF_HEADER..)?, |kind, value| match kind {
            NETCONFA_IFINDEX => ifindex = u32_at(value, 0),
            NETCONFA_FORWARDING => forwarding = u32_at(value, 0).is_some_and(|on| on != 0),
            NETCONFA_RP_FILTER => rp_filter = u32_at(value, 0).unwrap_or_default(),
            _ => {}
        });
        Some(Self { ifindex: ifindex?, forwarding, rp_filter })
    }
}

/// Lists the settings of all interfaces; none if the kernel has no such family.
fn settings(family: u8) -> Result<Vec<Settings>, LinkError> {
    let body = vec![family, 0, 0, 0];
    let answers = listed("reading forwarding and rp_filter", libc::RTM_GETNETCONF, body)?;
    Ok(answers.unwrap_or_default().iter().filter_map(|it| Settings::parse(it)).collect())
}

/// Lists the rules that not every namespace has, and says whether there are just those that every
/// namespace has.
fn rules(family: u8) -> Result<(Vec<Rule>, bool), LinkError> {
    let mut body = vec![0; RULE_HEADER];
    body[0] = family;
    let Some(answers) = listed("listing `ip rule`", libc::RTM_GETRULE, body)? else {
        return Ok((Vec::new(), true));
    };
    let rules: Vec<Rule> = answers.iter().filter_map(|answer| unusual(answer)).collect();
    let usual = DEFAULT_RULES.iter().filter(|(of, ..)| *of == family).count();
    let is_usual = rules.is_empty() && answers.len() == usual;
    Ok((rules, is_usual))
}

/// Reads the body of a rule; none if it is one that every namespace has. What is not understood is
/// unusual.
fn unusual(body: &[u8]) -> Option<Rule> {
    let header: [u8; RULE_HEADER] = *body.first_chunk()?;
    let [family, to, from, tos, table, _, _, action, flags @ ..] = header;
    let is_plain = [to, from, tos] == [0; 3] && action == TO_TABLE && flags == [0; 4];
    let mut rule = Rule { ipv6: family == IPV6, priority: 0, marked: false };
    let (mut is_selective, mut table) = (false, u32::from(table));
    each(&body[RULE_HEADER..], |kind, value| match kind {
        FRA_PRIORITY => rule.priority = u32_at(value, 0).unwrap_or_default(),
        FRA_TABLE => table = u32_at(value, 0).unwrap_or_default(),
        FRA_PROTOCOL | FRA_PAD => {}
        // -1: nothing is suppressed.
        FRA_SUPPRESS_PREFIXLEN | FRA_SUPPRESS_IFGROUP if u32_at(value, 0) == Some(u32::MAX) => {}
        _ => {
            is_selective = true;
            rule.marked |= kind == FRA_FWMARK;
        }
    });
    let is_usual = DEFAULT_RULES.contains(&(family, rule.priority, table));
    (!is_plain || is_selective || !is_usual).then_some(rule)
}

/// A listing; none if the kernel lacks the family, or rules as such.
fn listed(doing: &str, kind: u16, body: Vec<u8>) -> Result<Option<Vec<Vec<u8>>>, LinkError> {
    match dump(doing, Request::route(kind, body)) {
        Err(error) if matches!(error.errno(), Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP)) => {
            Ok(None)
        }
        result => result.map(Some),
    }
}

/// Whether the tables `local` and `main` are proven to be in one, and `default` to be empty.
fn is_direct() -> Result<bool, LinkError> {
    let before = local_routes()?;
    // That of the thread, as its namespace may not be that of the process. No file, no proof.
    let counts = fs::read_to_string("/proc/thread-self/net/fib_triestat").unwrap_or_default();
    // A route that came or went in between would spoil the comparison.
    Ok(before == local_routes()? && proves_direct(&counts, before))
}

/// `local` has this many routes of its own; those that it has more are those of `main`.
fn proves_direct(counts: &str, local: usize) -> bool {
    let counted = |table: &str| count(counts, table);
    let default = format!("Id {}:", libc::RT_TABLE_DEFAULT);
    counted("Local:").is_some_and(|both| both > local) && counted(&default).unwrap_or(0) == 0
}

/// How many routes a table has: the number in the line `Prefixes` below its `heading`.
fn count(counts: &str, heading: &str) -> Option<usize> {
    let of_table = counts.lines().skip_while(|line| *line != heading).skip(1);
    let mut of_table = of_table.take_while(|line| line.starts_with('\t') || !line.ends_with(':'));
    of_table.find_map(|line| line.trim().strip_prefix("Prefixes:"))?.trim().parse().ok()
}

/// How many IPv4 routes a listing of `local` has.
fn local_routes() -> Result<usize, LinkError> {
    let mut body = vec![0; ROUTE_HEADER];
    (body[0], body[4]) = (IPV4, LOCAL);
    let mut count = 0;
    let listed = stream("counting local routes", &Request::route(libc::RTM_GETROUTE, body), |it| {
        // An old kernel lists all tables.
        count += usize::from(table(it) == Some(u32::from(LOCAL)));
    });
    match listed {
        // There is no such table yet.
        Err(error) if error.errno() == Some(libc::ENOENT) => Ok(0),
        result => result.map(|_| count),
    }
}

/// The table of a route.
fn table(route: &[u8]) -> Option<u32> {
    let mut table = route.get(4).map(|&table| u32::from(table));
    each(route.get(ROUTE_HEADER..)?, |kind, value| {
        if kind == RTA_TABLE {
            table = u32_at(value, 0);
        }
    });
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::attribute;
    use proptest::prelude::*;

    #[test]
    fn the_larger_of_two_settings_of_rp_filter_counts() {
        use RpFilter::{Loose, Off, Strict};
        for (device, all, effective) in
            [(0, 0, Off), (1, 0, Strict), (0, 1, Strict), (1, 2, Loose), (2, 1, Loose)]
        {
            assert_eq!(RpFilter::effective(device, all), effective, "{device}, {all}");
        }
    }

    #[test]
    fn a_part_of_a_bridge_or_bond_has_a_master_and_a_device_of_a_vrf_has_none() {
        let link = |ifindex, kind: &str, master| LinkStatus {
            ifindex,
            kind: Some(kind.to_owned()),
            master,
            ..LinkStatus::default()
        };
        let (part, free) = (link(2, "veth", Some(9)), link(3, "veth", None));
        let of = |device, kind| master(device, &[part.clone(), free.clone(), link(9, kind, None)]);
        assert_eq!((of(&part, "bridge"), of(&part, "bond")), (Some(9), Some(9)));
        assert_eq!((of(&part, "vrf"), of(&free, "bridge")), (None, None));
        assert_eq!(master(&part, &[]), Some(9), "unknown");
    }

    /// A rule for IPv4 that looks into `table`, as the kernel says it.
    fn rule(table: u8, attributes: &[(u16, u32)]) -> Vec<u8> {
        let mut body = vec![IPV4, 0, 0, 0, table, 0, 0, TO_TABLE, 0, 0, 0, 0];
        body.extend(
            attributes.iter().flat_map(|&(kind, value)| attribute(kind, &value.to_ne_bytes())),
        );
        body
    }

    #[test]
    fn only_the_rules_of_every_namespace_are_usual() {
        let main = |more: &[(u16, u32)]| {
            let usual =
                [(FRA_PRIORITY, 32766), (FRA_SUPPRESS_PREFIXLEN, u32::MAX), (FRA_TABLE, 254)];
            rule(254, &[&usual, more].concat())
        };
        assert_eq!(unusual(&main(&[])), None);
        assert_eq!(unusual(&main(&[(FRA_PROTOCOL, 2)])), None);
        assert_eq!(unusual(&rule(255, &[])), None, "priority 0");
        let expected = Rule { ipv6: false, priority: 32766, marked: false };
        assert_eq!(unusual(&main(&[(99, 1)])), Some(expected), "not understood");
        assert_eq!(unusual(&main(&[(FRA_SUPPRESS_PREFIXLEN, 0)])), Some(expected));
        assert_eq!(unusual(&main(&[(FRA_TABLE, 100)])), Some(expected));
        assert!(unusual(&main(&[(FRA_FWMARK, 1)])).unwrap().marked);
        assert_eq!(unusual(&rule(254, &[(FRA_PRIORITY, 5)])).unwrap().priority, 5);
        for at in [1, 2, 3, 7, 8] {
            let mut of_some = main(&[]);
            of_some[at] += 1;
            assert_eq!(unusual(&of_some), Some(expected), "byte {at} selects");
        }
        let mut ipv6 = rule(253, &[(FRA_PRIORITY, 32767)]);
        assert_eq!(unusual(&ipv6), None);
        ipv6[0] = IPV6;
        assert!(unusual(&ipv6).unwrap().ipv6, "IPv6 has no table `default`");
    }

    /// What the kernel prints of two tables in one, with seven routes.
    const IN_ONE: &str = "Basic info: size of leaf: 48 bytes, size of tnode: 40 bytes.\n\
        Main:\n\tAver depth:     2.42\n\tLeaves:         7\n\tPrefixes:       7\n\
        \t  1: 1  2: 3  3: 1\nNull ptrs: 11\nTotal size: 2  kB\n\
        Local:\n\tAver depth:     2.42\n\tLeaves:         7\n\tPrefixes:       7\n\
        Null ptrs: 11\nTotal size: 2  kB\n";

    #[test]
    fn the_short_way_is_proven_by_more_routes_in_local_than_there_are() {
        assert!(proves_direct(IN_ONE, 5));
        assert!(!proves_direct(IN_ONE, 7), "those of main are missing");
        assert!(!proves_direct("", 0) && !proves_direct("Local:\n", 0), "unknown");
        assert!(!proves_direct(IN_ONE.split("Local:").next().unwrap(), 0));
        let with_default = |prefixes| format!("{IN_ONE}Id 253:\n\tPrefixes:       {prefixes}\n");
        assert!(proves_direct(&with_default(0), 5) && !proves_direct(&with_default(1), 5));
        assert!(proves_direct(&with_default(1).replace("253", "100"), 5), "no rule leads there");
        assert_eq!(count("Local:\nMain:\n\tPrefixes: 7\n", "Local:"), None, "another table's");
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = (unusual(&bytes), Settings::parse(&bytes), table(&bytes));
        }

        #[test]
        fn any_text_is_counted_without_panic(text in "(Local:|\\tPrefixes: |[0-9\n]){0,20}") {
            let _ = proves_direct(&text, 0);
        }
    }
}
