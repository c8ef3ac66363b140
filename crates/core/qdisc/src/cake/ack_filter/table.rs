//! The rules one by one: each obeyed, and each broken once.

use super::*;

const FIN: u16 = 0x01;
const PSH: u16 = 0x08;
const URG: u16 = 0x20;

fn ack(number: u32) -> Acknowledgement {
    Acknowledgement {
        connection: 1,
        number,
        flags: ACK,
        is_empty: true,
        has_plain_options: true,
        ..Acknowledgement::default()
    }
}

fn sack(number: u32, list: &[(u32, u32)]) -> Acknowledgement {
    let mut blocks = [(0, 0); 4];
    blocks[..list.len()].copy_from_slice(list);
    Acknowledgement { block_count: list.len() as u8, blocks, ..ack(number) }
}

/// With more flags than the acknowledgement's.
fn flagged(number: u32, flags: u16) -> Acknowledgement {
    Acknowledgement { flags: ACK | flags, ..ack(number) }
}

fn other(number: u32) -> Acknowledgement {
    Acknowledgement { connection: 2, ..ack(number) }
}

fn data(number: u32) -> Acknowledgement {
    Acknowledgement { is_empty: false, ..ack(number) }
}

fn stamped(number: u32, value: u32, echo: u32) -> Acknowledgement {
    Acknowledgement { time_stamp: Some((value, echo)), ..ack(number) }
}

const NOT_TCP: Acknowledgement = Acknowledgement {
    connection: 0,
    number: 0,
    flags: ACK,
    is_empty: true,
    has_plain_options: true,
    time_stamp: None,
    block_count: 0,
    blocks: [(0, 0); 4],
};

/// The packet that each filter drops.
struct Case {
    queued: Vec<Acknowledgement>,
    newest: Acknowledgement,
    normal: Option<usize>,
    aggressive: Option<usize>,
}

/// Both filters do the same.
fn both(queued: &[Acknowledgement], newest: Acknowledgement, dropped: Option<usize>) -> Case {
    Case { queued: queued.to_vec(), newest, normal: dropped, aggressive: dropped }
}

/// Only the aggressive filter drops something: the last one, which has no neighbour.
fn single(queued: &[Acknowledgement], newest: Acknowledgement) -> Case {
    let aggressive = Some(queued.len() - 1);
    Case { queued: queued.to_vec(), newest, normal: None, aggressive }
}

fn check(cases: &[(&str, Case)]) {
    for (what, case) in cases {
        let dropped = |aggressive| superfluous(case.queued.clone(), &case.newest, aggressive);
        assert_eq!(dropped(false), case.normal, "normal, {what}");
        assert_eq!(dropped(true), case.aggressive, "aggressive, {what}");
    }
}

#[test]
fn a_run_keeps_two_and_with_aggressive_one() {
    check(&[
        ("an empty queue", both(&[], ack(100), None)),
        ("one before", single(&[ack(100)], ack(200))),
        ("two before", both(&[ack(100), ack(200)], ack(300), Some(0))),
        ("many before", both(&[ack(100), ack(200), ack(300), ack(400)], ack(500), Some(0))),
        ("data in between", both(&[ack(100), data(150), ack(200)], ack(300), Some(0))),
        ("data in front", both(&[data(50), ack(100), ack(200)], ack(300), Some(1))),
        ("one, not in front", both(&[ack(100), data(150)], ack(200), None)),
    ]);
    for (aggressive, left) in [(false, 2), (true, 1)] {
        let mut queue = Vec::new();
        for number in 1..=100 {
            if let Some(position) = superfluous(queue.clone(), &ack(number), aggressive) {
                queue.remove(position);
            }
            queue.push(ack(number));
        }
        assert_eq!(queue.len(), left);
        assert_eq!(queue.last(), Some(&ack(100)));
    }
}

#[test]
fn only_acknowledgements_of_the_same_connection_are_dropped() {
    check(&[
        ("another connection", both(&[other(100), other(200)], ack(300), None)),
        (
            "interleaved",
            both(&[other(100), ack(100), other(200), ack(200), other(300)], ack(300), Some(1)),
        ),
        ("another's in front", both(&[ack(100), other(100)], ack(200), None)),
        ("not TCP in between", both(&[ack(100), NOT_TCP, ack(200)], ack(300), Some(0))),
        (
            "nothing is TCP",
            both(&[NOT_TCP, NOT_TCP], Acknowledgement { number: 9, ..NOT_TCP }, None),
        ),
    ]);
}

#[test]
fn the_newest_may_be_more_than_an_acknowledgement_but_not_less() {
    let newest = |flags| flagged(300, flags);
    let queued = [ack(100), ack(200)];
    let no_ack = Acknowledgement { flags: PSH, ..data(300) };
    let odd = Acknowledgement { has_plain_options: false, ..ack(300) };
    check(&[
        ("data", both(&queued, data(300), Some(0))),
        ("pushed data", both(&queued, Acknowledgement { flags: ACK | PSH, ..data(300) }, Some(0))),
        ("FIN", both(&queued, newest(FIN), Some(0))),
        ("other options", both(&queued, odd, Some(0))),
        ("SYN", both(&queued, newest(SYN), None)),
        ("RST", both(&queued, newest(RST), None)),
        ("no ACK", both(&queued, no_ack, None)),
    ]);
}

