//! A TCP connection, simulated, whose round trips and losses are known: what two queues learn of
//! it.
//!
//! Data leaves through a port on one queue, and its acknowledgements arrive there on another. The
//! sender's clock ticks in milliseconds, as in Linux; the receiver acknowledges every second
//! segment, or one that is out of order, or after a delay.

use narrows_roundtrip::{Awaited, Observer};
use narrows_units::Nanos;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

const WINDOW: Nanos = Nanos::from_secs(3);
const BEGIN: Nanos = Nanos::from_secs(3000);
const KEY: u64 = 77;
/// The sender of data.
const CLASS: u32 = 0x10;
const LEN: u32 = 1000;
/// Shortly before numbers wrap.
const FIRST: u32 = u32::MAX - 20_500;
/// How long the receiver keeps an acknowledgement back.
const KEPT_BACK: Nanos = Nanos::from_millis(40);
const SENDER: [u8; 4] = [10, 0, 0, 1];
const RECEIVER: [u8; 4] = [10, 9, 0, 2];

/// The contents of a frame, without its addresses.
#[derive(Clone, Copy)]
struct Segment {
    is_back: bool,
    first: u32,
    len: u16,
    acknowledged: u32,
    stamps: Option<(u32, u32)>,
}

fn frame(segment: Segment) -> Vec<u8> {
    let Segment { is_back, first, len, acknowledged, stamps } = segment;
    let options = if stamps.is_some() { 12 } else { 0 };
    let mut frame = vec![0; 14 + 20 + 20 + options];
    frame[12..15].copy_from_slice(&[8, 0, 0x45]);
    frame[16..18].copy_from_slice(&(40 + options as u16 + len).to_be_bytes());
    frame[23] = 6;
    let ends = [(SENDER, 5001_u16), (RECEIVER, 80)];
    let [from, to] = if is_back { [1, 0] } else { [0, 1] };
    frame[26..30].copy_from_slice(&ends[from].0);
    frame[30..34].copy_from_slice(&ends[to].0);
    frame[34..36].copy_from_slice(&ends[from].1.to_be_bytes());
    frame[36..38].copy_from_slice(&ends[to].1.to_be_bytes());
    frame[38..42].copy_from_slice(&first.to_be_bytes());
    frame[42..46].copy_from_slice(&acknowledged.to_be_bytes());
    frame[46..48].copy_from_slice(&[((20 + options) * 4) as u8, 0x10]);
    if let Some((value, echo)) = stamps {
        frame[54..58].copy_from_slice(&[1, 1, 8, 10]);
        frame[58..62].copy_from_slice(&value.to_be_bytes());
        frame[62..66].copy_from_slice(&echo.to_be_bytes());
    }
    frame
}

#[derive(Clone, Copy)]
enum Event {
    /// A segment leaves through the port, the `again`th time.
    Leaves { number: u32, again: u8 },
    /// It reaches the receiver.
    Arrives { number: u32, value: u32 },
    /// The receiver acknowledges, if it still has something to.
    KeptLongEnough { at: Nanos },
    /// An acknowledgement comes in at the port.
    Comes { acknowledged: u32, echo: u32 },
}

/// The simulated connection.
#[derive(Clone, Debug)]
struct Setting {
    /// Beyond the port, there and back.
    trip: Nanos,
    /// Between segments.
    gap: Nanos,
    segments: u32,
    has_stamps: bool,
    /// Segments that are lost beyond the port, the first time.
    lost: BTreeSet<u32>,
}

/// The measurements.
struct Learned {
    trips: Vec<Nanos>,
    /// The queue that sends.
    sender: Observer,
    receiver: Observer,
    end: Nanos,
}

