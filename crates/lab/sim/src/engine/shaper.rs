//! From `tc` words to a qdisc for every core, by the data plane's path.
//!
//! The words are executed and compiled ([`tc`]), and each queue's worker builds its specification.
//! Only the queues' weights and a [`Probe`] around each meter are added. A worker has frames for
//! all that its qdiscs may hold, within [`FRAMES_MOST`]. Words that the operator gives under load
//! are compiled as a change of the previous ones, so that qdiscs carry on where they can. Custom
//! meters replace those that the words name.

use super::io::{FRAME, FRAMES_RESERVED};
use super::{Meters, SimError};
use crate::setup;
use crate::tc;
use narrows_policy::Policy;
use narrows_qdisc::htb::Unclassified;
use narrows_qdisc::{Config, Contacts, Meter, Metering, Probe, Slot, Spec, Weight, cake, fifo, fq};
use narrows_shaper::BATCH;
use narrows_shaper::Installation;
use narrows_tc::OfflineHost;
use narrows_units::Bytes;
use std::sync::Arc;

/// The fewest frames of a worker.
const FRAMES_LEAST: u64 = 1 << 13;

/// The most frames of all workers: 1 GB, and as much again if they are all in use. Six times what
/// 4 GiB hold in full frames, the largest limit that `tc` takes, and which queues share unequally.
const FRAMES_MOST: u64 = 1 << 24;

/// The most packets that a `cake` without a memory limit has frames for: as many as Linux holds.
const CAKE_PACKETS: u64 = 10_240;

/// Times the memory that a `cake` may take: it takes no more than a quarter of its worker's.
const CAKE_PART: u64 = 4;

/// The shaped port in the policy.
const PORT: &str = "B";

/// The qdisc and packets of one core.
pub(super) struct Shaper {
    /// Out of port A, where nothing is shaped, and out of port B.
    pub(super) qdiscs: [Slot; 2],
    /// How many packets it may hold.
    pub(super) frames: u32,
    /// Records what the meters touch.
    pub(super) contacts: Arc<Contacts>,
}

/// The qdiscs of all queues of a port.
pub(super) struct Port {
    /// By queue.
    pub(super) shapers: Vec<Shaper>,
    /// By change of the setup.
    pub(super) changes: Vec<Change>,
}

/// A change by the operator, ready to apply.
pub(super) struct Change {
    installation: Installation,
    /// By queue.
    specs: Vec<Spec>,
}

impl Change {
    /// Applies it: the specification for each queue's worker.
    pub(super) fn make(&mut self) -> Vec<Spec> {
        self.installation.commit();
        std::mem::take(&mut self.specs)
    }
}

/// The port as `setup` has it, with its changes. No packet is shorter than `shortest`. Meters at
/// shared limits come from `meters`, if there are any.
///
/// # Errors
/// The message of `tc` if it refuses the words, or of the policy if it refuses that many queues.
pub(super) fn compile(
    port: &setup::Port,
    changes: &[setup::Change],
    shortest: u32,
    mut meters: Option<&mut Meters<'_>>,
) -> Result<Port, SimError> {
    let mut host = OfflineHost::new(Policy::default());
    let mut lay_out = |words: &[String], before: Option<&Installation>| {
        tc::lay_out(&mut host, PORT, words, port.queues, before).map_err(SimError::Qdisc)
    };
    let (first, mut specs) = lay_out(&port.qdisc, None)?;
    let mut made: Vec<Change> = Vec::with_capacity(changes.len());
    for change in changes {
        let before = made.last().map_or(&first, |change| &change.installation);
        let (installation, specs) = lay_out(&change.qdisc, Some(before))?;
        made.push(Change { installation, specs });
    }
    let contacts: Vec<Arc<Contacts>> = (0..port.queues).map(|_| Arc::default()).collect();
    let mut needed = vec![0; port.queues];
    for specs in std::iter::once(&mut specs).chain(made.iter_mut().map(|it| &mut it.specs)) {
        for (queue, spec) in specs.iter_mut().enumerate() {
            let weight = port.weights.get(queue).map(|weight| weight_of(*weight));
            let mut own = || meters.as_mut().map(|meters| meters(queue));
            prepare(spec, weight, &mut own, &contacts[queue]);
            needed[queue] = capacity(spec, shortest).max(needed[queue]);
        }
    }
    let shaper = |((spec, contacts), needed): ((Spec, Arc<Contacts>), u64)| {
        let unshaped = Spec::new(Config::Noqueue);
        let needed = needed + (FRAMES_RESERVED + BATCH) as u64;
        let most = FRAMES_LEAST.max(FRAMES_MOST / port.queues as u64);
        let frames = needed.clamp(FRAMES_LEAST, most) as u32;
        Shaper { qdiscs: [Slot::new(unshaped), Slot::new(spec)], frames, contacts }
    };
    let shapers = specs.into_iter().zip(contacts).zip(needed).map(shaper).collect();
    Ok(Port { shapers, changes: made })
}

