//! `narrows setup` of a wire, a stick, a router, a router that shapes itself, and a server: what it
//! would write starts what it says, as the unit of the package does.

use crate::setup::{NARROWS, Scratch, narrows, port_in, show, turn_to_count};
use narrows_testbed::Testbed;
use narrows_testbed::narrows::Instance;
use std::collections::BTreeMap;
use std::path::Path;

/// The unit.
const UNIT: &str = include_str!("../../../../dist/narrows@.service");
/// The rates and the kind of line.
const LINE: [&str; 6] = ["--down", "95mbit", "--up", "20mbit", "--link", "ethernet"];

/// The plan of `narrows setup` for a line with `words`, which changes nothing.
fn plan(bed: &Testbed, words: &[&str]) -> String {
    plan_of(bed, &[words, &LINE].concat())
}

/// The same for whatever `words` say.
fn plan_of(bed: &Testbed, words: &[&str]) -> String {
    let words = [&["setup", "--dry-run", "--directory", "/nrw"], words].concat();
    let output = narrows(bed, &words);
    // It fails after it has shown everything where the kernel lacks VLAN devices, which stand by.
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The text of the file that `plan` writes to `path`.
fn file(plan: &str, path: &str) -> String {
    let begin = format!("write {path}:");
    let lines = plan.lines().skip_while(|line| *line != begin).skip(1);
    let lines = lines.take_while(|line| line.is_empty() || line.starts_with("  "));
    lines.map(|line| line.strip_prefix("  ").unwrap_or("").to_owned() + "\n").collect()
}

/// Starts what `plan` sets up, with the command of the unit and `more` options.
fn start(bed: &Testbed, plan: &str, more: &[&str]) -> Instance {
    let variables = |text: &str| -> BTreeMap<String, String> {
        let pairs = text.lines().filter(|line| !line.starts_with('#'));
        pairs.filter_map(|line| line.split_once('=')).map(|(a, b)| (a.into(), b.into())).collect()
    };
    let conf = file(plan, "/nrw/home.conf");
    let given = UNIT.lines().filter_map(|line| line.strip_prefix("Environment="));
    let mut all = variables(&given.collect::<Vec<_>>().join("\n"));
    all.extend(variables(&conf));
    let command = UNIT.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let policy = Scratch::new("home.tc", &file(plan, "/nrw/home.tc"));
    let words = command.split(' ').skip(1).flat_map(|word| match word {
        "/etc/narrows/%i.tc" => vec![policy.path().to_owned()],
        // Only without braces it is several words.
        "$OPTIONS" => all["OPTIONS"].split_whitespace().map(str::to_owned).collect(),
        "${FORWARDING}" => vec![all["FORWARDING"].clone()],
        "${PORTS}" => vec![all["PORTS"].clone()],
        word => vec![word.to_owned()],
    });
    let words: Vec<String> = words.collect();
    let words: Vec<&str> = words.iter().map(String::as_str).chain(more.iter().copied()).collect();
    Instance::start_command(bed, Path::new(NARROWS), &words).unwrap()
}

/// Asserts that `plan` limits each of these ports, in bits a second.
#[track_caller]
fn assert_limits(bed: &Testbed, plan: &str, more: &[&str], limits: &[(&str, u64)]) {
    let _instance = start(bed, plan, more);
    let show = show(bed);
    for (port, rate) in limits {
        let port = port_in(&show, port);
        assert_eq!((&port["qdisc"], &port["rate_set_bps"]), (&"cake".into(), &(*rate).into()));
    }
    assert_eq!(show["ports"].as_array().unwrap().len(), limits.len());
}

#[test]
fn a_wire_is_set_up_with_a_limit_each_way() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let plan = plan(&bed, &["--ports", "port-a,port-b"]);
    assert!(!plan.contains("FORWARDING"), "{plan}");
    assert_limits(&bed, &plan, &[], &[("port-a", 20_000_000), ("port-b", 95_000_000)]);
}

#[test]
fn a_stick_is_set_up_with_a_limit_in_each_vlan() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let plan = plan(&bed, &["--stick", "port-a", "--vlans", "100:200"]);
    // So it needs no VLAN devices.
    let more = ["--fail-closed"];
    assert_limits(&bed, &plan, &more, &[("port-a.100", 20_000_000), ("port-a.200", 95_000_000)]);
}

#[test]
fn a_router_is_set_up_with_a_limit_at_each_port() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    bed.shaper()
        .run(
            "ip",
            &[
                "link",
                "add",
                "port-c",
                "numrxqueues",
                "2",
                "numtxqueues",
                "2",
                "type",
                "veth",
                "peer",
                "name",
                "far-c",
                "numrxqueues",
                "2",
                "numtxqueues",
                "2",
            ],
        )
        .unwrap();
    for device in ["port-c", "far-c"] {
        bed.shaper().run("ip", &["link", "set", device, "up"]).unwrap();
    }
    let plan = plan(&bed, &["--router", "port-a,port-b,port-c"]);
    assert!(plan.contains("Together they can ask for more"), "{plan}");
    let limits = [("port-a", 20_000_000), ("port-b", 95_000_000), ("port-c", 95_000_000)];
    assert_limits(&bed, &plan, &[], &limits);
}

#[test]
fn a_server_is_set_up_with_a_rate_for_each_source() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let plan = plan_of(&bed, &["--port", "port-a", "--per-source", "20000"]);
    let instance = start(&bed, &plan, &[]);
    assert_eq!(show(&bed)["fail"], "open (the kernel receives)");
    let shown = instance.tc("filter show dev port-a ingress").unwrap();
    assert!(shown.contains("pkts_rate 20000") && shown.contains("per src"), "{shown}");
}

#[test]
fn a_router_that_shapes_itself_is_set_up_where_downloads_arrive_or_where_they_leave() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    for (ports, home) in [("port-a", "ifb4port-a"), ("port-a,port-b", "port-b")] {
        let plan = plan(&bed, &["--wan", ports]);
        let instance = start(&bed, &plan, &[]);
        assert_eq!(show(&bed)["fail"], "open (the kernel receives)");
        for (port, rate) in [("port-a", "20Mbit"), (home, "95Mbit")] {
            let shown = instance.tc(&format!("class show dev {port}")).unwrap();
            assert!(shown.contains(&format!("rate {rate}")), "{port}: {shown}");
            assert!(shown.contains("overhead 24"), "38 bytes without the 14 of a header: {shown}");
        }
        assert_eq!(show(&bed)["ports"].as_array().unwrap().len(), 2);
    }
}

#[test]
fn a_router_behind_a_firewall_is_set_up_only_on_request() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let nft = |words: &str| bed.shaper().run("nft", &[words]).unwrap();
    nft("add table ip filter");
    nft("add chain ip filter forward { type filter hook forward priority 0; policy drop; }");
    let words = ["setup", "--dry-run", "--router", "port-a,port-b"];
    let refused = narrows(&bed, &[&words[..], &LINE].concat());
    let said = String::from_utf8_lossy(&refused.stdout);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("ip filter forward"), "{said}");
    let plan = plan(&bed, &["--router", "port-a,port-b", "--skip-netfilter"]);
    assert_limits(&bed, &plan, &[], &[("port-a", 20_000_000), ("port-b", 95_000_000)]);
}