fn simulate(setting: &Setting) -> Learned {
    let Setting { trip, gap, segments, has_stamps, lost } = setting;
    let board = Awaited::new();
    let mut sender = Observer::new(Arc::clone(&board), KEY, WINDOW);
    let mut receiver = Observer::new(board, KEY, WINDOW);
    let mut events: BTreeMap<(Nanos, u64), Event> = BTreeMap::new();
    let mut order = 0;
    let mut add = |events: &mut BTreeMap<_, _>, at: Nanos, event| {
        order += 1;
        events.insert((at, order), event);
    };
    let half = Nanos(trip.0 / 2);
    for number in 0..*segments {
        let at = BEGIN + Nanos(gap.0 * u64::from(number));
        add(&mut events, at, Event::Leaves { number, again: 0 });
        if lost.contains(&number) {
            let later = at + *trip + Nanos::from_millis(50);
            add(&mut events, later, Event::Leaves { number, again: 1 });
        }
    }
    let mut trips = Vec::new();
    let (mut expected, mut acknowledged, mut recent): (u32, u32, u32) = Default::default();
    let mut has: BTreeSet<u32> = BTreeSet::new();
    let mut unacknowledged: Option<Nanos> = None;
    let mut now = BEGIN;
    while let Some(((at, _), event)) = events.pop_first() {
        now = at;
        let mut acknowledges = false;
        match event {
            Event::Leaves { number, again } => {
                let value = (now.0 / 1_000_000) as u32;
                let segment = Segment {
                    is_back: false,
                    first: FIRST.wrapping_add(number * LEN),
                    len: LEN as u16,
                    acknowledged: 1,
                    stamps: has_stamps.then_some((value, 0)),
                };
                let stretch = sender.stretch(now).unwrap();
                sender.leaves(&frame(segment), CLASS, stretch, now);
                if again > 0 || !lost.contains(&number) {
                    add(&mut events, now + half, Event::Arrives { number, value });
                }
            }
            Event::Arrives { number, value } => {
                let is_in_order = number == expected;
                // RFC 7323, 4.3: the time stamp of the first of several segments acknowledged
                // together.
                if number <= acknowledged {
                    recent = value;
                }
                has.insert(number);
                while has.remove(&expected) {
                    expected += 1;
                }
                acknowledges = !is_in_order || !has.is_empty() || unacknowledged.is_some();
                if !acknowledges {
                    unacknowledged = Some(now);
                    add(&mut events, now + KEPT_BACK, Event::KeptLongEnough { at: now });
                }
            }
            Event::KeptLongEnough { at } => acknowledges = unacknowledged == Some(at),
            Event::Comes { acknowledged, echo } => {
                let segment = Segment {
                    is_back: true,
                    first: 1,
                    len: 0,
                    acknowledged: FIRST.wrapping_add(acknowledged * LEN),
                    stamps: has_stamps.then_some((9, echo)),
                };
                trips.extend(receiver.comes(&frame(segment), now));
            }
        }
        if acknowledges {
            unacknowledged = None;
            acknowledged = expected;
            let answer = Event::Comes { acknowledged: expected, echo: recent };
            add(&mut events, now + half, answer);
        }
    }
    Learned { trips, sender, receiver, end: now }
}

fn settings() -> impl Strategy<Value = Setting> {
    let lost = prop::collection::btree_set(2..300_u32, 0..8);
    (1_000..300_000_u64, 50..5_000_u64, any::<bool>(), prop_oneof![Just(BTreeSet::new()), lost])
        .prop_map(|(trip, gap, has_stamps, lost)| Setting {
            trip: Nanos::from_micros(trip),
            gap: Nanos::from_micros(gap),
            segments: 400,
            has_stamps,
            lost,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn round_trips_are_never_too_short_and_the_shortest_is_that_of_the_path(setting in settings()) {
        let Learned { trips, receiver, end, .. } = simulate(&setting);
        // A board's clock ticks in 1.024 us.
        let least = setting.trip - Nanos::from_micros(3);
        prop_assert!(trips.iter().all(|trip| *trip >= least), "{trips:?} of {:?}", setting.trip);
        let Some(&shortest) = trips.iter().min() else {
            prop_assert!(!setting.lost.is_empty(), "nothing was in the way");
            return Ok(());
        };
        if !setting.lost.is_empty() {
            return Ok(());
        }
        // Until a second one arrives, or the receiver's delay ends.
        let most = setting.trip + setting.gap.min(KEPT_BACK) + Nanos::from_micros(3);
        prop_assert!(shortest <= most, "{shortest:?} of {:?}", setting.trip);
        let hosts = receiver.hosts(end + WINDOW);
        if let Some(host) = hosts.iter().find(|host| host.address == IpAddr::from(RECEIVER)) {
            prop_assert!(host.trips.shortest >= least && host.trips.shortest <= most.max(shortest));
            let classes = receiver.classes(end + WINDOW);
            prop_assert_eq!(classes.len(), 1);
            prop_assert_eq!(classes[0].id, CLASS);
            prop_assert_eq!(&classes[0].trips, &host.trips, "the host has nothing from elsewhere");
        }
    }

    /// All of the connection is seen, so losses are known exactly.
    #[test]
    fn losses_beyond_the_port_are_counted(setting in settings()) {
        let Learned { sender, end, .. } = simulate(&setting);
        let losses = sender.losses();
        prop_assert_eq!(losses.beyond, setting.lost.len() as u64);
        prop_assert_eq!(losses.before, 0);
        if end.0 / WINDOW.0 == BEGIN.0 / WINDOW.0 {
            let classes = sender.classes(end + WINDOW);
            prop_assert_eq!(classes.iter().map(|class| class.losses).collect::<Vec<_>>(), [losses]);
        }
    }

    #[test]
    fn no_bytes_panic(
        frames in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..90)), 0..50),
    ) {
        let mut observer = Observer::new(Awaited::new(), KEY, WINDOW);
        let mut now = BEGIN;
        for (comes, mut bytes) in frames {
            // Some of them look like TCP.
            if bytes.len() > 60 && bytes[0] & 1 == 0 {
                bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
                bytes[16..24].copy_from_slice(&[5, 220, 0, 0, 0, 0, 64, 6]);
                bytes[26..38].fill(1);
            }
            now += Nanos::from_micros(100);
            if comes {
                let _ = observer.comes(&bytes, now);
            } else if let Some(stretch) = observer.stretch(now) {
                observer.leaves(&bytes, CLASS, stretch, now);
            }
        }
    }
}

