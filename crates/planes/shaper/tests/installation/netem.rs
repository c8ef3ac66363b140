//! The specification for `netem`: one rate over all queues, and random numbers of their own.

use crate::policies::{has_meter, install, kept};
use narrows_policy::{Edit, Handle, Params, Parent, Policy, PortFacts, Verb};
use narrows_qdisc::netem::{Config as Netem, RateLimit};
use narrows_qdisc::{Config, Metering, Spec};
use narrows_units::{Nanos, Rate};

fn root(policy: &Policy, config: Netem) -> Policy {
    let (verb, parent) = (Verb::Replace, Some(Parent::Root));
    let (handle, params) = (Handle::new(1), Some(Params::Netem(config)));
    policy.edit("eth0", &Edit { verb, parent, handle, params }, &PortFacts::ETHERNET).unwrap()
}

fn delayed(rate: Option<u64>) -> Netem {
    let limit = |mbit: u64| RateLimit {
        rate: Rate::from_bits_per_sec(mbit * 1_000_000),
        overhead: 0,
        cell: 0,
        cell_overhead: 0,
    };
    Netem { delay: Nanos::from_millis(20), rate: rate.map(limit), ..Netem::default() }
}

#[test]
fn queues_share_a_rate_and_draw_from_streams_of_their_own() {
    let (_, specs) = install(&root(&Policy::default(), delayed(Some(100))), 4, None);
    assert!(specs.iter().all(has_meter));
    let stream = |spec: &Spec| match &spec.config {
        Config::Netem(config) => config.stream,
        other => panic!("{other:?}"),
    };
    assert_eq!(specs.iter().map(stream).collect::<Vec<_>>(), [0, 1, 2, 3]);
    let (_, alone) = install(&root(&Policy::default(), delayed(Some(100))), 1, None);
    let (_, unlimited) = install(&root(&Policy::default(), delayed(None)), 4, None);
    assert!(alone.iter().chain(&unlimited).all(|spec| matches!(spec.metering, Metering::Own)));
}

#[test]
fn a_changed_rate_keeps_the_queues_and_a_first_rate_replaces_them() {
    let first = root(&Policy::default(), delayed(Some(100)));
    let (before, specs) = install(&first, 4, None);
    let (_, faster) = install(&root(&first, delayed(Some(200))), 4, Some(&before));
    assert_eq!(kept(&specs, &faster), [true; 4]);
    assert!(faster.iter().all(|spec| matches!(spec.metering, Metering::Kept)));
    let (_, unlimited) = install(&root(&first, delayed(None)), 4, Some(&before));
    assert_eq!(kept(&specs, &unlimited), [false; 4]);
}
