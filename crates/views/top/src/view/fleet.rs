//! The limits that a fleet of boxes shares, and the boxes.
//!
//! First the boxes: who is heard, and what is left of leases. Then each limit with the sum of all
//! boxes, and below it what each needs, should have, may send, and sends. All of it is what the
//! agent on this box says; without one there is what the instance enforces.

use super::{Fact, facts_of};
use crate::cell::Cell;
use crate::number::duration;
use crate::table::{Column, Row, Table};
use narrows_control::fleet_agent::FINDING_SUBJECT;
use narrows_snapshot::fleet_agent::{BoxView, LimitView, Part, SharerView, Shown};
use narrows_snapshot::{FleetStanding, Snapshot};
use narrows_units::counted;

const COLUMNS: &[Column] = &[
    Column { name: "Limit, box", width: 19 },
    Column { name: "Demand", width: 6 },
    Column { name: "Share", width: 6 },
    Column { name: "Force", width: 6 },
    Column { name: "Sent", width: 6 },
    Column { name: "Used", width: 5 },
    Column { name: "State", width: 25 },
];
/// The columns with what may be sent and what is.
pub(super) const FORCE: usize = 3;
pub(super) const SENT: usize = 4;

pub(super) fn table(now: &Snapshot) -> Table {
    let rows = match &now.fleet_agent {
        Some(shown) => of_agent(shown),
        None => no_agent(now).chain(now.fleet.iter().map(without_agent)).collect(),
    };
    Table { columns: COLUMNS.to_vec(), rows }
}

fn of_agent(shown: &Shown) -> Vec<Row> {
    let boxes = &shown.view.boxes;
    let mut rows = vec![fleet(shown)];
    rows.extend(boxes.iter().map(|member| one_box(member, &shown.view.me)));
    for limit in &shown.view.limits {
        let top = rows.len();
        rows.push(one_limit(limit));
        rows.extend(limit.boxes.iter().map(|sharer| one_sharer(limit, sharer, top)));
    }
    if shown.view.limits_left_out > 0 {
        let text = format!("and {} more", counted(shown.view.limits_left_out as u64, "limit"));
        rows.push(row("more", None, text, Rates::default(), "see narrows fleet show"));
    }
    rows
}

/// What is known of rates, in bits per second.
#[derive(Clone, Copy, Default)]
struct Rates {
    demand: Option<u64>,
    share: Option<u64>,
    in_force: Option<u64>,
    sent: Option<u64>,
    of: Option<u64>,
}

fn row(
    key: impl Into<String>,
    parent: Option<usize>,
    name: impl Into<String>,
    rates: Rates,
    state: impl Into<String>,
) -> Row {
    let Rates { demand, share, in_force, sent, of } = rates;
    let bps = |rate: Option<u64>| rate.map_or_else(Cell::blank, Cell::count);
    let used = match (sent, of) {
        (Some(sent), Some(of)) if of > 0 => Cell::percent(Some(sent as f64 / of as f64)),
        _ => Cell::blank(),
    };
    let cells = vec![
        Cell::text(name),
        bps(demand),
        bps(share),
        bps(in_force),
        bps(sent),
        used,
        Cell::text(state),
    ];
    let rate = sent.map(|sent| sent as f64);
    Row { rate, ..Row::new(key, parent, cells) }
}

fn fleet(shown: &Shown) -> Row {
    let boxes = shown.view.boxes.len();
    let silent = shown.silent().count();
    let (is_warning, state) = match (&shown.connected_through, &shown.instance_trouble) {
        (_, Some(_)) => (true, "INSTANCE DOES NOT ANSWER".to_owned()),
        (None, None) => (true, "NOT CONNECTED".to_owned()),
        (Some(_), None) if silent > 0 => (true, format!("PARTITION: {silent} of {boxes} SILENT")),
        (Some(through), None) => (false, format!("connected through {through}")),
    };
    let name = format!("fleet {}", shown.fleet);
    Row { is_warning, ..row("fleet", None, name, Rates::default(), state) }
}