/// Without a time stamp, what acknowledges a segment that was sent twice may be for either.
#[test]
fn a_retransmission_is_not_timed() {
    let setting = Setting {
        trip: Nanos::from_millis(40),
        gap: Nanos::from_millis(1),
        segments: 60,
        has_stamps: false,
        lost: (1..60).collect(),
    };
    let Learned { trips, sender, .. } = simulate(&setting);
    assert!(trips.is_empty(), "{trips:?}");
    assert_eq!(sender.losses().beyond, 59);
}

/// QUIC, whose client turns the spin bit when the server's has come back to it.
#[test]
fn a_spin_bit_gives_the_round_trip_of_each_side() {
    let [near, far] = [Nanos::from_millis(8), Nanos::from_millis(30)];
    let boards = [Awaited::new(), Awaited::new()];
    let mut queues = [(); 2]
        .map(|()| boards.each_ref().map(|board| Observer::new(Arc::clone(board), KEY, WINDOW)));
    let quic = |is_servers: bool, spin: bool| {
        let mut bytes =
            frame(Segment { is_back: is_servers, first: 0, len: 0, acknowledged: 0, stamps: None });
        bytes[23] = 17;
        let port = if is_servers { 34..36 } else { 36..38 };
        bytes[port].copy_from_slice(&443_u16.to_be_bytes());
        bytes[42] = 0x40 | if spin { 0x20 } else { 0 };
        bytes
    };
    let step = Nanos::from_millis(1);
    // The segments that each end has received, and when: the client is on A's side, the server on
    // B's.
    let ticks = |time: Nanos| (time.0 / step.0) as usize;
    let (half_near, half_far) = (ticks(near) / 2, ticks(far) / 2);
    let (mut clients, mut servers) = (vec![], vec![]);
    let mut trips = [vec![], vec![]];
    for tick in 0_usize..2_000 {
        let now = BEGIN + Nanos(step.0 * tick as u64);
        let at = |bits: &[bool], ago: usize| tick.checked_sub(ago).map(|then| bits[then]);
        // The client sends the opposite of what it sees, the server the same.
        let seen = at(&servers, half_near + half_far);
        clients.push(!seen.unwrap_or(true));
        let seen = at(&clients, half_near + half_far);
        servers.push(seen.unwrap_or(false));
        if let Some(spin) = at(&clients, half_near) {
            trips[0].extend(queues[0][0].comes(&quic(false, spin), now));
            let stretch = queues[0][1].stretch(now).unwrap();
            queues[0][1].leaves(&quic(false, spin), CLASS, stretch, now);
        }
        if let Some(spin) = at(&servers, half_far) {
            trips[1].extend(queues[1][1].comes(&quic(true, spin), now));
            let stretch = queues[1][0].stretch(now).unwrap();
            queues[1][0].leaves(&quic(true, spin), CLASS, stretch, now);
        }
    }
    for (found, trip) in trips.iter().zip([near, far]) {
        assert!(found.len() > 10, "{found:?}");
        assert!(found.iter().all(|found| found.0.abs_diff(trip.0) <= 2 * step.0), "{found:?}");
    }
}
