//! A router's devices: what takes their frames away, whether the kernel forwards, and what it does
//! besides.

use super::{Finding, RouterFacts, Severity, Wanted};
use crate::netfilter::Hooks;
use crate::routing::{DeviceRouting, RoutingFacts, RpFilter, Rule, master};
use crate::{Link, LinkStatus};
use narrows_escape::shell;
use std::net::IpAddr;

/// Judges one device.
pub(super) fn judge_device(link: &Link, addressed: bool, facts: &RouterFacts) -> Vec<Finding> {
    let routing = facts.routing.as_ref().ok();
    let device = routing.and_then(|routing| of(link, routing));
    let mut findings: Vec<Finding> = [
        part(&link.status, &facts.others),
        is_vlan(&link.status, &facts.others),
        unaddressed(link, addressed),
        routing.zip(device).and_then(|(routing, device)| ipv4(link.name(), device, routing)),
        routing.zip(device).and_then(|(routing, device)| ipv6(link.name(), device, routing)),
        routing.and_then(|routing| asks_nobody(link, routing)),
        device.and_then(|device| sources(link, device)),
    ]
    .into_iter()
    .flatten()
    .collect();
    findings.extend(routing.into_iter().flat_map(|routing| vlans(link, routing, &facts.others)));
    findings
}

/// Judges what concerns all devices.
pub(super) fn judge_host(facts: &RouterFacts, wanted: &Wanted) -> Vec<Finding> {
    let mut findings = Vec::new();
    match &facts.routing {
        Ok(routing) => {
            findings.push(forwards(facts, routing));
            findings.extend(forwards_ipv6(facts, routing));
            findings.extend(rules(routing));
        }
        Err(error) => findings.push(Finding::warning("kernel", error)),
    }
    findings.push(firewall(facts, wanted));
    findings
}

fn of<'a>(link: &Link, routing: &'a RoutingFacts) -> Option<&'a DeviceRouting> {
    routing.devices.iter().find(|device| device.ifindex == link.status.ifindex)
}

/// What has the device's addresses, and its frames unless Narrows takes them first.
fn part(device: &LinkStatus, others: &[LinkStatus]) -> Option<Finding> {
    let master = master(device, others)?;
    let master = others.iter().find(|other| other.ifindex == master);
    let name = master.map_or("another device", |master| &master.name);
    let is_bridge = master.is_some_and(|master| master.kind.as_deref() == Some("bridge"));
    let part = if is_bridge { "port" } else { "part" };
    let what = format!("is a {part} of {name}, which would see its frames no more");
    let remedy = format!("ip link set dev {} nomaster", shell(&device.name));
    Some(Finding::blocker(&device.name, what).remedy(remedy))
}

/// A VLAN has no frames of its own: they come through the device below.
fn is_vlan(device: &LinkStatus, others: &[LinkStatus]) -> Option<Finding> {
    let (lower, tag) = (device.peer?.ifindex, device.vlan?);
    let lower = others.iter().find(|other| other.ifindex == lower);
    let name = lower.map_or("another device", |lower| &lower.name);
    let what = format!("is {tag} of {name}, and cannot be a port by itself");
    let remedy = format!("name {name} in its place: its VLANs are routed with it");
    Some(Finding::blocker(&device.name, what).remedy(remedy))
}

/// What is routed besides in VLANs of a device, and what the kernel keeps.
fn vlans(link: &Link, routing: &RoutingFacts, others: &[LinkStatus]) -> Vec<Finding> {
    let name = |ifindex: u32| others.iter().find(|it| it.ifindex == ifindex).map(|it| &*it.name);
    let of_it = || routing.vlans.iter().filter(|vlan| vlan.lower == link.status.ifindex);
    let names: Vec<&str> = of_it().filter_map(|vlan| name(vlan.device.ifindex)).collect();
    let mut findings = Vec::new();
    if !names.is_empty() {
        let what = format!("its VLANs are routed with it: {}", names.join(", "));
        findings.push(Finding::ok(link.name(), what));
    }
    for vlan in of_it() {
        let name = name(vlan.device.ifindex).unwrap_or("a VLAN");
        findings.extend(ipv4(name, &vlan.device, routing));
        findings.extend(ipv6(name, &vlan.device, routing));
    }
    let is_on = |other: &&LinkStatus| {
        other.vlan.is_some() && other.peer.is_some_and(|it| it.ifindex == link.status.ifindex)
    };
    for marking in others.iter().filter(is_on).filter(|other| other.has_priorities) {
        let what = "gives its frames a priority (egress-qos-map), so the kernel routes what \
                    leaves or arrives there";
        findings.push(Finding::note(&marking.name, what));
    }
    findings
}