#[test]
fn only_pure_acknowledgements_are_dropped() {
    for flag in [FIN, SYN, RST, PSH, URG, 0x100, 0x200, 0x400, 0x800] {
        let queued = [flagged(100, flag), flagged(200, flag)];
        check(&[("a flag", both(&queued, flagged(300, flag & !(SYN | RST)), None))]);
    }
    let no_ack = Acknowledgement { flags: 0, ..ack(100) };
    let odd = Acknowledgement { has_plain_options: false, ..ack(100) };
    check(&[
        ("FIN", single(&[flagged(100, FIN), ack(200)], ack(300))),
        ("data", single(&[data(100), ack(200)], ack(300))),
        ("other options", single(&[odd, ack(200)], ack(300))),
        ("no ACK", single(&[no_ack, ack(200)], ack(300))),
        ("only data", both(&[data(100), data(200)], ack(300), None)),
    ]);
}

#[test]
fn numbers_are_compared_around_the_circle() {
    const LAST: u32 = u32::MAX;
    check(&[
        ("wrapped", both(&[ack(LAST - 10), ack(LAST)], ack(5), Some(0))),
        ("one wrapped", both(&[ack(LAST), ack(0)], ack(1), Some(0))),
        ("overtaken", both(&[ack(400), ack(500)], ack(300), None)),
        ("overtaken around", both(&[ack(5), ack(6)], ack(LAST), None)),
        ("one overtaken", single(&[ack(400), ack(200)], ack(300))),
        ("half the circle", both(&[ack(0), ack(0)], ack(1 << 31), None)),
        ("less than half", both(&[ack(1), ack(1)], ack(1 << 31), Some(0))),
        (
            "ranges that wrap",
            both(
                &[sack(LAST - 20, &[(LAST - 9, 5)]), sack(LAST - 20, &[(LAST - 9, 10)])],
                sack(LAST - 20, &[(LAST - 9, 20)]),
                Some(0),
            ),
        ),
    ]);
}

#[test]
fn repetitions_and_updates_of_the_window_stay() {
    check(&[
        ("an update of the window", both(&[ack(100)], ack(100), None)),
        ("three repetitions", both(&[ack(100), ack(100), ack(100)], ack(100), None)),
        ("data repeats it", both(&[ack(100), ack(100)], data(100), None)),
        ("one old, then repetitions", both(&[ack(50), ack(100), ack(100)], ack(100), None)),
        ("repetitions of what is past", both(&[ack(100), ack(100)], ack(200), Some(0))),
        (
            "repetitions with ranges",
            both(&[sack(100, &[(200, 300)]); 3], sack(100, &[(200, 300)]), None),
        ),
    ]);
}

#[test]
fn selective_acknowledgements_must_be_kept() {
    let twice = |packet: Acknowledgement| [packet, packet];
    let many = sack(100, &[(400, 500), (200, 300)]);
    check(&[
        (
            "a range that grows",
            both(
                &[sack(100, &[(200, 300)]), sack(100, &[(200, 400)])],
                sack(100, &[(200, 500)]),
                Some(0),
            ),
        ),
        ("the first range", both(&twice(ack(100)), sack(100, &[(200, 300)]), Some(0))),
        ("a hole is filled", both(&twice(sack(100, &[(200, 300)])), ack(300), Some(0))),
        ("all but the last byte", both(&twice(sack(100, &[(200, 300)])), ack(299), None)),
        ("a range is forgotten", both(&twice(sack(100, &[(200, 300)])), ack(150), None)),
        (
            "a range that shrinks",
            both(&twice(sack(100, &[(200, 500)])), sack(150, &[(200, 400)]), None),
        ),
        (
            "less of the same",
            both(&twice(sack(100, &[(200, 500)])), sack(100, &[(200, 400)]), None),
        ),
        ("another range", both(&twice(sack(100, &[(200, 300)])), sack(100, &[(400, 500)]), None)),
        (
            "one more range",
            both(&twice(many), sack(100, &[(600, 700), (400, 500), (200, 300)]), Some(0)),
        ),
        ("of two ranges one", both(&twice(many), sack(150, &[(600, 700), (400, 500)]), None)),
        ("one by number, one by range", both(&twice(many), sack(300, &[(400, 500)]), Some(0))),
        ("two ranges in one", both(&twice(many), sack(100, &[(200, 500)]), Some(0))),
        (
            "one range in two",
            both(&twice(sack(100, &[(200, 400)])), sack(150, &[(300, 400), (200, 300)]), Some(0)),
        ),
        (
            "one range in two with a hole",
            both(&twice(sack(100, &[(200, 400)])), sack(150, &[(301, 400), (200, 300)]), None),
        ),
        (
            "a range whose beginning is within the number",
            both(&twice(sack(100, &[(200, 400)])), sack(300, &[(350, 500)]), None),
        ),
        (
            "as much, split otherwise",
            both(&twice(sack(100, &[(200, 400)])), sack(100, &[(300, 400), (200, 300)]), None),
        ),
    ]);
}

