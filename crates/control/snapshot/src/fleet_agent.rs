//! What the agent of a fleet says of it: the other boxes, and who has how much of each shared
//! limit.
//!
//! *Idea.* The agent is a process of its own, and the instance knows nothing of other boxes. So
//! this is what passes through the agent's socket, as JSON. Views ask the agent besides the
//! instance and put its answer into the snapshot ([`Snapshot::fleet_agent`](crate::Snapshot)).
//!
//! *Principles.* Rates are bits per second. Times are milliseconds from now, back or ahead.
//!
//! *Non-goals.* How it is computed: the agent's.

use serde::{Deserialize, Serialize};

/// All that an agent knows. Rates are in bits per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// A fleet as one agent sees it. Rates are in bits per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FleetView {
    /// The name of this box.
    pub me: String,
    /// All boxes, in order of their names.
    pub boxes: Vec<BoxView>,
    /// The limits that this box shares, in order of their names.
    pub limits: Vec<LimitView>,
    /// How many more there are, where the question was for the busiest only.
    #[serde(default)]
    pub limits_left_out: usize,
}

impl FleetView {
    /// How many of the first limits, which so many boxes share each, have at most `rows` boxes
    /// between them. One is always among them.
    pub fn fitting(rows: usize, boxes: impl IntoIterator<Item = usize>) -> usize {
        let mut left = rows;
        let mut is_first = true;
        let fits = |boxes: &usize| {
            let fits = *boxes <= left || is_first;
            (left, is_first) = (left.saturating_sub(*boxes), false);
            fits
        };
        boxes.into_iter().take_while(fits).count()
    }
}

/// A box.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BoxView {
    /// Its name.
    pub name: String,
    /// Whether it was heard within a lease. This box always is.
    pub is_heard: bool,
    /// How many milliseconds ago it was last heard; none if never.
    pub heard_ms_ago: Option<u64>,
    /// What is left of the lease of what this box borrowed from it, in milliseconds.
    pub lease_left_ms: Option<u64>,
    /// If an operator said here that it is off: `waits` until all others answered that they do not
    /// claim its share, `claimed` while this box has it, `returns` while it is given back.
    #[serde(default)]
    pub off: Option<String>,
}

/// A shared limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LimitView {
    /// Its name.
    pub name: String,
    /// The port and the place where this box has it.
    pub port: String,
    /// A qdisc (`1:`) or a class (`1:10`).
    pub at: String,
    /// The rate of all boxes together: the smallest that a box has.
    pub limit_bps: u64,
    /// This box's safe share.
    pub safe_bps: u64,
    /// What this box has of the shares of boxes that are off.
    #[serde(default)]
    pub claimed_bps: u64,
    /// Whether this box waits, since its start, until all others said that they do not claim its
    /// share.
    #[serde(default)]
    pub is_held_back: bool,
    /// What is in force here.
    pub in_force_bps: u64,
    /// What was sent here, lately.
    pub sent_bps: u64,
    /// To whom how much is lent.
    pub lent: Vec<Part>,
    /// From whom how much is borrowed.
    pub borrowed: Vec<Part>,
    /// Whether each box weighs as much as it has flows. If not, boxes weigh as the configuration
    /// says.
    #[serde(default)]
    pub is_by_flow: bool,
    /// What each box that shares it said last.
    pub boxes: Vec<SharerView>,
    /// The sum of what is in force: as last told by the boxes that are heard, and the safe shares
    /// of those that are silent. A box tells within a second, and each at another time: while loans
    /// move, this may be above the limit, and what is in force is not.
    pub sum_bps: u64,
}

impl LimitView {
    /// What all boxes send together.
    pub fn sent_by_all_bps(&self) -> u64 {
        self.boxes.iter().map(|sharer| sharer.sent_bps).fold(0, u64::saturating_add)
    }
}

/// A part that one box has of another's share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// The other box.
    pub name: String,
    /// How much.
    pub bps: u64,
}

/// What a box said of a limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SharerView {
    /// The box.
    pub name: String,
    /// Whether it is heard.
    pub is_heard: bool,
    /// Its demand; none if the limit holds it back, so that its demand is unknown.
    pub demand_bps: Option<u64>,
    /// The share that it should have, as this box computes it; none if it is silent.
    pub share_bps: Option<u64>,
    /// What is in force there.
    pub in_force_bps: u64,
    /// What was sent there.
    pub sent_bps: u64,
    /// Its flows, as far as they weigh: none if it cannot count them, if the limit is shared by
    /// box, or does not hold the box back.
    #[serde(default)]
    pub flows: Option<f64>,
}
