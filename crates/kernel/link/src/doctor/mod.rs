//! Whether two ports, a device with VLANs, the devices of a router or a switch, or a host's port,
//! and this host are fit for their task, and what to type if not.
//!
//! Facts are gathered into plain data (`gather`) and judged by pure functions, one per question,
//! each a few lines with the reason beside it. `narrows doctor` prints the same findings for which
//! `narrows run` refuses to start ([`blockers`]), so the two cannot disagree.
//!
//! Severities: a *blocker* makes forwarding impossible or corrupts traffic; a *warning* costs
//! traffic or performance in cases that may or may not occur; a *note* is worth knowing; *ok* lists
//! a check that passed.
//!
//! Non-goals: measuring (a benchmark does), and changing anything.

mod drivers;
mod facts;
mod gather;
mod host;
mod host_port;
mod interrupts;
mod loops;
mod management;
mod mtu;
mod offloads;
mod own_traffic;
mod port;
mod queues;
mod redirect;
mod router;
mod standby;
mod stick;
mod switch;

pub use drivers::{Redirected, is_better_at_tcx, redirected};
pub use facts::{
    BridgedFacts, Capabilities, Dispatcher, Facts, HostFacts, HostPortsFacts, KernelVersion,
    PortFacts, RouterFacts, StickFacts,
};
pub use gather::{has_dispatcher, online_cpus};
pub use interrupts::QueueInterrupt;

use crate::{Harm, Link, LinkStatus};
use narrows_escape::line;
use narrows_forwarding::stick::Pair;
use serde::Serialize;
use std::fmt::Write;

/// Whether the driver called `driver` is known to run XDP itself.
pub fn runs_xdp(driver: &str) -> bool {
    drivers::support(driver).native
}

/// The plane that joins the ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WantedPlane {
    /// Queues and workers over AF_XDP.
    #[default]
    Xsk,
    /// Programs in the driver.
    Xdp,
    /// Programs at egress, for what this host sends.
    Host,
}

/// The intended use of the ports.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// The plane.
    pub plane: WantedPlane,
    /// How many workers, each with a queue pair of both ports; none for all queues.
    pub queues: Option<u32>,
    /// Whether a kernel bridge is the standby (`--fail-open bridge`).
    pub bridge: bool,
    /// Whether the data plane can receive a frame in several buffers (`xdp.frags`).
    pub multi_buffer: bool,
    /// Whether offloads that corrupt frames are switched off before the start, as `narrows run`
    /// does. If not, each that is on is a blocker.
    pub repairs: bool,
    /// Whether a router may forward packets that a firewall, connection tracking, NAT or IPsec of
    /// this host does not see then (`--skip-netfilter`). If not, their presence is a blocker.
    pub skip_netfilter: bool,
    /// The devices on which a Narrows runs already. Their XDP programs are its own.
    pub running: Vec<String>,
    /// How much memory the data plane will lock for frames, in bytes.
    pub locked_bytes: u64,
}

/// How serious a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Passed.
    Ok,
    /// Worth knowing.
    Note,
    /// Costs traffic or performance in cases that may occur.
    Warning,
    /// Narrows cannot do its work, or would corrupt traffic.
    Blocker,
}

impl Severity {
    /// The name, as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Blocker => "blocker",
        }
    }
}

/// The result of one check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// An interface's name, or `kernel`, `cpu` or `process`.
    pub subject: String,
    /// How serious it is.
    pub severity: Severity,
    /// The observation and its consequence.
    pub what: String,
    /// The command to type; none if nothing needs to be done, or nothing can be.
    pub remedy: Option<String>,
}

impl Finding {
    fn new(subject: &str, severity: Severity, what: impl Into<String>) -> Self {
        Self { subject: subject.to_owned(), severity, what: what.into(), remedy: None }
    }

    fn ok(subject: &str, what: impl Into<String>) -> Self {
        Self::new(subject, Severity::Ok, what)
    }

    fn note(subject: &str, what: impl Into<String>) -> Self {
        Self::new(subject, Severity::Note, what)
    }

    fn warning(subject: &str, what: impl Into<String>) -> Self {
        Self::new(subject, Severity::Warning, what)
    }

