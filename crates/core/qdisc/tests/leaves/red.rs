//! `red` as a whole: what becomes of packets, and what is counted.

use crate::port::{Port, capable, flow, ms};
use narrows_packet::DropReason;
use narrows_qdisc::red::{Config, Figures};
use narrows_qdisc::{Config as AnyConfig, Detail, NodeId, Spec, Verdict, codel, fifo};
use narrows_units::{Bytes, Rate};

const CONFIG: Config = Config {
    limit: 100_000,
    min: 10_000,
    max: 30_000,
    avpkt: 1000,
    burst: 20,
    bandwidth: Rate::from_bits_per_sec(8_000_000),
    probability: u32::MAX / 10,
    ecn: false,
    harddrop: false,
    nodrop: false,
    adaptive: false,
    stream: 0,
};

fn spec(config: Config) -> Spec {
    let limit = Bytes(u64::from(config.limit));
    let bfifo = Spec { id: NodeId(2), ..Spec::new(AnyConfig::Fifo(fifo::Config::Bytes(limit))) };
    Spec { children: vec![bfifo], ..Spec::new(AnyConfig::Red(config)) }
}

fn figures(port: &Port) -> Figures {
    *port.stats().detail.as_ref().and_then(Detail::red).expect("a red has figures")
}

/// Three packets come for two that leave, `turns` times.
fn overload(port: &mut Port, headers: narrows_packet::Headers, turns: u32) {
    for _ in 0..turns {
        port.arrive_all([headers; 3].into_iter(), 1000);
        port.now += ms(1);
        port.leave(2);
    }
}

#[test]
fn under_overload_the_average_stays_between_the_thresholds_and_drops_are_early() {
    let mut port = Port::of(spec(CONFIG));
    overload(&mut port, flow(1), 3_000);
    let Figures { marked, early, pdrop } = figures(&port);
    assert_eq!((marked, pdrop), (0, 0));
    assert_eq!(early, port.drops(DropReason::Aqm));
    // A third of what comes.
    assert!((2_800..3_200).contains(&early), "{early}");
    assert!((10_000..40_000).contains(&port.qdisc.backlog().bytes.0));
    assert_eq!(port.stats().overlimits, early);
}

#[test]
fn a_burst_passes_as_its_average_is_low() {
    let mut port = Port::of(spec(CONFIG));
    port.arrive_all([flow(1); 20].into_iter(), 1000);
    assert_eq!((port.dropped.len(), port.qdisc.backlog().packets), (0, 20));
}

#[test]
fn ecn_marks_what_can_be_marked_and_harddrop_and_nodrop_say_what_becomes_of_the_rest() {
    let config = Config { ecn: true, ..CONFIG };
    let run = |config, headers| {
        let mut port = Port::of(spec(config));
        overload(&mut port, headers, 1_000);
        let marked = port.left.iter().filter(|left| left.is_marked).count() as u64;
        (figures(&port), marked, port.drops(DropReason::Limit))
    };
    // The senders do not answer, so the limit is reached.
    let (figures, marked, limit) = run(config, capable(1));
    assert!(figures.marked > 900 && figures.early == 0 && limit > 0, "{figures:?}");
    assert!(marked > 900 && figures.pdrop == limit, "{marked}");
    let (figures, marked, _) = run(config, flow(1));
    assert!(figures.early > 900 && figures.marked == 0 && marked == 0, "{figures:?}");
    let (figures, _, limit) = run(Config { nodrop: true, ..config }, flow(1));
    assert!(figures.early == 0 && figures.pdrop == limit && limit > 0, "{figures:?}");
    let (figures, ..) = run(Config { harddrop: true, ..config }, capable(1));
    assert!(figures.early > 0 && figures.marked > 0 && figures.pdrop == 0, "{figures:?}");
}

#[test]
fn what_the_qdisc_below_drops_counts_above_it_too() {
    let below =
        codel::Config { limit: 8, target: ms(1), interval: ms(2), ..codel::Config::default() };
    let config = Config { min: 90_000, max: 95_000, burst: 200, ..CONFIG };
    let children = vec![Spec::new(AnyConfig::Codel(below))];
    let mut port = Port::of(Spec { children, ..Spec::new(AnyConfig::Red(config)) });
    for _ in 0..2_000 {
        port.arrive_all([flow(1); 9].into_iter(), 1000);
        port.now += ms(1);
        port.leave(2);
    }
    let [aqm, limit] = [DropReason::Aqm, DropReason::Limit].map(|reason| port.drops(reason));
    assert!(aqm > 0 && limit > 0, "{aqm} and {limit}");
    assert_eq!(figures(&port).pdrop, port.drops(DropReason::Limit));
}

#[test]
fn a_change_keeps_the_packets_and_begins_a_new_average_and_an_equal_one_does_nothing() {
    let mut port = Port::of(spec(CONFIG));
    overload(&mut port, flow(1), 100);
    let queued = port.qdisc.backlog();
    let retune = |port: &mut Port, config| {
        let mut handover = narrows_qdisc::Handover::new(&mut port.packets, port.now);
        port.qdisc.retune(spec(config), &mut handover);
    };
    retune(&mut port, CONFIG);
    overload(&mut port, flow(1), 10);
    assert!(figures(&port).early > 0);
    retune(&mut port, Config { limit: 5_000, ..CONFIG });
    assert!(port.qdisc.backlog().packets >= queued.packets / 2);
    // The average is 0 again, but the limit of the bfifo below is in force.
    let before = figures(&port);
    assert_eq!(port.arrive(flow(1), 1000), Verdict::Dropped);
    assert_eq!(figures(&port).pdrop, before.pdrop + 1);
    port.leave_all();
}
