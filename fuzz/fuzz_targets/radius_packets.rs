//! Any bytes as datagrams of RADIUS, as they are and signed by a client.
//!
//! No datagram may panic. Whatever clients say, an address belongs to one subscriber, a rate is
//! within its bounds, an answer is a packet, and a listener that starts again knows the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_sessions::radius::packet::{Code, PACKET_MAX, Request};
use narrows_sessions::radius::{Config, Now, Sessions};
use narrows_units::Nanos;
use std::collections::{BTreeMap, BTreeSet};

const SECRET: &str = "fuzzed secret";

fuzz_target!(|input: &[u8]| {
    let config = format!(
        "use_netmask = true\ndefault_plan = \"a\"\nlimits = {{ rate_max = \"1gbit\" }}\n\
         [plans]\na = {{ down = \"10mbit\", up = \"2mbit\" }}\n\
         [[client]]\nname = \"nas\"\nfrom = [\"192.0.2.1\"]\nsecret = \"{SECRET}\"\n\
         allow = [\"accounting\", \"coa\"]\n"
    );
    let config = Config::parse(&config).expect("a configuration");
    let limits = config.limits;
    let mut sessions = Sessions::new(config.clone());
    let mut stored = BTreeMap::new();
    let (mut second, mut rest) = (0, input);
    // A byte says what kind of packet comes and whether time passes, one how long it is.
    while let [what, length, more @ ..] = rest {
        let (bytes, more) = more.split_at(usize::from(*length).min(more.len()));
        rest = more;
        second += [0, 1, 700, 90_000][usize::from(what >> 6)];
        let now = Now { steady: Nanos::from_secs(second), unix: 1_800_000_000 + second };
        let from = ([192, 0, 2, 1], 1_813).into();
        let code = [Code::Accounting, Code::Disconnect, Code::ChangeOfAuthorization];
        let answer = match code.get(usize::from(what & 3)) {
            Some(code) => {
                let request = Request::new(*code, what & 0x3f).with_bytes(bytes);
                sessions.receive(now, from, &request.signed(SECRET.as_bytes(), what & 4 != 0))
            }
            None => sessions.receive(now, from, bytes),
        };
        if let Some(answer) = answer {
            assert!((20..=PACKET_MAX).contains(&answer.len()));
        }
        sessions.tick(now);
        for change in sessions.changes() {
            match change.subscriber {
                Some(subscriber) => stored.insert(change.identity, subscriber),
                None => stored.remove(&change.identity),
            };
        }
        let mut addresses = BTreeSet::new();
        for subscriber in stored.values() {
            assert!(subscriber.addresses.iter().all(|address| addresses.insert(*address)));
            for (assured, ceiling) in subscriber.plan.assured.iter().zip(subscriber.plan.ceiling) {
                assert!(*assured <= ceiling && ceiling <= limits.rate_max);
                assert!(ceiling >= limits.rate_min);
            }
        }
    }
    let mut again = Sessions::new(config);
    for (identity, subscriber) in &stored {
        let now = Now { steady: Nanos::from_secs(second), unix: 1_800_000_000 + second };
        again.restore(now, identity, subscriber);
    }
    // Those without a plan are not stored; here all have one.
    assert_eq!(again.count(), sessions.count());
});