    fn blocker(subject: &str, what: impl Into<String>) -> Self {
        Self::new(subject, Severity::Blocker, what)
    }

    fn remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }
}

/// Examines interfaces `a` and `b` of the calling thread's network namespace, and the host. Changes
/// nothing and always returns: a fact that cannot be read becomes a finding or is left out.
pub fn examine(a: &str, b: &str, wanted: &Wanted) -> Vec<Finding> {
    judge(&gather::facts(a, b), wanted)
}

/// Judges facts. Findings about the first port come first, then about the second, about both, and
/// about the host.
pub fn judge(facts: &Facts, wanted: &Wanted) -> Vec<Finding> {
    let mut findings = Vec::new();
    let host = &facts.host;
    let at_tcx = facts.ports.each_ref().map(|port| is_at_tcx(port, host, wanted));
    for (port, at_tcx) in facts.ports.iter().zip(at_tcx) {
        match &port.link {
            Err(error) => findings.push(port::missing(&port.asked, error)),
            Ok(link) => {
                findings.extend(port::judge(port, link, wanted, at_tcx));
                findings.extend(queues::judge_port(port, link, wanted));
                findings.extend(offloads::judge(port, link, wanted, at_tcx, &Harm::WIRE));
                findings.extend(interrupts::judge(link.name(), &port.interrupts, host.cpus));
            }
        }
    }
    if let [Ok(a), Ok(b)] = facts.ports.each_ref().map(|port| port.link.as_ref()) {
        match wanted.plane {
            WantedPlane::Xsk => findings.extend(queues::judge_pair(a, b, wanted, host.cpus)),
            WantedPlane::Xdp | WantedPlane::Host => {
                let [one, other] = &facts.ports;
                let devices = [(a, one, at_tcx[0]), (b, other, at_tcx[1])];
                findings.extend(redirect::judge(&devices, host.online));
            }
        }
        let in_driver = [a, b].into_iter().zip(at_tcx).filter(|(_, at_tcx)| !at_tcx);
        findings.extend(in_driver.map(|(link, _)| mtu::fits(link, wanted, &host.kernel)));
        findings.extend(mtu::unequal(a, b));
        findings.extend(loops::judge([a, b], &facts.others));
        findings.extend(standby::judge([a, b], &facts.others, wanted));
        findings.extend(management::judge([a, b], facts, wanted));
    }
    findings.extend(host::judge(host, wanted));
    let interrupts = facts.ports.iter().any(|port| !port.interrupts.is_empty());
    findings.extend(interrupts::judge_balancer(host.irqbalance && interrupts));
    findings
}

/// Examines the interface `device` of the calling thread's network namespace as that of a stick
/// with these pairs of VLANs, and the host, as [`examine`] does.
pub fn examine_stick(device: &str, pairs: &[Pair], wanted: &Wanted) -> Vec<Finding> {
    judge_stick(&gather::stick_facts(device, pairs), wanted)
}

/// Judges facts of a stick. Findings about the device come first, then about its VLANs, and about
/// the host.
pub fn judge_stick(facts: &StickFacts, wanted: &Wanted) -> Vec<Finding> {
    let mut findings = Vec::new();
    let StickFacts { device, host, .. } = facts;
    match &device.link {
        Err(error) => findings.push(port::missing(&device.asked, error)),
        Ok(link) => {
            findings.extend(judge_device((device, link), host, wanted, &Harm::STICK));
            if wanted.plane == WantedPlane::Xsk {
                findings.extend(queues::judge_only(link, wanted, host.cpus));
            }
            findings.extend(stick::judge(facts, link, wanted));
        }
    }
    findings.extend(host::judge(host, wanted));
    let interrupts = !device.interrupts.is_empty();
    findings.extend(interrupts::judge_balancer(host.irqbalance && interrupts));
    findings
}

/// Examines interfaces of the calling thread's network namespace as the devices of a router whose
/// routes are the kernel's, and the host, as [`examine`] does.
pub fn examine_router(devices: &[String], wanted: &Wanted) -> Vec<Finding> {
    judge_router(&gather::router_facts(devices), wanted)
}

