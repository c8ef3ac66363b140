//! The views: a table for each, and the details of a row.

mod both;
mod classes;
mod drops;
mod events;
mod fleet;
mod heaviest;
mod qdiscs;
mod queues;
mod services;
mod tins;
mod workers;

use crate::chart::{Charted, Unit};
use crate::number::{duration, micros, percent, short};
use crate::table::Table;
use narrows_snapshot::{Change, Snapshot};

/// A view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum View {
    /// Ports and their queues.
    Queues,
    /// Workers.
    Workers,
    /// The tree of classes of each port.
    Classes,
    /// The qdiscs of each port.
    Qdiscs,
    /// The tins of every `cake`.
    Tins,
    /// Where packets were lost.
    Drops,
    /// Warnings and events.
    Events,
    /// The heaviest hosts and flows.
    Heaviest,
    /// Balanced services and their servers.
    Services,
    /// Limits that a fleet of boxes shares.
    Fleet,
    /// Both directions of each class in one row.
    Both,
}

/// A name and a value, as text.
pub(crate) type Fact = (String, String);

impl View {
    /// All views, in the order of their keys.
    pub const ALL: [Self; 11] = [
        Self::Queues,
        Self::Workers,
        Self::Classes,
        Self::Qdiscs,
        Self::Tins,
        Self::Drops,
        Self::Events,
        Self::Heaviest,
        Self::Services,
        Self::Fleet,
        Self::Both,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queues => "queues",
            Self::Workers => "workers",
            Self::Classes => "classes",
            Self::Qdiscs => "qdiscs",
            Self::Tins => "tins",
            Self::Drops => "drops",
            Self::Events => "events",
            Self::Heaviest => "hosts",
            Self::Services => "services",
            Self::Fleet => "fleet",
            Self::Both => "both",
        }
    }

    /// The view with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|view| view.name() == name)
    }

    /// The text for an empty table.
    pub(crate) fn nothing(self) -> &'static str {
        match self {
            Self::Queues => "no ports",
            Self::Workers => "no workers: the ports are not joined",
            Self::Classes | Self::Both => {
                "no classes: `narrows tc class add` makes one below an htb"
            }
            Self::Qdiscs => "no qdiscs: `narrows tc qdisc replace` sets one",
            Self::Tins => "no tins: there is no cake",
            Self::Drops => "nothing was dropped",
            Self::Events => "nothing happened yet",
            Self::Heaviest => "no host sent anything in the last seconds",
            Self::Services => "no services: `narrows balance add` makes one at a host's port",
            Self::Fleet => "no shared limits: none in the policy has `fleet NAME`",
        }
    }

    pub(crate) fn table(self, now: &Snapshot, change: Option<&Change>) -> Table {
        match self {
            Self::Queues => queues::table(now, change),
            Self::Workers => workers::table(now, change),
            Self::Classes => classes::table(now, change),
            Self::Qdiscs => qdiscs::table(now, change),
            Self::Tins => tins::table(now, change),
            Self::Drops => drops::table(now, change),
            Self::Events => events::table(now),
            Self::Heaviest => heaviest::table(now),
            Self::Services => services::table(now, change),
            Self::Fleet => fleet::table(now),
            Self::Both => both::table(now, change),
        }
    }

    /// The columns that the details of a row chart.
    pub(crate) fn charts(self) -> &'static [Charted] {
        const QUEUES: &[Charted] = &[
            Charted::new(2, "sent", Unit::Rate),
            Charted::new(4, "received", Unit::Rate),
            Charted::new(8, "dropped", Unit::Packets),
        ];
        const WORKERS: &[Charted] = &[Charted::new(4, "CPU time", Unit::Share)];
        const CLASSES: &[Charted] = &[
            Charted::new(3, "sent", Unit::Rate),
            Charted::new(7, "delay of 99 in 100 packets", Unit::Time),
            Charted::new(8, "dropped", Unit::Packets),
        ];
        const QDISCS: &[Charted] =
            &[Charted::new(2, "sent", Unit::Rate), Charted::new(6, "dropped", Unit::Packets)];
        const TINS: &[Charted] = &[
            Charted::new(2, "arrived", Unit::Rate),
            Charted::new(5, "delay of 99 in 100 packets", Unit::Time),
            Charted::new(7, "dropped", Unit::Packets),
        ];
        const DROPS: &[Charted] = &[Charted::new(1, "dropped", Unit::Packets)];
        const HEAVIEST: &[Charted] = &[
            Charted::new(2, "sent", Unit::Rate),
            Charted::new(4, "delay of 99 in 100 packets", Unit::Time),
        ];
        const SERVICES: &[Charted] =
            &[Charted::new(5, "towards it", Unit::Rate), Charted::new(4, "packets", Unit::Packets)];
        const FLEET: &[Charted] = &[
            Charted::new(fleet::SENT, "sent", Unit::Rate),
            Charted::new(fleet::FORCE, "in force", Unit::Rate),
        ];
        const BOTH: &[Charted] = &[
            Charted::new(1, "sent A", Unit::Rate),
            Charted::new(5, "sent B", Unit::Rate),
            Charted::new(3, "delay A of 99 in 100 packets", Unit::Time),
            Charted::new(7, "delay B of 99 in 100 packets", Unit::Time),
        ];
        match self {
            Self::Queues => QUEUES,
            Self::Workers => WORKERS,
            Self::Classes => CLASSES,
            Self::Qdiscs => QDISCS,
            Self::Tins => TINS,
            Self::Drops => DROPS,
            Self::Events => &[],
            Self::Heaviest => HEAVIEST,
            Self::Services => SERVICES,
            Self::Fleet => FLEET,
            Self::Both => BOTH,
        }
    }

    /// Which of the tabs it belongs to.
    pub(crate) fn tab(self) -> Self {
        if self == Self::Both { Self::Classes } else { self }
    }

    /// The details of the row with this key beyond its cells.
    pub(crate) fn details(self, now: &Snapshot, key: &str) -> Vec<Fact> {
        match self {
            Self::Queues => queues::details(now, key),
            Self::Workers => workers::details(now, key),
            Self::Classes => classes::details(now, key),
            Self::Qdiscs => qdiscs::details(now, key),
            Self::Tins => tins::details(now, key),
            Self::Heaviest => heaviest::details(now, key),
            Self::Services => services::details(now, key),
            Self::Fleet => fleet::details(now, key),
            Self::Both => both::details(now, key),
            Self::Drops | Self::Events => Vec::new(),
        }
    }
}