fn unaddressed(link: &Link, addressed: bool) -> Option<Finding> {
    (!addressed).then(|| {
        let what = "has no IP address, so nobody there can name this host as a gateway";
        Finding::note(link.name(), what)
            .remedy(format!("ip addr add ADDRESS/LENGTH dev {}", shell(link.name())))
    })
}

/// Says which device does not forward if others do; [`forwards`] says if none does.
fn ipv4(name: &str, device: &DeviceRouting, routing: &RoutingFacts) -> Option<Finding> {
    let is_on = |device: &DeviceRouting| device.ipv4_forwarding == Some(true);
    let is_odd = device.ipv4_forwarding == Some(false) && routing.devices.iter().any(is_on);
    is_odd.then(|| does_not_forward(name, "IPv4", "ipv4"))
}

/// Says which device does not forward if the kernel does; [`forwards_ipv6`] says if it does not.
fn ipv6(name: &str, device: &DeviceRouting, routing: &RoutingFacts) -> Option<Finding> {
    let is_odd = device.ipv6_forwarding == Some(false) && routing.ipv6_forwarding == Some(true);
    is_odd.then(|| does_not_forward(name, "IPv6", "ipv6"))
}

/// Says where the kernel finds no neighbours: it asks for those of forwarded packets from its
/// link-local address only.
fn asks_nobody(link: &Link, routing: &RoutingFacts) -> Option<Finding> {
    let has = |is_automatic: bool| {
        let mut its = link.addresses.iter().filter(|address| address.ip.is_ipv6());
        its.any(|address| address.is_automatic() == is_automatic)
    };
    let is_used = routing.ipv6_forwarding == Some(true) && has(false);
    (is_used && !has(true)).then(|| {
        let what = "has no link-local address, without which the kernel finds no neighbours of \
                    IPv6 there";
        // While the link is up, the kernel makes one only if the setting changes, and only there.
        let setting = format!("net/ipv6/conf/{}/addr_gen_mode", shell(link.name()));
        Finding::warning(link.name(), what)
            .remedy(format!("sysctl -w {setting}=1 && sysctl -w {setting}=0"))
    })
}

fn does_not_forward(name: &str, family: &str, directory: &str) -> Finding {
    let what = format!("{family} packets that arrive there are not forwarded");
    // With slashes between the words, a dot in a name is one.
    let remedy = format!("sysctl -w net/{directory}/conf/{}/forwarding=1", shell(name));
    Finding::warning(name, what).remedy(remedy)
}

fn sources(link: &Link, device: &DeviceRouting) -> Option<Finding> {
    let what = match device.rp_filter {
        RpFilter::Off => return None,
        RpFilter::Loose => "checks sources of IPv4 (rp_filter 2): a route has to lead to each",
        RpFilter::Strict => {
            "checks sources of IPv4 (rp_filter 1): the route to each has to lead out there"
        }
    };
    let costs = format!("{what}, which takes a second look-up");
    Some(Finding::note(link.name(), costs))
}

fn forwards(facts: &RouterFacts, routing: &RoutingFacts) -> Finding {
    if routing.devices.iter().any(|device| device.ipv4_forwarding == Some(true)) {
        return Finding::ok("kernel", "forwards IPv4");
    }
    let is_for_ipv6 = has(facts, |ip| ip.is_ipv6()) && !has(facts, |ip| ip.is_ipv4());
    does_not(is_for_ipv6, "IPv4", "net.ipv4.ip_forward")
}

