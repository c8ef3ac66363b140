//! The shares, beside a model that keeps all orders and computes what is in force from them.

use super::*;
use narrows_policy::{FleetPlace, Handle};
use narrows_snapshot::FleetShare;
use proptest::prelude::*;
use std::collections::BTreeMap;

const SAFE: u64 = 256_000;
const LIMIT: u64 = 1_000_000;
/// In the units of the model.
const HOLD: u64 = FLEET_HOLD_NS;

fn name(number: u8) -> FleetName {
    FleetName::new(&format!("name-{number}")).unwrap()
}

fn limit() -> FleetLimit {
    let [limit, safe] = [LIMIT, SAFE].map(Rate::from_bits_per_sec);
    let (place, within) = (FleetPlace::Qdisc(Handle::new(1).unwrap()), None);
    FleetLimit {
        place,
        within,
        limit,
        safe,
        assured: Rate::default(),
        prio: 0,
        rejoins: false,
        by_box: false,
    }
}

fn order(deadline_ns: u64, shares: &[(u8, u64, u64)]) -> FleetOrder {
    let share = |&(number, lent_bps, borrowed_bps): &(u8, u64, u64)| FleetShare {
        name: name(number).as_str().into(),
        lent_bps,
        borrowed_bps,
    };
    FleetOrder { shares: shares.iter().map(share).collect(), deadline_ns, since: 0 }
}

fn in_force(shares: &Shares, number: u8) -> u64 {
    shares.in_force(&name(number), &limit()).bits_per_sec()
}

#[test]
fn a_new_limit_has_its_floor_until_the_hold_has_passed() {
    let mut shares = Shares::default();
    shares.add(&name(1), 100);
    assert_eq!(in_force(&shares, 1), SAFE / FLEET_FLOOR);
    assert_eq!(shares.next_end(), Some(100 + HOLD));
    assert!(shares.advance(99 + HOLD).is_empty());
    assert_eq!(shares.advance(100 + HOLD), [name(1)]);
    assert_eq!((in_force(&shares, 1), shares.next_end()), (SAFE, None));
    assert_eq!(shares.part("name-1").unwrap().unset_since(), Some(100));
}

#[test]
fn a_limit_that_rejoins_has_its_floor_until_an_agent_speaks() {
    let mut shares = Shares::default();
    shares.add(&name(1), 100);
    shares.set_rejoins(&name(1), true);
    assert_eq!(shares.next_end(), None);
    assert!(shares.advance(100 + 9 * HOLD).is_empty());
    let mut after = Shares::default();
    after.add(&name(1), 100 + 9 * HOLD);
    after.take_over(shares.state());
    assert!(after.advance(100 + 19 * HOLD).is_empty(), "nor in another process");
    assert_eq!(in_force(&after, 1), SAFE / FLEET_FLOOR);
    after.order(&order(30 * HOLD, &[(1, 0, 0)]), 20 * HOLD);
    assert_eq!(in_force(&after, 1), SAFE);
    after.advance(40 * HOLD);
    assert_eq!(in_force(&after, 1), SAFE, "an agent that falls silent leaves its safe share");
}

#[test]
fn a_limit_that_no_longer_rejoins_leaves_its_floor_after_the_hold() {
    let mut shares = Shares::default();
    shares.add(&name(1), 100);
    shares.set_rejoins(&name(1), true);
    shares.set_rejoins(&name(1), false);
    assert_eq!(shares.advance(100 + HOLD), [name(1)]);
    assert_eq!(in_force(&shares, 1), SAFE);
}

#[test]
fn what_is_borrowed_ends_with_the_deadline_and_what_is_lent_a_hold_later() {
    let mut shares = Shares::default();
    [1, 2].into_iter().for_each(|number| shares.add(&name(number), 0));
    let changed = shares.order(&order(1_000, &[(1, 0, 500_000), (2, 200_000, 0)]), 10);
    assert_eq!(changed, [name(1), name(2)]);
    assert_eq!([1, 2].map(|number| in_force(&shares, number)), [SAFE + 500_000, SAFE - 200_000]);
    assert!(shares.advance(999).is_empty());
    assert_eq!(shares.advance(1_000), [name(1)]);
    assert_eq!([1, 2].map(|number| in_force(&shares, number)), [SAFE, SAFE - 200_000]);
    assert!(shares.advance(999 + HOLD).is_empty());
    assert_eq!(shares.advance(1_000 + HOLD), [name(2)]);
    assert_eq!([1, 2].map(|number| in_force(&shares, number)), [SAFE, SAFE]);
}

#[test]
fn an_order_that_is_late_or_about_nothing_here_changes_nothing() {
    let mut shares = Shares::default();
    shares.add(&name(1), 0);
    assert!(shares.order(&order(10, &[(1, 0, 1)]), 10).is_empty());
    assert_eq!((in_force(&shares, 1), shares.deadline()), (SAFE / FLEET_FLOOR, 0));
    assert!(shares.order(&order(11, &[(9, 0, 1)]), 10).is_empty());
    assert_eq!(in_force(&shares, 1), SAFE / FLEET_FLOOR);
}

