//! Whole imports: the real parser accepts the result.

use narrows_import::libreqos::{self, Options};
use narrows_import::{ImportError, Imported, Ports, sqm};
use narrows_tc::{OfflineHost, load};
use proptest::prelude::*;

fn ports() -> Ports {
    Ports { internet: "wan0".to_owned(), subscribers: "lan0".to_owned() }
}

#[track_caller]
fn loads(imported: &Imported) -> narrows_policy::Policy {
    load(&imported.policy, "imported", &OfflineHost::default())
        .unwrap_or_else(|why| panic!("{why}\n{}", imported.policy))
}

fn options() -> Options {
    Options { ports: ports(), uplink_kbit: [Some(1_000_000), Some(500_000)] }
}

/// The published formats with difficult cases: a comment, a device without a name, two devices of a
/// circuit, several addresses in a cell, host bits, a parent that does not exist.
const DEVICES: &str = "\
# This is a comment
Circuit ID,Circuit Name,Device ID,Device Name,Parent Node,MAC,IPv4,IPv6,Download Min Mbps,Upload Min Mbps,Download Max Mbps,Upload Max Mbps,Comment
1,\"12 High St., Springfield\",1,Router,AP_A,,\"100.64.0.1, 100.64.0.2\",2001:db8:1::/56,25,5,155,20,
1,\"12 High St., Springfield\",2,ATA,AP_A,,100.64.0.3,,25,5,155,20,
2,Farm,3,Router,AP_C,,100.64.1.7/24,,10,10,5000,100,\"far, away\"
3,Mill,4,,Nowhere,,100.64.2.1,2001:db8:2::1,5,1,25,5,
4,Empty,5,Router,Site_B,,,,5,1,25,5,
5,Broken,6,Router,Site_B,,100.64.3.1,,5,1,fast,5,
6,Last,7,Router,Site_B,,100.64.1.9,,0.5,0.25,2.5,1.5,
";

const NETWORK: &str = r#"{
  "Site_A": { "downloadBandwidthMbps": 500, "uploadBandwidthMbps": 200, "type": "site",
    "children": {
      "AP_A": { "downloadBandwidthMbps": 200, "uploadBandwidthMbps": 50, "type": "AP" },
      "Building": { "virtual": true, "downloadBandwidthMbps": 900, "uploadBandwidthMbps": 900,
        "children": { "AP_C": { "downloadBandwidthMbps": 800, "uploadBandwidthMbps": 80 } } }
    } },
  "Site_B": { "downloadBandwidthMbps": 300, "uploadBandwidthMbps": 100, "type": "site", "children": {} }
}"#;

#[test]
fn a_providers_tree_keeps_its_rates_and_addresses() {
    let imported =
        libreqos::import(DEVICES.as_bytes(), Some(NETWORK.as_bytes()), &options()).unwrap();
    loads(&imported);
    let policy = &imported.policy;
    for line in [
        "class add dev lan0 parent 1: classid 1:1 htb rate 1gbit",
        // Site_A: assured the sum of its children, its own bandwidth as the ceiling.
        "class add dev lan0 parent 1:1 classid 1:3 htb rate 35mbit ceil 500mbit",
        "class add dev lan0 parent 1:3 classid 1:4 htb rate 25mbit ceil 200mbit",
        // AP_C is below Site_A, because the virtual node has no class; its ceiling is Site_A's.
        "class add dev lan0 parent 1:3 classid 1:5 htb rate 10mbit ceil 500mbit",
        "# circuit 1 12 High St., Springfield",
        "class add dev lan0 parent 1:4 classid 1:7 htb rate 25mbit ceil 155mbit",
        "qdisc add dev lan0 parent 1:7 handle 7: cake diffserv4",
        "filter add dev lan0 parent 1: protocol ip pref 1 flower dst_ip 100.64.0.2/32 classid 1:7",
        "filter add dev lan0 parent 1: protocol ip pref 1 flower dst_ip 100.64.0.3/32 classid 1:7",
        "filter add dev lan0 parent 1: protocol ipv6 pref 172 flower dst_ip 2001:db8:1::/56 classid 1:7",
        "filter add dev wan0 parent 1: protocol ip pref 9 flower src_ip 100.64.1.0/24 classid 1:8",
        // An address inside that block is evaluated first.
        "filter add dev wan0 parent 1: protocol ip pref 1 flower src_ip 100.64.1.9/32 classid 1:b",
        "class add dev wan0 parent 1:6 classid 1:b htb rate 250kbit ceil 1500kbit",
    ] {
        assert!(policy.lines().any(|one| one == line), "no line {line}\n{policy}");
    }
    let report = imported.report();
    for said in [
        "5 circuits with 8 addresses below 4 nodes",
        "no maximal rate and is left out (line 8, circuit 5)",
        "a parent node is not in network.json: the circuit is below the root (Nowhere, circuit 3)",
        "a circuit has no address, so nothing is sorted into it (4)",
        "a virtual node has no class: its children move up a level (Building)",
    ] {
        assert!(report.contains(said), "no {said}\n{report}");
    }
}