#[test]
fn reports_of_duplicates_stay() {
    let below = sack(500, &[(100, 200)]);
    let below_and_beyond = sack(500, &[(100, 200), (600, 700)]);
    let within = sack(100, &[(220, 250), (200, 300)]);
    let whole = sack(100, &[(200, 300), (200, 300)]);
    for duplicate in [below, below_and_beyond, within, whole] {
        check(&[("a duplicate", both(&[duplicate; 2], ack(800), None))]);
    }
    check(&[
        ("only the newest reports one", both(&[ack(100), ack(100)], sack(100, &[(50, 60)]), None)),
        ("the newest does, and more", both(&[ack(100), ack(200)], sack(300, &[(50, 60)]), Some(0))),
        (
            "its range is the only one to hold another",
            both(&[sack(100, &[(200, 300)]); 2], sack(150, &[(250, 260), (200, 300)]), Some(0)),
        ),
    ]);
}

#[test]
fn malformed_ranges_stay_and_hold_nothing() {
    check(&[
        ("backwards", both(&[sack(100, &[(300, 200)]); 2], ack(800), None)),
        ("empty", both(&[sack(100, &[(200, 200)]); 2], ack(800), None)),
        ("at the number", both(&[sack(100, &[(100, 200)]); 2], ack(800), None)),
        (
            "a newest backwards",
            both(&[sack(100, &[(200, 300)]); 2], sack(150, &[(300, 200)]), None),
        ),
        (
            "around the circle",
            both(
                &[sack(0, &[(1, 0x7fff_ffff)]); 2],
                sack(
                    0,
                    &[
                        (0, 0x4000_0000),
                        (0x4000_0000, 0x7000_0000),
                        (0x7000_0000, 0xb000_0000),
                        (0xb000_0000, 0),
                    ],
                ),
                Some(0),
            ),
        ),
        (
            "more than there is room for",
            both(&[Acknowledgement { block_count: 255, ..ack(100) }; 2], ack(200), None),
        ),
    ]);
}

#[test]
fn changes_of_congestion_signals_are_seen() {
    for signal in [ECE, CWR, ECE | CWR] {
        let on = |number| flagged(number, signal);
        check(&[
            ("on", both(&[ack(100), on(200)], ack(300), None)),
            ("off", single(&[on(100), ack(200)], ack(300))),
            ("on throughout", both(&[on(100), on(200)], on(300), Some(0))),
            ("until the newest", both(&[on(100), on(200)], ack(300), Some(0))),
            ("twice after a change", both(&[ack(100), on(200), on(300)], ack(400), Some(1))),
            ("on and off again", single(&[ack(100), on(200), ack(300)], ack(400))),
            ("one, the same", single(&[on(100)], on(200))),
            ("one, and off", both(&[on(100)], ack(200), None)),
            ("one, and on", both(&[ack(100)], on(200), None)),
            (
                "on with data in between",
                single(
                    &[ack(100), Acknowledgement { is_empty: false, ..on(150) }, ack(200)],
                    ack(300),
                ),
            ),
        ]);
    }
    check(&[
        ("from one to the other", both(&[flagged(100, ECE), flagged(200, CWR)], ack(300), None)),
        ("the bit beside, on", both(&[ack(100)], flagged(200, 0x100), None)),
    ]);
}

#[test]
fn time_stamps_do_not_go_back() {
    const LAST: u32 = u32::MAX;
    let queued = [stamped(100, 10, 5), stamped(200, 11, 6)];
    check(&[
        ("newer", both(&queued, stamped(300, 12, 7), Some(0))),
        ("the same", both(&queued, stamped(300, 11, 6), Some(0))),
        ("the first is older", both(&queued, stamped(300, 10, 5), None)),
        ("an older value", both(&queued, stamped(300, 9, 7), None)),
        ("an older echo", both(&queued, stamped(300, 12, 4), None)),
        ("wrapped", both(&[stamped(100, LAST, LAST); 2], stamped(300, 3, 2), Some(0))),
        ("only the newest has none", both(&queued, ack(300), None)),
        ("only the newest has one", both(&[ack(100), ack(200)], stamped(300, 12, 7), None)),
    ]);
}

#[test]
fn no_more_of_the_queue_is_looked_at_than_decides() {
    let untouched = std::iter::once_with(|| -> Acknowledgement { panic!("looked too far") });
    let queued = [ack(100), ack(200)].into_iter().chain(untouched.clone());
    assert_eq!(superfluous(queued, &ack(300), false), Some(0));
    assert_eq!(superfluous(untouched, &flagged(300, SYN), true), None);
}
