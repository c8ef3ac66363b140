//! How many flows a qdisc says take turns: whole ones that fill their share, and parts of those
//! that do not.

use narrows_packet::{Batch, Headers, PacketId, Packets};
use narrows_qdisc::{Config, Qdisc, Spec, cake, codel, fifo, fq, fq_codel, sfq, tbf};
use narrows_units::wire::Overhead;
use narrows_units::{Bytes, Nanos, Rate};

const NOW: Nanos = Nanos::from_secs(1);
const FRAME: u32 = 1_500;

fn all_that_count() -> Vec<Spec> {
    let leaves = || {
        [
            Config::Cake(cake::Config::default()),
            Config::FqCodel(fq_codel::Config::for_frames_of(1514)),
            Config::Fq(fq::Config::default()),
            Config::Sfq(sfq::Config::for_frames_of(1514)),
        ]
    };
    let below_tbf = |config| tbf_over(Spec::new(config));
    let below_stab = |config| Spec {
        children: vec![Spec::new(config)],
        ..Spec::new(Config::Stab(Overhead::NONE))
    };
    let plain = leaves().into_iter().map(Spec::new);
    let below = leaves().into_iter().map(below_tbf);
    plain.chain(below).chain(leaves().into_iter().map(below_stab)).collect()
}

fn tbf_over(child: Spec) -> Spec {
    let config = tbf::Config {
        rate: Rate::from_bits_per_sec(8_000_000_000_000),
        burst: Bytes(1 << 30),
        limit: Bytes(1 << 30),
        peak: None,
        overhead: Overhead::NONE,
    };
    Spec { children: vec![child], ..Spec::new(Config::Tbf(config)) }
}

struct Port {
    qdisc: Box<dyn Qdisc>,
    packets: Packets,
    free: Vec<PacketId>,
}

impl Port {
    fn of(spec: Spec) -> Self {
        let qdisc = spec.build();
        let mut packets = Packets::new(1_000);
        packets.prepare(qdisc.reading());
        Self { qdisc, packets, free: (0..1_000).map(PacketId).collect() }
    }

    fn arrive(&mut self, flow: u32) {
        let id = self.free.pop().expect("few packets wait");
        self.packets.arrive(id, FRAME, NOW);
        let flow = flow.wrapping_mul(0x9e37_79b9);
        self.packets.set_headers(id, Headers { flow, ..Headers::default() });
        let _ = self.qdisc.enqueue(&mut self.packets, id, NOW);
    }

    /// The flow of the packet that leaves next, if there is one.
    fn leave(&mut self) -> Option<u32> {
        let mut out = Batch::new(1);
        self.qdisc.dequeue(&mut self.packets, NOW, &mut out);
        let id = *out.as_slice().first()?;
        self.free.push(id);
        Some(self.packets.headers(id).flow)
    }
}

/// The mean number of flows while `whole` of them always have packets, and one more sends a packet
/// each time so many have left.
fn mean(spec: Spec, whole: u32, each: Option<u32>) -> f64 {
    let mut port = Port::of(spec);
    for flow in 1..=whole {
        (0..4).for_each(|_| port.arrive(flow));
    }
    let mut sum = 0;
    let turns = 2_000;
    for turn in 1..=turns {
        let left = port.leave().expect("some wait");
        if let Some(flow) = (1..=whole).find(|flow| flow.wrapping_mul(0x9e37_79b9) == left) {
            port.arrive(flow);
        }
        if each.is_some_and(|each| turn % each == 0) {
            port.arrive(whole + 1);
        }
        sum += port.qdisc.flows().expect("it counts");
    }
    f64::from(sum) / f64::from(turns)
}

#[test]
fn flows_that_always_wait_are_counted_whole() {
    for spec in all_that_count() {
        let kind = format!("{:?}", spec.config);
        let flows = mean(spec, 5, None);
        assert!((flows - 5.0).abs() < 0.1, "{flows}: {kind}");
    }
}

#[test]
fn a_flow_with_an_eighth_of_the_rate_counts_as_a_small_part_of_a_flow() {
    for spec in all_that_count() {
        let kind = format!("{:?}", spec.config);
        // Of 33 packets that leave, each of the four others has eight. A turn of `fq` is of two.
        let flows = mean(spec, 4, Some(33));
        assert!((4.02..4.3).contains(&flows), "{flows}: {kind}");
    }
}

#[test]
fn an_empty_qdisc_has_no_flows() {
    for spec in all_that_count() {
        let mut port = Port::of(spec);
        assert_eq!(port.qdisc.flows(), Some(0));
        port.arrive(1);
        assert_eq!(port.qdisc.flows(), Some(1));
        while port.leave().is_some() {}
        assert_eq!(port.qdisc.flows(), Some(0));
    }
}

#[test]
fn a_qdisc_that_does_not_tell_flows_apart_says_so() {
    let fifo = || Spec::new(Config::Fifo(fifo::Config::Packets(100)));
    let codel = Spec::new(Config::Codel(codel::Config::for_frames_of(1514)));
    for spec in [fifo(), codel, tbf_over(fifo())] {
        let mut port = Port::of(spec);
        assert_eq!(port.qdisc.flows(), None);
        port.arrive(1);
        assert_eq!(port.qdisc.flows(), None);
    }
}
