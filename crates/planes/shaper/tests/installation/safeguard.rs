//! Which queues share congestion feedback.

use crate::policies::{kept, tbf_params};
use narrows_policy::{Edit, Handle, PacingOptions, Params, Parent, Plan, Policy, PortFacts, Verb};
use narrows_qdisc::pacing::Structure;
use narrows_qdisc::{Feedback, Spec, Word};
use narrows_shaper::Installation;

fn edit(policy: &Policy, port: &str, parent: Parent, handle: u32, params: Params) -> Policy {
    let (verb, parent) = (Verb::Replace, Some(parent));
    let edit = Edit { verb, parent, handle: Handle::new(handle), params: Some(params) };
    policy.edit(port, &edit, &PortFacts::ETHERNET).unwrap()
}

fn flowbundler(safeguard: bool) -> Params {
    let options = PacingOptions { safeguard: Some(safeguard), ..PacingOptions::default() };
    Params::Pacing { structure: Structure::FlowBundler, options }
}

fn root(safeguard: bool) -> Policy {
    edit(&Policy::default(), "eth0", Parent::Root, 1, flowbundler(safeguard))
}

fn class(major: u32, minor: u32) -> Parent {
    Parent::Class(Handle::new(major).unwrap().class(minor))
}

/// The qdiscs with feedback in `spec` and below it.
fn take(spec: &mut Spec, into: &mut Vec<Box<dyn Feedback>>) {
    into.extend(spec.feedback.take());
    spec.children.iter_mut().for_each(|child| take(child, into));
}

/// The running qdiscs, by queue.
struct Running {
    installation: Installation,
    specs: Vec<Spec>,
}

/// The views that a policy gives to queues which may run `previous` so far, and how many queues
/// carry on.
fn views(
    policy: &Policy,
    port: &str,
    queues: usize,
    previous: Option<&Running>,
) -> (Running, Vec<Box<dyn Feedback>>, usize) {
    let plan = Plan::of(policy.port(port), queues).unwrap();
    let before = previous.map(|running| &running.installation);
    let (installation, mut specs) = Installation::reconcile(plan, before);
    let mut views = Vec::new();
    specs.iter_mut().for_each(|spec| take(spec, &mut views));
    let carry_on = previous.map_or(vec![], |running| kept(&running.specs, &specs));
    let kept = carry_on.into_iter().filter(|kept| *kept).count();
    (Running { installation, specs }, views, kept)
}

/// Whether one reads what the other writes.
fn hear_together(one: &dyn Feedback, other: &dyn Feedback) -> bool {
    let said = one.read(3, Word::Newest) + 1;
    assert!(one.replace(3, Word::Newest, said - 1, said));
    other.read(3, Word::Newest) == said
}

#[test]
fn all_queues_of_a_port_hear_together_without_a_rate_that_they_share() {
    let (_, views, _) = views(&root(true), "eth0", 4, None);
    assert_eq!(views.len(), 4);
    assert!(views.iter().all(|view| hear_together(&*views[1], &**view)));
}

#[test]
fn so_do_those_below_a_tbf_and_in_the_classes_of_an_mq() {
    let tbf = Params::Tbf(tbf_params(8));
    let below = edit(&Policy::default(), "eth0", Parent::Root, 1, tbf);
    let below = edit(&below, "eth0", class(1, 1), 2, flowbundler(true));
    let mq = edit(&Policy::default(), "eth0", Parent::Root, 1, Params::Mq);
    let mq = edit(&mq, "eth0", class(1, 1), 2, flowbundler(true));
    let mq = edit(&mq, "eth0", class(1, 2), 3, flowbundler(true));
    for policy in [below, mq] {
        let (_, views, _) = views(&policy, "eth0", 2, None);
        assert_eq!(views.len(), 2);
        assert!(hear_together(&*views[0], &*views[1]));
    }
}

#[test]
fn ports_hear_apart() {
    let both = edit(&root(true), "eth1", Parent::Root, 1, flowbundler(true));
    let (_, one, _) = views(&both, "eth0", 2, None);
    let (_, other, _) = views(&both, "eth1", 2, None);
    assert!(!hear_together(&*one[0], &*other[0]));
}

#[test]
fn without_a_safeguard_there_is_no_feedback() {
    assert_eq!(views(&root(false), "eth0", 2, None).1.len(), 0);
}

#[test]
fn queues_that_begin_to_listen_or_are_new_hear_with_those_that_are_there() {
    let (off, none, _) = views(&root(false), "eth0", 2, None);
    let (on, before, kept) = views(&root(true), "eth0", 2, Some(&off));
    assert_eq!((none.len(), before.len(), kept), (0, 2, 2));
    assert!(hear_together(&*before[0], &*before[1]));
    // Two more queues; and the same parameters once more.
    let (more, after, kept) = views(&root(true), "eth0", 4, Some(&on));
    assert_eq!((after.len(), kept), (4, 0));
    assert!(after.iter().all(|view| hear_together(&*before[0], &**view)));
    // Off and on again.
    let (off, none, _) = views(&root(false), "eth0", 4, Some(&more));
    let (_, again, _) = views(&root(true), "eth0", 4, Some(&off));
    assert_eq!(none.len(), 0);
    assert!(again.iter().all(|view| hear_together(&*again[0], &**view)));
}
