//! The doctor finds real problems on real veths, across namespaces.

use crate::bed::Bed;
use crate::pass_all::PassAll;
use narrows_link::doctor::{Finding, Severity, Wanted, blockers, examine, examine_router, render};

fn findings(bed: &Bed, wanted: &Wanted) -> Vec<Finding> {
    bed.shaper.inside(|| examine("sa", "sb", wanted))
}

fn remedies_of_blockers(findings: &[Finding]) -> Vec<&str> {
    blockers(findings).filter_map(|finding| finding.remedy.as_deref()).collect()
}

#[test]
fn fresh_veths_are_refused_for_their_peers_checksums_and_fit_after_the_remedy() {
    let Some(bed) = Bed::new() else { return };
    let wanted = Wanted { bridge: true, queues: Some(4), ..Wanted::default() };
    let before = findings(&bed, &wanted);
    println!("{}", render(&before));
    let expected = [
        format!("ip netns exec {} ethtool -K v0 tx off", bed.client.name),
        format!("ip netns exec {} ethtool -K v0 txvlan off", bed.client.name),
        format!("ip netns exec {} ethtool -K v0 tx-vlan-stag-hw-insert off", bed.client.name),
        format!("ip netns exec {} ethtool -K v1 tx off", bed.server.name),
        format!("ip netns exec {} ethtool -K v1 txvlan off", bed.server.name),
        format!("ip netns exec {} ethtool -K v1 tx-vlan-stag-hw-insert off", bed.server.name),
    ];
    assert_eq!(remedies_of_blockers(&before), expected);

    // Each remedy is typed as it stands. The number of CPUs, the kernel settings of this host and
    // how the box is reached are not the test's to change.
    let about_ports = |finding: &&Finding| {
        let others = ["box", "cpu", "kernel"];
        finding.severity >= Severity::Warning && !others.contains(&&*finding.subject)
    };
    for finding in before.iter().filter(about_ports) {
        bed.shaper.must(finding.remedy.as_ref().unwrap());
    }
    let after = findings(&bed, &wanted);
    assert_eq!(after.iter().find(about_ports), None);
}

#[test]
fn too_few_queues_are_refused_with_the_command_that_helps() {
    let Some(bed) = Bed::new() else { return };
    bed.client.must("ethtool -K v0 tx off txvlan off tx-vlan-stag-hw-insert off");
    bed.server.must("ethtool -K v1 tx off txvlan off tx-vlan-stag-hw-insert off");
    bed.server.must("ethtool -L v1 rx 2 tx 2");
    bed.shaper.must("ethtool -L sb rx 2 tx 2");
    let findings = findings(&bed, &Wanted::default());
    let remedy = "ethtool -L sb rx 4 tx 4";
    assert_eq!(remedies_of_blockers(&findings), [remedy], "{}", render(&findings));
    bed.shaper.must(remedy);
}

#[test]
fn a_peer_with_more_queues_than_the_port_is_seen() {
    let Some(bed) = Bed::new() else { return };
    bed.client.must("ethtool -K v0 tx off txvlan off tx-vlan-stag-hw-insert off");
    bed.server.must("ethtool -K v1 tx off txvlan off tx-vlan-stag-hw-insert off");
    bed.shaper.must("ethtool -L sa rx 2 tx 2");
    bed.shaper.must("ethtool -L sb rx 2 tx 2");
    let findings = findings(&bed, &Wanted::default());
    assert!(
        remedies_of_blockers(&findings)
            .contains(&format!("ip netns exec {} ethtool -L v0 tx 2", bed.client.name).as_str()),
        "{}",
        render(&findings)
    );
}

#[test]
fn an_attached_program_an_address_and_a_missing_port_are_refused() {
    let Some(bed) = Bed::new() else { return };
    let Some(program) = PassAll::compile() else { return };
    bed.shaper.ip(&format!("link set sa xdpgeneric obj {} sec xdp", program.object()));
    bed.shaper.ip("addr add 198.51.100.7/24 dev sb");
    let wanted = Wanted { bridge: true, ..Wanted::default() };
    let seen = findings(&bed, &wanted);
    let remedies = remedies_of_blockers(&seen);
    assert!(remedies.contains(&"ip link set dev sa xdpgeneric off"), "{}", render(&seen));
    assert!(remedies.iter().any(|remedy| remedy.contains("ip addr del 198.51.100.7/24 dev sb")));
    let missing = bed.shaper.inside(|| examine("sa", "nosuch", &wanted));
    assert!(blockers(&missing).any(|finding| finding.subject == "nosuch"));
}

