//! What an agent shows, for people.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Row, Table};
use narrows_escape::line;
use narrows_snapshot::fleet_agent::Shown;
use narrows_snapshot::fleet_agent::{BoxView, LimitView, Part, SharerView};
use std::fmt::{self, Display};

/// The most events that are shown.
const EVENTS: usize = 10;
/// Above this a time is given in seconds, in milliseconds.
const LONG_MS: u64 = 10_000;

/// `Shown` as text.
#[derive(Debug)]
pub struct Text<'a>(pub &'a Shown);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0;
        let me = line(&shown.view.me).into_owned();
        writeln!(
            f,
            "fleet {}, box {me}: reports every {} ms, loans of {} ms",
            line(&shown.fleet),
            shown.interval_ms,
            shown.lease_ms
        )?;
        match &shown.connected_through {
            Some(through) => writeln!(f, "engine: connected through {}", line(through))?,
            None => writeln!(f, "engine: NOT CONNECTED; this box keeps its safe shares")?,
        }
        match &shown.instance_trouble {
            None => writeln!(f, "instance: answers")?,
            Some(why) => writeln!(f, "instance: DOES NOT ANSWER: {}", line(why))?,
        }
        let silent: Vec<&str> = shown.silent().collect();
        if !silent.is_empty() {
            let heard = shown.view.boxes.len() - silent.len();
            writeln!(
                f,
                "PARTITION: {heard} of {} boxes are heard; silent: {}",
                shown.view.boxes.len(),
                line(&silent.join(", "))
            )?;
        }
        writeln!(f, "\n{}", boxes(&shown.view.boxes, &shown.view.me))?;
        for limit in &shown.view.limits {
            write_limit(f, limit)?;
        }
        if shown.view.limits.is_empty() {
            writeln!(f, "\nno shared limits: none in the policy has `fleet NAME`")?;
        }
        if !shown.events.is_empty() {
            writeln!(f, "\nlately:")?;
        }
        let first = shown.events.len().saturating_sub(EVENTS);
        for event in &shown.events[first..] {
            writeln!(f, "  {:>9} ago  {}", time(event.ms_ago), line(&event.what))?;
        }
        Ok(())
    }
}

fn boxes(boxes: &[BoxView], me: &str) -> Table {
    let mut table = table(["box", "heard", "lease left"]);
    for member in boxes {
        let off = member.off.as_deref().map(|off| match off {
            "waits" => "OFF, all others are asked about its share",
            "claimed" => "OFF, its share is used",
            _ => "BACK, its share is given back",
        });
        let heard = match (member.heard_ms_ago, member.is_heard) {
            _ if member.name == me => "this box".to_owned(),
            _ if off.is_some() => off.unwrap_or_default().to_owned(),
            (Some(ms), true) => format!("{} ago", time(ms)),
            (Some(ms), false) => format!("SILENT for {}", time(ms)),
            (None, _) => "NEVER".to_owned(),
        };
        let left = member.lease_left_ms.map_or_else(|| "-".to_owned(), time);
        table.add_row([line(&member.name).into_owned(), heard, left]);
    }
    table
}

fn write_limit(f: &mut fmt::Formatter<'_>, limit: &LimitView) -> fmt::Result {
    writeln!(
        f,
        "\n{}: limit {}, in force on all boxes {}, shared by {}",
        line(&limit.name),
        rate(limit.limit_bps),
        rate(limit.sum_bps),
        if limit.is_by_flow { "flow" } else { "box" }
    )?;
    writeln!(
        f,
        "  here ({} {}): safe share {}{}{}{}, in force {}{}, sent {}",
        line(&limit.port),
        line(&limit.at),
        rate(limit.safe_bps),
        if limit.claimed_bps == 0 {
            String::new()
        } else {
            format!(" + of boxes that are off {}", rate(limit.claimed_bps))
        },
        parts(" - lent", "to", &limit.lent),
        parts(" + borrowed", "from", &limit.borrowed),
        rate(limit.in_force_bps),
        if limit.is_held_back { " (WAITS since its start for all others' word)" } else { "" },
        rate(limit.sent_bps)
    )?;
    let mut table = table(["  box", "demand", "flows", "share", "in force", "sent"]);
    for sharer in &limit.boxes {
        table.add_row(sharer_row(sharer));
    }
    writeln!(f, "{table}")
}

fn sharer_row(sharer: &SharerView) -> Row {
    let share = match sharer.share_bps {
        Some(share) => rate(share),
        None if sharer.is_heard => "-".to_owned(),
        None => "SILENT".to_owned(),
    };
    Row::from([
        format!("  {}", line(&sharer.name)),
        sharer.demand_bps.map_or_else(|| "held back".to_owned(), rate),
        sharer.flows.map_or_else(|| "-".to_owned(), |flows| format!("{flows:.1}")),
        share,
        rate(sharer.in_force_bps),
        rate(sharer.sent_bps),
    ])
}

fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn parts(what: &str, way: &str, parts: &[Part]) -> String {
    let each = parts.iter().map(|part| format!("{} {way} {}", rate(part.bps), line(&part.name)));
    let each: Vec<String> = each.collect();
    if each.is_empty() { String::new() } else { format!("{what} {}", each.join(", ")) }
}

fn rate(bps: u64) -> String {
    match bps {
        0 => "0".to_owned(),
        1_000_000_000.. => format!("{:.3} Gbit/s", bps as f64 / 1e9),
        1_000_000.. => format!("{:.2} Mbit/s", bps as f64 / 1e6),
        1_000.. => format!("{:.1} kbit/s", bps as f64 / 1e3),
        _ => format!("{bps} bit/s"),
    }
}

fn time(ms: u64) -> String {
    if ms < LONG_MS { format!("{ms} ms") } else { format!("{} s", ms / 1_000) }
}
