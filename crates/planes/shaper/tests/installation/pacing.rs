//! The specifications for pacing qdiscs, and where those are not allowed.

use crate::policies::{has_meter, install, kept, tbf_params};
use narrows_coordination::Strategy;
use narrows_policy::{
    CodelOptions, Edit, Handle, PacingOptions, Params, Parent, Policy, PolicyError, PortFacts,
    TbfParams, Verb,
};
use narrows_qdisc::pacing::{Codel, Figures, Key, Structure};
use narrows_qdisc::{Config, Detail, Metering, Stats};
use narrows_units::{Nanos, Rate};

const JUMBO: PortFacts = PortFacts { mtu: 9000, ..PortFacts::ETHERNET };

fn edit(
    policy: &Policy,
    parent: Parent,
    handle: u32,
    params: Params,
) -> Result<Policy, PolicyError> {
    let (verb, parent) = (Verb::Replace, Some(parent));
    let (handle, params) = (Handle::new(handle), Some(params));
    policy.edit("eth0", &Edit { verb, parent, handle, params }, &JUMBO)
}

fn pacing(options: PacingOptions) -> Params {
    Params::Pacing { structure: Structure::FlowBundler, options }
}

fn tbf(strategy: Option<Strategy>) -> Params {
    Params::Tbf(TbfParams { strategy, ..tbf_params(8) })
}

fn below(handle: u32) -> Parent {
    Parent::Class(Handle::new(handle).unwrap().class(1))
}

#[test]
fn every_queue_s_qdisc_knows_the_longest_frame() {
    let policy = edit(&Policy::default(), Parent::Root, 1, pacing(PacingOptions::default()));
    let (_, specs) = install(&policy.unwrap(), 2, None);
    assert_eq!(specs.len(), 2);
    for spec in &specs {
        let Config::Pacing(config) = &spec.config else { panic!("another kind") };
        assert_eq!((config.structure, config.frame), (Structure::FlowBundler, 9014));
        assert!(matches!(spec.metering, Metering::Own));
    }
}

#[test]
fn parameters_change_in_place_unless_they_sort_packets() {
    let policy =
        edit(&Policy::default(), Parent::Root, 1, pacing(PacingOptions::default())).unwrap();
    let (installed, first) = install(&policy, 2, None);
    let change = |options| {
        let changed = edit(&policy, Parent::Root, 1, pacing(options)).unwrap();
        kept(&first, &install(&changed, 2, Some(&installed)).1)[0]
    };
    let maxrate = Some(Rate::from_bits_per_sec(8));
    assert!(change(PacingOptions { maxrate, limit: Some(1), ..PacingOptions::default() }));
    assert!(!change(PacingOptions { key: Some(Key::Hosts), ..PacingOptions::default() }));
    assert!(!change(PacingOptions { slots: Some(64), ..PacingOptions::default() }));
    let codel = Some(CodelOptions::On { target: None, interval: None, ecn: None });
    assert!(!change(PacingOptions { codel, ..PacingOptions::default() }));
    let codel = Some(CodelOptions::Off);
    assert!(change(PacingOptions { codel, ..PacingOptions::default() }));
}

#[test]
fn queue_management_changes_in_place_and_excludes_spacing() {
    let codel = |target, ecn| {
        let target = Some(Nanos::from_millis(target));
        let codel = Some(CodelOptions::On { target, interval: None, ecn });
        PacingOptions { codel, ..PacingOptions::default() }
    };
    let policy = edit(&Policy::default(), Parent::Root, 1, pacing(codel(7, None))).unwrap();
    let (installed, first) = install(&policy, 2, None);
    let Config::Pacing(config) = &first[0].config else { panic!("another kind") };
    let target = Nanos::from_millis(7);
    assert_eq!(config.codel, Some(Codel { target, ..Codel::default() }));
    let changed = edit(&policy, Parent::Root, 1, pacing(codel(9, Some(false)))).unwrap();
    assert!(kept(&first, &install(&changed, 2, Some(&installed)).1)[0]);
    for apart in [
        PacingOptions { safeguard: Some(true), ..PacingOptions::default() },
        PacingOptions { apart: Some(Key::Hosts), ..PacingOptions::default() },
    ] {
        let refused = edit(&policy, Parent::Root, 1, pacing(apart));
        assert_eq!(refused.err(), Some(PolicyError::CodelApart));
    }
    let refused = edit(&policy, Parent::Root, 1, pacing(codel(101, None)));
    assert!(matches!(refused, Err(PolicyError::CodelTarget { .. })), "{refused:?}");
}

#[test]
fn a_tbf_above_keeps_one_rate_for_all_queues() {
    let policy = edit(&Policy::default(), Parent::Root, 1, tbf(None)).unwrap();
    let policy = edit(&policy, below(1), 2, pacing(PacingOptions::default())).unwrap();
    let (_, specs) = install(&policy, 2, None);
    for spec in &specs {
        assert!(has_meter(spec));
        assert!(matches!(spec.children[0].config, Config::Pacing(_)));
    }
}

#[test]
fn two_stamping_qdiscs_are_refused_in_any_order() {
    let refused = |policy: Result<Policy, PolicyError>| {
        assert!(matches!(policy, Err(PolicyError::StampedTwice { .. })), "{policy:?}");
    };
    let stamping = edit(&Policy::default(), Parent::Root, 1, tbf(Some(Strategy::Edt))).unwrap();
    refused(edit(&stamping, below(1), 2, pacing(PacingOptions::default())));
    let between = edit(&stamping, below(1), 2, tbf(None)).unwrap();
    refused(edit(&between, below(2), 3, pacing(PacingOptions::default())));
    let plain = edit(&Policy::default(), Parent::Root, 1, tbf(None)).unwrap();
    let paced = edit(&plain, below(1), 2, pacing(PacingOptions::default())).unwrap();
    refused(edit(&paced, Parent::Root, 1, tbf(Some(Strategy::Edt))));
    assert!(edit(&paced, Parent::Root, 1, tbf(Some(Strategy::Lock))).is_ok());
}

#[test]
fn figures_of_queues_are_added_up() {
    let policy =
        edit(&Policy::default(), Parent::Root, 1, pacing(PacingOptions::default())).unwrap();
    let (installed, specs) = install(&policy, 2, None);
    let queue = |flows| {
        let figures = Figures { flows, throttled: 5, ..Figures::default() };
        let detail = Some(Detail::Pacing(Box::new(figures)));
        vec![Stats { id: specs[0].id, detail, ..Stats::default() }]
    };
    let nodes = installed.gather(&[queue(3), queue(4)]);
    let figures = nodes[0].stats.detail.as_ref().and_then(Detail::pacing).unwrap();
    assert_eq!((figures.flows, figures.throttled), (7, 10));
}
