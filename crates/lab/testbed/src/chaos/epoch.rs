//! One epoch: from rest to rest, with normal operation before and after one fault.
//!
//! ```text
//! rest │ senders start ─ normal ─ fault ─ undone ─ recovery (1 s) ─ normal ─ senders end │ rest
//! ```
//!
//! At rest every counter is constant and nothing is queued, so the frames balance exactly; in
//! between, traffic goes both ways without a pause.

use super::books::{self, Books};
use super::fault::{Fault, IN_FLIGHT, Kind, Trace};
use super::frame::Way;
use super::limit::{self, Fullest, Limit, Shaped};
use super::outage;
use super::policy::{OFFERED_BACK, OFFERED_FORTH};
use super::promises;
use super::receiver::{Heard, Receiver};
use super::sender::{Log, Stream, now};
use super::span::Span;
use super::traffic::Traffic;
use super::world::World;
use crate::accounting;
use crate::pace::Pace;
use anyhow::{Context, Result};
use narrows_snapshot::Snapshot;
use narrows_units::Nanos;
use serde::Serialize;
use std::thread;
use std::time::Duration;

/// Normal operation before the fault.
const BEFORE: Duration = Duration::from_millis(400);
/// The time at the start of an epoch before it counts as normal: buckets are full, caches are cold.
const SETTLING: Nanos = Nanos::from_millis(100);
/// The time after a fault before operation counts as normal.
const RECOVERY: Duration = Duration::from_secs(1);
/// Normal operation after it.
const AFTER: Duration = Duration::from_millis(400);
/// Frame lengths of the main streams; flows take them in turn.
const LENGTHS: [usize; 4] = [1514, 1514, 600, 100];

/// One direction in one epoch.
#[derive(Clone, Debug, Serialize)]
pub(super) struct OneWay {
    pub(super) way: Way,
    /// Whether the fault sent frames of its own in this direction.
    pub(super) is_flooded: bool,
    #[serde(flatten)]
    pub(super) books: Books,
    /// The longest time for which a flow got nothing through.
    pub(super) outage_ms: f64,
    /// The fullest windows while the limit held.
    pub(super) fullest: [Fullest; 3],
    /// Frames that arrived in normal operation.
    pub(super) normal: u64,
    /// Frames that were sent in normal operation and are missing.
    pub(super) normal_missing: u64,
    /// Frames that arrived out of their flow's order, in normal operation and at all.
    pub(super) normal_reordered: u64,
    pub(super) reordered: u64,
    /// Frames that arrived more than once.
    pub(super) doubled: u64,
    /// Frames that arrived by a route that was not in force.
    pub(super) misled: u64,
}

/// The result of one fault.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Epoch {
    pub(super) number: usize,
    pub(super) kind: Kind,
    pub(super) what: String,
    pub(super) policy: &'static str,
    pub(super) ways: [OneWay; 2],
    /// Broken guarantees.
    pub(super) broken: Vec<String>,
}

/// Runs `fault`, the `number`th of its run.
pub(super) fn run(
    world: &mut World<'_>,
    number: usize,
    kind: Kind,
    fault: &dyn Fault,
) -> Result<Epoch> {
    let mut devices = accounting::Books::open(world.bed)?;
    world.open_books()?;
    // Frames that go forth are received at the server, by all its devices.
    let receivers = world.ends().into_iter().map(Receiver::start).collect::<Result<Vec<_>>>()?;
    let began = now()?;
    let before = world.policy();
    let main = [
        world.send(main_stream(Way::Forth, OFFERED_FORTH))?,
        world.send(main_stream(Way::Back, OFFERED_BACK))?,
    ];
    thread::sleep(BEFORE);
    let struck = now()?;
    let trace = fault.strike(world).with_context(|| fault.describe())?;
    let undone = now()?;
    thread::sleep(RECOVERY);
    let recovered = now()?;
    thread::sleep(AFTER);
    let ended = now()?;
    for running in main {
        world.sent(running)?;
    }
    // Frames held by a worker without a core are in no device's count, and the worker's own counts
    // are old.
    world.wait_until("at rest", Snapshot::is_at_rest)?;
    let devices = devices.settle()?;
    let mut heard = receivers.into_iter().map(Receiver::stop).collect::<Result<Vec<_>>>()?;
    let client = heard.remove(0);
    let mut heard = [heard.into_iter().fold(Heard::default(), Heard::and), client];
    let received = heard.each_ref().map(|heard| heard.arrivals.len() as u64 + heard.others);
    if let Some(planted) = world.planted {
        planted.spoil(&mut heard[planted.way().index()].arrivals);
    }
    let counted = world.counted(&devices, received)?;
    let logs = std::mem::take(&mut world.logs);
    let times = Times { began, struck, undone, recovered, ended };
    let after = world.policy();
    let ways = Way::BOTH.map(|way| {
        let logs: Vec<Log> = logs.iter().filter(|log| log.way == way).cloned().collect();
        let traffic = Traffic::of(&logs, &heard[way.index()].arrivals);
        let shaped = times.shaped(&trace, before.limit(way), after.limit(way));
        OneWay {
            way,
            is_flooded: logs.len() > 1,
            books: books::close(&traffic, &counted[way.index()], &trace.destroyed, trace.bypassed),
            outage_ms: outage::longest(&logs, &traffic).as_secs_f64() * 1e3,
            fullest: limit::fullest(&traffic.received, &shaped),
            normal: traffic.received_within(&times.normal(Nanos::ZERO)),
            normal_missing: traffic.missing_within(&times.normal(before.hold() + IN_FLIGHT)),
            normal_reordered: traffic.reordered_within(&times.normal(Nanos::ZERO)),
            reordered: traffic.reordered.len() as u64,
            doubled: traffic.doubled.len() as u64,
            misled: if way == Way::Forth { world.misled(&traffic.received) } else { 0 },
        }
    });
    let mut broken = promises::broken(kind, fault.outage(), &ways);
    broken.extend(trace.broken);
    Ok(Epoch { number, kind, what: fault.describe(), policy: after.name, ways, broken })
}

