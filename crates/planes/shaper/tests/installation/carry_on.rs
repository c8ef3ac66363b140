//! Any policy after any other: specifications fit the running qdiscs, and figures return to every
//! qdisc of the tree.

use crate::policies::{install, tbf_params};
use narrows_coordination::Strategy as Coordinated;
use narrows_packet::Packets;
use narrows_policy::{
    CakeOptions, ClassId, Edit, FifoUnit, Handle, Params, Parent, Policy, PortFacts, TbfParams,
    Verb,
};
use narrows_qdisc::{Handover, Slot, cake::Diffserv};
use narrows_shaper::Installation;
use narrows_units::{Nanos, Rate};
use proptest::prelude::{
    Just, Strategy, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest,
};

fn edit() -> impl Strategy<Value = Edit> {
    let strategies = prop_oneof![
        3 => Just(None),
        1 => Just(Some(Coordinated::Lock)),
        1 => Just(Some(Coordinated::Edt)),
        1 => Just(Some(Coordinated::Equal { sync_time: Nanos::from_micros(50) })),
    ];
    let tbf = (1u64..1000, strategies)
        .prop_map(|(mbit, strategy)| Params::Tbf(TbfParams { strategy, ..tbf_params(mbit) }));
    let fifo = |unit| (1u32..100).prop_map(move |limit| Params::Fifo(unit, Some(limit)));
    let strategies = prop_oneof![3 => Just(None), 1 => Just(Some(Coordinated::Lock))];
    let diffservs = prop_oneof![Just(None), Just(Some(Diffserv::Diffserv4))];
    let cake = (any::<bool>(), prop::option::of(0u64..1000), strategies, diffservs).prop_map(
        |(multi, mbit, strategy, diffserv)| {
            let rate = mbit.map(|mbit| Rate::from_bits_per_sec(mbit * 1_000_000));
            let options = CakeOptions { rate, strategy, diffserv, ..CakeOptions::default() };
            Params::Cake { multi, options }
        },
    );
    let params = prop_oneof![
        6 => tbf,
        4 => cake,
        1 => fifo(FifoUnit::Packets),
        1 => fifo(FifoUnit::Bytes),
        1 => Just(Params::Noqueue),
        2 => Just(Params::Mq),
    ];
    let parent = prop_oneof![
        2 => Just(Parent::Root),
        3 => (1u32..4, 1u32..4)
            .prop_map(|(major, minor)| Parent::Class(ClassId { major, minor })),
    ];
    let verb = prop_oneof![6 => Just(Verb::Replace), 1 => Just(Verb::Delete)];
    (verb, parent, 0u32..4, params).prop_map(|(verb, parent, handle, params)| {
        let params = (verb != Verb::Delete).then_some(params);
        Edit { verb, parent: Some(parent), handle: Handle::new(handle), params }
    })
}

proptest! {
    #[test]
    fn a_retuned_specification_fits_the_running_qdisc(
        edits in prop::collection::vec(edit(), 1..20), queues in 1usize..4,
    ) {
        let facts = PortFacts { queues: Some(queues as u16), ..PortFacts::ETHERNET };
        let mut policy = Policy::default();
        let mut packets = Packets::new(1);
        let mut running: Vec<Slot> = Vec::new();
        let mut installed: Option<Installation> = None;
        for (turn, edit) in edits.iter().enumerate() {
            let now = Nanos::from_millis(turn as u64);
            let Ok(next) = policy.edit("eth0", edit, &facts) else { continue };
            policy = next;
            let port = policy.port("eth0");
            let (new, specs) = install(&policy, queues, installed.as_ref());
            new.commit();
            for (queue, spec) in specs.into_iter().enumerate() {
                match running.get_mut(queue) {
                    Some(slot) => slot.take_over(spec, &mut Handover::new(&mut packets, now)),
                    None => running.push(Slot::new(spec)),
                }
            }
            let figures: Vec<_> = running
                .iter()
                .map(|slot| {
                    let mut stats = Vec::new();
                    slot.stats(&mut stats);
                    stats
                })
                .collect();
            let runs: usize = figures.iter().map(Vec::len).sum();
            let named = new.plan().roots.iter().map(|root| new.plan().below(*root).len());
            prop_assert_eq!(runs, named.sum::<usize>(), "each runs what the plan says");
            let gathered = new.gather(&figures);
            for node in port.nodes() {
                let place = (node.parent, Some(node.handle));
                prop_assert!(gathered.iter().any(|at| (at.parent, at.handle) == place));
            }
            installed = Some(new);
        }
    }
}
