//! Trees for ports that are VLANs of one device.

use super::*;
use crate::test_run::TX;
use crate::vlans::Vlans;
use crate::vlans::tests::tag;
use narrows_forwarding::TagProtocol::{self, Customer, Service};
use narrows_forwarding::stick::{retag, tag_of};
use proptest::prelude::*;

/// A frame as [`frame`] makes it, with a tag.
fn tagged(protocol: TagProtocol, control: u16, port: u16, traffic_class: u8) -> Vec<u8> {
    let mut frame = frame(port, traffic_class, 100);
    frame.splice(12..12, [protocol.ethertype().to_be_bytes(), control.to_be_bytes()].concat());
    frame
}

/// Ports of a device, and what is behind them.
struct Stick {
    vlans: Vlans,
    trees: Vec<Tree>,
}

const ENTRIES: [Entry; 3] = [Entry::Own, Entry::Shared, Entry::Tcx];

/// For a port that is attached by `entry`, and whose frames leave with `other`.
fn port(entry: Entry, other: Tag) -> (Port, Hook) {
    let port = Port { other_tag: Some(other), ..Port::new(OWN, false, entry) };
    let hook = if entry == Entry::Tcx { Hook::Tcx } else { Hook::Xdp(XdpMode::Native) };
    (port, hook)
}

impl Stick {
    /// One of these pairs for each way to be attached; none, and a line with the reason, if none
    /// can be loaded here.
    fn each(pairs: &[(Tag, Tag)]) -> impl Iterator<Item = Self> {
        ENTRIES.into_iter().filter_map(move |entry| {
            let tags: Vec<Tag> = pairs.iter().flat_map(|&(one, other)| [one, other]).collect();
            let vlans = match Vlans::load(&tags, false, entry, None) {
                Err(error @ LoadError::NotPermitted) => {
                    eprintln!("SKIPPED: {error}");
                    return None;
                }
                loaded => loaded.unwrap(),
            };
            let others = pairs.iter().flat_map(|&(one, other)| [other, one]);
            let tree = |(place, other)| {
                let (port, hook) = port(entry, other);
                let mut tree = Tree::at(port, hook, &[]).unwrap();
                tree.stand_behind(&vlans, place).unwrap();
                tree
            };
            let trees = others.enumerate().map(tree).collect();
            Some(Self { vlans, trees })
        })
    }

    /// The verdict on a frame, and what it leaves as. At tcx its tag is beside it then, where a
    /// test run does not show it.
    fn run(&self, frame: &[u8]) -> (u32, Vec<u8>) {
        let TestRun { verdict, frame, .. } = test_run(self.vlans.program(), frame, 1).unwrap();
        (as_xdp(self.vlans.entry(), verdict), frame)
    }

    fn is_at_tcx(&self) -> bool {
        self.vlans.entry() == Entry::Tcx
    }

    /// The verdict for a frame that leaves.
    fn sent(&self) -> u32 {
        if self.is_at_tcx() { REDIRECT } else { TX }
    }

    fn sent_packets(&self) -> Vec<u64> {
        self.trees.iter().map(|tree| tree.totals().unwrap().sent_packets).collect()
    }

    /// Checks that `out` is `frame` with the tag `other` in place of its own.
    #[track_caller]
    fn check(&self, frame: &[u8], out: &[u8], other: Tag) {
        let mut expected = frame.to_vec();
        if self.is_at_tcx() {
            expected.drain(12..16);
            assert_eq!(&out[..expected.len()], expected);
        } else {
            retag(&mut expected, other);
            assert_eq!(out, expected);
        }
    }
}