#[test]
fn no_order_leaves_the_range_from_the_least_to_the_limit() {
    let mut shares = Shares::default();
    shares.add(&name(1), 0);
    shares.order(&order(u64::MAX, &[(1, u64::MAX, 0)]), 1);
    assert_eq!(in_force(&shares, 1), FLEET_LEAST.bits_per_sec());
    shares.order(&order(u64::MAX, &[(1, 0, u64::MAX)]), 2);
    assert_eq!((in_force(&shares, 1), shares.next_end()), (LIMIT, Some(u64::MAX)));
}

/// What happens to the shares.
#[derive(Clone, Debug)]
enum Event {
    Add(u8),
    Remove(u8),
    Order(u64, Vec<(u8, u64, u64)>),
    HandOver,
    Wait(u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let names = || 0..4_u8;
    let rate = || prop_oneof![Just(0), 0..2 * SAFE, Just(u64::MAX)];
    let share = (names(), rate(), rate());
    let event = prop_oneof![
        2 => names().prop_map(Event::Add),
        1 => names().prop_map(Event::Remove),
        4 => (0..2 * HOLD, prop::collection::vec(share, 0..3))
            .prop_map(|(ahead, shares)| Event::Order(ahead, shares)),
        1 => Just(Event::HandOver),
        4 => (0..HOLD).prop_map(Event::Wait),
    ];
    prop::collection::vec(event, 0..40)
}

/// All that was said of a name: since when it is there, and the last order with its time.
#[derive(Clone, Copy, Default)]
struct Said {
    since: u64,
    last: Option<(u64, u64, u64)>,
}

/// The model: what is in force now, from all that was said. `orders` are the times of orders and
/// their deadlines.
fn expected(said: &Said, orders: &[(u64, u64)], now: u64) -> u64 {
    let Some((at, lent, borrowed)) = said.last else {
        return if now < said.since + HOLD { SAFE / FLEET_FLOOR } else { SAFE };
    };
    // What an order says is void once there was a gap after it: until the next order, its deadline
    // had passed.
    let later = orders.iter().filter(|(time, _)| *time >= at);
    let ends = later.clone().map(|(time, _)| *time).skip(1).chain([now]);
    let after = |((_, deadline), end): (&(u64, u64), u64)| i128::from(end) - i128::from(*deadline);
    let gap = later.zip(ends).map(after).max().unwrap_or(-1);
    let borrowed = if gap >= 0 { 0 } else { borrowed };
    let lent = if gap >= i128::from(HOLD) { 0 } else { lent };
    SAFE.saturating_sub(lent).saturating_add(borrowed).clamp(8, LIMIT)
}

proptest! {
    #[test]
    fn what_is_in_force_follows_from_all_that_was_said(events in events()) {
        let mut shares = Shares::default();
        let mut model: BTreeMap<u8, Said> = BTreeMap::new();
        let mut orders = Vec::new();
        let mut now = 1;
        for event in events {
            // Two events are never at one time.
            now += 1;
            shares.advance(now);
            match event {
                Event::Add(number) => {
                    shares.add(&name(number), now);
                    model.entry(number).or_insert(Said { since: now, last: None });
                }
                Event::Remove(number) => {
                    shares.remove(&name(number));
                    model.remove(&number);
                }
                Event::Order(ahead, parts) => {
                    shares.order(&order(now + ahead, &parts), now);
                    if ahead > 0 {
                        orders.push((now, now + ahead));
                        for (number, lent, borrowed) in parts {
                            if let Some(said) = model.get_mut(&number) {
                                said.last = Some((now, lent, borrowed));
                            }
                        }
                    }
                }
                Event::HandOver => {
                    let state = serde_json::to_string(&shares.state()).unwrap();
                    let mut next = Shares::default();
                    model.keys().for_each(|number| next.add(&name(*number), now));
                    next.take_over(serde_json::from_str(&state).unwrap());
                    prop_assert_eq!(next.state(), shares.state());
                    shares = next;
                }
                Event::Wait(time) => {
                    let end = shares.next_end();
                    let before: Vec<u64> = model.keys().map(|at| in_force(&shares, *at)).collect();
                    let changed = shares.advance(now + time);
                    prop_assert!(changed.is_empty() || end.is_some_and(|end| end <= now + time));
                    let after: Vec<u64> = model.keys().map(|at| in_force(&shares, *at)).collect();
                    prop_assert!(before == after || !changed.is_empty());
                    now += time;
                }
            }
            for (number, said) in &model {
                prop_assert_eq!(in_force(&shares, *number), expected(said, &orders, now));
            }
        }
    }
}