/// Judges facts of a router. Findings about each device come first, then about all of them, and
/// about the host.
pub fn judge_router(facts: &RouterFacts, wanted: &Wanted) -> Vec<Finding> {
    let each = |link: &Link, port: &PortFacts| router::judge_device(link, port.addressed, facts);
    let all = router::judge_host(facts, wanted);
    judge_several(&facts.ports, &facts.host, wanted, each, all)
}

/// Examines interfaces of the calling thread's network namespace as the ports of a switch, and the
/// host, as [`examine`] does.
pub fn examine_switch(devices: &[String], wanted: &Wanted) -> Vec<Finding> {
    judge_switch(&gather::bridged_facts(devices), wanted)
}

/// Judges facts of a switch, as [`judge_router`] does those of a router.
pub fn judge_switch(facts: &BridgedFacts, wanted: &Wanted) -> Vec<Finding> {
    let each = |link: &Link, _: &PortFacts| switch::judge_device(link, facts);
    let all = switch::judge_host(facts, wanted);
    judge_several(&facts.ports, &facts.host, wanted, each, all)
}

/// Examines interfaces of the calling thread's network namespace as the ports of a host that
/// filters what arrives there for itself, or shapes what it sends there, and the host, as
/// [`examine`] does.
pub fn examine_host(devices: &[String], wanted: &Wanted) -> Vec<Finding> {
    judge_host(&gather::host_ports_facts(devices), wanted)
}

/// What keeps the host plane from a device, whatever else there is on this host; nothing of it is
/// asked for. [`examine_host`] finds it, too.
pub fn blocks_own_traffic(device: &LinkStatus) -> Option<Finding> {
    own_traffic::unread(device)
}

/// Judges facts of a host's ports. Findings about each device come first, then about all of them,
/// and about the host.
pub fn judge_host(facts: &HostPortsFacts, wanted: &Wanted) -> Vec<Finding> {
    if wanted.plane == WantedPlane::Host {
        return own_traffic::judge(facts, wanted);
    }
    let mut findings = Vec::new();
    let mut devices = Vec::new();
    let HostPortsFacts { ports, host, .. } = facts;
    for port in ports {
        match &port.link {
            Err(error) => findings.push(port::missing(&port.asked, error)),
            Ok(link) => {
                findings.extend(judge_device((port, link), host, wanted, &Harm::HOST));
                findings.extend(host_port::judge_device((port, link), facts));
                devices.push((link, port, is_at_tcx(port, host, wanted)));
            }
        }
    }
    findings.extend(redirect::judge_of_host(&devices, host.online));
    findings.extend(host::judge(host, wanted));
    let interrupts = ports.iter().any(|port| !port.interrupts.is_empty());
    findings.extend(interrupts::judge_balancer(host.irqbalance && interrupts));
    findings
}

/// Judges one device by itself.
fn judge_device(
    (port, link): (&PortFacts, &Link),
    host: &HostFacts,
    wanted: &Wanted,
    harm: &Harm,
) -> Vec<Finding> {
    let at_tcx = is_at_tcx(port, host, wanted);
    let mut findings = Vec::new();
    findings.extend(port::judge_only(port, link, wanted, at_tcx));
    findings.extend(queues::judge_port(port, link, wanted));
    findings.extend(offloads::judge(port, link, wanted, at_tcx, harm));
    findings.extend(interrupts::judge(link.name(), &port.interrupts, host.cpus));
    if !at_tcx {
        findings.push(mtu::fits(link, wanted, &host.kernel));
    }
    findings
}