#[test]
fn columns_are_found_by_name_in_any_version() {
    let old = "Circuit ID,Circuit Name,Device ID,Device Name,Parent Node,MAC,IPv4,IPv6,Download Min,Upload Min,Download Max,Upload Max,Comment\n9,A,1,B,,,10.0.0.1,,1,1,10,10,\n";
    let new = "Circuit ID,Circuit Name,Device ID,Device Name,Parent Node,Parent Node ID,Anchor Node ID,MAC,IPv4,IPv6,Download Min Mbps,Upload Min Mbps,Download Max Mbps,Upload Max Mbps,Comment,sqm\n9,A,1,B,,x,y,,10.0.0.1,,1,1,10,10,,fq_codel/none\n";
    let old = libreqos::import(old.as_bytes(), None, &options()).unwrap();
    loads(&old);
    assert!(old.policy.contains("rate 1mbit ceil 10mbit"));
    let new = libreqos::import(new.as_bytes(), None, &options()).unwrap();
    loads(&new);
    assert!(new.policy.contains("qdisc add dev lan0 parent 1:3 handle 3: fq_codel\n"));
    assert!(new.policy.contains("qdisc add dev wan0 parent 1:3 handle 3: pfifo limit 1000\n"));
}

#[test]
fn invalid_files_are_refused_with_a_reason() {
    let no = |text: &str| libreqos::import(text.as_bytes(), None, &options()).unwrap_err();
    assert!(no("a,b,c\n1,2,3\n").to_string().contains("no column \"circuit id\""));
    assert!(matches!(no(""), ImportError::Nothing(_)));
    let header = DEVICES.lines().nth(1).unwrap();
    assert!(matches!(no(&format!("{header}\n")), ImportError::Nothing(_)));
    let network = libreqos::import(DEVICES.as_bytes(), Some(b"[1"), &options()).unwrap_err();
    assert!(network.to_string().starts_with("network.json: "), "{network}");
}

/// As OpenWrt's page on SQM shows it, with the advanced options on.
const SQM: &str = "\
config queue 'eth1'
\toption enabled '1'
\toption interface 'pppoe-wan'
\toption download '85000'
\toption upload '10000'
\toption qdisc 'cake'
\toption script 'layer_cake.qos'
\toption qdisc_advanced '1'
\toption squash_dscp '0'
\toption squash_ingress '0'
\toption ingress_ecn 'ECN'
\toption egress_ecn 'ECN'
\toption qdisc_really_really_advanced '1'
\toption itarget 'auto'
\toption etarget 'auto'
\toption iqdisc_opts 'nat dual-dsthost ingress rtt 50ms'
\toption eqdisc_opts 'nat dual-srchost ack-filter turbo'
\toption linklayer 'atm'
\toption overhead '44'
\toption tcMTU '2047'
\toption tcMPU '64'
\toption linklayer_adaptation_mechanism 'default'

