//! Routing on the XDP plane: a program for each device, and a tree for each port.

use super::*;
use crate::attach::{Hook, XdpMode};
use crate::test_run::{Packet, as_xdp, run_at_tcx, run_at_tcx_leaving};
use crate::tree::layout::{Class, NOWHERE, PRIORITIES};
use crate::tree::{Image, Port, Scope, Totals, Tree, TreeError};

/// Ways to be attached, and whether frames may be in several buffers.
const WAYS: [(Entry, bool); 3] = [(Entry::Own, true), (Entry::Shared, false), (Entry::Tcx, false)];

fn hook_of(entry: Entry) -> Hook {
    if entry == Entry::Tcx { Hook::Tcx } else { Hook::Xdp(XdpMode::Native) }
}

/// A router on the XDP plane: a program for `lan`, and a tree for each port.
pub(super) struct Plane<'a> {
    pub(super) bed: &'a Bed,
    pub(super) router: Router,
    program: Chooser,
    pub(super) trees: Vec<Tree>,
    lan: u32,
    way: (Entry, bool),
}

/// The tree of a port with this address, behind `router`.
fn tree_behind(router: &Router, way: (Entry, bool), mac: [u8; 6], maps: &[OwnedFd]) -> Tree {
    let (entry, multi_buffer) = way;
    let port = Port::new(mac, multi_buffer, entry);
    let tree = Tree::behind(router.takers(), port, hook_of(entry), maps).unwrap();
    // Nothing is sent in a test run, so any device does.
    tree.connect(1).unwrap();
    tree
}

impl<'a> Plane<'a> {
    fn new(bed: &'a Bed, way: (Entry, bool)) -> Self {
        let lan = bed.lan;
        let router = bed.router();
        let program = router.program(LAN, way.1, way.0, None).unwrap();
        let tree = |(port, mac)| {
            let mut tree = tree_behind(&router, way, mac, &[]);
            tree.take(router.takers(), port).unwrap();
            tree
        };
        let trees = [(LAN, LAN_MAC), (WAN, WAN_MAC)].map(tree).into();
        Self { bed, router, program, trees, lan, way }
    }

    /// The verdict on a frame that arrives at `lan`, as XDP's, and the frame after it.
    pub(super) fn run(&self, frame: &[u8]) -> (u32, Vec<u8>) {
        self.bed.follow(&self.router);
        let (entry, program) = (self.program.entry(), self.program.program());
        let TestRun { verdict, frame, .. } = match entry {
            Entry::Tcx => {
                let packet = Packet { ifindex: self.lan, ..Packet::default() };
                run_at_tcx(program, frame, packet).unwrap()
            }
            Entry::Own | Entry::Shared => {
                let (run, before) = run_arriving(program, &[], frame, self.lan).unwrap();
                assert!(before.is_empty());
                run
            }
        };
        (as_xdp(entry, verdict), frame)
    }

    fn routed(&self) -> OutcomeCounters {
        self.program.outcomes().unwrap()
    }

    /// The packets that each tree sent.
    fn sent(&self) -> Vec<u64> {
        self.trees.iter().map(|tree| tree.totals().unwrap().sent_packets).collect()
    }
}