/// Judges `ports`, where a frame leaves through any of them; `each` says more about a device, and
/// `all` is about all.
fn judge_several(
    ports: &[PortFacts],
    host: &HostFacts,
    wanted: &Wanted,
    each: impl Fn(&Link, &PortFacts) -> Vec<Finding>,
    all: Vec<Finding>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut devices = Vec::new();
    for port in ports {
        let link = match &port.link {
            Err(error) => {
                findings.push(port::missing(&port.asked, error));
                continue;
            }
            Ok(link) => link,
        };
        findings.extend(judge_device((port, link), host, wanted, &Harm::ROUTER));
        findings.extend(each(link, port));
        devices.push((link, port, is_at_tcx(port, host, wanted)));
    }
    let links: Vec<&Link> = devices.iter().map(|(link, ..)| *link).collect();
    match wanted.plane {
        WantedPlane::Xsk => findings.extend(queues::judge_all(&links, wanted, host.cpus)),
        WantedPlane::Xdp | WantedPlane::Host => {
            findings.extend(redirect::judge(&devices, host.online));
        }
    }
    findings.extend(all);
    findings.extend(host::judge(host, wanted));
    let interrupts = ports.iter().any(|port| !port.interrupts.is_empty());
    findings.extend(interrupts::judge_balancer(host.irqbalance && interrupts));
    findings
}

/// Whether the XDP plane's program of `port` runs behind the driver.
fn is_at_tcx(port: &PortFacts, host: &HostFacts, wanted: &Wanted) -> bool {
    /// The first version with tcx.
    const TCX: KernelVersion = KernelVersion::new(6, 6);
    wanted.plane == WantedPlane::Xdp
        && host.kernel >= TCX
        && port.link.as_ref().is_ok_and(|link| is_better_at_tcx(&link.driver.name))
}

/// The findings that prevent a start.
pub fn blockers(findings: &[Finding]) -> impl Iterator<Item = &Finding> {
    findings.iter().filter(|finding| finding.severity == Severity::Blocker)
}