fn forwards_ipv6(facts: &RouterFacts, routing: &RoutingFacts) -> Option<Finding> {
    if routing.ipv6_forwarding? {
        return Some(Finding::ok("kernel", "forwards IPv6"));
    }
    let is_for_ipv4 = !has(facts, |ip| ip.is_ipv6());
    Some(does_not(is_for_ipv4, "IPv6", "net.ipv6.conf.all.forwarding"))
}

/// The kernel does not forward this family, which may be wanted.
fn does_not(is_wanted: bool, family: &str, setting: &str) -> Finding {
    let severity = if is_wanted { Severity::Note } else { Severity::Warning };
    let what = format!("does not forward {family}, and Narrows does as it does");
    Finding::new("kernel", severity, what).remedy(format!("sysctl -w {setting}=1"))
}

/// Whether the operator gave one of the devices an address of this kind.
fn has(facts: &RouterFacts, is_it: impl Fn(IpAddr) -> bool) -> bool {
    let links = facts.ports.iter().filter_map(|port| port.link.as_ref().ok());
    let mut given = links.flat_map(|link| &link.addresses).filter(|it| !it.is_automatic());
    given.any(|address| is_it(address.ip))
}

fn rules(routing: &RoutingFacts) -> Vec<Finding> {
    let list = |rules: &[&Rule]| {
        let family = |ipv6: bool| if ipv6 { "IPv6" } else { "IPv4" };
        let each = rules.iter().map(|rule| format!("{} ({})", rule.priority, family(rule.ipv6)));
        each.collect::<Vec<_>>().join(", ")
    };
    let all: Vec<_> = routing.rules.iter().collect();
    let mut findings = Vec::new();
    if !all.is_empty() {
        let what =
            format!("has rules besides the usual ones, {}: look-ups take longer", list(&all));
        findings.push(Finding::note("kernel", what));
    }
    let marked: Vec<_> = all.into_iter().filter(|rule| rule.marked).collect();
    if !marked.is_empty() {
        let what = format!(
            "asks for a mark in rules, {}: Narrows sees none, even if a tc filter sets it",
            list(&marked)
        );
        findings.push(Finding::note("kernel", what));
    }
    findings
}

/// What of the kernel would see packets, in words.
pub(super) struct Seers {
    /// All that may.
    pub(super) all: &'static str,
    /// Shortly.
    pub(super) some: &'static str,
    /// What the kernel does with packets that these see.
    pub(super) forwards: &'static str,
    /// The packets.
    pub(super) packets: &'static str,
    /// Which command shows the rules.
    pub(super) remedy: &'static str,
}

const ROUTES: Seers = Seers {
    all: "firewall, NAT or IPsec",
    some: "netfilter or IPsec",
    forwards: "routes",
    packets: "routed frames",
    remedy: "nft list ruleset and ip xfrm policy (show the rules), then --skip-netfilter if frames \
        may pass without them",
};

/// Where the kernel has a firewall, only what it has accepted may be routed: by its flowtable.
fn firewall(facts: &RouterFacts, wanted: &Wanted) -> Finding {
    let finding = past_netfilter(&facts.netfilter, wanted, &ROUTES);
    let Ok(hooks) = &facts.netfilter else { return finding };
    if finding.severity != Severity::Blocker {
        return finding;
    }
    let links = facts.ports.iter().filter_map(|port| port.link.as_ref().ok());
    let names: Vec<&str> = links.map(Link::name).collect();
    match (hooks.flows(), hooks.remedy(&names)) {
        (Some(flowtable), _) => by_flows(flowtable, &some(&hooks.found), facts.flow_look_up),
        (None, Some(remedy)) => finding.remedy(format!("{remedy}; or {}", ROUTES.remedy)),
        (None, None) => finding,
    }
}