/// How many packets `spec` can hold if all are the shortest.
fn capacity(spec: &Spec, shortest: u32) -> u64 {
    let packets = |bytes: Bytes| bytes.0 / u64::from(shortest.max(1));
    match &spec.config {
        Config::Noqueue => 0,
        // As much as its classes' queues: no scenario has any yet.
        Config::Htb(htb) => match htb.unclassified {
            Unclassified::Sent(limit) => u64::from(limit),
            Unclassified::Dropped => 0,
        },
        Config::Bands(_) => spec.children.iter().map(|child| capacity(child, shortest) + 1).sum(),
        Config::Cake(cake) => cake_packets(cake),
        // The limit is each band's.
        Config::Fq(fq) => u64::from(fq.limit) * fq::BANDS as u64,
        Config::Pacing(pacing) => u64::from(pacing.limit),
        Config::Codel(codel) => u64::from(codel.limit),
        Config::FqCodel(fq_codel) => u64::from(fq_codel.limit),
        Config::Sfq(sfq) => u64::from(sfq.limit),
        Config::Netem(netem) => {
            let below = spec.children.iter().map(|child| capacity(child, shortest)).sum::<u64>();
            u64::from(netem.limit) + below
        }
        Config::Red(_) | Config::Stab(_) => {
            spec.children.iter().map(|child| capacity(child, shortest)).sum()
        }
        Config::Fifo(fifo::Config::Packets(limit)) => u64::from(*limit),
        Config::Fifo(fifo::Config::Bytes(limit)) => packets(*limit),
        Config::Tbf(tbf) => {
            let below = spec.children.iter().map(|child| capacity(child, shortest)).sum();
            // The next packet is held outside the qdisc below.
            packets(tbf.limit).min(below) + 1
        }
    }
}

/// Packets for which a worker needs frames so that a `cake` may take what its limit allows.
fn cake_packets(cake: &cake::Config) -> u64 {
    let packets = |memory: Bytes| memory.0.div_ceil(FRAME.0);
    let limited = cake.memory.map_or(CAKE_PACKETS, packets);
    limited.saturating_mul(CAKE_PART)
}

/// In 1/256, and at least one of them.
fn weight_of(weight: f64) -> Weight {
    Weight(((weight * f64::from(Weight::ONE.0) + 0.5) as u32).max(1))
}

