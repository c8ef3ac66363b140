//! VLANs told apart, by the kernel, in frames that never were on a wire.

use super::*;
use crate::front::{Does, Front, FrontMaps, FrontPort, Step, Term, Then};
use crate::own_address::OwnAddress;
use crate::test_run::{DROP, PASS, TestRun, as_xdp, run_merged, test_run};
use narrows_forwarding::stick::tag_of;
use proptest::prelude::*;

const OWN: OwnAddress = OwnAddress::of([2, 0, 0, 0, 0, 9], true);

pub(crate) fn tag(protocol: TagProtocol, vid: u16) -> Tag {
    Tag::new(protocol, vid).unwrap()
}

/// A frame of IPv4 with a tag of the type `protocol` outermost.
pub(crate) fn frame(protocol: u16, control: u16) -> Vec<u8> {
    let mut frame = vec![4; 12];
    frame.extend([protocol.to_be_bytes(), control.to_be_bytes(), [8, 0], [0x45, 0]].concat());
    frame.resize(80, 0);
    frame
}

/// VLANs with a port each, which drops and counts.
struct Bench {
    vlans: Vlans,
    ports: Vec<(Front, FrontMaps)>,
}

impl Bench {
    /// One for each way to be attached; none, and a line with the reason, if none can be loaded
    /// here.
    fn each(tags: &[Tag]) -> impl Iterator<Item = Self> {
        let ways = [Entry::Own, Entry::Shared, Entry::Tcx]
            .into_iter()
            .flat_map(|entry| [(entry, false), (entry, true)]);
        ways.filter_map(move |(entry, multi_buffer)| Self::new(tags, multi_buffer, entry))
    }

    fn new(tags: &[Tag], multi_buffer: bool, entry: Entry) -> Option<Self> {
        let load = || {
            let vlans = Vlans::load(tags, multi_buffer, entry, None)?;
            let port = FrontPort { own: OWN, multi_buffer, entry, handed: None };
            let step =
                Step { does: Does::Decide, then: Then::Drop, exceed: Then::Drop, counter: Some(0) };
            let dropping = [Term { steps: vec![step], ..Term::any() }];
            let front = |_: &Tag| {
                let mut maps = FrontMaps::new()?;
                Ok((Front::load(port, &dropping, None, &mut maps)?, maps))
            };
            let ports: Vec<_> = tags.iter().map(front).collect::<Result<_, LoadError>>()?;
            Ok(Self { vlans, ports })
        };
        let bench = load().map_err(|error: LoadError| eprintln!("SKIPPED: {error}")).ok()?;
        for (place, (front, _)) in bench.ports.iter().enumerate() {
            bench.vlans.lead_to(place, front.program()).unwrap();
        }
        Some(bench)
    }

    /// The verdict on a frame, as XDP's, and what was left of it.
    fn run(&self, frame: &[u8]) -> (u32, Vec<u8>) {
        let TestRun { verdict, frame, .. } = test_run(self.vlans.program(), frame, 1).unwrap();
        (as_xdp(self.vlans.entry(), verdict), frame)
    }

    /// What came to each port.
    fn arrived(&self) -> Vec<u64> {
        self.ports.iter().map(|(_, maps)| maps.get(0).packets).collect()
    }
}

#[test]
fn a_frame_of_each_vlan_reaches_its_port_whatever_its_priority() {
    use TagProtocol::{Customer, Service};
    let tags = [
        tag(Customer, 100),
        tag(Customer, 1),
        tag(Service, 100),
        tag(Service, 4094),
        tag(Customer, 4094),
    ];
    for bench in Bench::each(&tags) {
        let mut expected = vec![0; tags.len()];
        for (place, tag) in tags.iter().enumerate() {
            for priority in [0, 0x1000, 0xe000, 0xf000] {
                let frame = frame(tag.protocol().ethertype(), priority | tag.vid());
                assert_eq!(bench.run(&frame).0, DROP);
                expected[place] += 1;
                assert_eq!(bench.arrived(), expected, "{tag}");
            }
        }
        assert_eq!(bench.vlans.others(), 0);
    }
}

