//! A file that is loaded says what its lines say one by one.

use narrows_tc::{Host, OfflineHost, Options, execute_batch, load};
use proptest::prelude::*;

/// Lines of which some depend on others and some are never right.
const LINES: [&str; 20] = [
    "qdisc add dev a root handle 1: htb default 2",
    "qdisc replace dev a root handle 1: htb",
    "qdisc del dev a root",
    "class add dev a parent 1: classid 1:1 htb rate 9mbit",
    "class add dev a parent 1:1 classid 1:2 htb rate 1mbit",
    "class change dev a classid 1:2 htb rate 2mbit",
    "class del dev a classid 1:2",
    "qdisc add dev a parent 1:2 cake",
    "qdisc add dev a parent 1:2 handle 7: pfifo limit 3",
    "filter add dev a parent 1: protocol ip pref 1 flower dst_ip 10.0.0.1/32 classid 1:2",
    "filter add dev a parent 1: protocol ip pref 1 handle 3 flower dst_ip 10.0.0.2/32 classid 1:2",
    "filter del dev a parent 1: pref 1",
    "filter add dev a parent 1: matchall action police rate 1mbit burst 9k index 4",
    "qdisc add dev b clsact",
    "filter add dev b ingress matchall action police index 4",
    "filter add dev b egress protocol ip pref 5 u32 match ip dst 10.0.0.0/8 action drop",
    "actions add action gact drop index 3",
    "actions del action gact index 3",
    "qdisc add dev a root brew",
    "# nothing \\",
];

#[test]
fn a_line_of_a_shell_script_is_refused_with_what_to_leave_out() {
    for line in ["tc qdisc add dev a root cake", "/sbin/tc qdisc add dev a root cake"] {
        let complaint = load(line, "f", &OfflineHost::default()).unwrap_err();
        assert!(complaint.contains("Leave it out"), "{complaint}");
    }
    let complaint = load("cake qdisc", "f", &OfflineHost::default()).unwrap_err();
    assert!(!complaint.contains("Leave"), "{complaint}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_file_is_its_lines_one_by_one(lines in prop::collection::vec(0..LINES.len(), 0..30)) {
        let text: Vec<&str> = lines.into_iter().map(|at| LINES[at]).collect();
        let text = text.join("\n");
        let all = Options { force: true, ..Options::default() };
        let mut host = OfflineHost::default();
        let outcome = execute_batch(&text, "f", &all, &mut host);
        match load(&text, "f", &OfflineHost::default()) {
            Ok(policy) => {
                prop_assert_eq!(outcome.code, 0);
                prop_assert_eq!(policy, host.policy());
            }
            Err(complaints) => prop_assert_eq!(complaints, outcome.stderr),
        }
    }
}
