//! What an agent shows, as it passes through its socket.

use narrows_lending::FleetView;
use serde::{Deserialize, Serialize};

/// All that an agent knows. Rates are in bits per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// The fleet's name.
    pub fleet: String,
    /// How often it reports, in milliseconds.
    pub interval_ms: u64,
    /// How long a loan holds, in milliseconds.
    pub lease_ms: u64,
    /// Through which server it hears the others; none if it does not.
    pub connected_through: Option<String>,
    /// Why the instance on this box cannot be asked; none if it answers.
    pub instance_trouble: Option<String>,
    /// What passed since it began.
    pub traffic: Traffic,
    /// The boxes and the limits.
    pub view: FleetView,
    /// What happened lately, the oldest first.
    pub events: Vec<Past>,
}

/// What passed between this agent, the others and the instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Messages sent.
    pub messages_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Messages dropped instead of sent: no connection, or too many that waited.
    pub messages_dropped: u64,
    /// Messages received.
    pub messages_received: u64,
    /// Their bytes.
    pub bytes_received: u64,
    /// Messages that were not understood.
    pub messages_malformed: u64,
    /// Orders that the instance answered.
    pub turns: u64,
    /// Orders that it did not.
    pub turns_failed: u64,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    /// So many milliseconds ago.
    pub ms_ago: u64,
    /// What.
    pub what: String,
}

impl Shown {
    /// The boxes that are not heard, and are not off as far as an operator said here.
    pub fn silent(&self) -> impl Iterator<Item = &str> {
        self.view
            .boxes
            .iter()
            .filter(|it| !it.is_heard && it.off.is_none())
            .map(|it| it.name.as_str())
    }
}