/// Runs `work` for each way to be attached, in one bed.
fn in_each_plane(work: impl Fn(Plane<'_>) + Send + Sync) {
    in_a_bed(|bed| WAYS.into_iter().map(|way| Plane::new(bed, way)).for_each(&work));
}

/// The same where programs look into images first.
pub(super) fn in_each_plane_by_tables(work: impl Fn(Plane<'_>) + Send + Sync) {
    in_one_bed(true, &|bed| WAYS.into_iter().map(|way| Plane::new(bed, way)).for_each(&work));
}

/// A plan with one class of this many bytes a second, which is sold a second ahead.
fn one_class(rate: u64) -> Image {
    let second = 1_000_000_000;
    let class = Class {
        rate,
        ceil: rate,
        burst: second,
        limit: second,
        target: second,
        interval: second,
        batch: 50_000,
        quantum: 1_000,
        ..Class::default()
    };
    let outermost = Scope { otherwise: [1; PRIORITIES], ..Scope::default() };
    Image { outermost, classes: [(1, class)].into(), ..Image::default() }
}

#[test]
fn what_the_kernel_sends_is_charged_to_the_tree_of_its_port_and_what_the_tree_sends_is_not() {
    const SEAL: u32 = 0x1234_5678;
    in_a_bed(|bed| {
        let router = bed.router().sealed(SEAL);
        let way = (Entry::Tcx, false);
        let mut tree = tree_behind(&router, way, WAN_MAC, &[]);
        let slow_path = tree.slow_path().unwrap();
        // Two frames a second.
        tree.install(one_class(200), &[1]).unwrap();
        let plain = frame(NEAR, FAR, 58);
        let sent = |program, packet| {
            let (run, left) = run_at_tcx_leaving(program, &plain, packet).unwrap();
            (run, left.control_block)
        };
        // What the tree redirects has the seal, whatever it had before, and passes uncharged once.
        let before = Packet { control_block: [7, 8], ..Packet::default() };
        let (run, block) = sent(tree.program(), before);
        assert_eq!(as_xdp(Entry::Tcx, run.verdict), REDIRECT);
        assert_eq!(block, [SEAL, !SEAL]);
        let sealed = Packet { control_block: block, ..Packet::default() };
        let (run, block) = sent(slow_path.program(), sealed);
        assert_eq!((as_xdp(Entry::Tcx, run.verdict), block), (PASS, [0, 0]));
        assert_eq!(tree.slow_path_totals().unwrap(), Totals::default());
        // Half of a seal is none. The class is sold a second ahead, and then it is full.
        let mut verdicts = Vec::new();
        for block in [[0, 0], [SEAL, SEAL], [SEAL, 0], [!SEAL, SEAL], [0, 0], [0, 0]] {
            let packet = Packet { control_block: block, from: 1, ..Packet::default() };
            verdicts.push(as_xdp(Entry::Tcx, sent(slow_path.program(), packet).0.verdict));
        }
        let passed = verdicts.iter().filter(|verdict| **verdict == PASS).count() as u64;
        assert!((2..=5).contains(&passed), "{verdicts:?}");
        assert_eq!(verdicts.last(), Some(&DROP), "{verdicts:?}");
        let bytes = plain.len() as u64;
        let expected = Totals {
            sent_packets: passed,
            sent_bytes: passed * bytes,
            limit_drops: 6 - passed,
            dropped_bytes: (6 - passed) * bytes,
            ..Totals::default()
        };
        assert_eq!(tree.slow_path_totals().unwrap(), expected);
        assert_eq!(tree.class_counters(1).unwrap().own_packets, passed + 1, "both are the class's");
        // It is full for the tree, too; and the box's control goes all the same, and is charged.
        assert_eq!(as_xdp(Entry::Tcx, sent(tree.program(), before).0.verdict), DROP);
        let mut control = plain.clone();
        control[15] = 0xc0;
        let run = run_at_tcx(slow_path.program(), &control, Packet::default()).unwrap();
        assert_eq!(as_xdp(Entry::Tcx, run.verdict), PASS);
        let strange = Packet { from: 1, ..Packet::default() };
        let run = run_at_tcx(slow_path.program(), &control, strange).unwrap();
        assert_eq!(as_xdp(Entry::Tcx, run.verdict), DROP, "a stranger's says nothing");
        let run = run_at_tcx(slow_path.program(), &control, Packet::default()).unwrap();
        assert_eq!(as_xdp(Entry::Tcx, run.verdict), DROP, "it has an eighth of the rate");
    });
}

/// A plan that drops all.
fn nowhere() -> Image {
    let outermost = Scope { otherwise: [NOWHERE; PRIORITIES], ..Scope::default() };
    Image { outermost, ..Image::default() }
}

#[test]
fn a_frame_is_sent_by_the_tree_of_the_port_through_which_it_leaves() {
    in_each_plane(|plane| {
        let ways = [
            (frame(NEAR, FAR, 100), WAN_MAC, HOP),
            (frame(NEAR6, FAR6, 100), WAN_MAC, HOP),
            (frame(NEAR, "10.0.1.3", 100), WAN_MAC, SECOND_HOP),
            (frame("10.9.9.9", NEAR, 100), LAN_MAC, HOST),
        ];
        for (frame, from, to) in &ways {
            assert_eq!(plane.run(frame), (REDIRECT, model::leaving(frame, *from, *to)));
        }
        assert_eq!(plane.sent(), [1, 3]);
        let sent_bytes = ways[0].0.len() as u64 * 2 + ways[1].0.len() as u64;
        let expected = Totals { sent_packets: 3, sent_bytes, ..Totals::default() };
        assert_eq!(plane.trees[1].totals().unwrap(), expected);
        assert_eq!(plane.routed(), OutcomeCounters::of(&[4]));
    });
}

#[test]
fn a_tree_meters_what_leaves_through_its_port_and_nothing_else() {
    in_each_plane(|mut plane| {
        plane.trees[1].install(nowhere(), &[]).unwrap();
        assert_eq!(plane.run(&frame(NEAR, FAR, 8)).0, DROP);
        assert_eq!(plane.run(&frame("10.9.9.9", NEAR, 8)).0, REDIRECT);
        // The box's own frames, and those that the kernel routes, are not its matter.
        let own = frame(NEAR, "10.0.1.1", 8);
        assert_eq!(plane.run(&own), (PASS, own));
        let expected = Totals { unclassified_drops: 1, dropped_bytes: 42, ..Totals::default() };
        assert_eq!(plane.trees[1].totals().unwrap(), expected);
        assert_eq!(plane.sent(), [1, 0]);
    });
}

#[test]
fn what_leaves_where_no_tree_is_goes_to_the_kernel_as_it_was() {
    in_each_plane(|mut plane| {
        plane.trees[1].detach();
        for (count, (source, destination)) in (1..).zip([(NEAR, FAR), (NEAR6, FAR6)]) {
            let frame = frame(source, destination, 8);
            assert_eq!(plane.run(&frame), (PASS, frame));
            let routed = plane.routed();
            assert_eq!((routed[Outcome::Nobody], routed[Outcome::Routed]), (count, 0));
        }
        // Also with a checksum that has two forms.
        for check in [[0, 0], [0xff, 0xff], [0xfe, 0xff], [0xff, 0]] {
            let mut frame = frame(NEAR, FAR, 8);
            frame[24..26].copy_from_slice(&check);
            assert_eq!(plane.run(&frame), (PASS, frame));
        }
        plane.trees[1].take(plane.router.takers(), WAN).unwrap();
        assert_eq!(plane.run(&frame(NEAR, FAR, 8)).0, REDIRECT);
    });
}

/// A class without a limit.
fn class() -> Class {
    Class::default()
}

#[test]
fn filters_in_front_of_a_device_choose_the_class_at_any_port() {
    in_each_plane(|mut plane| {
        let mut image = Image { classes: [(1, class()), (2, class())].into(), ..Image::default() };
        image.outermost = Scope { major: 1, otherwise: [1; PRIORITIES], ..Scope::default() };
        image.names.insert(0x1_0020, 2);
        for tree in &mut plane.trees {
            tree.install(image.clone(), &[1, 2]).unwrap();
        }
        let by_class = |plane: &Plane| {
            let of = |tree: &Tree| [1, 2].map(|it| tree.class_counters(it).unwrap().own_packets);
            [of(&plane.trees[0]), of(&plane.trees[1])]
        };
        let front = |then| {
            let own = OwnAddress::of(LAN_MAC, false);
            let ((entry, multi_buffer), handed) = (plane.way, Some(plane.router.takers().handed()));
            let port = FrontPort { own, multi_buffer, entry, handed };
            let does = match then {
                Then::Drop => Does::Decide,
                _ => Does::Edit { mark: None, priority: Some(0x1_0020) },
            };
            let mut term = Term {
                steps: vec![Step { does, then, exceed: then, counter: None }],
                ..Term::any()
            };
            term.headers.ask(Field::DestinationPort, &53_u16.to_be_bytes(), &[0xff; 2]);
            Front::load(port, &[term], None, &mut FrontMaps::new().unwrap()).unwrap()
        };
        let (setting, dropping) = (front(Then::Pass), front(Then::Drop));
        let dns = frame(NEAR, FAR, 8);
        let other = with(dns.clone(), 37, 54);
        let back = frame("10.9.9.9", NEAR, 8);
        let run = |plane: &Plane| [&dns, &other, &back].map(|frame| plane.run(frame).0);
        assert_eq!(run(&plane), [REDIRECT; 3]);
        assert_eq!(by_class(&plane), [[1, 0], [2, 0]]);
        plane.program.put_in_front(Some(setting)).unwrap();
        assert_eq!(run(&plane), [REDIRECT; 3]);
        assert_eq!(by_class(&plane), [[1, 1], [3, 1]]);
        plane.program.put_in_front(Some(dropping)).unwrap();
        assert_eq!(run(&plane), [DROP, REDIRECT, DROP]);
        assert_eq!(by_class(&plane), [[1, 1], [4, 1]]);
        // Nothing of what they set is left.
        plane.program.put_in_front(None).unwrap();
        assert_eq!(run(&plane), [REDIRECT; 3]);
        assert_eq!(by_class(&plane), [[2, 1], [6, 1]]);
    });
}

#[test]
fn no_filters_are_in_front_of_a_tree_behind_a_router() {
    in_each_plane(|mut plane| {
        let (own, (entry, multi_buffer)) = (LAN_MAC.into(), plane.way);
        let port = FrontPort { own, multi_buffer, entry, handed: None };
        let front = Front::load(port, &[Term::any()], None, &mut FrontMaps::new().unwrap());
        let refused = plane.trees[1].put_in_front(Some(front.unwrap()));
        assert!(matches!(refused, Err(TreeError::Routed)));
        plane.trees[1].put_in_front(None).unwrap();
        assert_eq!(plane.run(&frame(NEAR, FAR, 8)).0, REDIRECT);
    });
}

#[test]
fn programs_of_several_devices_lead_to_the_same_trees() {
    in_each_plane(|mut plane| {
        assert_eq!(plane.run(&frame(NEAR, FAR, 8)).0, REDIRECT);
        let (entry, multi_buffer) = plane.way;
        let of_wan = plane.router.program(WAN, multi_buffer, entry, None).unwrap();
        let check = Ingress { source_check: SourceCheck::Strict, ..Ingress::default() };
        plane.bed.set_ingress(&plane.router, WAN, check);
        let of_lan = std::mem::replace(&mut plane.program, of_wan);
        plane.lan = index("wan");
        let mut arriving = frame("198.51.100.7", NEAR, 8);
        arriving[..6].copy_from_slice(&WAN_MAC);
        let left = model::leaving(&arriving, LAN_MAC, HOST);
        assert_eq!(plane.run(&arriving), (REDIRECT, left));
        // Each device has a check of its own.
        let mut spoofed = frame("10.0.0.9", NEAR, 8);
        spoofed[..6].copy_from_slice(&WAN_MAC);
        assert_eq!(plane.run(&spoofed), (PASS, spoofed));
        assert_eq!(plane.routed()[Outcome::BadSource], 1);
        assert_eq!(plane.sent(), [1, 1]);
        assert_eq!(of_lan.outcomes().unwrap(), OutcomeCounters::of(&[1]));
    });
}

#[test]
fn another_process_goes_on_with_trees_behind_a_router_of_its_own() {
    in_each_plane(|mut old| {
        let image = Image {
            classes: [(1, class())].into(),
            outermost: Scope { otherwise: [1; PRIORITIES], ..Scope::default() },
            ..Image::default()
        };
        old.trees[1].install(image, &[1]).unwrap();
        let dns = frame(NEAR, FAR, 8);
        assert_eq!(old.run(&dns).0, REDIRECT);
        let maps = old.trees[1].maps();
        let maps: Vec<_> = maps.iter().map(|map| map.try_clone_to_owned().unwrap()).collect();
        let router = old.bed.router();
        let mut tree = tree_behind(&router, old.way, WAN_MAC, &maps);
        tree.take(router.takers(), WAN).unwrap();
        tree.resume().unwrap();
        let (entry, multi_buffer) = old.way;
        let program = router.program(LAN, multi_buffer, entry, None).unwrap();
        let new =
            Plane { bed: old.bed, router, program, trees: vec![tree], lan: old.lan, way: old.way };
        drop(old);
        assert_eq!(new.run(&dns).0, REDIRECT);
        assert_eq!(new.trees[0].class_counters(1).unwrap().own_packets, 2);
    });
}

#[test]
fn all_that_shares_a_router_is_attached_alike() {
    in_each_plane(|plane| {
        let others = match plane.way.0 {
            Entry::Own => vec![(Entry::Own, false), (Entry::Tcx, false)],
            Entry::Shared => vec![(Entry::Own, true), (Entry::Tcx, false)],
            Entry::Tcx => vec![(Entry::Own, false)],
        };
        for (entry, multi_buffer) in others {
            let loaded = plane.router.program(WAN, multi_buffer, entry, None);
            assert!(matches!(loaded, Err(TreeError::Load(_))));
            let mut tree = tree_behind(&plane.router, (entry, multi_buffer), WAN_MAC, &[]);
            let refused = tree.take(plane.router.takers(), WAN);
            assert!(matches!(refused, Err(TreeError::Replace(_))));
        }
        assert_eq!(plane.run(&frame(NEAR, FAR, 8)).0, REDIRECT);
        assert_eq!(plane.sent(), [0, 1]);
    });
}

#[test]
fn a_frame_may_be_in_several_buffers() {
    in_a_bed(|bed| {
        ip("link set wan mtu 9000");
        let plane = Plane::new(bed, (Entry::Own, true));
        for (source, destination, header) in [(NEAR, FAR, 20), (NEAR6, FAR6, 40)] {
            let fits = frame(source, destination, 9000 - header);
            let sent_bytes = plane.trees[1].totals().unwrap().sent_bytes;
            assert!(plane.run(&fits) == (REDIRECT, model::leaving(&fits, WAN_MAC, HOP)));
            assert_eq!(plane.trees[1].totals().unwrap().sent_bytes, sent_bytes + 9014);
            // Its length is that of all buffers.
            for wrong in [[fits.clone(), vec![0]].concat(), fits[..9013].to_vec()] {
                assert!(plane.run(&wrong) == (PASS, wrong));
            }
        }
        let counters = plane.routed();
        assert_eq!([counters[Outcome::TooLong], counters[Outcome::Short]], [2, 2]);
    });
}

#[test]
fn a_merged_packet_is_as_long_as_its_frames_and_counts_as_many() {
    in_a_bed(|bed| {
        let plane = Plane::new(bed, (Entry::Tcx, false));
        for (source, destination, header) in [(NEAR, FAR, 20), (NEAR6, FAR6, 40)] {
            let (before, sent) = (plane.routed(), plane.sent()[1]);
            // Two frames of UDP.
            let fits = 1500 - header - 8;
            let merged = frame(source, destination, 8 + 2 * fits);
            let run = |segment_bytes| {
                let packet =
                    Packet { ifindex: bed.lan, segment_bytes, segments: 2, ..Packet::default() };
                plane.bed.follow(&plane.router);
                let run = run_at_tcx(plane.program.program(), &merged, packet).unwrap();
                (as_xdp(Entry::Tcx, run.verdict), run.frame)
            };
            let left = model::leaving(&merged, WAN_MAC, HOP);
            assert!(run(fits as u32) == (REDIRECT, left));
            assert_eq!(plane.routed()[Outcome::Routed], before[Outcome::Routed] + 2);
            assert_eq!(plane.sent()[1], sent + 2);
            assert!(run(fits as u32 + 1) == (PASS, merged.clone()));
            assert_eq!(plane.routed()[Outcome::TooLong], before[Outcome::TooLong] + 2);
        }
    });
}

#[test]
fn whatever_a_frame_is_it_leaves_as_the_model_says_or_is_not_altered() {
    in_each_plane(|plane| {
        ip(&model::ROUTES.replace("route add", "route replace"));
        plane.router.set_own_addresses(&model::OWN.map(|own| own.parse().unwrap())).unwrap();
        let config = ProptestConfig::with_cases(1000);
        let is_at_tcx = plane.program.entry() == Entry::Tcx;
        proptest!(config, |(frame in any_frame(), is_strict: bool)| {
            // A test run takes no packet that is shorter than its header.
            let least = if frame[12..14] == [8, 0] { 34 } else { 54 };
            prop_assume!(!is_at_tcx || frame.len() >= least);
            let source_check = if is_strict { SourceCheck::Strict } else { SourceCheck::Off };
            plane.bed.set_ingress(&plane.router, LAN, Ingress { source_check, ..Ingress::default() });
            let (mut expected, mut sent) = (plane.routed(), plane.sent());
            let (outcome, verdict, left) = match model::way_of(&frame, source_check) {
                Ok((port, from, to)) => {
                    sent[port.index()] += 1;
                    (Outcome::Routed, REDIRECT, model::leaving(&frame, from, to))
                }
                Err(outcome @ Outcome::Blackhole) => (outcome, DROP, frame.clone()),
                // There a tag would be beside the packet.
                Err(Outcome::OtherTag) if is_at_tcx => (Outcome::NotIp, PASS, frame.clone()),
                Err(outcome) => (outcome, PASS, frame.clone()),
            };
            prop_assert_eq!(plane.run(&frame), (verdict, left));
            expected.0[outcome as usize] += 1;
            prop_assert_eq!((plane.routed(), plane.sent()), (expected, sent));
        });
    });
}
