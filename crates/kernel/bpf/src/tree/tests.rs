//! The program, run by the kernel on frames that never were on a wire.

use super::layout::Key;
use super::term::{Comparison, Layer, Next, Number, Relation, Test};
use super::*;
use crate::Field;
use crate::attach::XdpMode;
use crate::front::{Does, FrontMaps, FrontPort, Step, Term as InFront, Then};
use crate::test_run::{DROP, PASS, REDIRECT, TestRun, as_xdp, run_merged, test_run};
use std::time::Instant;

mod installed;
mod stamp;
mod trips;
mod vlans;

pub(super) const OWN: [u8; 6] = [2, 0, 0, 0, 0, 9];
/// The loopback device: nothing is sent in a test run.
pub(super) const OTHER: u32 = 1;

fn tree() -> Option<Tree> {
    match Tree::load(OWN, false, Entry::Own, Hook::Xdp(XdpMode::Native)) {
        Err(TreeError::Load(error @ LoadError::NotPermitted)) => {
            eprintln!("SKIPPED: {error}");
            None
        }
        loaded => {
            let tree = loaded.unwrap();
            tree.connect(OTHER).unwrap();
            Some(tree)
        }
    }
}

/// A tree for each hook.
fn trees() -> impl Iterator<Item = Tree> {
    let at_tcx = tree().map(|mut tree| {
        tree.move_to(Hook::Tcx).unwrap();
        tree.connect(OTHER).unwrap();
        tree
    });
    tree().into_iter().chain(at_tcx)
}

/// The verdict on the last of `times` frames, as XDP's, the time of one in ns, and the frame.
fn run(tree: &Tree, frame: &[u8], times: u32) -> (u32, u32, Vec<u8>) {
    let TestRun { verdict, ns, frame } = test_run(tree.program(), frame, times).unwrap();
    (as_xdp(tree.entry(), verdict), ns, frame)
}

/// An IPv4 packet of UDP to `port`, `bytes` long.
fn frame(port: u16, traffic_class: u8, bytes: usize) -> Vec<u8> {
    let mut frame = vec![0; bytes];
    frame[..6].fill(4);
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..16].copy_from_slice(&[0x45, traffic_class]);
    frame[16..18].copy_from_slice(&((bytes - 14) as u16).to_be_bytes());
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    frame[36..38].copy_from_slice(&port.to_be_bytes());
    let sum = checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// RFC 1071, of a header whose own sum is 0 or right; 0 for the latter.
pub(crate) fn checksum(header: &[u8]) -> u16 {
    let words = header.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !(((sum & 0xffff) + (sum >> 16)) as u16)
}

const MS: u64 = 1_000_000;

fn class(rate: u64) -> Class {
    Class {
        rate,
        ceil: rate,
        burst: MS,
        limit: 5 * MS,
        target: 5 * MS,
        interval: 100 * MS,
        batch: 50_000,
        quantum: 1000,
        ..Class::default()
    }
}

fn one_class(class: Class) -> Image {
    let outermost = Scope { otherwise: [1; PRIORITIES], ..Scope::default() };
    Image { outermost, classes: BTreeMap::from([(1, class)]), ..Image::default() }
}

#[test]
fn without_a_plan_all_frames_pass_and_those_for_the_box_stay() {
    for tree in trees() {
        assert_eq!(run(&tree, &frame(53, 0, 100), 3).0, REDIRECT);
        let mut own = frame(53, 0, 100);
        own[..6].copy_from_slice(&OWN);
        assert_eq!(run(&tree, &own, 1).0, PASS);
        let totals = tree.totals().unwrap();
        let expected = Totals { to_self: 1, sent_packets: 3, sent_bytes: 300, ..Totals::default() };
        assert_eq!(totals, expected);
        assert_eq!(tree.class_counters(0).unwrap().own_packets, 3);
    }
}