/// The facts in a JSON object by key, in words and with units; nested ones have a path.
fn facts(map: &serde_json::Map<String, serde_json::Value>) -> Vec<Fact> {
    let mut facts = Vec::new();
    for (key, value) in map {
        match value {
            serde_json::Value::Object(inner) => facts.extend(
                self::facts(inner)
                    .into_iter()
                    .map(|(name, value)| (format!("{} {name}", words(key)), value)),
            ),
            serde_json::Value::Array(_) => {}
            serde_json::Value::String(text) => facts.push((words(key), text.clone())),
            other => facts.push(fact(key, other)),
        }
    }
    facts
}

/// A key as words.
fn words(key: &str) -> String {
    key.replace('_', " ")
}

/// A number, whose key ends in its unit, or another value.
fn fact(key: &str, value: &serde_json::Value) -> Fact {
    let number = value.as_f64();
    let unit = |suffix: &str| Some((key.strip_suffix(suffix)?, number?));
    if let Some((name, bps)) = unit("_bps") {
        (words(name), format!("{}bit/s", short(bps)))
    } else if let Some((name, us)) = unit("_us") {
        (words(name), micros(us.max(0.0) as u64))
    } else if let Some((name, seconds)) = unit("_s") {
        (words(name), duration(seconds))
    } else if let Some((name, bytes)) = unit("_bytes") {
        (words(name), format!("{}B", short(bytes)))
    } else if let (true, Some(share)) = (key.ends_with("load"), number) {
        (words(key), percent(share))
    } else if let (serde_json::Value::Bool(is), _) = (value, ()) {
        (words(key), if *is { "yes" } else { "no" }.to_owned())
    } else {
        (words(key), value.to_string())
    }
}

/// The facts in a value that serializes as a JSON object.
fn facts_of(value: &impl serde::Serialize) -> Vec<Fact> {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::Object(map)) => facts(&map),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn facts_have_words_and_units() {
        let value = json!({
            "tx_rate_bps": 12_000_000, "delay_p99_us": 4_500, "silent_s": 61.0, "backlog_bytes": 1_500,
            "no_carrier": true, "stats": {"drop_next": 3, "kind": "htb"}, "list": [1],
        });
        let said: Vec<String> =
            facts_of(&value).into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
        assert_eq!(
            said,
            [
                "tx rate: 12.0Mbit/s",
                "delay p99: 4.5ms",
                "silent: 1 min 1 s",
                "backlog: 1.50kB",
                "no carrier: yes",
                "stats drop next: 3",
                "stats kind: htb",
            ]
        );
    }

    #[test]
    fn what_is_charted_is_a_column_of_the_view() {
        for view in View::ALL {
            let table = view.table(&Snapshot::default(), None);
            for chart in view.charts() {
                assert!(chart.column < table.columns.len(), "{view:?}: {}", chart.title);
            }
        }
    }
}
