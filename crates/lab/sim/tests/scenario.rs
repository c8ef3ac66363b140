//! What a scenario's file and the command line may say, and the messages for mistakes.

use narrows_sim::scenario::{Override, Scenario, ScenarioError, embedded, names};
use narrows_sim::setup::{FaultKind, HeaderFields, Kind, Sends, Spread};
use narrows_units::{Bytes, Nanos, Rate};
use proptest::prelude::*;

const SMALL: &str = r#"title = "Small"
strategies = ["equal", { name = "deep", words = "edt", limit = "5ms of the limit" }]
measures = ["utilization"]

[port]
queues = 2
rate = "1gbit"
limit = "64k"
qdisc = "tbf rate {rate} burst 1514 limit {limit} coordination {strategy}"

[[traffic]]
name = "flood"
kind = "constant"
load = "150%"
spread = [0.8, 0.2]

[[traffic]]
kind = "ping"
interval = "1ms"

[next_hop]
rate = "{rate}"
buffer = "1mb"

[run]
warmup = "1ms"
length = "1000 packets, at least 5ms"
event = "2ms"

[[fault]]
queue = 1
at = "3ms"
stall = "1ms"

[sweep]
"port.rate" = ["100mbit", "1gbit"]
"traffic.flood.load" = ["50%", "150%"]

[[paper]]
strategy = "equal"
measure = "utilization"
at = { "port.rate" = "1gbit" }
value = 0.5
"#;

fn read_with(text: &str, overrides: &[&str]) -> Result<Scenario, ScenarioError> {
    let overrides: Vec<Override> =
        overrides.iter().map(|text| Override::parse(text).unwrap()).collect();
    Scenario::read("small.toml", text, &overrides)
}

fn small(overrides: &[&str]) -> Scenario {
    read_with(SMALL, overrides).unwrap_or_else(|error| panic!("{error}"))
}

/// The message where `from` is written `to` in the small scenario.
fn refusal(from: &str, to: &str) -> String {
    assert!(SMALL.contains(from));
    read_with(&SMALL.replacen(from, to, 1), &[]).unwrap_err().to_string()
}

fn refused_override(change: &str) -> String {
    read_with(SMALL, &[change]).unwrap_err().to_string()
}

#[track_caller]
fn says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "\"{part}\" is missing in: {message}");
    }
}

