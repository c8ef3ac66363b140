//! A website behind the balancer: nginx in four namespaces, and requests from wrk all the time.

use crate::setup::{NARROWS, turn_to_count};
use narrows_testbed::demo::balance::{self, Options};
use std::time::Duration;

#[test]
fn no_request_fails_while_servers_drain_die_come_back_and_the_process_is_replaced() {
    let Some(_turn) = turn_to_count() else { return };
    if let Err(refusal) = balance::check() {
        eprintln!("SKIPPED: {refusal}");
        return;
    }
    let options = Options { program: NARROWS.into(), phase: Duration::from_secs(2) };
    let report = balance::run(&options).unwrap();
    assert!(report.is_met, "{report}");
    let began = report.rows.iter().map(|row| row.began);
    for (began, row) in began.zip(&report.rows) {
        let idle = began.iter().filter(|connections| **connections == 0).count();
        // Before a server drains or dies it has some.
        let expected = usize::from(row.name == "web3 stays down");
        assert_eq!(idle, expected, "{}: {began:?}\n{report}", row.name);
    }
    assert!(report.rows.iter().any(|row| row.filtered > 1000), "the flood is dropped\n{report}");
}