#[test]
fn a_jumbo_mtu_is_refused_in_a_mode_that_cannot() {
    let Some(bed) = Bed::new() else { return };
    bed.shaper.ip("link set sa mtu 9000");
    let one = findings(&bed, &Wanted::default());
    assert!(remedies_of_blockers(&one).contains(&"ip link set dev sa mtu 3498"));
    let several = findings(&bed, &Wanted { multi_buffer: true, ..Wanted::default() });
    assert!(!remedies_of_blockers(&several).contains(&"ip link set dev sa mtu 3498"));
}

#[test]
fn a_peer_in_the_same_namespace_is_looked_into() {
    let Some(bed) = Bed::new() else { return };
    bed.shaper.ip("link add name left type veth peer name right");
    let findings = bed.shaper.inside(|| examine("left", "sb", &Wanted::default()));
    let remedies = remedies_of_blockers(&findings);
    assert!(remedies.contains(&"ethtool -K right tx off"), "{}", render(&findings));
}

#[test]
fn a_peer_in_a_process_s_nameless_namespace_is_looked_into() {
    let Some(bed) = Bed::new() else { return };
    let container = Container::start();
    let pid = container.0.id();
    bed.shaper.ip(&format!("link add name left type veth peer name inner netns {pid}"));
    let findings = bed.shaper.inside(|| examine("left", "sb", &Wanted::default()));
    let remedies = remedies_of_blockers(&findings);
    let remedy = format!("nsenter -t {pid} -n ethtool -K inner tx off");
    assert!(remedies.contains(&remedy.as_str()), "{}", render(&findings));
    bed.shaper.must(&remedy);
}

#[test]
fn a_router_is_fit_when_everything_that_is_said_was_typed() {
    let Some(bed) = Bed::new() else { return };
    bed.shaper.must("sysctl -qw net.ipv4.ip_forward=0");
    bed.shaper.ip("addr add 192.0.2.3/24 dev sa");
    bed.shaper.ip("addr add 2001:db8::3/64 dev sb");
    bed.shaper.ip("link add name br9 type bridge");
    bed.shaper.ip("link set sb master br9");
    let examine = || {
        let devices = ["sa", "sb"].map(str::to_owned);
        bed.shaper.inside(|| examine_router(&devices, &Wanted::default()))
    };
    let before = examine();
    println!("{}", render(&before));
    let remedies: Vec<_> = before.iter().filter_map(|finding| finding.remedy.as_deref()).collect();
    for expected in [
        "ip link set dev sb nomaster",
        "sysctl -w net.ipv4.ip_forward=1",
        "sysctl -w net.ipv6.conf.all.forwarding=1",
    ] {
        assert!(remedies.contains(&expected), "{}", render(&before));
    }
    let is_ours = |finding: &&Finding| {
        let is_of_host = ["cpu", "process"].contains(&&*finding.subject);
        finding.severity >= Severity::Warning && !is_of_host
    };
    for finding in before.iter().filter(is_ours) {
        bed.shaper.must(finding.remedy.as_ref().unwrap());
    }
    let after = examine();
    assert_eq!(after.iter().find(is_ours), None, "{}", render(&after));
    // One device is worth a word of its own.
    bed.shaper.must("sysctl -qw net.ipv4.conf.sb.forwarding=0");
    let one = examine();
    let remedy = one.iter().find(is_ours).and_then(|finding| finding.remedy.as_deref());
    assert_eq!(remedy, Some("sysctl -w net/ipv4/conf/sb/forwarding=1"));
    bed.shaper.must(remedy.unwrap());
    assert_eq!(examine().iter().find(is_ours), None);
}

/// A process in an unnamed network namespace, as in a container.
struct Container(std::process::Child);

impl Container {
    fn start() -> Self {
        let mut sleeper = std::process::Command::new("unshare");
        let child = Self(sleeper.args(["-n", "sleep", "60"]).spawn().expect("unshare runs"));
        // It is in the namespace once it has become the sleeper.
        let comm = format!("/proc/{}/comm", child.0.id());
        while std::fs::read_to_string(&comm).is_ok_and(|name| name.trim() != "sleep") {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        child
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
