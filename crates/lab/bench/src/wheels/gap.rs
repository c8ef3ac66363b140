//! The cost of a departure after a pause.
//!
//! One packet is put into an empty structure, to leave after a gap. There are no polls until then;
//! then it leaves. A structure that scans its slots pays for each of them.

use super::subject::{Holder, Subject, User};
use super::work::START;
use crate::processor;
use crate::qdisc::median;
use narrows_packet::{Batch, Headers, PacketId, Packets, Reading};
use narrows_qdisc::pacing::Slot;
use narrows_units::Nanos;
use serde::Serialize;

/// The gaps, within the horizon of all structures.
const GAPS: [Nanos; 4] =
    [Nanos::from_micros(1), Nanos::from_micros(100), Nanos::from_millis(10), Nanos::from_secs(1)];
/// The number of gaps per measurement doubles until it takes this many nanoseconds.
const ENOUGH: i64 = 500_000;

/// One structure and one gap.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub structure: &'static str,
    /// The gap before the departure.
    pub gap_ns: u64,
    /// Insertion and departure; the median over all repeats.
    pub ns_per_packet: f64,
}

/// Measures all that look at times.
pub(super) fn run(repeats: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    for gap in GAPS {
        for subject in Subject::ALL.into_iter().filter(|subject| subject.keeps_time()) {
            let costs = (0..repeats).map(|_| subject.lend(1, 1, Turns(gap))).collect();
            let ns_per_packet = median(costs);
            rows.push(Row { structure: subject.name(), gap_ns: gap.0, ns_per_packet });
        }
    }
    rows
}

/// Nanoseconds a turn with this gap.
struct Turns(Nanos);

impl User for Turns {
    type Outcome = f64;

    fn using(self, mut holder: impl Holder) -> f64 {
        let mut packets = Packets::new(1);
        packets.prepare(Reading { headers: true, ..Reading::NOTHING });
        let id = PacketId(0);
        packets.arrive(id, 1500, START);
        packets.set_headers(id, Headers::default());
        let (mut now, mut behind) = (START, Nanos::ZERO);
        let mut left = Batch::new(1);
        let mut turn = |now: &mut Nanos| {
            let at = *now + self.0;
            let spacing = self.0.0.ilog2();
            behind = holder.insert(&mut packets, id, Slot { at, behind, spacing }, *now);
            // A coarse slot may be a little later.
            *now = behind.max(at);
            left.clear();
            holder.release(&mut packets, *now, &mut left);
            // A qdisc that batches timers lets it go a little later still.
            while left.is_empty() {
                *now += Nanos::from_micros(1);
                holder.release(&mut packets, *now, &mut left);
            }
        };
        turn(&mut now);
        let mut turns = 1_u32;
        loop {
            let start = processor::time();
            for _ in 0..turns {
                turn(&mut now);
            }
            let passed = processor::time() - start;
            if passed >= ENOUGH {
                return passed as f64 / f64::from(turns);
            }
            turns *= 2;
        }
    }
}
