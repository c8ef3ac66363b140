//! Any bytes as messages of a fleet, between the turns of an agent.
//!
//! No message may panic. One that is understood is encoded to the same meaning; whatever it says,
//! the agent lends no more than it owns, keeps a deadline ahead, and borrows nothing that no
//! message offered.

#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_lending::message::{self, Body, Message};
use narrows_lending::{Agent, Member, Settings};
use narrows_snapshot::{FleetFacts, SharedLimit};

const MS: u64 = 1_000_000;
const SAFE_BPS: u64 = 500_000_000;

fuzz_target!(|input: &[u8]| {
    let member = |name: &str| Member { name: name.into(), weight: 1, most_bps: None };
    let settings = Settings {
        me: "a".into(),
        members: vec![member("a"), member("b"), member("c")],
        interval_ns: 50 * MS,
        lease_ns: 2_000 * MS,
    };
    let mut agent = Agent::new(settings, 7, MS).unwrap();
    let mut limit = SharedLimit {
        name: "line".into(),
        limit_bps: 2 * SAFE_BPS,
        safe_bps: SAFE_BPS,
        in_force_bps: SAFE_BPS,
        ..SharedLimit::default()
    };
    let (mut now, mut cursor, mut deadline_ns, mut offered) = (10_000 * MS, 0, 0, 0_u128);
    let mut rest = input;
    // A byte says what happens: who speaks and how long a message is, or how much time passes.
    while let Some((&what, more)) = rest.split_first() {
        rest = more;
        now += u64::from(what & 7) * 40 * MS;
        if what & 0x80 != 0 {
            let Some((&length, more)) = rest.split_first() else { break };
            let (bytes, more) = more.split_at(usize::from(length).min(more.len()));
            rest = more;
            if let Ok(message) = Message::decode(bytes) {
                let again = match message.understands {
                    message::VERSION => message.encode(),
                    _ => message.encode_with_flows(),
                };
                assert_eq!(Message::decode(&again).as_ref(), Ok(&message));
                if let Body::Loans(loans) = &message.body {
                    let offers = loans.lend.iter().flat_map(|lend| &lend.offers);
                    offered += offers.map(|offer| u128::from(offer.bps)).sum::<u128>();
                }
            }
            let from = if what & 0x40 != 0 { "b" } else { "c" };
            // What is wrong with a message is among the agent's events.
            let _ = agent.on_message(now, from, bytes);
            continue;
        }
        let order = agent.order(now);
        if order.deadline_ns > now {
            deadline_ns = order.deadline_ns;
            for share in &order.shares {
                assert!(share.lent_bps <= SAFE_BPS, "it lends more than it owns: {share:?}");
                assert!(u128::from(share.borrowed_bps) <= offered, "nobody offered {share:?}");
                limit.lent_bps = share.lent_bps;
                limit.borrowed_bps = share.borrowed_bps;
                let own_bps = SAFE_BPS - share.lent_bps;
                limit.in_force_bps = own_bps.saturating_add(share.borrowed_bps);
            }
        }
        limit.sent_bytes = limit.sent_bytes.saturating_add(u64::from(what) << 14);
        limit.backlog_bytes = u64::from(what & 8 != 0) * 1_500;
        cursor += 1;
        let limits = vec![limit.clone()];
        let facts = FleetFacts { now_ns: now, deadline_ns, cursor, limits, gone: Vec::new() };
        for outgoing in agent.answered(now, &facts) {
            assert!(Message::decode(&outgoing.bytes).is_ok());
        }
        agent.view(now);
        agent.events();
    }
});
