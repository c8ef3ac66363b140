//! From the words of `tc` to a qdisc for every core, the way that the data plane goes.
//!
//! The words are executed as `tc qdisc replace dev B root WORDS`, the policy that results is
//! compiled for the queues, and each queue's specification is built by its worker. All that is
//! added are the weights of the queues and a [`Probe`] around each seat. A worker has frames for
//! all that its qdiscs may hold, within [`FRAMES_MOST`].

use super::SimError;
use super::io::FRAMES_RESERVED;
use crate::setup::Port;
use narrows_policy::{Installed, Policy, Update};
use narrows_qdisc::{Config, Contacts, Probe, Qdisc, Spec, Weight, fifo};
use narrows_tc::{Host, OfflineHost};
use narrows_units::Bytes;
use narrows_worker::BATCH;
use std::sync::Arc;

/// The fewest frames of a worker.
const FRAMES_LEAST: u64 = 1 << 13;

/// The most frames of all workers, some 300 MB.
const FRAMES_MOST: u64 = 1 << 22;

/// Packets for which a `cake` has frames: some hundred milliseconds at 1 Gbit/s, far more than its
/// queue management leaves standing.
const CAKE_PACKETS: u64 = 1 << 14;

/// The shaped port in the policy.
const PORT: &str = "B";

/// What one core runs.
pub(super) struct Shaper {
    /// Out of port A, where nothing is shaped, and out of port B.
    pub(super) qdiscs: [Box<dyn Qdisc>; 2],
    /// How many packets it may hold.
    pub(super) frames: u32,
    /// What the seats touch.
    pub(super) contacts: Arc<Contacts>,
}

/// One for each queue. No packet is shorter than `shortest`.
///
/// # Errors
/// What `tc` says where it refuses the words, or the policy for that many queues.
pub(super) fn compile(port: &Port, shortest: u32) -> Result<Vec<Shaper>, SimError> {
    let mut host = OfflineHost::new(Policy::default());
    let command = ["qdisc", "replace", "dev", PORT, "root"].map(str::to_owned);
    let words = [&command[..], &port.qdisc].concat();
    let outcome = narrows_tc::execute(&words, &mut host);
    if outcome.code != 0 {
        return Err(SimError::Qdisc(outcome.stderr.trim_end().to_owned()));
    }
    let compiled = Installed::compile(host.policy().port(PORT), port.queues, None);
    let (_, updates) = compiled.map_err(|error| SimError::Qdisc(error.to_string()))?;
    let shaper = |(queue, update)| {
        let (Update::Replace(mut spec) | Update::Retune(mut spec)) = update;
        let contacts = Arc::new(Contacts::default());
        let weight = port.weights.get(queue).map(|weight| weight_of(*weight));
        prepare(&mut spec, weight, &contacts);
        let unshaped =
            Spec { config: Config::Noqueue, meter: None, census: None, children: Vec::new() };
        let needed = capacity(&spec, shortest) + (FRAMES_RESERVED + BATCH) as u64;
        let most = FRAMES_LEAST.max(FRAMES_MOST / port.queues as u64);
        let frames = needed.clamp(FRAMES_LEAST, most) as u32;
        Shaper { qdiscs: [unshaped.build(), spec.build()], frames, contacts }
    };
    Ok(updates.into_iter().enumerate().map(shaper).collect())
}

/// How many packets `spec` can hold if all are the shortest.
fn capacity(spec: &Spec, shortest: u32) -> u64 {
    let packets = |bytes: Bytes| bytes.0 / u64::from(shortest.max(1));
    match &spec.config {
        Config::Noqueue => 0,
        Config::Cake(_) => CAKE_PACKETS,
        Config::Fifo(fifo::Config::Packets(limit)) => u64::from(*limit),
        Config::Fifo(fifo::Config::Bytes(limit)) => packets(*limit),
        Config::Tbf(tbf) => {
            let below = spec.children.iter().map(|child| capacity(child, shortest)).sum();
            // The one that leaves next is held outside what is below.
            packets(tbf.limit).min(below) + 1
        }
    }
}

/// In 1/256, and at least one of them.
fn weight_of(weight: f64) -> Weight {
    Weight(((weight * f64::from(Weight::ONE.0) + 0.5) as u32).max(1))
}

/// Weighs and wraps every seat of `spec` and of what is below it.
fn prepare(spec: &mut Spec, weight: Option<Weight>, contacts: &Arc<Contacts>) {
    if let Some(mut seat) = spec.meter.take() {
        if let Some(weight) = weight {
            seat.weigh(weight);
        }
        spec.meter = Some(Box::new(Probe::new(seat, Arc::clone(contacts))));
    }
    for child in &mut spec.children {
        prepare(child, weight, contacts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_units::Rate;

    fn port(queues: usize, words: &str) -> Port {
        let qdisc = words.split_whitespace().map(str::to_owned).collect();
        Port { queues, rate: Rate::default(), qdisc, weights: Vec::new() }
    }

    fn refused(queues: usize, words: &str) -> String {
        match compile(&port(queues, words), 64) {
            Ok(_) => panic!("{words} on {queues} queues is taken"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn every_queue_gets_a_qdisc() {
        let words = "tbf rate 1gbit burst 3k limit 90k coordination equal";
        assert_eq!(compile(&port(3, words), 64).unwrap_or_default().len(), 3);
        assert_eq!(compile(&port(2, "mq"), 64).unwrap_or_default().len(), 2);
        assert_eq!(compile(&port(1, "pfifo"), 64).unwrap_or_default().len(), 1);
    }

    #[test]
    fn what_tc_or_the_policy_refuses_is_said_in_their_words() {
        assert!(refused(1, "tbf rate 1gbit burst 3k limit 90k color red").contains("color"));
        assert!(refused(1, "tbf rate 1gbit burst 3k").contains("limit"));
        assert!(refused(1, "mq").contains("queue"));
        assert!(refused(0, "pfifo").contains("queue"));
    }

    #[test]
    fn a_worker_has_frames_for_what_its_qdiscs_may_hold_within_reason() {
        let frames = |queues, words: &str, shortest| {
            let shapers = compile(&port(queues, words), shortest).unwrap_or_default();
            u64::from(shapers[0].frames)
        };
        assert_eq!(frames(1, "pfifo limit 10", 64), FRAMES_LEAST);
        assert_eq!(frames(1, "pfifo limit 20000", 64), 20_000 + 192);
        let words = "tbf rate 1gbit burst 3k limit 10000000b";
        assert_eq!(frames(1, words, 1000), 10_000 + 193);
        assert_eq!(frames(4, words, 1), FRAMES_MOST / 4);
    }

    #[test]
    fn weights_are_in_256ths_and_never_zero() {
        assert_eq!([1.0, 0.5, 0.0, 3.2].map(weight_of), [256, 128, 1, 819].map(Weight));
    }
}