#[test]
fn at_a_hosts_port_all_frames_go_up_the_stack_and_filters_in_front_see_them() {
    for entry in [Entry::Own, Entry::Shared, Entry::Tcx] {
        let at_tcx = entry == Entry::Tcx;
        let hook = if at_tcx { Hook::Tcx } else { Hook::Xdp(XdpMode::Native) };
        let port = Port { leads_to_box: true, ..Port::new(OWN, false, entry) };
        let mut tree = match Tree::at(port, hook, &[]) {
            Err(TreeError::Load(error @ LoadError::NotPermitted)) => {
                eprintln!("SKIPPED: {error}");
                continue;
            }
            loaded => loaded.unwrap(),
        };
        let mut own = frame(53, 0, 100);
        own[..6].copy_from_slice(&OWN);
        // Of no protocol that filters know.
        let mut odd = frame(53, 0, 100);
        odd.truncate(20);
        odd[12..14].copy_from_slice(&[0x88, 0xb5]);
        for frame in [&own, &frame(53, 0, 100), &odd] {
            let TestRun { verdict, frame: after, .. } = test_run(tree.program(), frame, 1).unwrap();
            assert_eq!((as_xdp(entry, verdict), &after), (PASS, frame));
        }
        let passed = Totals { sent_packets: 3, sent_bytes: 220, ..Totals::default() };
        assert_eq!(tree.totals().unwrap(), passed);
        // A filter that drops all, and sets something before.
        let steps = [Does::Edit { mark: Some((1, u32::MAX)), priority: None }, Does::Decide];
        let step = |does| Step { does, then: Then::Pipe, exceed: Then::Pipe, counter: None };
        let mut steps = steps.map(step);
        steps[1].then = Then::Drop;
        let own_address = crate::OwnAddress { is_addressed: false, ..OWN.into() };
        let handed = tree.handed().unwrap();
        let at = FrontPort { own: own_address, multi_buffer: false, entry, handed: Some(&handed) };
        let term = InFront { steps: steps.to_vec(), ..InFront::any() };
        let mut maps = FrontMaps::new().unwrap();
        tree.put_in_front(Some(Front::load(at, &[term], None, &mut maps).unwrap())).unwrap();
        assert_eq!(run(&tree, &own, 2).0, DROP);
        assert_eq!(tree.totals().unwrap(), passed);
        tree.put_in_front(None).unwrap();
        assert_eq!(run(&tree, &own, 1).0, PASS);
    }
}

#[test]
fn a_class_passes_its_rate_and_every_packet_is_counted_once() {
    for mut tree in trees() {
        // 100 MB/s: a thousand bytes each 10 us.
        // The virtual queue is long, so that a test that has to wait for its core loses nothing.
        tree.install(
            one_class(Class { limit: 500 * MS, target: 1000 * MS, ..class(100_000_000) }),
            &[1],
        )
        .unwrap();
        let began = Instant::now();
        let times = 4_000_000;
        run(&tree, &frame(53, 0, 1000), times);
        let elapsed = began.elapsed().as_secs_f64();
        let (counters, totals) = (tree.class_counters(1).unwrap(), tree.totals().unwrap());
        assert_eq!(totals.sent_packets + totals.limit_drops + totals.aqm_drops, u64::from(times));
        assert_eq!(counters.own_packets, totals.sent_packets);
        assert_eq!(totals.sent_bytes + totals.dropped_bytes, 1000 * u64::from(times));
        // Burst and virtual queue come on top, and a batch. Credit expires if its CPU waits for too
        // long.
        let (most, least) = (elapsed + 0.5015, 0.9 * elapsed + 0.45);
        let sent = totals.sent_bytes as f64 / 100e6;
        assert!(sent < most && sent > least, "sent for {sent} s within {elapsed} s");
    }
}

#[test]
fn rules_find_classes_and_the_first_by_order_decides() {
    for mut tree in trees() {
        let to = |port| Key { destination_port: port, has: 1, ..Key::default() };
        let by = |bits| Mask { bits, first: 1 };
        let port = to(u16::MAX);
        let network = Key { destination: 0xff00_0000, ip: 0xff, ..Key::default() };
        let image = Image {
            masks: vec![by(port), Mask { first: 2, ..by(network) }],
            rules: vec![
                Rule { scope: 0, mask: 0, key: to(53), order: 1, class: 2 },
                Rule { scope: 0, mask: 0, key: to(80), order: 3, class: layout::NOWHERE },
                Rule {
                    scope: 0,
                    mask: 1,
                    key: Key { destination: 0x0a00_0000, ip: 4, ..Key::default() },
                    order: 2,
                    class: 3,
                },
            ],
            classes: (1..4).map(|number| (number, class(1_000_000_000))).collect(),
            ..one_class(class(1_000_000_000))
        };
        tree.install(image.clone(), &[1, 2, 3]).unwrap();
        for port in [53, 80, 443] {
            assert_eq!(run(&tree, &frame(port, 0, 100), 1).0, REDIRECT);
        }
        let sent =
            |tree: &Tree| [1, 2, 3].map(|class| tree.class_counters(class).unwrap().own_packets);
        assert_eq!(sent(&tree), [0, 1, 2]);
        // Without the network, port 80 has no rule; counters of remaining classes continue.
        let rules = image.rules[..2].to_vec();
        tree.install(Image { rules, masks: vec![by(port)], ..image }, &[]).unwrap();
        assert_eq!(run(&tree, &frame(80, 0, 100), 1).0, DROP);
        run(&tree, &frame(443, 0, 100), 1);
        assert_eq!(sent(&tree), [1, 1, 2]);
        assert_eq!(tree.totals().unwrap().unclassified_drops, 1);
    }
}

