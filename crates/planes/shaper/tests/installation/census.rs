//! Who counts hosts with whom.

use crate::policies::{install, tbf_params};
use narrows_policy::{CakeOptions, Edit, Handle, Params, Parent, Policy, PortFacts, Verb};
use narrows_qdisc::{Census, HostKey};
use narrows_shaper::Installation;
use narrows_units::Rate;

const HOST: HostKey = HostKey(0x1234_5678_9abc_def0);

fn rate() -> Rate {
    Rate::from_bits_per_sec(100_000_000)
}

fn root(params: Params) -> Policy {
    let (verb, parent, handle) = (Verb::Replace, Some(Parent::Root), Handle::new(1));
    let edit = Edit { verb, parent, handle, params: Some(params) };
    Policy::default().edit("eth0", &edit, &PortFacts::ETHERNET).unwrap()
}

fn cake(multi: bool, rate: Option<Rate>) -> Policy {
    root(Params::Cake { multi, options: CakeOptions { rate, ..CakeOptions::default() } })
}

/// The handles that a policy gives to queues which may run `previous` so far.
fn handles(
    policy: &Policy,
    queues: usize,
    previous: Option<&Installation>,
) -> (Installation, Vec<Box<dyn Census>>) {
    let (installed, specs) = install(policy, queues, previous);
    (installed, specs.into_iter().filter_map(|spec| spec.census).collect())
}

#[test]
fn the_queues_of_a_cake_that_share_a_rate_count_hosts_together() {
    for multi in [false, true] {
        let (_, mut handles) = handles(&cake(multi, Some(rate())), 4, None);
        assert_eq!(handles.len(), 4);
        handles[1].count(HOST, 3);
        handles[3].count(HOST, 2);
        assert!(handles.iter().all(|handle| handle.flows(HOST) == 5));
        // The worker of this queue is gone.
        handles.remove(1);
        assert!(handles.iter().all(|handle| handle.flows(HOST) == 2));
    }
}

#[test]
fn two_installations_count_apart() {
    let policy = cake(false, Some(rate()));
    let (_, mut one) = handles(&policy, 2, None);
    let (_, other) = handles(&policy, 2, None);
    one[0].count(HOST, 1);
    assert_eq!(other[0].flows(HOST), 0);
}

#[test]
fn queues_that_are_retuned_keep_the_handles_they_have() {
    let (before, given) = handles(&cake(false, Some(rate())), 4, None);
    let doubled = cake(false, Some(Rate::from_bits_per_sec(2 * rate().bits_per_sec())));
    let (_, again) = handles(&doubled, 4, Some(&before));
    assert_eq!((given.len(), again.len()), (4, 0));
}

#[test]
fn without_a_shared_rate_or_hosts_there_is_no_census() {
    let tbf = Params::Tbf(tbf_params(100));
    for (what, policy, queues) in [
        ("alone", cake(false, Some(rate())), 1),
        ("unlimited", cake(true, None), 4),
        ("tbf", root(tbf), 4),
    ] {
        assert_eq!(handles(&policy, queues, None).1.len(), 0, "{what}");
    }
}
