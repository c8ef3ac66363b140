//! The status of an upgrade.

use narrows_units::counted;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How far an upgrade is, and how the last one ended.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpgradeStatus {
    /// There was none.
    #[default]
    Never,
    /// An upgrade is in progress.
    Running {
        /// The number of the upgrade, counted over all processes of the instance.
        attempt: u64,
    },
    /// It failed; the answering process continues.
    Failed {
        /// The number of the upgrade, as of [`Running`](Self::Running).
        attempt: u64,
        /// Why.
        reason: String,
    },
    /// The answering process has taken over.
    Done {
        /// The number of the upgrade, as of [`Running`](Self::Running).
        attempt: u64,
        /// Its process id.
        pid: u32,
        /// The version that ran before.
        from: String,
        /// Its own.
        to: String,
        /// From the moment at which the first of the old workers stopped until all of the new
        /// ones ran, in microseconds; 0 without workers.
        pause_us: u64,
        /// Queued packets that were taken over.
        packets: u64,
    },
}

impl UpgradeStatus {
    /// The number of the upgrade; 0 if there was none.
    pub fn attempt(&self) -> u64 {
        match self {
            Self::Never => 0,
            Self::Running { attempt }
            | Self::Failed { attempt, .. }
            | Self::Done { attempt, .. } => *attempt,
        }
    }
}

impl fmt::Display for UpgradeStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.write_str("never upgraded"),
            Self::Running { .. } => f.write_str("the new binary is proving itself"),
            Self::Failed { reason, .. } => write!(f, "not upgraded: {reason}"),
            Self::Done { pid, from, to, pause_us: 0, .. } => {
                write!(f, "upgraded from {from} to {to}: process {pid} took over without a pause")
            }
            Self::Done { pid, from, to, pause_us, packets, .. } => write!(
                f,
                "upgraded from {from} to {to}: process {pid} took over {}, \
                 workers paused for {}.{:03} ms",
                counted(*packets, "queued packet"),
                pause_us / 1000,
                pause_us % 1000
            ),
        }
    }
}