#[test]
fn a_frame_leaves_with_the_tag_of_the_other_vlan_and_its_priority_stays() {
    let pairs = [
        (tag(Customer, 100), tag(Customer, 200)),
        (tag(Customer, 4094), tag(Service, 1)),
        (tag(Service, 101), tag(Service, 0x555)),
    ];
    for stick in Stick::each(&pairs) {
        let ways = pairs.iter().flat_map(|&(one, other)| [(one, other), (other, one)]);
        let mut sent = vec![0; 2 * pairs.len()];
        for (place, (arrives, leaves)) in ways.enumerate() {
            for priority in [0, 0x1000, 0xa000, 0xf000] {
                let mut frame = tagged(arrives.protocol(), priority | arrives.vid(), 53, 0);
                let (verdict, out) = stick.run(&frame);
                assert_eq!(verdict, stick.sent());
                stick.check(&frame, &out, leaves);
                // Tags within stay.
                frame.splice(16..16, [0x81, 0, 0xe0, 100]);
                stick.check(&frame, &stick.run(&frame).1, leaves);
                sent[place] += 2;
            }
            assert_eq!(stick.sent_packets(), sent);
            let totals = stick.trees[place].totals().unwrap();
            let expected =
                Totals { sent_packets: 8, sent_bytes: 4 * (104 + 108), ..Totals::default() };
            assert_eq!(totals, expected);
        }
        assert_eq!(stick.vlans.others(), 0);
    }
}

#[test]
fn a_frame_for_the_box_and_a_dropped_one_keep_their_tag() {
    let pairs = [(tag(Customer, 100), tag(Service, 200))];
    for mut stick in Stick::each(&pairs) {
        let mut own = tagged(Customer, 0xe000 | 100, 53, 0);
        own[..6].copy_from_slice(&OWN);
        assert_eq!(stick.run(&own), (PASS, own));
        let nowhere = Scope { otherwise: [layout::NOWHERE; PRIORITIES], ..Scope::default() };
        stick.trees[0].install(Image { outermost: nowhere, ..Image::default() }, &[]).unwrap();
        let frame = tagged(Customer, 0xe000 | 100, 53, 0);
        assert_eq!(stick.run(&frame), (DROP, frame));
        let expected =
            Totals { to_self: 1, unclassified_drops: 1, dropped_bytes: 104, ..Totals::default() };
        assert_eq!(stick.trees[0].totals().unwrap(), expected);
    }
}

#[test]
fn a_frame_is_marked_before_it_gets_the_other_tag() {
    let pairs = [(tag(Customer, 100), tag(Service, 200))];
    for mut stick in Stick::each(&pairs) {
        let marking = Class { target: MS, limit: 1 << 60, interval: 2 * MS, ..class(10_000) };
        stick.trees[0].install(one_class(marking), &[1]).unwrap();
        let frame = tagged(Customer, 0xe000 | 100, 53, 2);
        let began = Instant::now();
        let out = loop {
            let (verdict, out) = stick.run(&frame);
            assert_eq!(verdict, stick.sent());
            if stick.trees[0].class_counters(1).unwrap().marked > 0 {
                break out;
            }
            stick.check(&frame, &out, pairs[0].1);
            assert!(began.elapsed().as_secs() < 10, "not marked");
        };
        let mut expected = frame;
        expected[19] = 3;
        expected[28..30].fill(0);
        let sum = checksum(&expected[18..38]);
        expected[28..30].copy_from_slice(&sum.to_be_bytes());
        stick.check(&expected, &out, pairs[0].1);
    }
}

#[test]
fn filters_in_front_of_one_vlan_are_not_in_front_of_another() {
    let pairs = [(tag(Customer, 100), tag(Customer, 200))];
    for mut stick in Stick::each(&pairs) {
        let mut image = one_class(class(1_000_000_000));
        image.outermost.major = 1;
        image.names.insert(0x1_0020, 2);
        image.classes.insert(2, class(1_000_000_000));
        for tree in &mut stick.trees {
            tree.install(image.clone(), &[1, 2]).unwrap();
        }
        let mut maps = FrontMaps::new().unwrap();
        let handed = stick.trees[1].handed().unwrap();
        let of = FrontPort {
            own: OWN.into(),
            multi_buffer: false,
            entry: stick.vlans.entry(),
            handed: Some(&handed),
        };
        let mut dropping = setting(22, None, None);
        dropping.steps[0].then = Then::Drop;
        dropping.steps[0].exceed = Then::Drop;
        let setting = setting(80, None, Some(0x1_0020));
        let front = Front::load(of, &[dropping, setting], None, &mut maps).unwrap();
        stick.trees[1].put_in_front(Some(front)).unwrap();
        let run = |stick: &Stick| {
            [(100, 22), (100, 80), (200, 22), (200, 80), (200, 53)]
                .map(|(vid, port)| stick.run(&tagged(Customer, vid, port, 0)).0)
        };
        let sent = stick.sent();
        let by_class = |tree: &Tree| [1, 2].map(|it| tree.class_counters(it).unwrap().own_packets);
        assert_eq!(run(&stick), [sent, sent, DROP, sent, sent]);
        assert_eq!(by_class(&stick.trees[0]), [2, 0]);
        assert_eq!(by_class(&stick.trees[1]), [1, 1]);
        stick.trees[1].put_in_front(None).unwrap();
        assert_eq!(run(&stick), [sent; 5]);
        assert_eq!(by_class(&stick.trees[1]), [4, 1]);
        // Without its tree a VLAN is the kernel's; the other one is not.
        stick.trees[1].detach();
        assert_eq!(run(&stick), [sent, sent, PASS, PASS, PASS]);
        assert_eq!(stick.vlans.others(), 3);
    }
}