#[test]
fn a_file_becomes_complete_setups() {
    let scenario = small(&[]);
    assert_eq!(scenario.cases.len(), 8);
    let case = &scenario.cases[6];
    assert_eq!(case.strategy, "equal");
    assert_eq!(
        case.at,
        [("port.rate", "1gbit"), ("traffic.flood.load", "150%")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
    );
    let setup = &case.setup;
    assert_eq!(setup.port.rate, Rate::from_bits_per_sec(1_000_000_000));
    assert_eq!(
        setup.port.qdisc.join(" "),
        "tbf rate 1gbit burst 1514 limit 64k coordination equal"
    );
    assert_eq!(setup.traffic[0].kind, Kind::Constant(Rate::from_bits_per_sec(1_500_000_000)));
    assert_eq!(setup.traffic[0].spread, Spread::Parts(vec![0.8, 0.2]));
    assert_eq!(setup.traffic[1].flows, 2);
    assert_eq!(setup.next_hop.unwrap().buffer, Bytes(1_048_576));
    assert_eq!(setup.faults[0].kind, FaultKind::Stall(Nanos::from_millis(1)));
}

#[test]
fn runs_are_as_long_as_the_rate_demands() {
    let lengths: Vec<Nanos> =
        small(&[]).cases.iter().step_by(4).map(|case| case.setup.run.length).collect();
    // 1000 frames of 1514 bytes at 100 Mbit/s, and at 1 Gbit/s.
    assert_eq!(lengths, [Nanos::from_micros(121_120), Nanos(12_112_000)]);
}

#[test]
fn a_strategy_may_change_the_port_for_itself() {
    let scenario = small(&["port.rate=1gbit"]);
    assert_eq!(scenario.cases[1].strategy, "deep");
    assert_eq!(
        scenario.cases[1].setup.port.qdisc.join(" "),
        "tbf rate 1gbit burst 1514 limit 625000 coordination edt"
    );
}

#[test]
fn a_strategy_may_send_slot_by_slot_and_all_others_send_what_is_due() {
    let text = SMALL.replace("words = \"edt\"", "words = \"edt\", sends = \"slot-by-slot\"");
    let scenario = read_with(&text, &["port.rate=1gbit"]).unwrap();
    let sends: Vec<Sends> = scenario.cases.iter().map(|case| case.setup.port.sends).collect();
    assert_eq!(sends[..2], [Sends::AllDue, Sends::SlotBySlot]);
    let wrong = refusal("queues = 2", "queues = 2\nsends = \"singly\"");
    says(&wrong, &["line 7", "singly", "slot-by-slot"]);
}

#[test]
fn a_figure_of_the_paper_is_beside_its_run() {
    let scenario = small(&[]);
    let with: Vec<usize> =
        (0..8).filter(|number| !scenario.cases[*number].paper.is_empty()).collect();
    assert_eq!(with, [4, 6]);
}

#[test]
fn each_of_several_sweeps_is_a_product_of_its_own() {
    let text = SMALL.replace("[sweep]\n\"port.rate\"", "[[sweep]]\n\"port.rate\"")
        + "\n[[sweep]]\n\"port.queues\" = [2, 4, 8]\n";
    let scenario = read_with(&text, &[]).unwrap();
    assert_eq!(scenario.cases.len(), (4 + 3) * 2);
    let last = &scenario.cases[13].at;
    assert_eq!(last[2], ("port.queues".to_owned(), "8".to_owned()));
    assert_eq!(last[0], ("port.rate".to_owned(), "1gbit".to_owned()));
}

#[test]
fn set_changes_any_value() {
    let scenario = small(&["run.seed=7", "traffic.flood.spread=hash", "next_hop.buffer=2mb"]);
    assert_eq!(scenario.seed, 7);
    assert_eq!(scenario.cases[0].setup.traffic[0].spread, Spread::Hash);
    assert_eq!(scenario.cases[0].setup.next_hop.unwrap().buffer, Bytes(2 << 20));
    let scenario = small(&["cores.costs.step_ns=5", "cores.jitter=3us"]);
    assert_eq!(scenario.costs().0.step_ns, 5.0);
    assert_eq!(scenario.cases[0].setup.cores.jitter, Nanos::from_micros(3));
}

#[test]
fn set_replaces_the_values_of_a_sweep() {
    assert_eq!(small(&["port.rate=2gbit"]).cases.len(), 4);
    let scenario = small(&["port.rate=1gbit,2gbit,3gbit"]);
    assert_eq!(scenario.cases.len(), 12);
    assert_eq!(scenario.cases[11].at[0].1, "3gbit");
}

#[test]
fn set_replaces_the_values_of_every_sweep_that_has_the_key() {
    let text = SMALL.replace("[sweep]\n\"port.rate\"", "[[sweep]]\n\"port.rate\"")
        + "\n[[sweep]]\n\"port.queues\" = [2, 4, 8]\n\"port.rate\" = [\"5gbit\", \"6gbit\"]\n";
    let change = Override::parse("port.rate=7gbit").unwrap();
    let scenario = Scenario::read("small", &text, &[change]).unwrap();
    let rates =
        scenario.cases.iter().flat_map(|case| &case.at).filter(|(key, _)| key == "port.rate");
    let rates: Vec<_> = rates.map(|(_, rate)| rate.as_str()).collect();
    assert!(!rates.is_empty() && rates.iter().all(|rate| *rate == "7gbit"), "{rates:?}");
}

#[test]
fn set_understands_keys_without_a_table() {
    let scenario = small(&["rate=2gbit", "queues=4", "split=[0.5,0.5]", "seed=9", "jitter=1us"]);
    let setup = &scenario.cases[0].setup;
    assert_eq!((setup.port.queues, setup.seed), (4, 9));
    assert_eq!(setup.traffic[0].spread, Spread::Parts(vec![0.5, 0.5]));
    assert_eq!(setup.cores.jitter, Nanos::from_micros(1));
}

#[test]
fn set_names_unknown_keys() {
    says(&refused_override("port.rat=1gbit"), &["--set port.rat=1gbit", "rate", "queues"]);
    says(&refused_override("nonsense=1"), &["nonsense", "port.rate", "traffic.0.load"]);
    says(&refused_override("traffic.7.load=1gbit"), &["traffic.0 (flood)", "traffic.1"]);
    says(&refused_override("run.lenth=1s"), &["lenth", "length", "warmup"]);
    says(&refused_override("traffic.0.sise=64"), &["sise", "size"]);
    let error = Override::parse("rate").unwrap_err().to_string();
    says(&error, &["port.rate=1gbit"]);
}

#[test]
fn a_wrong_value_says_whether_it_came_from_the_command_line() {
    says(&refused_override("next_hop.buffer=much"), &["--set next_hop.buffer", "much", "32k"]);
    says(&refusal("buffer = \"1mb\"", "buffer = \"much\""), &["small.toml, line 23", "much"]);
}

#[test]
fn unknown_keys_are_refused_with_their_line() {
    says(&refusal("event =", "events ="), &["line 28", "events", "event"]);
    says(&refusal("limit = \"64k\"", "limits = \"64k\""), &["line 8", "limits"]);
    says(&refusal("load =", "lod ="), &["lod", "load"]);
    says(&refusal("title =", "titel ="), &["line 1", "titel"]);
}

#[test]
fn headers_and_changes_are_read() {
    let traffic = "interval = \"1ms\"\nflows = 8\nsource_hosts = 4\ndestination_hosts = 2\ncommon_hosts = true\ndscp = \"EF\"\necn = true";
    let text = SMALL.replacen("interval = \"1ms\"", traffic, 1).replacen(
        "[sweep]",
        "[[change]]\nat = \"4ms\"\nqdisc = \"tbf rate 50mbit burst 1514 limit {limit}\"\n\n[sweep]",
        1,
    );
    let setup = &read_with(&text, &[]).unwrap_or_else(|error| panic!("{error}")).cases[0].setup;
    let headers = HeaderFields {
        source_hosts: 4,
        destination_hosts: 2,
        common_hosts: true,
        dscp: 46,
        ecn: true,
        filter_rate: None,
    };
    assert_eq!(setup.traffic[1].headers, headers);
    assert_eq!(setup.traffic[0].headers, HeaderFields::default());
    assert_eq!(setup.changes[0].at, Nanos::from_millis(4));
    assert_eq!(setup.changes[0].qdisc[6], "64k");
}

#[test]
fn wrong_headers_and_changes_are_refused_with_their_line() {
    let with = |line: &str| refusal("interval = \"1ms\"", &format!("interval = \"1ms\"\n{line}"));
    says(&with("source_hosts = 3"), &["line 20", "from 1 to 2", "a flow at least"]);
    says(&with("dscp = \"EE\""), &["line 20", "EE", "AF43"]);
    says(&with("ecn = 1"), &["line 20"]);
    let change = |qdisc: &str| format!("[[change]]\nat = \"4ms\"\nqdisc = \"{qdisc}\"\n\n[sweep]");
    says(&refusal("[sweep]", &change("tbf")), &["line 37", "change.0.qdisc"]);
    says(&refusal("[sweep]", &change("pfifo {limmit}")), &["line 37", "{limmit}"]);
}

#[test]
fn wrong_values_are_refused_with_their_line_and_what_to_write() {
    says(&refusal("rate = \"{rate}\"", "rate = \"1gibt\""), &["line 22", "1gibt", "100mbit"]);
    says(&refusal("queues = 2", "queues = 200"), &["line 6", "from 1 to 128"]);
    says(&refusal("burst 1514", "brust 1514"), &["line 9", "brust", "port.qdisc"]);
    says(&refusal("{strategy}", "{stratgy}"), &["line 9", "{stratgy}", "{strategy}"]);
    says(&refusal("[0.8, 0.2]", "[0.5, 0.3, 0.2]"), &["line 15", "2 queues", "3 parts"]);
    says(&refusal("[0.8, 0.2]", "\"random\""), &["line 15", "dirichlet"]);
    says(&refusal("\"constant\"", "\"steady\""), &["line 13", "steady", "poisson"]);
    says(&refusal("interval = \"1ms\"", ""), &["line 18", "interval"]);
    says(&refusal("\"ping\"", "\"ping\"\nload = \"1mbit\""), &["line 19", "interval"]);
    says(&refusal("event = \"2ms\"", "event = \"2s\""), &["line 28", "over by then"]);
    says(&refusal("stall = \"1ms\"", ""), &["line 31", "death"]);
    says(&refusal("\"100mbit\", \"1gbit\"", "\"100mbit\", \"x\""), &["line 36", "\"x\""]);
    says(&refusal("\"utilization\"]", "\"utilisation\"]"), &["line 3", "utilization"]);
    says(&refusal("[\"100mbit\", \"1gbit\"]", "\"1gbit\""), &["brackets"]);
    says(&refusal("[port]", "[port"), &["line 5"]);
}

#[test]
fn a_mistyped_sweep_is_refused() {
    let values = "1,".repeat(100);
    let sweep = format!("[sweep]\n\"run.seed\" = [{values}]\n\"port.queues\" = [{values}]");
    says(&refusal("[sweep]", &sweep), &["4096"]);
}

proptest! {
    #[test]
    fn no_text_panics(text in any::<String>()) {
        let _ = Scenario::read("any", &text, &[]);
    }

    #[test]
    fn no_change_of_a_real_file_panics(
        which in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        length in 0usize..20,
        inserted in "[ -~\n]{0,12}",
    ) {
        let all: Vec<&str> = names().collect();
        let text = embedded(all[which.index(all.len())]).unwrap();
        let mut bytes = text.as_bytes().to_vec();
        let start = at.index(bytes.len());
        let end = (start + length).min(bytes.len());
        bytes.splice(start..end, inserted.bytes());
        if let Ok(text) = String::from_utf8(bytes) {
            let _ = Scenario::read("any", &text, &[]);
        }
    }

    #[test]
    fn no_override_panics(text in "[a-z_.0-9]{1,20}=[ -~]{0,20}") {
        if let Ok(change) = Override::parse(&text) {
            let _ = Scenario::read("small.toml", SMALL, &[change]);
        }
    }
}
