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
    Options {
        ports: ports(),
        uplink_kbit: [Some(1_000_000), Some(500_000)],
        numbers: String::new(),
    }
}

/// The number of the class that the comment `of` is above, in hexadecimal.
#[track_caller]
fn number(policy: &str, of: &str) -> String {
    let mut lines = policy.lines().skip_while(|line| *line != of).skip(1);
    let line = lines.next().unwrap_or_else(|| panic!("no {of} in {policy}"));
    let (_, number) = line.split_once("classid 1:").unwrap();
    number.split(' ').next().unwrap().to_owned()
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
    let number = |of: &str| number(policy, of);
    let (site_a, ap_a, ap_c) =
        (number("# site Site_A"), number("# AP AP_A"), number("# node AP_C"));
    let (site_b, one) = (number("# site Site_B"), number("# circuit 1 12 High St., Springfield"));
    let (farm, last) = (number("# circuit 2 Farm"), number("# circuit 6 Last"));
    for line in [
        "class add dev lan0 parent 1: classid 1:1 htb rate 1gbit",
        // Site_A: assured the sum of its children, its own bandwidth as the ceiling.
        &format!("class add dev lan0 parent 1:1 classid 1:{site_a} htb rate 35mbit ceil 500mbit"),
        &format!(
            "class add dev lan0 parent 1:{site_a} classid 1:{ap_a} htb rate 25mbit ceil 200mbit"
        ),
        // AP_C is below Site_A, because the virtual node has no class; its ceiling is Site_A's.
        &format!(
            "class add dev lan0 parent 1:{site_a} classid 1:{ap_c} htb rate 10mbit ceil 500mbit"
        ),
        &format!("class add dev lan0 parent 1:{ap_a} classid 1:{one} htb rate 25mbit ceil 155mbit"),
        &format!("qdisc add dev lan0 parent 1:{one} handle {one}: cake diffserv4"),
        &format!(
            "filter add dev lan0 parent 1: protocol ip pref 1 flower dst_ip 100.64.0.2/32 classid 1:{one}"
        ),
        &format!(
            "filter add dev lan0 parent 1: protocol ip pref 1 flower dst_ip 100.64.0.3/32 classid 1:{one}"
        ),
        &format!(
            "filter add dev lan0 parent 1: protocol ipv6 pref 172 flower dst_ip 2001:db8:1::/56 classid 1:{one}"
        ),
        &format!(
            "filter add dev wan0 parent 1: protocol ip pref 9 flower src_ip 100.64.1.0/24 classid 1:{farm}"
        ),
        // An address inside that block is evaluated first.
        &format!(
            "filter add dev wan0 parent 1: protocol ip pref 1 flower src_ip 100.64.1.9/32 classid 1:{last}"
        ),
        &format!(
            "class add dev wan0 parent 1:{site_b} classid 1:{last} htb rate 250kbit ceil 1500kbit"
        ),
    ] {
        assert!(policy.lines().any(|one| one == line), "no line {line}\n{policy}");
    }
    let report = imported.report();
    for said in [
        "5 circuits with 8 addresses below 4 nodes",
        "line 8, circuit 5: the maximum of the download is \"fast\": a number of Mbit/s",
        "line 6, circuit 3: its parent node Nowhere is not in network.json: it is below the root",
        "a circuit has no address, so nothing is sorted into it (line 7, circuit 4)",
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
    let nine = number(&new.policy, "# circuit 9 A");
    assert!(
        new.policy
            .contains(&format!("qdisc add dev lan0 parent 1:{nine} handle {nine}: fq_codel\n"))
    );
    assert!(new.policy.contains(&format!(
        "qdisc add dev wan0 parent 1:{nine} handle {nine}: pfifo limit 1000\n"
    )));
}

#[test]
fn invalid_files_are_refused_with_a_reason() {
    let no = |text: &str| libreqos::import(text.as_bytes(), None, &options()).unwrap_err();
    assert!(no("a,b,c\n1,2,3\n").to_string().contains("no column \"circuit id\""));
    assert!(matches!(no(""), ImportError::Nothing(_)));
    let header = DEVICES.lines().nth(1).unwrap();
    assert!(matches!(no(&format!("{header}\n")), ImportError::Nothing(_)));
    let marked = "\u{feff}{}".as_bytes();
    assert!(libreqos::import(DEVICES.as_bytes(), Some(marked), &options()).is_ok());
    let network = libreqos::import(DEVICES.as_bytes(), Some(b"[1"), &options()).unwrap_err();
    assert!(network.to_string().starts_with("network.json: "), "{network}");
}

const COLUMNS: &str = "Circuit ID,Circuit Name,Parent Node,IPv4,IPv6,Download Min Mbps,Upload Min Mbps,Download Max Mbps,Upload Max Mbps,sqm\n";

/// The import of one row below a sound one.
fn beside_a_sound_row(row: &str) -> Imported {
    let text = format!("{COLUMNS}1,Sound,,10.0.0.1,,5,5,10,10,\n{row}\n");
    let imported = libreqos::import(text.as_bytes(), None, &options()).unwrap();
    loads(&imported);
    imported
}

#[test]
fn a_row_that_is_not_sound_is_left_out_and_named_with_its_line() {
    for (row, why) in [
        ("2,A,,10.0.0.2,,25M,5,100,100,", "the minimum of the download is \"25M\""),
        ("2,A,,10.0.0.2,,5,n/a,100,100,", "the minimum of the upload is \"n/a\""),
        ("2,A,,10.0.0.2,,-5,5,100,100,", "the minimum of the download is \"-5\""),
        ("2,A,,10.0.0.2,,5,5,\"10,5\",100,", "write a decimal point"),
        ("2,A,,10.0.0.2,,5,5,inf,100,", "the maximum of the download is \"inf\""),
        ("2,A,,10.0.0.2,,5,5,100,,", "the maximum of the upload is empty"),
        ("2,A,,10.0.0.2,,5,5,100,0,", "the maximum of the upload is less than 1 kbit/s"),
        ("2,A,,10.0.0.2,,5,5,100,100,turbo", "its queue management is \"turbo\""),
        ("2,A, B,,10.0.0.2,,5,5,100,100,,", "it has 12 fields, and the first line names 10"),
        ("2,A", "the maximum of the download is empty"),
    ] {
        let imported = beside_a_sound_row(row);
        let fault = imported.faults.first().map_or("", String::as_str);
        assert!(fault.starts_with("line 3, circuit 2: ") && fault.contains(why), "{row}: {fault}");
        assert!(fault.ends_with(": the row is left out"), "{fault}");
        assert!(!imported.policy.contains("circuit 2 A\n"), "{}", imported.policy);
        assert!(imported.report().starts_with("1 circuit with 1 address below 0 nodes\n"));
    }
}

#[test]
fn what_two_rows_say_differently_is_named_with_both_lines() {
    for (row, what) in [
        ("1,Other,,10.0.0.2,,5,5,10,10,", "name"),
        ("1,Sound,Site,10.0.0.2,,5,5,10,10,", "parent node"),
        ("1,Sound,,10.0.0.2,,4,5,10,10,", "minimum"),
        ("1,Sound,,10.0.0.2,,5,5,10,11,", "maximum"),
        ("1,Sound,,10.0.0.2,,5,5,10,10,none", "queue management"),
    ] {
        let imported = beside_a_sound_row(row);
        let fault = format!(
            "line 3, circuit 1: its {what} is not that of line 2, the circuit's first device, whose \
             counts"
        );
        assert_eq!(imported.faults, [fault]);
        assert!(imported.policy.contains("dst_ip 10.0.0.2/32"), "its address is the circuit's");
    }
    let twice = beside_a_sound_row("2,A,,10.0.0.1,,5,5,10,10,");
    assert_eq!(twice.faults, ["line 3, circuit 2: 10.0.0.1/32 is also in line 2, which counts"]);
}

#[test]
fn a_minimum_above_the_maximum_is_named() {
    let imported = beside_a_sound_row("2,A,,10.0.0.2,,50,5,10,10,");
    assert_eq!(
        imported.faults,
        ["line 3, circuit 2: the minimum of the download is above the maximum: the maximum of \
          10mbit counts for both"]
    );
    assert!(imported.policy.contains("htb rate 10mbit ceil 10mbit"));
}

#[test]
fn a_quote_that_is_not_closed_refuses_the_file() {
    let text = format!("{COLUMNS}1,\"High St.,,10.0.0.1,,5,5,10,10,\n2,B,,10.0.0.2,,5,5,10,10,\n");
    let why = libreqos::import(text.as_bytes(), None, &options()).unwrap_err().to_string();
    assert!(why.contains("line 2: a quote is not closed"), "{why}");
}

/// LibreQoS's own example has rows with a comma in a comment without quotes.
#[test]
fn rows_with_more_fields_than_columns_are_named_each() {
    let header = "Circuit ID,Circuit Name,Device ID,Device Name,Parent Node,MAC,IPv4,IPv6,Download Min Mbps,Upload Min Mbps,Download Max Mbps,Upload Max Mbps,Comment,sqm\n";
    let text = format!(
        "# one\n{header}10,\"A, B\",12,D,,,100.64.0.12,,50,20,200,50,Down=cake, Up=fq_codel,cake/fq_codel\n\
         11,C,13,D,,,100.64.0.13,,50,20,200,50,plain,cake/\n"
    );
    let imported = libreqos::import(text.as_bytes(), None, &options()).unwrap();
    loads(&imported);
    assert_eq!(imported.faults.len(), 1);
    assert!(imported.faults[0].starts_with("line 3, circuit 10: it has 15 fields"));
    assert!(imported.policy.contains("# circuit 11 C"));
}

#[test]
fn a_networks_bad_values_are_named() {
    let import = |network: &str| {
        let text = format!("{COLUMNS}1,A,S,10.0.0.1,,5,5,10,10,\n");
        libreqos::import(text.as_bytes(), Some(network.as_bytes()), &options())
    };
    let rate = import(r#"{"S":{"downloadBandwidthMbps":"100","uploadBandwidthMbps":-1}}"#).unwrap();
    assert_eq!(rate.faults.len(), 2, "{:?}", rate.faults);
    assert!(rate.faults[0].contains("network.json, S: downloadBandwidthMbps is \"100\""));
    let twice = import(r#"{"S":{"children":{}},"S":{"children":{}}}"#).unwrap_err().to_string();
    assert!(twice.contains("\"S\" occurs twice"), "{twice}");
    assert!(import(r#"{"S":{"children":[1]}}"#).is_err());
}

/// Rows of circuits: number and parent.
fn provider(circuits: &[(u32, u8)], names: &str) -> String {
    let rows = circuits.iter().map(|(id, site)| {
        let address = std::net::Ipv4Addr::from(0x0a00_0000 + id);
        format!("C{id},{names} {id},Site{site},{address},,1,1,{},10,\n", 10 + id % 7)
    });
    COLUMNS.to_owned() + &rows.collect::<String>()
}

const SITES: &str = r#"{"Site0":{"downloadBandwidthMbps":900,"uploadBandwidthMbps":900,"children":{"Site1":{}}},"Site2":{}}"#;
/// The sites of `SITES` at other places, and one more.
const MOVED_SITES: &str = r#"{"New":{},"Site2":{"children":{"Site1":{}}},"Site0":{"downloadBandwidthMbps":500,"uploadBandwidthMbps":500}}"#;

/// The numbers of circuits and sites on a port, by what the comment says without the circuit's
/// name.
fn numbers(policy: &str, dev: &str) -> std::collections::BTreeMap<String, String> {
    let start = format!("class add dev {dev} ");
    let lines: Vec<&str> = policy.lines().collect();
    let pairs =
        lines.windows(2).filter(|pair| pair[0].starts_with("# ") && pair[1].starts_with(&start));
    pairs
        .filter(|pair| pair[0].starts_with("# circuit") || pair[0].starts_with("# node"))
        .map(|pair| {
            let who = pair[0].split(' ').take(3).collect::<Vec<_>>().join(" ");
            let number = pair[1].split_once("classid 1:").unwrap().1;
            (who, number.split(' ').next().unwrap().to_owned())
        })
        .collect()
}

#[test]
fn a_circuit_added_before_400_renumbers_none() {
    let before: Vec<(u32, u8)> = (1..=400).map(|id| (id, (id % 3) as u8)).collect();
    let mut after = before.clone();
    after.insert(0, (5000, 1));
    let import = |rows: &[(u32, u8)]| {
        libreqos::import(provider(rows, "N").as_bytes(), Some(SITES.as_bytes()), &options())
            .unwrap()
    };
    let (before, after) = (import(&before), import(&after));
    loads(&after);
    for dev in ["lan0", "wan0"] {
        let (before, mut after) = (numbers(&before.policy, dev), numbers(&after.policy, dev));
        assert_eq!(before.len(), 403);
        assert!(after.remove("# circuit C5000").is_some());
        assert_eq!(before, after);
    }
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
        "# layer_cake.qos: one cake with three tins.",
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
    assert!(report.contains("eqdisc_opts: \"turbo\" is left out: What is \"turbo\"?"), "{report}");
}

#[test]
fn a_queue_that_is_off_can_be_asked_for_by_name() {
    let imported = sqm::import(SQM, Some("wlan1"), &ports()).unwrap();
    loads(&imported);
    let lines = "qdisc replace dev lan0 root handle 1: tbf rate 5mbit burst 6400 latency 50ms overhead 22\n\
                 qdisc replace dev lan0 parent 1:1 fq_codel ecn\n";
    assert!(imported.policy.contains(lines), "{}", imported.policy);
    assert!(!imported.policy.contains("dev wan0"));
    let wrong = sqm::import(SQM, Some("eth9"), &ports()).unwrap_err();
    assert_eq!(wrong.to_string(), "no queue is for interface eth9: there are pppoe-wan, wlan1");
    let both = SQM.replace("enabled '0'", "enabled '1'");
    assert!(sqm::import(&both, None, &ports()).unwrap_err().to_string().contains("--interface"));
}

/// A queue with these options, for both directions.
fn queue(options: &str) -> Imported {
    let text = format!(
        "config queue\n option enabled 1\n option interface eth1\n option download 50000\n option \
         upload 10000\n{options}"
    );
    let imported = sqm::import(&text, None, &ports()).unwrap();
    loads(&imported);
    imported
}

#[test]
fn every_word_that_cake_takes_is_taken() {
    for (given, taken) in [
        ("diffserv", "diffserv"),
        ("interplanetary", "interplanetary"),
        ("overhead -4", "overhead -4"),
        ("rtt 100", "rtt 100"),
        ("rtt 1.5s", "rtt 1.5s"),
        ("fwmark 255", "fwmark 255"),
        ("fwmark 0xff", "fwmark 0xff"),
        ("memlimit 4Mb", "memlimit 4Mb"),
        ("mpu 84 docsis wash", "mpu 84 docsis wash"),
        ("ethernet ether-vlan", "ethernet ether-vlan"),
        ("unlimited", "unlimited"),
        ("inner", "inner"),
    ] {
        let imported =
            queue(&format!(" option script piece_of_cake.qos\n option eqdisc_opts '{given}'\n"));
        let line = format!("dev wan0 root cake bandwidth 10mbit besteffort {taken}\n");
        assert!(imported.policy.contains(&line), "{given}\n{}", imported.policy);
        assert_eq!(imported.faults, [""; 0], "{given}");
    }
}

#[test]
fn a_word_that_cake_refuses_is_left_out_with_its_value_and_the_reason() {
    for (given, said) in [
        ("rtt 5x ack-filter", "\"rtt 5x\" is left out: cake: illegal value for \"rtt\""),
        ("overhead 999 ack-filter", "\"overhead 999\" is left out"),
        ("lan metro ack-filter", "\"metro\" is left out: Error: duplicate"),
        ("ack-filter mpu", "\"mpu\" is left out"),
        ("quick ack-filter", "\"quick\" is left out"),
    ] {
        let imported = queue(&format!(" option eqdisc_opts '{given}'\n"));
        assert!(imported.faults.iter().any(|fault| fault.contains(said)), "{:?}", imported.faults);
        assert!(imported.policy.contains("ack-filter\n"), "{}", imported.policy);
    }
}

#[test]
fn options_count_whether_the_web_page_shows_them_or_not() {
    let words = " option script layer_cake.qos\n option iqdisc_opts 'dual-dsthost ingress'\n \
                 option squash_dscp 0\n option squash_ingress 0\n option ilimit 50\n";
    for advanced in ["", " option qdisc_advanced 0\n option qdisc_really_really_advanced 0\n"] {
        let imported = queue(&format!("{words}{advanced}"));
        let line = "dev lan0 root cake bandwidth 50mbit diffserv3 dual-dsthost ingress\n";
        assert!(imported.policy.contains(line), "{}", imported.policy);
        let limit = "ilimit 50: cake sets its target and limit by the rate: left out";
        assert_eq!(imported.faults, [limit]);
    }
}

#[test]
fn an_fq_codel_has_the_limits_targets_and_options_of_its_direction() {
    for (options, upload) in [
        ("", "ecn"),
        (" option egress_ecn NOECN\n", "noecn"),
        (" option elimit 600\n option etarget 7ms\n", "ecn limit 600 target 7ms"),
        (
            " option etarget auto\n option eqdisc_opts 'quantum 300 noecn'\n",
            "ecn quantum 300 noecn",
        ),
        (" option upload 1000\n", "ecn target 13992us interval 108992us"),
        (" option upload 1000\n option etarget default\n", "ecn"),
    ] {
        let imported = queue(&format!(" option script simplest.qos\n{options}"));
        let line = format!("dev wan0 parent 1:1 fq_codel {upload}\n");
        assert!(imported.policy.contains(&line), "{options}\n{}", imported.policy);
        assert_eq!(imported.faults, [""; 0], "{options}");
    }
    let imported =
        queue(" option script simplest.qos\n option elimit x\n option eqdisc_opts nat\n");
    assert!(imported.faults.iter().any(|fault| fault.contains("elimit: \"limit x\"")));
}

#[test]
fn the_file_of_the_package_for_openwrt_is_known_in_full() {
    let file = include_str!("../../../../dist/openwrt/files/narrows.config");
    let imported = sqm::import(file, Some("eth1"), &ports()).unwrap();
    assert_eq!(imported.faults, [""; 0]);
}

#[test]
fn an_option_that_is_not_known_is_named() {
    let imported = queue(" option bandwith 100\n");
    assert_eq!(imported.faults, ["option bandwith '100' is unknown: left out"]);
}

#[test]
fn overhead_means_the_same_for_each_link_layer() {
    for (script, interface, overhead) in [
        ("layer_cake.qos", "eth1", "overhead 44"),
        ("simplest.qos", "eth1", "overhead 44"),
        ("simplest_tbf.qos", "eth1", "overhead 44"),
        ("simplest.qos", "pppoe-wan", "overhead 30"),
        ("layer_cake.qos", "pppoe-wan", "overhead 44"),
    ] {
        for layer in ["ethernet", "atm"] {
            let imported = queue(&format!(
                " option script {script}\n option linklayer {layer}\n option overhead 44\n option \
                 tcMPU 64\n option interface {interface}\n"
            ));
            let lines: Vec<_> =
                imported.policy.lines().filter(|line| line.contains(overhead)).collect();
            assert_eq!(lines.len(), 2, "{script} {layer} {}", imported.policy);
            assert!(lines.iter().all(|line| line.contains("mpu 64")), "{lines:?}");
            let is_atm =
                lines.iter().all(|line| line.ends_with(" linklayer atm") || line.contains(" atm"));
            assert_eq!(is_atm, layer == "atm", "{lines:?}");
        }
    }
}

#[test]
fn an_overhead_of_a_size_table_counts_the_ethernet_header() {
    let table = " option linklayer ethernet\n option overhead 30\n option \
                 linklayer_adaptation_mechanism tc_stab\n";
    for (interface, overhead) in [("eth1", "overhead 44"), ("pppoe-wan", "overhead 30")] {
        let imported = queue(&format!(
            " option script layer_cake.qos\n{table} option interface {interface}\n"
        ));
        assert!(imported.policy.contains(overhead), "{}", imported.policy);
    }
}

#[test]
fn numbers_of_a_link_that_are_none_are_named() {
    for (options, said) in [
        (" option linklayer ethernet\n option overhead 44x\n", "overhead \"44x\""),
        (" option linklayer ethernet\n option overhead 999\n", "overhead \"999\""),
        (" option linklayer atm\n option tcMPU -1\n", "tcMPU \"-1\""),
        (" option linklayer sonet\n", "linklayer \"sonet\" is unknown"),
        (
            " option linklayer atm\n option script simplest.qos\n option overhead -4\n",
            "4 bytes too much",
        ),
        (" option script mine.qos\n", "\"mine.qos\" is not one of sqm-scripts'"),
    ] {
        let imported = queue(options);
        assert!(imported.faults.iter().any(|fault| fault.contains(said)), "{:?}", imported.faults);
    }
}

#[test]
fn each_script_of_sqm_scripts_has_a_sentence() {
    for script in [
        "piece_of_cake.qos",
        "layer_cake.qos",
        "simple.qos",
        "simplest.qos",
        "simplest_tbf.qos",
        "hfsc_lite.qos",
        "hfsc_litest.qos",
        "nss-rk.qos",
    ] {
        let imported = queue(&format!(" option script {script}\n"));
        assert_eq!(imported.faults, [""; 0], "{script}");
        assert!(imported.policy.contains(&format!("# {script}: ")), "{}", imported.policy);
    }
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

    /// Whatever rows come, go, move or get other names and rates: who stays keeps the number, on
    /// both ports, with the kept file for certain.
    #[test]
    fn who_stays_keeps_the_number(
        before in proptest::collection::hash_map(0..500_u32, 0..3_u8, 1..80),
        changes in proptest::collection::vec((0..500_u32, 0..4_u8), 0..60),
        moves_sites: bool,
    ) {
        let old: Vec<(u32, u8)> = before.iter().map(|(id, site)| (*id, *site)).collect();
        let mut after = before.clone();
        for (id, change) in changes {
            if change == 3 { after.remove(&id); } else { after.insert(id, change); }
        }
        prop_assume!(!after.is_empty());
        let mut new: Vec<(u32, u8)> = after.into_iter().collect();
        new.sort();
        let first =
            libreqos::import(provider(&old, "N").as_bytes(), Some(SITES.as_bytes()), &options()).unwrap();
        let sites = if moves_sites { MOVED_SITES } else { SITES };
        for kept in ["", &first.numbers] {
            let options = Options { numbers: kept.to_owned(), ..options() };
            let second =
                libreqos::import(provider(&new, "Renamed").as_bytes(), Some(sites.as_bytes()), &options)
                    .unwrap();
            loads(&second);
            for dev in ["lan0", "wan0"] {
                let was = numbers(&first.policy, dev);
                for (who, number) in numbers(&second.policy, dev) {
                    if let Some(was) = was.get(&who) {
                        prop_assert_eq!(was, &number, "{}", who);
                    }
                }
            }
        }
    }

    /// Each row is in the policy, or named by its line.
    #[test]
    fn no_row_is_lost_without_a_word(
        rows in proptest::collection::vec((
            "[a-z]{0,3}",
            prop_oneof![Just("10.0.0.1"), Just("10.0.0.2/24"), Just("x"), Just(""), Just("::1")],
            proptest::collection::vec(
                prop_oneof![Just("5"), Just("25M"), Just("n/a"), Just("-5"), Just(""), Just("\"10,5\""), Just("0.5")],
                4),
            prop_oneof![Just(""), Just(",surplus"), Just("\"a\nb\""), Just("cake")],
        ), 1..12),
    ) {
        let text: String = rows.iter().map(|(name, address, rates, end)| {
            format!("{name},\"N\",,{address},,{},{end}\n", rates.join(","))
        }).collect();
        match libreqos::import((COLUMNS.to_owned() + &text).as_bytes(), None, &options()) {
            Ok(imported) => {
                loads(&imported);
                let report = imported.report();
                let mut line = 2;
                for (name, _, _, end) in &rows {
                    let is_there = imported.policy.contains(&format!("# circuit {name} N\n"));
                    let is_named = report.contains(&format!("line {line}"));
                    prop_assert!(is_there || is_named, "line {} of\n{}\n{}", line, text, report);
                    line += 1 + end.matches('\n').count();
                }
            }
            Err(error) => prop_assert!(matches!(error, ImportError::Nothing(_)), "{error}"),
        }
    }
}