fn main_stream(way: Way, bits: f64) -> Stream {
    Stream {
        number: way.index() as u8,
        way,
        lengths: LENGTHS.to_vec(),
        pace: Pace::Bits(bits),
        scatter: false,
        first: 0,
    }
}

/// The moments of an epoch.
struct Times {
    began: Nanos,
    struck: Nanos,
    undone: Nanos,
    recovered: Nanos,
    ended: Nanos,
}

impl Times {
    /// The two spans of normal operation, the first of which ends `early`.
    fn normal(&self, early: Nanos) -> [Span; 2] {
        let until = Nanos(self.struck.0.saturating_sub(early.0));
        [Span::new(self.began + SETTLING, until), Span::new(self.recovered, self.ended)]
    }

    /// When which limit held: before the fault, while it lasted, and after.
    fn shaped(&self, trace: &Trace, before: Limit, after: Limit) -> Vec<Shaped> {
        let shaped = |from, to, limit| Shaped { span: Span::new(from, to), limit };
        match &trace.unshaped {
            Some(gap) => {
                vec![shaped(self.began, gap.from, before), shaped(gap.to, Nanos::MAX, after)]
            }
            None if before == after => vec![shaped(self.began, Nanos::MAX, before)],
            None => vec![
                shaped(self.began, self.struck, before),
                shaped(self.struck, self.undone, before.or(after)),
                shaped(self.undone, Nanos::MAX, after),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_units::{Bytes, Rate};

    const TIMES: Times = Times {
        began: Nanos::from_millis(1000),
        struck: Nanos::from_millis(2000),
        undone: Nanos::from_millis(2500),
        recovered: Nanos::from_millis(3500),
        ended: Nanos::from_millis(4000),
    };
    const SLOW: Limit = Limit { rate: Rate::from_bits_per_sec(1), burst: Bytes(20) };
    const FAST: Limit = Limit { rate: Rate::from_bits_per_sec(2), burst: Bytes(10) };

    #[test]
    fn normal_is_before_the_fault_and_a_second_after() {
        let [before, after] = TIMES.normal(Nanos::from_millis(100));
        assert_eq!(before, Span::new(Nanos::from_millis(1100), Nanos::from_millis(1900)));
        assert_eq!(after, Span::new(TIMES.recovered, TIMES.ended));
    }

    #[test]
    fn a_limit_that_does_not_change_is_judged_across_the_fault() {
        let shaped = TIMES.shaped(&Trace::default(), SLOW, SLOW);
        assert_eq!(shaped, [Shaped { span: Span::new(TIMES.began, Nanos::MAX), limit: SLOW }]);
    }

    #[test]
    fn while_a_limit_changes_the_looser_one_holds() {
        let shaped = TIMES.shaped(&Trace::default(), SLOW, FAST);
        let limits: Vec<Limit> = shaped.iter().map(|shaped| shaped.limit).collect();
        let either = Limit { rate: FAST.rate, burst: SLOW.burst };
        assert_eq!(limits, [SLOW, either, FAST]);
    }

    #[test]
    fn unshaped_traffic_is_not_judged() {
        let gap = Span::new(Nanos::from_millis(2100), Nanos::from_millis(2200));
        let trace = Trace { unshaped: Some(gap), ..Trace::default() };
        let shaped = TIMES.shaped(&trace, SLOW, FAST);
        assert_eq!(shaped.len(), 2);
        assert_eq!((shaped[0].span.to, shaped[1].span.from), (gap.from, gap.to));
    }
}