/// A term for frames of which a number of `size` bytes at `offset` behind the IP header is `value`.
fn comparing(order: u64, offset: i16, size: u8, value: u64, does: term::Does) -> Term {
    let number = Number::At { layer: Layer::Transport, offset, size, is_little_endian: false };
    let comparison = Comparison::of(number, Relation::Equal, value);
    let test = Test { comparison, then: Next::Matches, otherwise: Next::Fails };
    Term { scope: 0, order, first: Next::Test(0), tests: vec![test], does, actions: Vec::new() }
}

#[test]
fn terms_and_rules_decide_in_one_order_and_terms_change_with_the_plan() {
    use term::Does::{Assigns, Continues, Defaults, Drops};
    for mut tree in trees() {
        let port = Key { destination_port: u16::MAX, has: 1, ..Key::default() };
        let to = |port| Key { destination_port: port, has: 1, ..Key::default() };
        let counted = |term: Term, action| Term { actions: vec![action], ..term };
        let image = Image {
            masks: vec![Mask { bits: port, first: 5 }],
            rules: [(53, 5), (80, 25), (443, 25)]
                .map(|(port, order)| Rule { scope: 0, mask: 0, key: to(port), order, class: 2 })
                .into(),
            terms: vec![
                counted(comparing(10, 2, 2, 53, Drops), 1),
                counted(comparing(12, 2, 1, 0, Continues), 2),
                counted(comparing(20, 2, 2, 80, Assigns(3)), 3),
                counted(comparing(30, 2, 2, 443, Drops), 4),
                counted(comparing(40, 2, 2, 22, Drops), 5),
                comparing(50, 2, 2, 23, Defaults),
                comparing(60, 2, 1, 0, Assigns(layout::NOWHERE)),
            ],
            classes: (1..4).map(|number| (number, class(1_000_000_000))).collect(),
            ..one_class(class(1_000_000_000))
        };
        tree.install(image.clone(), &[1, 2, 3]).unwrap();
        let sent =
            |tree: &Tree| [1, 2, 3].map(|class| tree.class_counters(class).unwrap().own_packets);
        for (port, verdict, expected) in [
            (53, REDIRECT, [0, 1, 0]),
            (80, REDIRECT, [0, 1, 1]),
            (443, REDIRECT, [0, 2, 1]),
            (22, DROP, [0, 2, 1]),
            (23, REDIRECT, [1, 2, 1]),
            (24, DROP, [1, 2, 1]),
            (500, REDIRECT, [2, 2, 1]),
        ] {
            assert_eq!(run(&tree, &frame(port, 0, 100), 1).0, verdict, "{port}");
            assert_eq!(sent(&tree), expected, "{port}");
        }
        let totals = tree.totals().unwrap();
        assert_eq!((totals.filter_drops, totals.unclassified_drops), (1, 1));
        let acted = |tree: &Tree| [1, 2, 3, 4, 5].map(|action| tree.acted(action).unwrap().packets);
        assert_eq!(acted(&tree), [0, 4, 1, 0, 1]);
        assert_eq!(tree.acted(5).unwrap().bytes, 100);
        // The other plan has others, and what stays counts on.
        let terms = vec![counted(comparing(7, 2, 2, 500, Drops), 5)];
        tree.install(Image { terms, ..image.clone() }, &[]).unwrap();
        assert_eq!([500, 22].map(|port| run(&tree, &frame(port, 0, 100), 1).0), [DROP, REDIRECT]);
        assert_eq!(acted(&tree), [0, 4, 1, 0, 2]);
        tree.install(Image { terms: Vec::new(), ..image }, &[]).unwrap();
        tree.forget(5).unwrap();
        assert_eq!(run(&tree, &frame(500, 0, 100), 1).0, REDIRECT);
        assert_eq!(acted(&tree), [0, 4, 1, 0, 0]);
    }
}