/// A firewall that `found` tells of has handed connections over to `flowtable`.
fn by_flows(flowtable: &str, found: &str, can_look_up: Option<bool>) -> Finding {
    if can_look_up == Some(false) {
        let what = format!(
            "has no bpf_xdp_flow_lookup, with which XDP programs would find connections of the \
             flowtable {flowtable}, and all others are for the kernel: {found}"
        );
        let remedy = "boot Linux 6.11 or newer with CONFIG_NF_FLOW_TABLE and \
             CONFIG_DEBUG_INFO_BTF_MODULES, or --skip-netfilter if frames may pass without them";
        return Finding::blocker("kernel", what).remedy(remedy);
    }
    let what = format!(
        "has a firewall: only connections in its flowtable {flowtable} are routed in the driver, \
         and the kernel routes all others: {found}"
    );
    Finding::ok("kernel", what)
}

/// Neither a firewall's verdict nor an IPsec policy is jumped over, unless the operator says so.
pub(super) fn past_netfilter(
    hooks: &Result<Hooks, String>,
    wanted: &Wanted,
    seers: &Seers,
) -> Finding {
    let Seers { all, some: short, forwards, packets, remedy } = seers;
    let hooks = match hooks {
        Ok(hooks) => hooks,
        Err(error) => {
            let what = format!(
                "may have {all} for what it {forwards}, and frames would pass without: {error}"
            );
            return Finding::warning("kernel", what).remedy(*remedy);
        }
    };
    if hooks.found.is_empty() {
        return match hooks.complete {
            true => Finding::ok("kernel", format!("has no {all} for what it {forwards}")),
            false => Finding::note(
                "kernel",
                format!(
                    "has no {all} for what it {forwards}, as far as it says: hooks of netfilter \
                     (CONFIG_NETFILTER_NETLINK_HOOK) or IPsec policies (CAP_NET_ADMIN) cannot be \
                     listed"
                ),
            ),
        };
    }
    let found = some(&hooks.found);
    if wanted.skip_netfilter {
        let what = format!("has parts of {short} that do not see {packets}: {found}");
        return Finding::warning("kernel", what);
    }
    let what =
        format!("lets {short} see what it {forwards}, and frames would pass without them: {found}");
    Finding::blocker("kernel", what).remedy(*remedy)
}

