//! The views: a table for each, and the details of a row.

mod classes;
mod drops;
mod events;
mod heaviest;
mod qdiscs;
mod queues;
mod services;
mod tins;
mod workers;

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
}

/// A name and a value, as text.
pub(crate) type Fact = (String, String);

impl View {
    /// All views, in the order of their keys.
    pub const ALL: [Self; 9] = [
        Self::Queues,
        Self::Workers,
        Self::Classes,
        Self::Qdiscs,
        Self::Tins,
        Self::Drops,
        Self::Events,
        Self::Heaviest,
        Self::Services,
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
            Self::Classes => "no classes: `narrows tc class add` makes one below an htb",
            Self::Qdiscs => "no qdiscs: `narrows tc qdisc replace` sets one",
            Self::Tins => "no tins: there is no cake",
            Self::Drops => "nothing was dropped",
            Self::Events => "nothing happened yet",
            Self::Heaviest => "no host sent anything in the last seconds",
            Self::Services => "no services: `narrows balance add` makes one at a host's port",
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
        }
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
            Self::Drops | Self::Events => Vec::new(),
        }
    }
}

/// The facts in a JSON object by key; nested ones have a path.
fn facts(map: &serde_json::Map<String, serde_json::Value>) -> Vec<Fact> {
    let mut facts = Vec::new();
    for (key, value) in map {
        match value {
            serde_json::Value::Object(inner) => facts.extend(
                self::facts(inner)
                    .into_iter()
                    .map(|(name, value)| (format!("{key} {name}"), value)),
            ),
            serde_json::Value::Array(_) => {}
            serde_json::Value::String(text) => facts.push((key.clone(), text.clone())),
            other => facts.push((key.clone(), other.to_string())),
        }
    }
    facts
}

/// The facts in a value that serializes as a JSON object.
fn facts_of(value: &impl serde::Serialize) -> Vec<Fact> {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::Object(map)) => facts(&map),
        _ => Vec::new(),
    }
}
