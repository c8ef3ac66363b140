//! The steering program, run by the kernel on frames that never were on a wire.

use super::*;
use crate::front::{Does, FrontMaps, FrontPort, Step, Term, Then};
use crate::heartbeat::Heart;
use crate::test_run::test_run;
use crate::vlans::tests::{frame, tag};
use libbpf_rs::libbpf_sys;
use narrows_forwarding::TagProtocol;
use rustix::time::{ClockId, clock_gettime};
use std::net::IpAddr;

const AFTER: Nanos = Nanos::from_millis(500);
/// `XDP_DROP` and `XDP_PASS`.
const DROP: u32 = 1;
const PASS: u32 = 2;
const OWN: [u8; 6] = [2, 0, 0, 0, 0, 9];

fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// A program whose worker's heart is the second; `None`, and a line with the reason, if none can be
/// loaded here.
fn steer(stalled: Stalled) -> Option<(Steer, Heart)> {
    let load = || {
        let heartbeats = Heartbeats::new()?;
        let heart = heartbeats.heart(0, now()).expect("queue 0 can be served");
        let steer =
            Steer::load(OWN, false, 1, Watchdog { heartbeats, after: AFTER, stalled }, Entry::Own)?;
        Ok::<_, SteerError>((steer, heart))
    };
    load().map_err(|error| eprintln!("SKIPPED: {error}")).ok()
}

/// The verdict on `times` frames to `to` that arrive on queue 0, and the time of one, in ns.
fn run(steer: &Steer, to: [u8; 6], times: i32) -> (u32, u32) {
    let mut frame = [0; 64];
    frame[..6].copy_from_slice(&to);
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        repeat: times,
        ..Default::default()
    };
    let program = steer.plain.as_raw_fd();
    // SAFETY: `program` is an open descriptor, `frame` outlives the call, which only reads it, and
    // `options` says its own size.
    let outcome = unsafe { libbpf_sys::bpf_prog_test_run_opts(program, &mut options) };
    assert_eq!(outcome, 0, "the kernel does not run it");
    (options.retval, options.duration)
}

#[test]
fn a_frame_goes_past_a_worker_that_is_silent_and_to_one_that_is_not() {
    for (stalled, action) in [(Stalled::Pass, PASS), (Stalled::Drop, DROP)] {
        let Some((steer, mut heart)) = steer(stalled) else { return };
        let other = [2; 6];
        // There is no socket, so frames for the worker count as unserved.
        assert_eq!(run(&steer, other, 1).0, PASS);
        heart.beat(now() - AFTER - Nanos::from_millis(50));
        assert_eq!(run(&steer, other, 3).0, action);
        // Frames for this box are not affected.
        assert_eq!(run(&steer, OWN, 1).0, PASS);
        // Just within the bound, at once, and before the next tick of the kernel.
        for beat in [now() - AFTER + Nanos::from_millis(400), now(), now() + AFTER] {
            heart.beat(beat);
            run(&steer, other, 1);
        }
        let expected = Verdicts { to_worker: 0, to_self: 1, unserved: 4, stalled: 3, others: 0 };
        assert_eq!(steer.verdicts().unwrap(), expected);
    }
}

#[test]
fn where_the_box_has_no_address_frames_to_the_port_s_go_as_all_others_and_never_to_the_box() {
    if steer(Stalled::Pass).is_none() {
        return;
    }
    let heartbeats = Heartbeats::new().unwrap();
    let mut heart = heartbeats.heart(0, now()).unwrap();
    let watchdog = Watchdog { heartbeats, after: AFTER, stalled: Stalled::Pass };
    let own = OwnAddress::of(OWN, false);
    let steer = Steer::load(own, false, 1, watchdog, Entry::Own).unwrap();
    // No socket serves the queue, and then its worker is silent: frames pass to the bridge, but not
    // to the box.
    for beat in [now(), now() - AFTER - Nanos::from_millis(50)] {
        heart.beat(beat);
        assert_eq!(run(&steer, [2; 6], 1).0, PASS);
        assert_eq!(run(&steer, OWN, 1).0, DROP);
    }
    let expected = Verdicts { to_worker: 0, to_self: 0, unserved: 2, stalled: 2, others: 0 };
    assert_eq!(steer.verdicts().unwrap(), expected);
}

