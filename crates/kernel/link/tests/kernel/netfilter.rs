//! What would see routed packets is found, on kernels that list hooks and on those that do not.
//! IPsec policies are, too, on kernels that have IPsec.

use crate::bed::Bed;
use narrows_link::doctor::{Severity, Wanted, examine_router};
use narrows_link::netfilter::{Hooks, hooks, routed_hooks};
use std::process::Command;

const TRACKING: &str = "connection tracking (nf_conntrack)";

fn found(bed: &Bed) -> Hooks {
    bed.shaper.inside(|| hooks(&["sa", "sb"])).unwrap()
}

/// A bed on a machine on which `line` runs; none, with a message, on another.
fn bed_with(line: &str) -> Option<Bed> {
    let bed = Bed::new()?;
    let output = bed.shaper.exec(line);
    if output.status.success() {
        return Some(bed);
    }
    println!("SKIPPED: `{line}` fails: {}", String::from_utf8_lossy(&output.stderr));
    None
}

/// Adds a chain `c` to the new table `t` of `family`, at the hook that `words` describe.
fn chain(bed: &Bed, family: &str, words: &str) {
    bed.shaper.must(&format!("nft add table {family} t"));
    bed.shaper.must(&format!("nft add chain {family} t c {{ type filter hook {words} ; }}"));
}

#[test]
fn a_fresh_namespace_has_no_firewall_and_the_kernel_says_what_it_can() {
    let Some(bed) = Bed::new() else { return };
    let hooks = found(&bed);
    assert_eq!(hooks.found, [""; 0]);
    let config = Command::new("zcat").arg("/proc/config.gz").output().map(|output| output.stdout);
    let config = String::from_utf8(config.unwrap_or_default()).unwrap();
    if config.contains("# CONFIG_NETFILTER_NETLINK_HOOK is not set") {
        assert!(!hooks.complete);
    } else if config.contains("CONFIG_NETFILTER_NETLINK_HOOK=") {
        assert!(hooks.complete);
    }
}

#[test]
fn a_chain_counts_when_it_does_something_to_routed_packets() {
    let Some(bed) = bed_with("nft list ruleset") else { return };
    chain(&bed, "inet", "forward priority 0");
    assert_eq!(found(&bed).found, [""; 0], "it lets everything pass");
    bed.shaper.must("nft add rule inet t c ip daddr 192.0.2.7 drop");
    assert_eq!(found(&bed).found, ["inet t c (nf_tables chain)"]);
    bed.shaper.must("nft flush chain inet t c");
    bed.shaper.must("nft chain inet t c { policy drop ; }");
    assert_eq!(found(&bed).found, ["inet t c (nf_tables chain)"]);
    bed.shaper.must("nft delete table inet t");
    chain(&bed, "ip6", "postrouting priority 5 ; policy drop");
    assert_eq!(found(&bed).found, ["ip6 t c (nf_tables chain)"]);
    bed.shaper.must("nft delete table ip6 t");
    chain(&bed, "ip", "input priority 0 ; policy drop");
    assert_eq!(found(&bed).found, [""; 0], "what is for this host is the kernel's");
}

#[test]
fn a_chain_at_a_device_counts_if_it_is_one_of_the_router_s() {
    let Some(bed) = bed_with("nft list ruleset") else { return };
    chain(&bed, "netdev", "ingress device lo priority 0 ; policy drop");
    assert_eq!(found(&bed).found, [""; 0]);
    bed.shaper.must("nft delete table netdev t");
    chain(&bed, "netdev", "ingress device sb priority 0 ; policy drop");
    assert_eq!(found(&bed).found, ["netdev t c (nf_tables chain)"]);
    let other = bed.shaper.inside(|| hooks(&["sa"])).unwrap();
    assert_eq!(other.found, [""; 0]);
}

#[test]
fn a_chain_at_a_vlan_of_a_port_counts() {
    let Some(bed) = bed_with("nft list ruleset") else { return };
    for vlan in ["7", "70"] {
        let line = format!("ip link add link sb name sb.{vlan} type vlan id {vlan}");
        let output = bed.shaper.exec(&line);
        if !output.status.success() {
            println!("SKIPPED: this kernel has no VLAN devices (CONFIG_VLAN_8021Q)");
            return;
        }
    }
    let found = |ports: &[&str]| bed.shaper.inside(|| routed_hooks(ports)).unwrap().found;
    assert_eq!(found(&["sa", "sb"]), [""; 0]);
    chain(&bed, "netdev", "ingress device sb.7 priority 0 ; policy drop");
    assert_eq!(found(&["sa", "sb"]), ["netdev t c (nf_tables chain)"]);
    assert_eq!(found(&["sa"]), [""; 0], "it has no such VLAN");
    bed.shaper.must("nft delete table netdev t");
    assert_eq!(found(&["sa", "sb"]), [""; 0]);
}