/// Sets the weight of every meter of `spec` and of the qdiscs below it, or of its replacement in
/// `own`, and wraps it.
fn prepare(
    spec: &mut Spec,
    weight: Option<Weight>,
    own: &mut dyn FnMut() -> Option<Box<dyn Meter>>,
    contacts: &Arc<Contacts>,
) {
    spec.metering = match std::mem::take(&mut spec.metering) {
        Metering::Shared(meter) => {
            let mut meter = own().unwrap_or(meter);
            if let Some(weight) = weight {
                meter.weigh(weight);
            }
            Metering::Shared(Box::new(Probe::new(meter, Arc::clone(contacts))))
        }
        other => other,
    };
    for child in &mut spec.children {
        prepare(child, weight, own, contacts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_qdisc::NodeId;
    use narrows_units::{Nanos, Rate};

    fn words(words: &str) -> Vec<String> {
        words.split_whitespace().map(str::to_owned).collect()
    }

    fn port(queues: usize, qdisc: &str) -> setup::Port {
        let (rate, qdisc) = (Rate::default(), words(qdisc));
        let (lock, sends) = (setup::LockScope::Bucket, setup::Sends::AllDue);
        setup::Port { queues, rate, qdisc, weights: Vec::new(), lock, sends }
    }

    fn shapers(queues: usize, words: &str, shortest: u32) -> Vec<Shaper> {
        compile(&port(queues, words), &[], shortest, None).map_or(Vec::new(), |port| port.shapers)
    }

    fn refused(queues: usize, words: &str) -> String {
        match compile(&port(queues, words), &[], 64, None) {
            Ok(_) => panic!("{words} on {queues} queues is taken"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn every_queue_gets_a_qdisc() {
        let words = "tbf rate 1gbit burst 3k limit 90k coordination equal";
        assert_eq!(shapers(3, words, 64).len(), 3);
        assert_eq!(shapers(2, "mq", 64).len(), 2);
        assert_eq!(shapers(1, "pfifo", 64).len(), 1);
    }

    #[test]
    fn each_queue_can_have_words_of_its_own() {
        let shapers = shapers(3, "mq ; pfifo limit 20000 ; pfifo limit 30000", 64);
        let frames: Vec<u64> = shapers.iter().map(|it| u64::from(it.frames)).collect();
        assert_eq!(frames, [20_192, 30_192, FRAMES_LEAST]);
        assert!(refused(2, "mq ; pfifo ; color red").contains("color"));
    }

    #[test]
    fn refusals_of_tc_and_policy_keep_their_words() {
        assert!(refused(1, "tbf rate 1gbit burst 3k limit 90k color red").contains("color"));
        assert!(refused(1, "tbf rate 1gbit burst 3k").contains("limit"));
        assert!(refused(1, "mq").contains("queue"));
        assert!(refused(0, "pfifo").contains("queue"));
    }

    #[test]
    fn a_worker_has_frames_for_its_qdiscs_limits_within_reason() {
        let frames =
            |queues, words: &str, shortest| u64::from(shapers(queues, words, shortest)[0].frames);
        assert_eq!(frames(1, "pfifo limit 10", 64), FRAMES_LEAST);
        assert_eq!(frames(1, "pfifo limit 20000", 64), 20_000 + 192);
        let words = "tbf rate 1gbit burst 3k limit 10000000b";
        assert_eq!(frames(1, words, 1000), 10_000 + 193);
        assert_eq!(frames(4, words, 1), FRAMES_MOST / 4);
        assert_eq!(frames(4, "cake bandwidth 1gbit", 64), 4 * 10_240 + 192);
        assert_eq!(frames(4, "cake bandwidth 1gbit memlimit 32mb", 64), 4 * 16_384 + 192);
    }

    #[test]
    fn changed_words_retune_a_qdisc_or_replace_it() {
        let change = |qdisc| setup::Change { at: Nanos::ZERO, qdisc: words(qdisc) };
        let changes = [
            "tbf rate 2gbit burst 3k limit 90k",
            "pfifo limit 20000",
            "tbf rate 1gbit burst 3k limit 90k",
        ];
        let before = port(1, "tbf rate 1gbit burst 3k limit 90k");
        let port = compile(&before, &changes.map(change), 64, None);
        let Ok(mut port) = port else { panic!("they are refused") };
        let names = port.changes.iter_mut().map(|change| change.make()[0].id);
        let [first, second, third] = names.collect::<Vec<_>>()[..] else { panic!("three") };
        assert_eq!(first, NodeId(1), "it carries on");
        assert!(second > first && third > second, "it is new");
        assert_eq!(port.shapers[0].frames, 20_192, "for all packets to come");
        assert!(compile(&before, &[change("tbf")], 64, None).is_err());
    }

    #[test]
    fn weights_are_in_256ths_and_never_zero() {
        assert_eq!([1.0, 0.5, 0.0, 3.2].map(weight_of), [256, 128, 1, 819].map(Weight));
    }
}
