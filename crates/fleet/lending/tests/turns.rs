//! When an agent speaks, and when it does not.

use narrows_lending::{Agent, Member, Outgoing, Settings};
use narrows_snapshot::{FLEET_HOLD_NS, FleetFacts, FleetOrder, SharedLimit};

const MS: u64 = 1_000_000;
const MBIT: u64 = 1_000_000;

fn agent(me: &str, incarnation: u64) -> Agent {
    let member = |name: &str| Member { name: name.into(), weight: 1, most_bps: None };
    let settings = Settings {
        me: me.into(),
        members: vec![member("a"), member("b")],
        interval_ns: 50 * MS,
        lease_ns: 2_000 * MS,
    };
    Agent::new(settings, incarnation, 0).unwrap()
}

/// A data plane with one limit that does as it is told.
struct Plane(SharedLimit, u64, u64);

impl Plane {
    fn new() -> Self {
        let limit = SharedLimit {
            name: "uplink".into(),
            limit_bps: 100 * MBIT,
            safe_bps: 50 * MBIT,
            in_force_bps: 50 * MBIT,
            ..SharedLimit::default()
        };
        Self(limit, 0, 0)
    }

    fn order(&mut self, now: u64, order: &FleetOrder) -> FleetFacts {
        if order.deadline_ns > now {
            self.1 = order.deadline_ns;
            for share in &order.shares {
                self.0.lent_bps = share.lent_bps;
                self.0.borrowed_bps = share.borrowed_bps;
                self.0.unset_since_ns = None;
            }
            self.0.in_force_bps = 50 * MBIT - self.0.lent_bps + self.0.borrowed_bps;
        }
        self.2 += 1;
        let limits = vec![self.0.clone()];
        FleetFacts { now_ns: now, deadline_ns: self.1, cursor: self.2, limits, gone: Vec::new() }
    }
}

fn turn(agent: &mut Agent, plane: &mut Plane, now: u64) -> Vec<Outgoing> {
    let order = agent.order(now);
    let facts = plane.order(now, &order);
    agent.answered(now, &facts)
}

#[test]
fn an_agent_speaks_once_every_limit_is_set() {
    let (mut agent, mut plane) = (agent("a", 1), Plane::new());
    let order = agent.order(MS);
    assert_eq!(order, FleetOrder::default(), "the first order only asks");
    let facts = plane.order(MS, &order);
    assert!(agent.answered(MS, &facts).is_empty());
    let order = agent.order(5 * MS);
    assert!(order.deadline_ns > 5 * MS);
    let facts = plane.order(5 * MS, &order);
    assert!(agent.answered(5 * MS, &facts).is_empty());
    assert!(!turn(&mut agent, &mut plane, 100 * MS).is_empty());
}

#[test]
fn an_order_that_came_too_late_is_not_in_force_and_nothing_is_published() {
    let (mut agent, mut plane) = (agent("a", 1), Plane::new());
    turn(&mut agent, &mut plane, MS);
    turn(&mut agent, &mut plane, 5 * MS);
    let order = agent.order(10 * MS);
    let late = order.deadline_ns + MS;
    let facts = plane.order(late, &order);
    assert!(agent.answered(late, &facts).is_empty());
    // Nor where the deadline that the data plane has is the same, from an earlier order.
    let order = agent.order(late + MS);
    plane.1 = order.deadline_ns;
    let facts = plane.order(order.deadline_ns, &order);
    assert!(agent.answered(order.deadline_ns, &facts).is_empty());
}

#[test]
fn what_an_earlier_agent_lent_is_lent_until_it_is_certainly_over() {
    let (mut agent, mut plane) = (agent("a", 1), Plane::new());
    plane.0.lent_bps = 30 * MBIT;
    plane.1 = 1_000 * MS;
    turn(&mut agent, &mut plane, 500 * MS);
    turn(&mut agent, &mut plane, 505 * MS);
    assert_eq!(plane.0.lent_bps, 30 * MBIT);
    turn(&mut agent, &mut plane, 1_000 * MS + FLEET_HOLD_NS - 1);
    assert_eq!(plane.0.lent_bps, 30 * MBIT);
    turn(&mut agent, &mut plane, 1_000 * MS + FLEET_HOLD_NS);
    assert_eq!(plane.0.lent_bps, 0);
}

#[test]
fn what_an_earlier_agent_borrowed_is_given_up_first() {
    let (mut agent, mut plane) = (agent("a", 1), Plane::new());
    plane.0.borrowed_bps = 20 * MBIT;
    plane.1 = 1_000 * MS;
    turn(&mut agent, &mut plane, 500 * MS);
    turn(&mut agent, &mut plane, 505 * MS);
    assert_eq!(plane.0.borrowed_bps, 0);
}