/// A filter for UDP to `port` that sets `mark` and `priority`, and passes.
fn setting(port: u16, mark: Option<(u32, u32)>, priority: Option<u32>) -> InFront {
    let mut term = InFront::any();
    term.headers.ask(Field::DestinationPort, &port.to_be_bytes(), &[0xff; 2]);
    let does = Does::Edit { mark, priority };
    term.steps = vec![Step { does, then: Then::Pass, exceed: Then::Pass, counter: None }];
    term
}

#[test]
fn what_filters_in_front_set_decides_and_lasts_for_one_frame() {
    for mut tree in trees() {
        let mut maps = FrontMaps::new().unwrap();
        let marked = Key { mark: 5, ..Key::default() };
        let mut otherwise = [1; PRIORITIES];
        (otherwise[6], otherwise[0]) = (4, 6);
        let image = Image {
            masks: vec![Mask { bits: Key { mark: 0xff, ..Key::default() }, first: 1 }],
            rules: vec![Rule { scope: 0, mask: 0, key: marked, order: 1, class: 3 }],
            outermost: Scope { major: 1, unknown: 5, otherwise },
            classes: (1..7).map(|number| (number, class(1_000_000_000))).collect(),
            names: BTreeMap::from([(0x1_0020, 2)]),
            ..Image::default()
        };
        tree.install(image.clone(), &[1, 2, 3, 4, 5, 6]).unwrap();
        let of = |tree: &Tree| {
            [1, 2, 3, 4, 5, 6].map(|class| tree.class_counters(class).unwrap().own_packets)
        };
        let load = |tree: &Tree, maps: &mut FrontMaps| {
            let terms = [
                setting(2, Some((5, u32::MAX)), Some(0x1_0020)),
                setting(3, Some((0x105, 0xfff)), None),
                setting(4, None, Some(6)),
                setting(5, None, Some(0x1_0021)),
                // A class of another qdisc is no priority, and number 0 is no class.
                setting(6, None, Some(0x9_0020)),
                setting(7, None, Some(0x1_0000)),
            ];
            let handed = tree.handed().unwrap();
            let port = FrontPort {
                own: OWN.into(),
                multi_buffer: false,
                entry: tree.entry(),
                handed: Some(&handed),
            };
            Front::load(port, &terms, None, maps).unwrap()
        };
        let front = load(&tree, &mut maps);
        tree.put_in_front(Some(front)).unwrap();
        // The low-delay bit gives the priority 6 to what no filter sets another one for.
        for (port, traffic_class, expected) in [
            (2, 0, 2),
            (3, 0, 3),
            (4, 0, 4),
            (5, 0, 5),
            (6, 0x10, 6),
            (7, 0x10, 6),
            (1, 0x10, 4),
            (1, 0x08, 1),
        ] {
            let before = of(&tree);
            assert_eq!(run(&tree, &frame(port, traffic_class, 100), 3).0, REDIRECT);
            let mut after = before;
            after[expected - 1] += 3;
            assert_eq!(of(&tree), after, "port {port}, traffic class {traffic_class:#x}");
        }
        // Another plan knows other names at once.
        let names = BTreeMap::from([(0x1_0020, 1), (0x1_0021, 3)]);
        tree.install(Image { names, ..image }, &[1, 2, 3, 4, 5, 6]).unwrap();
        for port in [2, 5] {
            run(&tree, &frame(port, 0, 100), 1);
        }
        assert_eq!(of(&tree), [1, 0, 1, 0, 0, 0]);
        // Without filters nothing is set any more.
        tree.put_in_front(None).unwrap();
        run(&tree, &frame(2, 0x08, 100), 1);
        assert_eq!(of(&tree), [2, 0, 1, 0, 0, 0]);
    }
}