fn one_box(member: &BoxView, me: &str) -> Row {
    let left = member.lease_left_ms.map(|ms| format!(", lease {}", time(ms)));
    let (is_warning, state) = match (&member.off, member.heard_ms_ago) {
        _ if member.name == me => (false, "this box".to_owned()),
        (Some(off), _) => (true, format!("off: {off}")),
        (None, None) => (true, "NEVER HEARD".to_owned()),
        (None, Some(ms)) if !member.is_heard => (true, format!("SILENT for {}", time(ms))),
        (None, Some(ms)) => (false, format!("{} ago", time(ms))),
    };
    let state = state + &left.unwrap_or_default();
    let row = row(box_key(&member.name), Some(0), &member.name, Rates::default(), state);
    Row { is_warning, ..row }
}

fn time(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{ms} ms"),
        _ => duration(ms as f64 / 1e3),
    }
}

fn box_key(name: &str) -> String {
    format!("box {name}")
}

fn limit_key(name: &str) -> String {
    format!("limit {name}")
}

fn sharer_key(limit: &LimitView, sharer: &SharerView) -> String {
    format!("limit {} box {}", limit.name, sharer.name)
}

/// All boxes together: what is in force and sent beside the limit.
fn one_limit(limit: &LimitView) -> Row {
    let rates = Rates {
        in_force: Some(limit.sum_bps),
        sent: Some(limit.sent_by_all_bps()),
        of: Some(limit.limit_bps),
        ..Rates::default()
    };
    let waits = if limit.is_held_back { ", waits" } else { "" };
    let state = format!("of {}bit/s{waits}", Cell::count(limit.limit_bps).text);
    row(limit_key(&limit.name), None, &limit.name, rates, state)
}

fn one_sharer(limit: &LimitView, sharer: &SharerView, parent: usize) -> Row {
    let rates = Rates {
        demand: sharer.demand_bps,
        share: sharer.share_bps,
        in_force: Some(sharer.in_force_bps),
        sent: Some(sharer.sent_bps),
        of: Some(sharer.in_force_bps),
    };
    let state = match (sharer.is_heard, sharer.demand_bps) {
        (false, _) => "SILENT: its safe share",
        (true, None) => "held back by its share",
        (true, Some(_)) => "",
    };
    let row = row(sharer_key(limit, sharer), Some(parent), &sharer.name, rates, state);
    Row { is_warning: !sharer.is_heard, ..row }
}

/// That no agent answers where one was expected.
fn no_agent(now: &Snapshot) -> impl Iterator<Item = Row> + '_ {
    let findings = now.findings.iter().filter(|finding| finding.subject == FINDING_SUBJECT);
    findings.map(|finding| Row {
        is_warning: true,
        ..row("no agent", None, "fleet", Rates::default(), finding.what.as_str())
    })
}

/// A limit as the instance alone knows it.
fn without_agent(limit: &FleetStanding) -> Row {
    let rates = Rates { in_force: Some(limit.in_force_bps), ..Rates::default() };
    let (is_warning, state) = match (&*limit.because, limit.alone_s) {
        ("agent", _) => (false, "its agent does not answer".to_owned()),
        (_, Some(alone_s)) => (true, format!("NO AGENT for {}", duration(alone_s))),
        _ => (true, "NO AGENT".to_owned()),
    };
    Row { is_warning, ..row(limit_key(&limit.name), None, limit.name.as_str(), rates, state) }
}

fn parts(way: &str, parts: &[Part]) -> Vec<Fact> {
    let bits = |part: &Part| format!("{}bit/s", Cell::count(part.bps).text);
    parts.iter().map(|part| (format!("{way} {}", part.name), bits(part))).collect()
}

pub(super) fn details(now: &Snapshot, key: &str) -> Vec<Fact> {
    let Some(shown) = &now.fleet_agent else {
        let limit = now.fleet.iter().find(|limit| limit_key(&limit.name) == key);
        return limit.map(facts_of).unwrap_or_default();
    };
    if let Some(member) = shown.view.boxes.iter().find(|it| box_key(&it.name) == key) {
        return facts_of(member);
    }
    for limit in &shown.view.limits {
        if limit_key(&limit.name) == key {
            let mut facts = facts_of(limit);
            facts.extend(parts("lent to", &limit.lent));
            facts.extend(parts("borrowed from", &limit.borrowed));
            return facts;
        }
        let sharer = limit.boxes.iter().find(|sharer| sharer_key(limit, sharer) == key);
        if let Some(sharer) = sharer {
            return facts_of(sharer);
        }
    }
    facts_of(shown)
}
