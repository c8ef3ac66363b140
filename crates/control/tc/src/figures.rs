//! The figures of every qdisc and class that `tc -s` prints.

use crate::notation;
use crate::render::Json;
use narrows_qdisc::Stats;

/// The statistics of every qdisc and class.
pub(crate) struct Figures<'a>(pub(crate) &'a Stats);

impl Figures<'_> {
    /// As text.
    pub(crate) fn text(&self) -> String {
        let stats = self.0;
        format!(
            " Sent {} bytes {} pkt (dropped {}, overlimits {} requeues {}) \n backlog {} {}p requeues {}\n",
            stats.sent_bytes,
            stats.sent_packets,
            stats.drops,
            stats.overlimits,
            stats.requeues,
            notation::size(stats.backlog.bytes.0),
            stats.backlog.packets,
            stats.requeues,
        )
    }

    /// As JSON.
    pub(crate) fn json(&self) -> [(&'static str, Json); 7] {
        let stats = self.0;
        [
            ("bytes", stats.sent_bytes),
            ("packets", stats.sent_packets),
            ("drops", stats.drops),
            ("overlimits", stats.overlimits),
            ("requeues", stats.requeues),
            ("backlog", stats.backlog.bytes.0),
            ("qlen", u64::from(stats.backlog.packets)),
        ]
        .map(|(key, value)| (key, Json::Number(value)))
    }
}