#[test]
fn strangers_and_garbage_change_nothing() {
    let mut agent = agent("a", 1);
    assert!(agent.on_message(MS, "c", &[1, 0, 0]).is_err());
    assert!(agent.on_message(MS, "b", &[]).is_err());
    assert!(agent.on_message(MS, "b", &[9, 1, 1]).is_err());
    assert!(agent.on_message(MS, "b", &[1; 70_000]).is_err());
    let events: Vec<String> = agent.events().iter().map(ToString::to_string).collect();
    assert_eq!(events.len(), 4, "{events:?}");
    assert!(agent.view(MS).boxes.iter().all(|other| other.name == "a" || !other.is_heard));
}

#[test]
fn both_boxes_say_once_that_their_rates_for_a_limit_differ() {
    let mut agents = [agent("a", 1), agent("b", 2)];
    let mut planes = [Plane::new(), Plane::new()];
    planes[1].0.limit_bps = 80 * MBIT;
    let mut said = [Vec::new(), Vec::new()];
    for number in 1..100u64 {
        for from in 0..2 {
            let outgoing = turn(&mut agents[from], &mut planes[from], number * 50 * MS);
            let (name, to) = (["a", "b"][from], 1 - from);
            for Outgoing { bytes, .. } in outgoing {
                agents[to].on_message(number * 50 * MS, name, &bytes).unwrap();
            }
        }
        for (agent, said) in agents.iter_mut().zip(&mut said) {
            said.extend(agent.events().iter().map(ToString::to_string));
        }
    }
    let first = "uplink is 100.000 Mbit/s here and 80.000 Mbit/s at b: the smaller rate holds; \
                 set the same on both";
    let second = "uplink is 80.000 Mbit/s here and 100.000 Mbit/s at a: the smaller rate holds; \
                  set the same on both";
    for (said, due) in said.iter().zip([first, second]) {
        assert_eq!(said.iter().filter(|event| *event == due).count(), 1, "{said:?}");
    }
}

#[test]
fn a_view_of_the_busiest_has_what_is_sent_most_and_says_how_many_more_there_are() {
    let mut agent = agent("a", 1);
    for turn in 1..100u64 {
        let now_ns = turn * 50 * MS;
        let order = agent.order(now_ns);
        let limit = |(name, mbit): (&str, u64)| SharedLimit {
            name: name.into(),
            limit_bps: 100 * MBIT,
            safe_bps: 50 * MBIT,
            in_force_bps: 50 * MBIT,
            sent_bytes: turn * mbit * MBIT / 8 / 20,
            ..SharedLimit::default()
        };
        let limits = [("idle", 0), ("most", 40), ("much", 20)].map(limit).to_vec();
        let (deadline_ns, gone) = (order.deadline_ns, Vec::new());
        agent.answered(now_ns, &FleetFacts { now_ns, deadline_ns, cursor: turn, limits, gone });
    }
    let seen = |rows: usize| {
        let view = agent.view_of_busiest(5_000 * MS, rows);
        let names: Vec<String> = view.limits.into_iter().map(|limit| limit.name).collect();
        (names.join(" "), view.limits_left_out)
    };
    // Each has one row: no other box has said anything.
    assert_eq!(seen(0), ("most".to_owned(), 2));
    assert_eq!(seen(1), ("most".to_owned(), 2));
    assert_eq!(seen(2), ("most much".to_owned(), 1));
    assert_eq!(seen(1_000), ("idle most much".to_owned(), 0));
    assert_eq!(agent.view(5_000 * MS), agent.view_of_busiest(5_000 * MS, 1_000));
}

#[test]
fn while_a_loan_moves_the_sum_that_its_borrower_shows_is_not_above_the_limit() {
    let mut agents = [agent("a", 1), agent("b", 2)];
    let mut planes = [Plane::new(), Plane::new()];
    let mut most_lent = 0;
    for number in 1..400u64 {
        let now = number * 50 * MS;
        // Box b has something to send at first, and lends what it has once it is idle.
        let wanted = [90 * MBIT, if number < 150 { 90 * MBIT } else { 0 }];
        for (plane, wanted) in planes.iter_mut().zip(wanted) {
            let sent = wanted.min(plane.0.in_force_bps);
            plane.0.sent_bytes += sent / 8 / 20;
            plane.0.backlog_bytes = if wanted > sent { 60_000 } else { 0 };
        }
        for from in 0..2 {
            let said = turn(&mut agents[from], &mut planes[from], now);
            let (name, to) = (["a", "b"][from], 1 - from);
            for Outgoing { bytes, .. } in said {
                agents[to].on_message(now, name, &bytes).unwrap();
            }
        }
        most_lent = most_lent.max(planes[1].0.lent_bps);
        for limit in agents[0].view(now).limits {
            assert!(limit.sum_bps <= limit.limit_bps, "turn {number}: {limit:?}");
        }
    }
    assert!(most_lent > 45 * MBIT, "{most_lent}");
}