/// A question for `target`, broadcast or multicast: ARP for IPv4, else a neighbour solicitation.
fn question(target: IpAddr, vlan: Option<u16>) -> Vec<u8> {
    let tag = vlan.map(|vid| [&[0x81, 0][..], &vid.to_be_bytes()].concat()).unwrap_or_default();
    let rest = match target {
        IpAddr::V4(v4) => {
            let before = [8, 6, 0, 1, 8, 0, 6, 4, 0, 1];
            [&before[..], &[2, 0, 0, 0, 0, 7, 192, 0, 2, 7], &[0; 6], &v4.octets()].concat()
        }
        IpAddr::V6(v6) => {
            let before = [0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, 58, 255];
            [&before[..], &[0; 32], &[135, 0, 0, 0, 0, 0, 0, 0], &v6.octets()].concat()
        }
    };
    let ends = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 7];
    [&ends[..], &tag, &rest].concat()
}

#[test]
fn questions_for_the_box_and_frames_to_its_bridge_go_to_it_and_other_questions_do_not() {
    if steer(Stalled::Pass).is_none() {
        return;
    }
    let ours: [IpAddr; 2] = ["192.0.2.9".parse().unwrap(), "2001:db8::9".parse().unwrap()];
    let others: [IpAddr; 3] = ["192.0.2.8", "0.0.0.0", "2001:db8::8"].map(|ip| ip.parse().unwrap());
    let to_self = |own: OwnAddress, frame: &[u8]| {
        let watchdog = Watchdog {
            heartbeats: Heartbeats::new().unwrap(),
            after: AFTER,
            stalled: Stalled::Pass,
        };
        let steer = Steer::load(own, false, 1, watchdog, Entry::Own).unwrap();
        assert_eq!(test_run(steer.attached(), frame, 1).unwrap().verdict, PASS);
        steer.verdicts().unwrap().to_self == 1
    };
    let own = OwnAddress { bridge_mac: [6; 6], ips: ours.iter().collect(), ..OWN.into() };
    for vlan in [None, Some(5)] {
        assert_eq!(ours.map(|ip| to_self(own, &question(ip, vlan))), [true; 2]);
        assert_eq!(others.map(|ip| to_self(own, &question(ip, vlan))), [false; 3]);
    }
    let mut answer = question(ours[0], None);
    answer[21] = 2;
    assert!(!to_self(own, &answer), "an answer is no question");
    let short = &question(ours[0], None)[..41];
    assert!(!to_self(own, short), "a question that is cut off");
    let mut to_bridge = vec![0; 64];
    to_bridge[..6].copy_from_slice(&[6; 6]);
    assert!(to_self(own, &to_bridge));
    let unaddressed = OwnAddress { is_addressed: false, ..own };
    assert!(!to_self(unaddressed, &question(ours[0], None)));
    assert!(!to_self(unaddressed, &to_bridge));
}

#[test]
fn a_queue_without_a_heart_is_not_watched() {
    let Some((steer, mut heart)) = steer(Stalled::Drop) else { return };
    heart.beat(Nanos::ZERO);
    assert_eq!(run(&steer, [2; 6], 1).0, PASS);
    assert_eq!(steer.verdicts().unwrap().unserved, 1);
}

/// Filters that drop all frames.
fn dropping() -> Front {
    let port = FrontPort { own: OWN.into(), multi_buffer: false, entry: Entry::Own, handed: None };
    let step = Step { does: Does::Decide, then: Then::Drop, exceed: Then::Drop, counter: None };
    let term = Term { steps: vec![step], ..Term::any() };
    Front::load(port, &[term], None, &mut FrontMaps::new().unwrap()).unwrap()
}

/// A program for the VLANs 100, 200 and 300, whose worker is not watched: loading filters may take
/// longer than a worker may be silent.
fn split() -> Option<Steer> {
    let (mut steer, mut heart) = steer(Stalled::Pass)?;
    heart.beat(Nanos::ZERO);
    let tags = [100, 200, 300].map(|vid| tag(TagProtocol::Customer, vid));
    steer.split(&tags).unwrap();
    Some(steer)
}

/// The verdicts on frames of its VLANs.
fn verdicts_by_vlan(steer: &Steer) -> [u32; 3] {
    let run = |vid| test_run(steer.attached(), &frame(0x8100, vid), 1).unwrap().verdict;
    [100, 200, 300].map(run)
}

