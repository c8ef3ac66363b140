//! From the words of `tc` to a qdisc for every core, the way that the data plane goes.
//!
//! The words are executed as `tc qdisc replace dev B root WORDS`, the policy that results is
//! compiled for the queues, and each queue's specification is built by its worker. All that is
//! added are the weights of the queues and a [`Probe`] around each seat.

use super::SimError;
use super::probe::{Contacts, Probe};
use crate::setup::Port;
use narrows_policy::{Installed, Policy, Update};
use narrows_qdisc::{Config, Qdisc, Spec, Weight};
use narrows_tc::{Host, OfflineHost};
use std::sync::Arc;

/// The shaped port in the policy.
const PORT: &str = "B";

/// What one core runs.
pub(super) struct Shaper {
    /// Out of port A, where nothing is shaped, and out of port B.
    pub(super) qdiscs: [Box<dyn Qdisc>; 2],
    /// What the seats touch.
    pub(super) contacts: Arc<Contacts>,
}

/// One for each queue.
///
/// # Errors
/// What `tc` says where it refuses the words, or the policy for that many queues.
pub(super) fn compile(port: &Port) -> Result<Vec<Shaper>, SimError> {
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
        let unshaped = Spec { config: Config::Noqueue, meter: None, children: Vec::new() };
        Shaper { qdiscs: [unshaped.build(), spec.build()], contacts }
    };
    Ok(updates.into_iter().enumerate().map(shaper).collect())
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
        match compile(&port(queues, words)) {
            Ok(_) => panic!("{words} on {queues} queues is taken"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn every_queue_gets_a_qdisc() {
        let words = "tbf rate 1gbit burst 3k limit 90k coordination equal";
        assert_eq!(compile(&port(3, words)).unwrap_or_default().len(), 3);
        assert_eq!(compile(&port(2, "mq")).unwrap_or_default().len(), 2);
        assert_eq!(compile(&port(1, "pfifo")).unwrap_or_default().len(), 1);
    }

    #[test]
    fn what_tc_or_the_policy_refuses_is_said_in_their_words() {
        assert!(refused(1, "tbf rate 1gbit burst 3k limit 90k color red").contains("color"));
        assert!(refused(1, "tbf rate 1gbit burst 3k").contains("limit"));
        assert!(refused(1, "mq").contains("queue"));
        assert!(refused(0, "pfifo").contains("queue"));
    }

    #[test]
    fn weights_are_in_256ths_and_never_zero() {
        assert_eq!([1.0, 0.5, 0.0, 3.2].map(weight_of), [256, 128, 1, 819].map(Weight));
    }
}