#[test]
fn connection_tracking_counts_without_any_chain_that_routed_packets_pass() {
    let Some(bed) = bed_with("nft list ruleset") else { return };
    bed.shaper.ip("link set lo up");
    chain(&bed, "ip", "input priority 0");
    bed.shaper.must("nft add rule ip t c ct state new accept");
    bed.shaper.must("ping -c 1 -W 5 127.0.0.1");
    let hooks = found(&bed);
    assert!(hooks.found.iter().any(|word| word == TRACKING), "{hooks:?}");
    assert!(hooks.found.iter().all(|word| !word.contains("chain")), "{hooks:?}");
}

#[test]
fn nat_has_the_name_of_its_chain() {
    let Some(bed) = bed_with("iptables-nft -t nat -A POSTROUTING -j MASQUERADE") else { return };
    let hooks = found(&bed);
    let has = |wanted: &str| hooks.found.iter().any(|word| word == wanted);
    assert!(has("ip nat POSTROUTING (nf_tables chain)"), "{hooks:?}");
    assert!(!hooks.complete || has(TRACKING), "{hooks:?}");
}

#[test]
fn tables_of_the_older_iptables_are_found_too() {
    let Some(bed) = bed_with("iptables-legacy -t mangle -L") else { return };
    assert_eq!(found(&bed).found, ["ip mangle (iptables)"]);
    bed.shaper.must("ip6tables-legacy -t filter -P FORWARD DROP");
    let hooks = found(&bed);
    assert!(hooks.found.contains(&"ip6 filter (ip6tables)".to_owned()), "{hooks:?}");
    assert_eq!(hooks.found.len(), 2, "{hooks:?}");
}

#[test]
fn ipsec_policies_count_when_they_do_something_to_routed_packets() {
    let Some(bed) = bed_with("ip xfrm policy count") else { return };
    let xfrm = |words: &str| bed.shaper.must(&format!("ip xfrm policy {words}"));
    let esp = "tmpl src 192.0.2.3 dst 192.0.2.4 proto esp mode tunnel";
    xfrm(&format!("add dst 198.51.100.0/24 dir in {esp}"));
    xfrm("add dst 198.51.100.0/25 dir out action allow");
    assert_eq!(found(&bed).found, [""; 0], "routed packets pass as they are");
    xfrm(&format!("add dst 198.51.100.0/24 dir out {esp}"));
    assert_eq!(found(&bed).found, ["1 IPsec policy"]);
    xfrm("add dst 2001:db8::/64 dir out action block");
    xfrm(&format!("add dst 198.51.100.0/24 dir fwd {esp}"));
    assert_eq!(found(&bed).found, ["3 IPsec policies"]);
    xfrm("flush");
    assert_eq!(found(&bed).found, [""; 0]);
    assert_eq!(bed.client.inside(|| hooks(&["v0"])).unwrap().found, [""; 0]);
}

#[test]
fn policies_of_an_xfrm_interface_do_not_count() {
    let esp = "tmpl src 192.0.2.3 dst 192.0.2.4 proto esp mode tunnel";
    let add = format!("ip xfrm policy add dst 198.51.100.0/24 dir out {esp} if_id 7");
    let Some(bed) = bed_with(&add) else { return };
    assert_eq!(found(&bed).found, [""; 0]);
}

#[test]
fn an_ipsec_default_counts_if_it_blocks_routed_packets() {
    const BLOCKS: &str = "an IPsec default that blocks";
    let Some(bed) = bed_with("ip xfrm policy setdefault in block") else { return };
    assert_eq!(found(&bed).found, [""; 0], "routed packets pass");
    for direction in ["fwd", "out"] {
        bed.shaper.must(&format!("ip xfrm policy setdefault {direction} block"));
        assert_eq!(found(&bed).found, [BLOCKS]);
        bed.shaper.must(&format!("ip xfrm policy setdefault {direction} accept"));
        assert_eq!(found(&bed).found, [""; 0]);
    }
}

#[test]
fn doctor_refuses_to_pass_a_firewall_by_unless_that_is_wanted() {
    let Some(bed) = bed_with("nft list ruleset") else { return };
    chain(&bed, "inet", "forward priority 0 ; policy drop");
    let about = |skip_netfilter| {
        let wanted = Wanted { skip_netfilter, ..Wanted::default() };
        let devices = ["sa", "sb"].map(str::to_owned);
        let findings = bed.shaper.inside(|| examine_router(&devices, &wanted));
        let is_about = |finding: &narrows_link::doctor::Finding| finding.what.contains("inet t c");
        findings.into_iter().find(is_about).unwrap()
    };
    let blocked = about(false);
    assert_eq!(blocked.severity, Severity::Blocker);
    assert!(blocked.remedy.unwrap().contains("--skip-netfilter"));
    assert_eq!(about(true).severity, Severity::Warning);
}
