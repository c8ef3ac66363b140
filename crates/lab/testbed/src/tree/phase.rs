//! What each leaf asks for in each phase.

use super::provider::{APPLICATIONS, LEAVES, SUBSCRIBERS};

/// A time in which everyone asks for the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phase {
    pub(super) name: &'static str,
    /// Its purpose, for readers of the table.
    pub(super) shows: &'static str,
    /// In Mbit/s, by subscriber and application.
    asked: [[f64; APPLICATIONS]; SUBSCRIBERS],
}

const IDLE: [f64; APPLICATIONS] = [0.0; APPLICATIONS];
const LIGHT: [f64; APPLICATIONS] = [0.8, 3.0, 1.0];
const BUSY: [f64; APPLICATIONS] = [0.8, 12.0, 12.0];
const SEEDING: [f64; APPLICATIONS] = [0.8, 4.0, 32.0];
const QUIET_WEB: [f64; APPLICATIONS] = [0.8, 2.0, 30.0];
const DOWNLOAD: [f64; APPLICATIONS] = [0.8, 45.0, 12.0];

/// Two sites of three subscribers, each alike.
const fn sites(
    north: [f64; APPLICATIONS],
    south: [f64; APPLICATIONS],
) -> [[f64; APPLICATIONS]; SUBSCRIBERS] {
    [north, north, north, south, south, south]
}

/// All of them, in their order.
///
/// No web borrows and gets all it asks for while bulks of different weights borrow, too. Such a web
/// has moments in which nothing of it waits, and in these the bulk below the same subscriber
/// borrows what a fluid would have given to the web.
pub(super) const PHASES: [Phase; 6] = [
    Phase {
        name: "morning",
        shows: "all demands below the assured rates: each is met",
        asked: sites(LIGHT, LIGHT),
    },
    Phase {
        name: "evening",
        shows: "all demand more than the link: assured rates, then the rest to web before bulk",
        asked: sites(BUSY, BUSY),
    },
    Phase {
        name: "south sleeps",
        shows: "north borrows what south leaves; north-1 pays for twice the part",
        asked: sites(SEEDING, IDLE),
    },
    Phase {
        name: "download",
        shows: "the web of north-2 wants all: before bulk of others, up to its subscriber's ceiling",
        asked: [QUIET_WEB, DOWNLOAD, QUIET_WEB, IDLE, IDLE, IDLE],
    },
    Phase {
        name: "south alone",
        shows: "south wakes, north leaves: the site's ceiling binds, the rest of the link is idle",
        asked: sites(IDLE, BUSY),
    },
    Phase {
        name: "evening again",
        shows: "north is back, and has its assured rates at once",
        asked: sites(BUSY, BUSY),
    },
];

impl Phase {
    /// The demand of a leaf, in bits per second.
    pub(super) fn asked(&self, leaf: usize) -> f64 {
        self.asked[leaf / APPLICATIONS][leaf % APPLICATIONS] * 1e6
    }

    /// The demands of all leaves.
    pub(super) fn asked_by_leaf(&self) -> [f64; LEAVES] {
        std::array::from_fn(|leaf| self.asked(leaf))
    }
}