#[test]
fn a_mark_takes_the_place_of_a_drop_and_the_checksum_is_right() {
    for mut tree in trees() {
        for traffic_class in [0, 1, 2, 3] {
            let marking =
                Class { target: MS, limit: 1 << 60, interval: 2 * MS, ..class(1_000_000) };
            tree.install(one_class(marking), &[1]).unwrap();
            let frame = frame(53, traffic_class, 1000);
            let began = Instant::now();
            let marked = loop {
                let (verdict, _, out) = run(&tree, &frame, 1);
                if verdict == DROP || out[15] != frame[15] {
                    break (verdict, out);
                }
                if traffic_class == 3 && tree.class_counters(1).unwrap().marked > 0 {
                    break (verdict, out);
                }
                assert!(began.elapsed().as_secs() < 10, "neither marked nor dropped");
            };
            let counters = tree.class_counters(1).unwrap();
            match traffic_class {
                0 => assert_eq!((marked.0, counters.aqm_drops), (DROP, 1)),
                _ => {
                    assert_eq!((marked.0, counters.aqm_drops, counters.marked), (REDIRECT, 0, 1));
                    assert_eq!(marked.1[15], 3);
                    assert_eq!(checksum(&marked.1[14..34]), 0);
                }
            }
        }
    }
}

#[cfg(feature = "stepped")]
#[test]
fn the_kernel_and_the_host_let_as_much_pass() {
    use crate::stepped::{Answer, Stepped};
    use narrows_units::Nanos;

    let never = Class { target: u64::MAX, ..class(0) };
    let root = |limit| Class { rate: 2_000_000, ceil: 2_000_000, limit, child: 1, ..never };
    let leaf = Class { rate: 1_000_000, ceil: 4_000_000, limit: 500 * MS, parent: 2, ..never };
    // The root binds. Where the leaf does, it matters when the root shares out.
    for limit in [100 * MS, 400 * MS] {
        for mut tree in trees() {
            let classes = BTreeMap::from([(1, leaf), (2, root(limit))]);
            tree.install(Image { classes: classes.clone(), ..one_class(leaf) }, &[1, 2]).unwrap();
            let (began, times) = (Instant::now(), 5000);
            run(&tree, &frame(53, 0, 1000), times);
            let elapsed = began.elapsed().as_nanos() as u64;
            let passed = tree.totals().unwrap().sent_packets;
            let mut host = Stepped::new(1, &classes);
            let at = |number: u64| Nanos(1_000_000_000 + number * elapsed / u64::from(times));
            let answers = (0..u64::from(times)).map(|number| host.meter(at(number), 0, 1, 1000).0);
            let expected = answers.filter(|answer| *answer == Answer::Send).count() as u64;
            // The ceiling's worth of that time, and a batch.
            let apart = 3 + elapsed * 4 / 1_000_000;
            assert!(passed.abs_diff(expected) <= apart, "{limit}: {passed}, {expected}");
            assert!(expected > 100, "{expected}");
        }
    }
}

/// Two leaves under FlowValve's rules, with the weights 1 and 3, below a class of so many bytes a
/// second. The first borrows from the second.
#[cfg(feature = "stepped")]
fn valves(rate: u64) -> (BTreeMap<u32, Class>, BTreeMap<u32, layout::Label>) {
    let of = Class { rules: layout::Rules::FlowValve, ..class(rate) };
    let leaf = |sibling| Class { rate: 1, parent: 3, sibling, ..of };
    let label = |weight, path: &[u16], lenders: &[u16]| layout::Label {
        burst: 3028,
        cburst: 3028,
        promised: if path.len() == 1 { 2 } else { 0 },
        weight,
        path: path.to_vec(),
        lenders: lenders.to_vec(),
        ..layout::Label::default()
    };
    let classes = [(1, leaf(2)), (2, leaf(0)), (3, Class { child: 1, ..of })];
    let labels =
        [(1, label(1, &[3, 1], &[2])), (2, label(3, &[3, 2], &[])), (3, label(1, &[3], &[]))];
    (classes.into(), labels.into())
}