/// The findings as text: one line each, followed by the command to type.
pub fn render(findings: &[Finding]) -> String {
    let width = |finding: &Finding| line(&finding.subject).chars().count();
    let width = findings.iter().map(width).max().unwrap_or(0);
    let mut text = String::new();
    for Finding { subject, severity, what, remedy } in findings {
        let word = match severity {
            Severity::Ok => "ok",
            Severity::Note => "note",
            Severity::Warning => "WARNING",
            Severity::Blocker => "BLOCKER",
        };
        let (subject, what) = (line(subject), line(what));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{word:<7}  {subject:<width$}  {what}");
        if let Some(remedy) = remedy {
            let remedy = line(remedy);
            let _ = writeln!(text, "{:<7}  {:<width$}  -> {remedy}", "", "");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::facts::fit;
    use crate::{Address, LinkStatus, routing};
    use narrows_forwarding::{Tag, TagProtocol};

    #[test]
    fn a_fit_pair_on_a_fit_host_has_no_blocker_and_no_warning() {
        let wanted = Wanted { bridge: true, locked_bytes: 64 << 20, ..Wanted::default() };
        let bad: Vec<_> = judge(&fit(), &wanted)
            .into_iter()
            .filter(|finding| finding.severity > Severity::Note)
            .collect();
        assert_eq!(bad, []);
    }

    #[test]
    fn the_xdp_plane_needs_neither_workers_nor_af_xdp_but_a_kernel_with_loops() {
        let wanted = Wanted { plane: WantedPlane::Xdp, ..Wanted::default() };
        let mut facts = fit();
        facts.host.af_xdp = Some(false);
        if let Ok(link) = &mut facts.ports[0].link {
            link.queues.now.tx = 1;
        }
        assert_eq!(blockers(&judge(&facts, &wanted)).count(), 0);
        facts.host.kernel = KernelVersion::new(5, 16);
        let findings = judge(&facts, &wanted);
        let blockers: Vec<_> = blockers(&findings).collect();
        assert_eq!(blockers.len(), 1);
        assert!(blockers[0].remedy.as_ref().unwrap().contains("--plane xsk"));
    }

    #[test]
    fn a_driver_without_xdp_has_the_xdp_plane_at_tcx_and_may_keep_its_offloads() {
        let wanted = Wanted { plane: WantedPlane::Xdp, ..Wanted::default() };
        let mut facts = fit();
        if let Ok(link) = &mut facts.ports[0].link {
            link.driver.name = "e1000e".into();
            (link.offloads.rx_vlan, link.offloads.lro) = (true, true);
            link.status.mtu = 9000;
        }
        let said = |facts: &Facts, words: &str| {
            judge(facts, &wanted).iter().any(|finding| finding.what.contains(words))
        };
        assert!(said(&facts, "behind the driver, at tcx"));
        assert!(!said(&facts, "VLAN tags") && !said(&facts, "several buffers"));
        assert!(said(&facts, "(LRO), which nothing reverses"));
        assert!(said(&facts, "not known to send redirected frames: the other port's program"));
        facts.host.kernel = KernelVersion::new(6, 1);
        assert!(said(&facts, "generic XDP works") && said(&facts, "VLAN tags"));
        assert!(said(&facts, "several buffers"));
    }

    #[test]
    fn a_missing_port_is_a_blocker_and_the_rest_is_still_judged() {
        let mut facts = fit();
        facts.ports[1].link = Err("there is no interface 'b'".into());
        let findings = judge(&facts, &Wanted::default());
        let blockers: Vec<_> = blockers(&findings).collect();
        assert_eq!(blockers.len(), 1);
        assert_eq!(blockers[0].what, "there is no interface 'b'");
        assert!(findings.iter().any(|finding| finding.subject == "kernel"));
        assert!(findings.iter().any(|finding| finding.subject == "a"));
    }

    #[test]
    fn each_finding_is_a_line_with_its_remedy() {
        let findings = [
            Finding::ok("sa", "up"),
            Finding::blocker("kernel", "no AF_XDP").remedy("boot another"),
        ];
        let expected = [
            "ok       sa      up",
            "BLOCKER  kernel  no AF_XDP",
            "                 -> boot another",
            "",
        ];
        assert_eq!(render(&findings), expected.join("\n"));
    }

    /// Every fact that asks for a command about a port, its peer or its bridge.
    fn troubled(names: &[String; 2]) -> Facts {
        let mut facts = fit();
        for (port, name) in facts.ports.iter_mut().zip(names) {
            port.peer = Some(crate::Peer {
                name: name.clone(),
                prefix: Some(format!("ip netns exec {} ", narrows_escape::shell(name))),
                inside: None,
            });
            let Ok(link) = &mut port.link else { continue };
            (link.status.name, link.status.mtu) = (name.clone(), 9000);
            (link.status.up, link.status.carrier, link.status.master) = (true, false, Some(77));
            (link.offloads.rx_vlan, link.offloads.lro) = (true, true);
            link.status.xdp = vec![crate::XdpProgram { id: 1, mode: crate::XdpMode::Native }];
            link.rings.as_mut().unwrap().rx = 64;
        }
        if let Ok(link) = &mut facts.ports[0].link {
            (link.status.up, link.status.mtu) = (false, 1500);
        }
        facts
    }

    proptest::proptest! {
        #[test]
        fn a_name_stays_one_word_of_every_command(
            names in ["[^/:\\s\u{0}]{1,9}", "[;&|$`'\"<>(){}*?!#~\\\\\\[\u{1b}\u{7f}]{1,9}"]
        ) {
            let names = names.map(|name| format!("a{name}reboot"));
            let wanted = Wanted { bridge: true, ..Wanted::default() };
            let findings = judge(&troubled(&names), &wanted);
            let commands: Vec<_> = findings.iter().filter_map(|it| it.remedy.as_ref()).collect();
            proptest::prop_assert!(commands.iter().filter(|it| it.contains("reboot")).count() >= 5);
            for command in commands {
                let rest = names.iter().fold(command.clone(), |rest, name| {
                    rest.replace(&*narrows_escape::shell(name), "")
                });
                proptest::prop_assert!(!rest.contains("reboot"), "{command}");
            }
            let text = render(&findings);
            let is_wrong = |it: char| narrows_escape::is_hidden(it) && it != '\n';
            proptest::prop_assert!(!text.contains(is_wrong), "{text:?}");
        }
    }

    /// Every fact that asks for a command about a device with VLANs, or about those.
    fn troubled_stick([device, vlan]: &[String; 2]) -> StickFacts {
        let tag = |vid| Tag::new(TagProtocol::Customer, vid).unwrap();
        let Facts { ports: [port, _], host, .. } = troubled(&[device.clone(), device.clone()]);
        let bridge = |ifindex, name: &str| LinkStatus {
            ifindex,
            name: name.to_owned(),
            kind: Some("bridge".to_owned()),
            ..LinkStatus::default()
        };
        let on_it = |master| {
            let status = LinkStatus { name: vlan.clone(), master, ..LinkStatus::default() };
            Link { status, ..Link::default() }
        };
        let mut addressed = on_it(None);
        addressed.addresses.push(Address { ip: [192, 0, 2, 1].into(), prefix: 24 });
        let (mut one, mut other) = (on_it(Some(8)), on_it(Some(8)));
        (one.status.ifindex, other.status.ifindex) = (5, 6);
        let namesake = narrows_forwarding::stick::port_name(device, tag(300));
        StickFacts {
            device: port,
            pairs: vec![
                ((tag(100), tag(101)), [Some(one), Some(other)]),
                ((tag(102), tag(103)), [Some(addressed), None]),
                ((tag(104), tag(105)), [Some(on_it(Some(9))), None]),
                ((tag(300), tag(301)), [None, None]),
            ],
            vlan_devices: Some(false),
            others: vec![bridge(8, vlan), bridge(9, vlan), bridge(10, &namesake)],
            host,
        }
    }

    proptest::proptest! {
        #[test]
        fn a_name_stays_one_word_of_every_command_about_a_stick(
            names in ["[^/:\\s\u{0}]{1,9}", "[;&|$`'\"<>(){}*?!#~\\\\\\[\u{1b}\u{7f}]{1,9}"]
        ) {
            let names = names.map(|name| format!("a{name}reboot"));
            let wanted = Wanted { bridge: true, ..Wanted::default() };
            let findings = judge_stick(&troubled_stick(&names), &wanted);
            let commands: Vec<_> = findings.iter().filter_map(|it| it.remedy.as_ref()).collect();
            proptest::prop_assert!(commands.iter().filter(|it| it.contains("reboot")).count() >= 7);
            for command in commands {
                let rest = names.iter().fold(command.clone(), |rest, name| {
                    rest.replace(&*narrows_escape::shell(name), "")
                });
                proptest::prop_assert!(!rest.contains("reboot"), "{command}");
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn a_name_stays_one_word_of_every_command_about_a_router(
            names in ["[^/:\\s\u{0}]{1,9}", "[;&|$`'\"<>(){}*?!#~\\\\\\[\u{1b}\u{7f}]{1,9}"]
        ) {
            let names = names.map(|name| format!("a{name}reboot"));
            let Facts { ports, host, .. } = troubled(&names);
            let mut routing = routing::RoutingFacts::default();
            for ifindex in [2, 3] {
                let on = Some(ifindex == 3);
                routing.devices.push(routing::DeviceRouting {
                    ifindex,
                    ipv4_forwarding: on,
                    ipv6_forwarding: on,
                    ..routing::DeviceRouting::default()
                });
            }
            routing.ipv6_forwarding = Some(true);
            let ports = ports.into();
            let (routing, netfilter) = (Ok(routing), Ok(crate::netfilter::Hooks::default()));
            let (flow_look_up, others) = (None, Vec::new());
            let facts = RouterFacts { ports, routing, netfilter, flow_look_up, others, host };
            let findings = judge_router(&facts, &Wanted::default());
            let commands: Vec<_> = findings.iter().filter_map(|it| it.remedy.as_ref()).collect();
            proptest::prop_assert!(commands.iter().filter(|it| it.contains("reboot")).count() >= 9);
            for command in commands {
                let rest = names.iter().fold(command.clone(), |rest, name| {
                    rest.replace(&*narrows_escape::shell(name), "")
                });
                proptest::prop_assert!(!rest.contains("reboot"), "{command}");
            }
        }
    }

    #[test]
    fn machines_read_findings_as_objects() {
        let finding = Finding::warning("sa", "slow").remedy("faster");
        assert_eq!(
            serde_json::to_string(&finding).unwrap(),
            r#"{"subject":"sa","severity":"warning","what":"slow","remedy":"faster"}"#
        );
    }
}