config queue 'guest'
\toption enabled '0'
\toption interface 'wlan1'
\toption script 'simplest_tbf.qos'
\toption download '5000'
\toption upload '0'
\toption qdisc 'fq_codel'
\toption linklayer 'ethernet'
\toption overhead '22'
";

#[test]
fn a_home_line_of_sqm_becomes_two_cakes() {
    let imported = sqm::import(SQM, None, &ports()).unwrap();
    loads(&imported);
    for line in [
        "qdisc replace dev lan0 root cake bandwidth 85mbit diffserv3 overhead 44 atm mpu 64 dual-dsthost ingress rtt 50ms",
        "qdisc replace dev wan0 root cake bandwidth 10mbit diffserv3 overhead 44 atm mpu 64 dual-srchost ack-filter",
        "# NOTE: not a word of cake: left out: turbo",
    ] {
        assert!(
            imported.policy.lines().any(|one| one == line),
            "no line {line}\n{}",
            imported.policy
        );
    }
    let report = imported.report();
    assert!(
        report.contains("download 85mbit through lan0, upload 10mbit through wan0"),
        "{report}"
    );
    assert!(report.contains("nat left out"), "{report}");
}

#[test]
fn a_queue_that_is_off_can_be_asked_for_by_name() {
    let imported = sqm::import(SQM, Some("wlan1"), &ports()).unwrap();
    loads(&imported);
    let lines = "qdisc replace dev lan0 root handle 1: tbf rate 5mbit burst 6400 latency 50ms overhead 8\n\
                 qdisc replace dev lan0 parent 1:1 fq_codel ecn\n";
    assert!(imported.policy.contains(lines), "{}", imported.policy);
    assert!(!imported.policy.contains("dev wan0"));
    let wrong = sqm::import(SQM, Some("eth9"), &ports()).unwrap_err();
    assert_eq!(wrong.to_string(), "no queue is for interface eth9: there are pppoe-wan, wlan1");
    let both = SQM.replace("enabled '0'", "enabled '1'");
    assert!(sqm::import(&both, None, &ports()).unwrap_err().to_string().contains("--interface"));
}

#[test]
fn the_file_that_openwrt_ships_has_nothing_enabled() {
    let shipped = "config queue 'eth1'\n\toption enabled '0'\n\toption interface 'eth1'\n";
    let nothing = sqm::import(shipped, None, &ports()).unwrap_err();
    assert_eq!(nothing.to_string(), "no queue is enabled: name one with --interface, of eth1");
}

proptest! {
    /// With any names and rates of a provider, the result loads.
    #[test]
    fn any_circuits_make_a_policy_that_loads(
        rows in proptest::collection::vec(
            ("\\PC{0,20}", 0..4_u8, 0..300_u32, -5.0..2000.0, 0.0..3000.0), 1..20),
        bandwidth in 0.0..5000.0,
    ) {
        let mut text = DEVICES.lines().nth(1).unwrap().to_owned() + "\n";
        for (index, (name, parent, address, least, most)) in rows.iter().enumerate() {
            let name = name.replace('"', "\"\"");
            let address = std::net::Ipv4Addr::from(0x0a00_0000 + address);
            text += &format!("{index},\"{name}\",1,\"#{name}\",N{parent},,{address},,{least},{least},{most},{most},\n");
        }
        let network = format!(
            "{{\"N0\":{{\"downloadBandwidthMbps\":{bandwidth},\"uploadBandwidthMbps\":1,\"children\":{{\"N1\":{{}}}}}},\"N2\":{{}}}}"
        );
        match libreqos::import(text.as_bytes(), Some(network.as_bytes()), &options()) {
            Ok(imported) => { loads(&imported); }
            Err(error) => prop_assert!(matches!(error, ImportError::Nothing(_)), "{error}"),
        }
    }
}
