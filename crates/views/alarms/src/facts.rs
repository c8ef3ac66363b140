//! What conditions are about.

use serde::Serialize;

/// What a subject is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A port.
    Port,
    /// A class with a name and classes below it.
    Site,
    /// A class with a name and none below it.
    Subscriber,
    /// A class without a name.
    Class,
    /// A worker.
    Worker,
    /// The instance.
    Instance,
}

impl Kind {
    /// Its word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Port => "port",
            Self::Site => "site",
            Self::Subscriber => "subscriber",
            Self::Class => "class",
            Self::Worker => "worker",
            Self::Instance => "instance",
        }
    }
}

/// Whom an alarm is about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct Subject {
    /// What it is.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// The port of the direction; empty if it has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub port: String,
}

/// One direction of a subject in the latest interval.
#[derive(Clone, PartialEq, Debug)]
pub struct SubjectFacts {
    /// Whom they are about.
    pub subject: Subject,
    /// The rate sent, in bits per second.
    pub sent_bps: f64,
    /// The rate that it may have, in bits per second, if it is limited.
    pub ceiling_bps: Option<f64>,
    /// Packets dropped per second.
    pub drops_pps: f64,
    /// The median and the 99th percentile of the delay, in milliseconds.
    pub delay_ms: Option<[f64; 2]>,
    /// The median and the 99th percentile of the round trip, in milliseconds.
    pub round_trip_ms: Option<[f64; 2]>,
    /// The share of segments lost.
    pub loss: Option<f64>,
}

/// All that is known at a moment.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Facts {
    /// Directions; empty if no interval was over.
    pub subjects: Vec<SubjectFacts>,
    /// The ports, each with whether it is down.
    pub ports: Vec<(String, bool)>,
    /// The workers, each with whether it is silent.
    pub workers: Vec<(u32, bool)>,
    /// Packets that passed no worker since the last facts; none if that is not known.
    pub bypassed: Option<u64>,
    /// Whether the instance does not answer.
    pub gone: bool,
}