#[test]
fn frames_that_are_no_port_s_go_to_the_kernel_and_are_counted() {
    let tags = [tag(TagProtocol::Customer, 100), tag(TagProtocol::Service, 200)];
    for bench in Bench::each(&tags) {
        let mut others = vec![
            // Of another VLAN, or of another protocol's; with a priority only.
            frame(0x8100, 101),
            frame(0x8100, 200),
            frame(0x88a8, 100),
            frame(0x9100, 100),
            frame(0x8100, 0xe000),
            // Without a tag.
            frame(0x0800, 100),
        ];
        // A known VLAN is within another one.
        let mut within = frame(0x8100, 100);
        within.splice(12..12, [0x88, 0xa8, 0, 100]);
        others.push(within);
        // Too short for a tag.
        others.extend((14..16).map(|length| frame(0x8100, 100)[..length].to_vec()));
        for (count, frame) in (1..).zip(&others) {
            assert_eq!(bench.run(frame), (PASS, frame.clone()));
            assert_eq!(bench.vlans.others(), count);
        }
        assert_eq!(bench.arrived(), [0, 0]);
        // As long as a tag is just enough.
        assert_eq!(bench.run(&frame(0x8100, 100)[..16]).0, DROP);
    }
}

#[test]
fn a_merged_packet_that_is_no_port_s_counts_as_the_frames_that_it_stands_for() {
    let Ok(vlans) = Vlans::load(&[], false, Entry::Tcx, None) else { return };
    let mut udp = frame(0x8100, 100);
    udp.resize(1846, 0);
    udp[27] = 17;
    run_merged(vlans.program(), &udp, 900, 2).unwrap();
    assert_eq!(vlans.others(), 2);
}

#[test]
fn a_port_with_nothing_behind_it_leaves_its_frames_to_the_kernel() {
    let tags = [tag(TagProtocol::Customer, 100)];
    for entry in [Entry::Own, Entry::Shared, Entry::Tcx] {
        let Ok(vlans) = Vlans::load(&tags, false, entry, None) else { return };
        let verdict = test_run(vlans.program(), &frame(0x8100, 100), 1).unwrap().verdict;
        assert_eq!((as_xdp(entry, verdict), vlans.others()), (PASS, 1));
    }
}

#[test]
fn a_device_has_as_many_ports_as_an_instance_and_no_more() {
    let tags: Vec<Tag> = (1..).take(PORTS_MAX).map(|vid| tag(TagProtocol::Customer, vid)).collect();
    let Some(bench) = Bench::new(&tags, false, Entry::Own) else { return };
    assert_eq!(bench.run(&frame(0x8100, PORTS_MAX as u16)).0, DROP);
    assert_eq!(bench.arrived()[PORTS_MAX - 1], 1);
    bench.vlans.lead_to(PORTS_MAX, bench.ports[0].0.program()).unwrap_err();
}

/// Frames that mostly have a tag, and often one of a port.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let protocol =
        prop_oneof![4 => Just(0x8100), 4 => Just(0x88a8), 1 => Just(0x9100), 1 => any::<u16>()];
    let control = (any::<u16>(), 99_u16..103, any::<bool>());
    let bytes = proptest::collection::vec(any::<u8>(), 14..120);
    (protocol, control, bytes).prop_map(|(protocol, (any, near, is_near), mut bytes)| {
        let control = if is_near { any & 0xf000 | near } else { any };
        let tag = [protocol.to_be_bytes(), control.to_be_bytes()].concat();
        for (into, byte) in bytes[12..].iter_mut().zip(tag) {
            *into = byte;
        }
        bytes
    })
}

#[test]
fn whatever_a_frame_is_the_outermost_tag_alone_says_whose_and_others_are_not_altered() {
    let tags = [
        tag(TagProtocol::Customer, 100),
        tag(TagProtocol::Service, 101),
        tag(TagProtocol::Customer, 102),
    ];
    for bench in Bench::each(&tags) {
        proptest!(|(frame in any_frame())| {
            let (before, others) = (bench.arrived(), bench.vlans.others());
            let (verdict, after) = bench.run(&frame);
            let place = tag_of(&frame).and_then(|of| tags.iter().position(|tag| *tag == of));
            let Some(place) = place else {
                prop_assert_eq!((verdict, after), (PASS, frame));
                prop_assert_eq!((bench.arrived(), bench.vlans.others()), (before, others + 1));
                return Ok(());
            };
            let mut expected = before;
            // Filters are not for what is addressed to the box.
            expected[place] += u64::from(frame[..6] != OWN.mac);
            prop_assert_eq!((bench.arrived(), bench.vlans.others()), (expected, others));
            prop_assert_eq!(verdict, DROP);
        });
    }
}