#[test]
fn frames_of_all_its_vlans_are_steered_and_others_go_to_the_kernel() {
    let Some(steer) = split() else { return };
    assert_eq!(verdicts_by_vlan(&steer), [PASS; 3]);
    assert_eq!((steer.verdicts().unwrap().unserved, steer.others()), (3, 0));
    assert_eq!(test_run(steer.attached(), &frame(0x8100, 400), 1).unwrap().verdict, PASS);
    let mut own = frame(0x8100, 200);
    own[..6].copy_from_slice(&OWN);
    assert_eq!(test_run(steer.attached(), &own, 1).unwrap().verdict, PASS);
    let expected = Verdicts { to_self: 1, unserved: 3, others: 1, ..Verdicts::default() };
    assert_eq!(steer.verdicts().unwrap(), expected);
}

#[test]
fn filters_of_one_vlan_drop_nothing_of_another() {
    let Some(mut steer) = split() else { return };
    steer.put_in_front(1, Some(dropping())).unwrap();
    assert_eq!(verdicts_by_vlan(&steer), [PASS, DROP, PASS]);
    steer.put_in_front(2, Some(dropping())).unwrap();
    steer.put_in_front(1, None).unwrap();
    assert_eq!(verdicts_by_vlan(&steer), [PASS, PASS, DROP]);
    assert_eq!(steer.verdicts().unwrap().unserved, 4);
}

#[test]
fn a_device_that_is_a_port_has_its_filters_at_place_0() {
    let Some((mut steer, _)) = steer(Stalled::Pass) else { return };
    let verdict = |steer: &Steer| test_run(steer.attached(), &[4; 64], 1).unwrap().verdict;
    steer.put_in_front(0, Some(dropping())).unwrap();
    assert_eq!((verdict(&steer), steer.others()), (DROP, 0));
    steer.put_in_front(0, None).unwrap();
    assert_eq!(verdict(&steer), PASS);
}

/// The number of a program, of which this is a descriptor.
fn number_of(program: BorrowedFd<'_>) -> u32 {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", program.as_raw_fd()));
    let info = info.unwrap();
    let number = info.lines().find_map(|line| line.strip_prefix("prog_id:")).unwrap();
    number.trim().parse().unwrap()
}

#[test]
fn a_look_up_is_for_frames_of_all_vlans_with_filters_or_without() {
    let Some(mut steer) = split() else { return };
    if let Err(error) = steer.can_look_up() {
        eprintln!("SKIPPED: {error}");
        return;
    }
    steer.put_in_front(1, Some(dropping())).unwrap();
    let (plain, looking) =
        (number_of(steer.plain.as_fd()), number_of(steer.translated().unwrap().as_fd()));
    for (wanted, expected) in [(true, looking), (false, plain), (true, looking)] {
        steer.look_up(wanted).unwrap();
        let vlans = steer.vlans.as_ref().unwrap();
        let front = steer.fronts[1].as_ref().unwrap();
        let behind = [vlans.first_at(0), front.behind(), vlans.first_at(2)];
        assert_eq!(behind, [Some(expected); 3]);
        assert_eq!(vlans.first_at(1), Some(number_of(front.program())));
    }
    // What is put there later leads to the same, and so does what is bare again.
    steer.put_in_front(0, Some(dropping())).unwrap();
    steer.put_in_front(1, None).unwrap();
    let front = steer.fronts[0].as_ref().unwrap();
    let vlans = steer.vlans.as_ref().unwrap();
    assert_eq!([front.behind(), vlans.first_at(1)], [Some(looking); 2]);
}

/// `cargo test --release -p narrows-bpf --lib what_steering_costs -- --ignored --nocapture`
#[test]
#[ignore = "measures; nothing can fail"]
fn what_steering_costs() {
    let Some((steer, mut heart)) = steer(Stalled::Drop) else { return };
    let best = |heart: &mut Heart, beat: fn() -> Nanos| {
        let times = (0..9).map(|_| {
            heart.beat(beat());
            run(&steer, [2; 6], 1_000_000).1
        });
        times.min().unwrap_or_default()
    };
    let clock = if has_coarse_clock() { "coarse" } else { "fine" };
    let watched = best(&mut heart, now);
    let unwatched = best(&mut heart, || Nanos::ZERO);
    println!(
        "a frame for a worker: {watched} ns with its heartbeat read ({clock} clock), {unwatched} ns without a heart"
    );
}