#[cfg(feature = "stepped")]
#[test]
fn by_flowvalve_s_rules_the_kernel_lets_as_much_pass_as_the_host() {
    use crate::stepped::{Answer, Stepped};
    use narrows_units::Nanos;
    use std::time::Duration;

    // An epoch of the whole is 70 frames of 1,000 bytes.
    let (classes, labels) = valves(20_000_000);
    for mut tree in trees() {
        let image = Image {
            classes: classes.clone(),
            labels: labels.clone(),
            ..one_class(Class::default())
        };
        tree.install(image, &[1, 2, 3]).unwrap();
        let mut host = Stepped::new(1, &classes).labelled(&labels);
        let (began, times) = (Instant::now(), 300);
        let elapsed = || began.elapsed().as_nanos() as u64;
        let (mut expected, mut waited) = (0, 0);
        for _ in 0..40 {
            let from = elapsed();
            let (_, each, _) = run(&tree, &frame(53, 0, 1000), times);
            let each = u64::from(each);
            // It may have waited for its core between any two frames.
            waited += (elapsed() - from).saturating_sub(each * u64::from(times));
            let at = |number: u64| Nanos(1_000_000_000 + from + number * each);
            let answers = (0..u64::from(times)).map(|number| host.meter(at(number), 0, 1, 1000).0);
            expected += answers.filter(|answer| *answer == Answer::Send).count() as u64;
            std::thread::sleep(Duration::from_millis(2));
        }
        let counters = tree.class_counters(1).unwrap();
        let passed = counters.own_packets + counters.borrowed_packets;
        // An epoch's worth of the whole may be on one side, and so may be those in which it waited.
        let apart = 140 + waited * 70 / (3 * MS);
        assert!(passed.abs_diff(expected) <= apart && expected > 400, "{passed}, {expected}");
        // A quarter of the rate is its own, and so is what nobody else wants, on loan.
        assert!(counters.borrowed_packets > counters.own_packets, "{counters:?}");
        assert!(counters.limit_drops > 1000, "{counters:?}");
        // Another tree has nothing of it.
        tree.install(Image::default(), &[]).unwrap();
        assert_eq!(run(&tree, &frame(53, 0, 1000), 10).0, REDIRECT);
    }
}

#[test]
fn a_merged_packet_counts_as_the_frames_that_it_stands_for() {
    let Some(tree) = trees().find(|tree| tree.entry() == Entry::Tcx) else { return };
    let mut sent = Totals::default();
    // Headers of 42 bytes, and 2000 of payload.
    let udp = frame(53, 0, 2042);
    let mut tcp = frame(53, 0, 2054);
    // TCP with a header of five words.
    (tcp[23], tcp[46]) = (6, 0x50);
    let mut six = vec![4; 12];
    six.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 17, 64]);
    six.resize(2062, 0);
    let mut tagged = udp.clone();
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    for (frame, headers) in [(&udp, 42), (&tcp, 54), (&six, 62), (&tagged, 46)] {
        // A guest, for one, says the length of the segments and not how many there are.
        for said in [3, 0] {
            let verdict = run_merged(tree.program(), frame, 900, said).unwrap();
            assert_eq!(as_xdp(tree.entry(), verdict), REDIRECT);
            sent.sent_packets += 3;
            sent.sent_bytes += 3 * headers + 2000;
            assert_eq!(tree.totals().unwrap(), sent, "{headers}, {said}");
        }
    }
    assert_eq!(tree.class_counters(0).unwrap().own_packets, sent.sent_packets);
    // What is no frame of a protocol that is split stays what it is.
    let mut other = vec![4; 1000];
    other[12..14].copy_from_slice(&[8, 6]);
    run_merged(tree.program(), &other, 900, 1).unwrap();
    sent.sent_packets += 1;
    sent.sent_bytes += 1000;
    assert_eq!(tree.totals().unwrap(), sent);
}

#[test]
fn a_class_charges_overhead_for_each_frame_of_a_merged_packet() {
    let Some(mut tree) = trees().find(|tree| tree.entry() == Entry::Tcx) else { return };
    // A thousand bytes a second: no credit comes back during the test. Three of 742 bytes with
    // 258 more for each take all that there is, and more.
    let slow = Class {
        burst: 2900 * MS,
        limit: 0,
        target: 1 << 60,
        per_frame: 258,
        batch: 0,
        ..class(1000)
    };
    tree.install(one_class(slow), &[1]).unwrap();
    let udp = frame(53, 0, 2142);
    let verdicts =
        [0; 2].map(|_| as_xdp(tree.entry(), run_merged(tree.program(), &udp, 700, 3).unwrap()));
    assert_eq!(verdicts, [REDIRECT, DROP]);
    let totals = tree.totals().unwrap();
    assert_eq!((totals.sent_packets, totals.limit_drops), (3, 3));
    assert_eq!((totals.sent_bytes, totals.dropped_bytes), (3 * 742, 3 * 742));
    assert_eq!(tree.class_counters(1).unwrap().limit_drops, 3);
}