/// The first of `words`, and how many there are besides.
fn some(words: &[String]) -> String {
    const MOST: usize = 8;
    let first = words.iter().take(MOST).map(String::as_str).collect::<Vec<_>>().join(", ");
    match words.len().saturating_sub(MOST) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::facts::fit_router;
    use crate::doctor::{WantedPlane, blockers, judge_router};
    use crate::netfilter::Flowtables;
    use crate::routing::VlanRouting;
    use crate::{Address, PeerId};
    use narrows_forwarding::{Tag, TagProtocol};

    fn address(ip: &str) -> Address {
        Address { ip: ip.parse().unwrap(), prefix: 24 }
    }

    /// What is worse than a note about a fit router after `spoil` has changed it.
    fn bad(spoil: impl FnOnce(&mut RouterFacts)) -> Vec<Finding> {
        said(spoil).into_iter().filter(|finding| finding.severity > Severity::Note).collect()
    }

    fn said(spoil: impl FnOnce(&mut RouterFacts)) -> Vec<Finding> {
        let mut facts = fit_router();
        spoil(&mut facts);
        judge_router(&facts, &Wanted::default())
    }

    fn routing(facts: &mut RouterFacts) -> &mut RoutingFacts {
        facts.routing.as_mut().unwrap()
    }

    fn link(facts: &mut RouterFacts) -> &mut Link {
        facts.ports[0].link.as_mut().unwrap()
    }

    #[test]
    fn a_fit_router_has_no_warning_and_its_mtus_may_differ() {
        assert_eq!(bad(|_| ()), []);
        assert_eq!(bad(|facts| link(facts).status.mtu = 1280), []);
        let facts = fit_router();
        for plane in [WantedPlane::Xsk, WantedPlane::Xdp] {
            let findings = judge_router(&facts, &Wanted { plane, ..Wanted::default() });
            assert_eq!(blockers(&findings).count(), 0);
        }
    }

    #[test]
    fn each_device_is_judged_like_a_port_of_a_wire() {
        let missing = bad(|facts| facts.ports[1].link = Err("there is no interface 'b'".into()));
        assert_eq!(blockers(&missing).count(), 1);
        let stripped = bad(|facts| link(facts).offloads.rx_vlan = true);
        assert!(stripped[0].what.contains("forwarded as if"), "{}", stripped[0].what);
        let unequal = bad(|facts| link(facts).queues.now = crate::Queues { rx: 2, tx: 2 });
        assert_eq!(unequal[0].severity, Severity::Blocker);
        assert!(unequal[0].what.contains("has 2 queue pairs, c has 4"), "{}", unequal[0].what);
    }

    #[test]
    fn frames_of_a_bridge_or_bond_are_not_taken_away_from_it() {
        let said = |kind: &str| {
            bad(|facts| {
                link(facts).status.master = Some(9);
                let kind = Some(kind.to_owned());
                let name = "m".to_owned();
                facts.others = vec![LinkStatus { ifindex: 9, name, kind, ..LinkStatus::default() }];
            })
        };
        for (kind, part) in [("bridge", "port"), ("bond", "part"), ("team", "part")] {
            let findings = said(kind);
            assert_eq!(findings[0].severity, Severity::Blocker);
            assert!(findings[0].what.starts_with(&format!("is a {part} of m, ")), "{findings:?}");
            assert_eq!(findings[0].remedy.as_deref(), Some("ip link set dev a nomaster"));
        }
        assert_eq!(said("vrf"), []);
    }

    /// A VLAN of the first device, called `v`.
    fn vlan_of_first(facts: &mut RouterFacts, change: impl FnOnce(&mut LinkStatus)) {
        let lower = link(facts).status.ifindex;
        let tag = Tag::new(TagProtocol::Customer, 100).unwrap();
        let peer = Some(PeerId { ifindex: lower, namespace: None });
        let mut status = LinkStatus { ifindex: 99, name: "v".into(), peer, ..Default::default() };
        status.vlan = Some(tag);
        change(&mut status);
        if status.plain_vlan().is_some() {
            let device = DeviceRouting {
                ifindex: 99,
                ipv4_forwarding: Some(true),
                ipv6_forwarding: Some(true),
                ..DeviceRouting::default()
            };
            routing(facts).vlans.push(VlanRouting { lower, tag, device });
        }
        facts.others.push(status);
    }

    #[test]
    fn vlans_of_a_port_are_routed_with_it_and_are_no_ports_themselves() {
        let of = |name: &str, findings: Vec<Finding>| -> Vec<(Severity, String)> {
            let of_it = findings.into_iter().filter(|finding| finding.subject == name);
            of_it.map(|finding| (finding.severity, finding.what)).collect()
        };
        let all = said(|facts| vlan_of_first(facts, |_| ()));
        let expected = (Severity::Ok, "its VLANs are routed with it: v".to_owned());
        assert!(of("a", all).contains(&expected));
        let all = said(|facts| vlan_of_first(facts, |vlan| vlan.has_priorities = true));
        assert_eq!(of("v", all)[0].0, Severity::Note);
        let all = bad(|facts| {
            vlan_of_first(facts, |_| ());
            routing(facts).vlans[0].device.ipv4_forwarding = Some(false);
        });
        assert_eq!(all[0].remedy.as_deref(), Some("sysctl -w net/ipv4/conf/v/forwarding=1"));
        let all = bad(|facts| {
            let lower = LinkStatus { ifindex: 98, name: "eth9".into(), ..Default::default() };
            facts.others.push(lower);
            let status = &mut link(facts).status;
            status.vlan = Tag::new(TagProtocol::Service, 7);
            status.peer = Some(PeerId { ifindex: 98, namespace: None });
        });
        assert_eq!(all[0].severity, Severity::Blocker);
        assert!(all[0].what.ends_with("of eth9, and cannot be a port by itself"), "{all:?}");
    }

    #[test]
    fn an_address_is_wanted() {
        let findings = said(|facts| facts.ports[0].addressed = false);
        let remedy = "ip addr add ADDRESS/LENGTH dev a";
        let it = findings.iter().find(|finding| finding.remedy.as_deref() == Some(remedy));
        assert_eq!(it.unwrap().severity, Severity::Note);
    }

    #[test]
    fn what_is_not_forwarded_is_warned_of_once_with_what_to_type() {
        let one = bad(|facts| {
            link(facts).status.name = "a.100".into();
            routing(facts).devices[0].ipv4_forwarding = Some(false);
        });
        let remedies: Vec<_> =
            one.iter().map(|finding| finding.remedy.as_deref().unwrap()).collect();
        assert_eq!(remedies, ["sysctl -w net/ipv4/conf/a.100/forwarding=1"]);
        let all = bad(|facts| {
            for device in &mut routing(facts).devices {
                device.ipv4_forwarding = Some(false);
            }
        });
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].remedy.as_deref(), Some("sysctl -w net.ipv4.ip_forward=1"));
        let unknown = bad(|facts| routing(facts).devices[0].ipv4_forwarding = None);
        assert_eq!(unknown, [], "it has no IPv4");
    }

    #[test]
    fn ipv6_is_missed_only_where_it_is_used() {
        let off = |facts: &mut RouterFacts| {
            routing(facts).ipv6_forwarding = Some(false);
            routing(facts).devices[0].ipv6_forwarding = Some(false);
        };
        assert_eq!(bad(off), [], "no device has an address of IPv6");
        let used = bad(|facts| {
            off(facts);
            link(facts).addresses.push(address("2001:db8::1"));
        });
        assert_eq!(used.len(), 1);
        assert_eq!(used[0].remedy.as_deref(), Some("sysctl -w net.ipv6.conf.all.forwarding=1"));
        let one = bad(|facts| routing(facts).devices[0].ipv6_forwarding = Some(false));
        assert_eq!(one[0].remedy.as_deref(), Some("sysctl -w net/ipv6/conf/a/forwarding=1"));
        assert_eq!(bad(|facts| routing(facts).ipv6_forwarding = None), [], "a kernel without IPv6");
    }

    #[test]
    fn without_a_link_local_address_no_neighbour_of_ipv6_is_found() {
        let with = |addresses: &[&str]| {
            bad(|facts| link(facts).addresses.extend(addresses.iter().map(|ip| address(ip))))
        };
        let found = with(&["2001:db8::1"]);
        assert_eq!(found.len(), 1);
        let setting = "net/ipv6/conf/a/addr_gen_mode";
        let remedy = format!("sysctl -w {setting}=1 && sysctl -w {setting}=0");
        assert_eq!(found[0].remedy, Some(remedy));
        assert_eq!(with(&["2001:db8::1", "fe80::1"]), []);
        assert_eq!(with(&["192.0.2.1"]), []);
    }

    #[test]
    fn a_router_for_ipv6_only_need_not_forward_ipv4() {
        let findings = bad(|facts| {
            for port in &mut facts.ports {
                let addresses = ["2001:db8::1", "fe80::1"].map(address);
                port.link.as_mut().unwrap().addresses = addresses.to_vec();
            }
            for device in &mut routing(facts).devices {
                device.ipv4_forwarding = Some(false);
            }
        });
        assert_eq!(findings, []);
    }

    #[test]
    fn checks_and_rules_are_worth_a_note_where_there_are_any() {
        let notes = |words: &str, spoil: fn(&mut RouterFacts)| {
            let mut findings = said(spoil).into_iter();
            let found = findings.find(|finding| finding.what.contains(words));
            found.map(|finding| (finding.severity, finding.what))
        };
        assert_eq!(notes("rp_filter", |_| ()), None);
        assert_eq!(notes("rules", |_| ()), None);
        let strict = |facts: &mut RouterFacts| {
            routing(facts).devices[0].rp_filter = RpFilter::Strict;
        };
        assert_eq!(notes("rp_filter 1", strict).unwrap().0, Severity::Note);
        let rules = |facts: &mut RouterFacts| {
            let rule = |ipv6, priority, marked| Rule { ipv6, priority, marked };
            routing(facts).rules = vec![rule(false, 98, true), rule(true, 99, false)];
        };
        let (severity, what) = notes("longer", rules).unwrap();
        assert_eq!(severity, Severity::Note);
        assert!(what.contains("98 (IPv4), 99 (IPv6)"), "{what}");
        assert!(notes("mark", rules).unwrap().1.contains("rules, 98 (IPv4):"));
    }

    #[test]
    fn facts_that_could_not_be_read_are_said_and_the_rest_is_judged() {
        let findings = bad(|facts| facts.routing = Err("no answer".into()));
        assert_eq!((findings.len(), findings[0].what.as_str()), (1, "no answer"));
    }

    #[test]
    fn a_firewall_is_not_passed_by_unless_that_is_wanted() {
        let of = |found: &[&str], complete, skip_netfilter| {
            let found = found.iter().map(|&word| word.to_owned()).collect();
            let wanted = Wanted { skip_netfilter, ..Wanted::default() };
            past_netfilter(&Ok(Hooks { found, complete, ..Hooks::default() }), &wanted, &ROUTES)
        };
        let rules = ["inet filter forward (nf_tables chain)", "3 IPsec policies"];
        let blocked = of(&rules, true, false);
        assert_eq!(blocked.severity, Severity::Blocker);
        assert!(
            blocked.what.ends_with(&format!("without them: {}", rules.join(", "))),
            "{blocked:?}"
        );
        assert!(blocked.remedy.unwrap().contains("--skip-netfilter"));
        let skipped = of(&rules, false, true);
        assert_eq!((skipped.severity, skipped.remedy), (Severity::Warning, None));
        assert!(skipped.what.contains(rules[0]), "{}", skipped.what);
        assert_eq!(of(&[], true, false).severity, Severity::Ok);
        let unsure = of(&[], false, false);
        assert_eq!(unsure.severity, Severity::Note);
        assert!(unsure.what.ends_with("cannot be listed"), "{}", unsure.what);
        assert!(of(&["x"; 11], true, true).what.ends_with("x, x and 3 more"));
    }

    #[test]
    fn a_firewall_with_a_flowtable_is_fine_and_one_without_is_told_how_to_make_it() {
        let said = |flowtables: Flowtables, beside: &[&str], can_look_up, skip_netfilter| {
            let mut facts = fit_router();
            let found = vec!["inet home forward (nf_tables chain)".to_owned()];
            let beside_flows = beside.iter().map(|&word| word.to_owned()).collect();
            facts.netfilter = Ok(Hooks { found, complete: true, beside_flows, flowtables });
            facts.flow_look_up = can_look_up;
            firewall(&facts, &Wanted { skip_netfilter, ..Wanted::default() })
        };
        let ready = || Flowtables::Ready("inet home f".to_owned());
        for can_look_up in [Some(true), None] {
            let fine = said(ready(), &[], can_look_up, false);
            assert_eq!((fine.severity, fine.remedy), (Severity::Ok, None));
            assert!(fine.what.contains("inet home f") && fine.what.contains("inet home forward"));
        }
        let old = said(ready(), &[], Some(false), false);
        assert_eq!(old.severity, Severity::Blocker);
        assert!(old.what.contains("bpf_xdp_flow_lookup"), "{}", old.what);
        assert!(old.remedy.unwrap().contains("6.11"));
        let none = said(Flowtables::None, &[], Some(true), false);
        assert_eq!(none.severity, Severity::Blocker);
        let remedy = none.remedy.unwrap();
        assert!(remedy.contains("devices = { a, b, c }; }"), "{remedy}");
        assert!(remedy.contains("flow add @f") && remedy.contains("--skip-netfilter"), "{remedy}");
        let beside = said(ready(), &["netdev t c (nf_tables chain)"], Some(true), false);
        assert_eq!(beside.severity, Severity::Blocker);
        assert!(beside.remedy.unwrap().contains("netdev t c"));
        assert_eq!(said(ready(), &[], Some(false), true).severity, Severity::Warning);
    }

    #[test]
    fn a_firewall_that_may_be_there_is_warned_of() {
        let unknown = bad(|facts| facts.netfilter = Err("not permitted".into()));
        assert_eq!(unknown[0].severity, Severity::Warning);
        assert!(unknown[0].what.ends_with(": not permitted"), "{}", unknown[0].what);
    }
}