#[test]
fn another_process_goes_on_with_trees_behind_vlans_of_its_own() {
    let pairs = [(tag(Customer, 100), tag(Customer, 200))];
    for mut old in Stick::each(&pairs) {
        old.trees[1].install(one_class(class(1_000_000_000)), &[1]).unwrap();
        let frame = tagged(Customer, 200, 53, 0);
        old.run(&frame);
        let vlans = Vlans::load(&[pairs[0].1], false, old.vlans.entry(), None).unwrap();
        let (port, hook) = port(old.vlans.entry(), pairs[0].0);
        let mut tree = Tree::at(port, hook, &maps(&old.trees[1])).unwrap();
        tree.stand_behind(&vlans, 0).unwrap();
        tree.resume().unwrap();
        let new = Stick { vlans, trees: vec![tree] };
        assert_eq!(new.run(&frame).0, new.sent());
        drop(old);
        let (verdict, out) = new.run(&frame);
        assert_eq!(verdict, new.sent());
        new.check(&frame, &out, pairs[0].0);
        assert_eq!(new.trees[0].class_counters(1).unwrap().own_packets, 3);
    }
}

#[test]
fn a_tree_does_not_stand_behind_vlans_at_the_other_hook() {
    let Ok(vlans) = Vlans::load(&[tag(Customer, 100)], false, Entry::Tcx, None) else { return };
    let (port, hook) = port(Entry::Own, tag(Customer, 200));
    let mut tree = Tree::at(port, hook, &[]).unwrap();
    assert!(matches!(tree.stand_behind(&vlans, 0), Err(TreeError::Replace(_))));
    tree.move_to(Hook::Tcx).unwrap();
    tree.stand_behind(&vlans, 0).unwrap();
    let verdict = test_run(vlans.program(), &tagged(Customer, 100, 53, 0), 1).unwrap().verdict;
    assert_eq!(as_xdp(Entry::Tcx, verdict), REDIRECT);
}

#[test]
fn whatever_a_frame_is_it_leaves_as_the_model_says_and_others_are_not_altered() {
    let pairs = [(tag(Customer, 100), tag(Service, 100))];
    for stick in Stick::each(&pairs) {
        let any_frame = (proptest::collection::vec(any::<u8>(), 14..150), any::<u8>());
        proptest!(|((mut frame, kind) in any_frame)| {
            // Half of them are of a port.
            if kind & 1 == 0 && frame.len() >= 16 {
                let protocol = if kind & 2 == 0 { Customer } else { Service };
                frame[12..14].copy_from_slice(&protocol.ethertype().to_be_bytes());
                frame[14] &= 0xf0;
                frame[15] = 100;
            }
            let others = stick.vlans.others();
            let (verdict, out) = stick.run(&frame);
            let of = tag_of(&frame);
            let other = pairs.iter().find_map(|&(one, other)| match of {
                Some(of) if of == one => Some(other),
                Some(of) if of == other => Some(one),
                _ => None,
            });
            match other {
                None => {
                    prop_assert_eq!((verdict, out), (PASS, frame));
                    prop_assert_eq!(stick.vlans.others(), others + 1);
                }
                // The kernel takes no tag off that nothing is behind.
                Some(_) if stick.is_at_tcx() && frame.len() < 18 => {}
                Some(other) => {
                    prop_assert_eq!(verdict, stick.sent());
                    stick.check(&frame, &out, other);
                }
            }
        });
    }
}