#[test]
fn a_link_that_divides_frames_is_charged_for_what_it_carries() {
    use narrows_units::Bytes;
    use narrows_units::wire::{self, Overhead};
    for (framing, link) in [
        (layout::Framing::Whole, wire::Framing::Whole),
        (layout::Framing::Atm, wire::Framing::Atm),
        (layout::Framing::Ptm, wire::Framing::Ptm),
    ] {
        for mut tree in trees() {
            for (bytes, per_frame, minimum) in
                [(60, 0, 0), (96, 0, 0), (97, 10, 64), (200, -14, 300)]
            {
                let of_link = Overhead { per_frame, minimum: minimum.into(), framing: link };
                let cost = of_link.cost(Bytes(bytes)).0;
                // A thousand bytes a second: next to no credit comes back. There is enough for 200
                // frames, less a few bytes: the last one may still leave.
                let class = Class {
                    burst: (200 * cost - 9) * MS,
                    limit: 0,
                    target: 1 << 60,
                    batch: 0,
                    per_frame,
                    minimum,
                    framing,
                    ..class(1000)
                };
                tree.install(Image::default(), &[]).unwrap();
                tree.install(one_class(class), &[1]).unwrap();
                let sent = || tree.class_counters(1).unwrap().own_packets;
                run(&tree, &frame(53, 0, bytes as usize), 300);
                assert_eq!(sent(), 200, "{bytes} bytes, {framing:?}");
            }
        }
    }
}

/// Descriptors of the maps of `tree`, as another process gets them.
fn maps(tree: &Tree) -> Vec<OwnedFd> {
    tree.maps().iter().map(|map| map.try_clone_to_owned().unwrap()).collect()
}

#[test]
fn a_program_that_inherits_goes_on_with_plan_credit_and_counters() {
    for mut old in trees() {
        let hook = match old.entry() {
            Entry::Tcx => Hook::Tcx,
            _ => Hook::Xdp(XdpMode::Native),
        };
        // Two packets at once, and then one in ten seconds: longer than this test takes.
        let slow = Class { burst: 0, limit: 10_000 * MS, target: 90_000 * MS, ..class(100) };
        old.install(one_class(slow), &[1]).unwrap();
        assert_eq!(run(&old, &frame(53, 0, 1000), 10).0, DROP);
        let before = (old.class_counters(1).unwrap(), old.totals().unwrap());
        assert!(before.1.sent_packets < 10 && before.1.limit_drops > 0, "{before:?}");

        let mut new = Tree::inherit(OWN, false, Entry::Own, hook, &maps(&old)).unwrap();
        assert_eq!((new.class_counters(1).unwrap(), new.totals().unwrap()), before);
        new.connect(OTHER).unwrap();
        // The credit is spent.
        assert_eq!(run(&new, &frame(53, 0, 1000), 1).0, DROP);
        // While it prepares, the other one may install plans.
        old.install(one_class(Class { rate: 200, ..slow }), &[]).unwrap();
        old.install(one_class(slow), &[]).unwrap();
        old.install(one_class(Class { rate: 300, ..slow }), &[]).unwrap();
        new.resume().unwrap();
        assert_eq!(new.in_force, old.in_force);
        drop(old);
        new.install(one_class(class(1_000_000_000)), &[]).unwrap();
        let totals = new.totals().unwrap();
        assert_eq!(totals.limit_drops + totals.aqm_drops, before.1.limit_drops + 1);
        assert_eq!(Totals::of(totals.words()), totals);
        // Of what this class had borrowed from the future nothing is forgotten.
        assert_eq!(run(&new, &frame(53, 0, 1000), 1).0, DROP);
    }
}

#[test]
fn maps_of_another_layout_are_refused() {
    let Some(tree) = tree() else { return };
    let mut others = maps(&tree);
    others.swap(2, 5);
    let hook = Hook::Xdp(XdpMode::Native);
    let refused = Tree::inherit(OWN, false, Entry::Own, hook, &others).err().unwrap();
    assert!(matches!(refused, TreeError::Inherited("classes")), "{refused}");
}
