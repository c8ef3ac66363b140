//! The programs of the slow path, run by the kernel on packets that are never sent.

use super::*;
use crate::load::LoadError;
use crate::test_run::{Packet, run_at_tcx, test_run};
use proptest::prelude::*;
use rustix::time::{ClockId, clock_gettime};
use std::time::Instant;

const MS: u64 = 1_000_000;
const SENT: u32 = u32::MAX;
const DROPPED: u32 = 2;
/// A device of strangers.
const FAR: u32 = 1;

/// A port with a limit, and its program; `None` without privileges.
fn limited(mbit: u64) -> Option<(SlowPathShare, SlowPath)> {
    let share = match SlowPathShare::new() {
        Err(TreeError::Load(error @ LoadError::NotPermitted)) => {
            eprintln!("SKIPPED: {error}");
            return None;
        }
        made => made.unwrap(),
    };
    share.set_limit(Some((Rate::from_bits_per_sec(mbit * 1_000_000), Overhead::NONE)));
    let program = share.program().unwrap();
    Some((share, program))
}

/// The kernel's clock.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    (time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64).wrapping_sub(ahead_of_the_kernel())
}

/// An IPv4 packet of `protocol`, whose transport header begins with `first`.
fn v4(tos: u8, protocol: u8, first: u8, bytes: usize) -> Vec<u8> {
    let mut frame = vec![0; bytes];
    frame[12..16].copy_from_slice(&[8, 0, 0x45, tos]);
    frame[16..18].copy_from_slice(&((bytes - 14) as u16).to_be_bytes());
    frame[22..24].copy_from_slice(&[64, protocol]);
    frame[34] = first;
    frame
}

fn v6(class: u8, next: u8, first: u8) -> Vec<u8> {
    let mut frame = vec![0; 100];
    frame[12..16].copy_from_slice(&[0x86, 0xdd, 0x60 | class >> 4, class << 4]);
    frame[20] = next;
    frame[54] = first;
    frame
}

/// ICMPv6 of `kind` behind options to each hop: a router alert, as MLD has it (RFC 2711).
fn alerting(kind: u8) -> Vec<u8> {
    let mut frame = v6(0, 0, 0);
    frame[54..62].copy_from_slice(&[58, 0, 5, 2, 0, 0, 1, 0]);
    frame[62] = kind;
    frame
}

fn arp() -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[12..14].copy_from_slice(&[8, 6]);
    frame
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sender {
    Stranger,
    Box,
    Control,
}

/// Who it is that `program` takes a packet for, by what it may still send.
fn sender(share: &SlowPathShare, program: &SlowPath, frame: &[u8], from: u32) -> Sender {
    let passes = |ahead: u64| {
        share.set(CLOCK, now() + ahead);
        share.set(CONTROL_CLOCK, 0);
        let packet = Packet { from, ..Packet::default() };
        run_at_tcx(program.program(), frame, packet).unwrap().verdict == SENT
    };
    match (passes(45 * MS), passes(10_000 * MS)) {
        (false, false) => Sender::Stranger,
        (true, false) => Sender::Box,
        (true, true) => Sender::Control,
        (false, true) => panic!("less is more"),
    }
}

/// The sender that a frame has by RFC 792, 2710, 3810, 4443, 4861 and 4594.
fn model(frame: &[u8], from: u32) -> Sender {
    if from != 0 {
        return Sender::Stranger;
    }
    match (u16::from_be_bytes([frame[12], frame[13]]), frame.len()) {
        (0x0806, _) => Sender::Control,
        (0x0800, 34..) if frame[23] == 1 => {
            let at = 14 + usize::from(frame[14] & 15) * 4;
            match frame.get(at) {
                None | Some(3 | 4 | 5 | 11 | 12) => Sender::Stranger,
                Some(_) => Sender::Box,
            }
        }
        (0x0800, 34..) if frame[15] >= 0xc0 => Sender::Control,
        (0x86dd, 55..) if frame[20] == 58 => match frame[54] {
            0..128 => Sender::Stranger,
            133..=137 => Sender::Control,
            _ => Sender::Box,
        },
        (0x86dd, 63..)
            if frame[20] == 0
                && frame[54..56] == [58, 0]
                && matches!(frame[62], 130..=132 | 143) =>
        {
            Sender::Control
        }
        (0x86dd, 55..) if frame[14] & 15 >= 0xc => Sender::Control,
        _ => Sender::Box,
    }
}

#[test]
fn strangers_cannot_pass_for_the_box_nor_the_box_s_answers_for_control() {
    let Some((share, program)) = limited(1_000) else { return };
    let of = |frame: &[u8], from| sender(&share, &program, frame, from);
    assert_eq!(of(&v4(0, 17, 0, 100), 0), Sender::Box);
    assert_eq!(of(&v4(0xc0, 6, 0, 100), 0), Sender::Control, "BGP");
    assert_eq!(of(&v4(0xc0, 6, 0, 100), FAR), Sender::Stranger, "what says that it is");
    assert_eq!(of(&v4(0xc0, 1, 11, 100), 0), Sender::Stranger, "an error, which the kernel marks");
    assert_eq!(of(&v4(0, 1, 8, 100), 0), Sender::Box, "a ping");
    assert_eq!(of(&arp(), 0), Sender::Control);
    assert_eq!(of(&v6(0, 58, 135), 0), Sender::Control, "who has an address");
    assert_eq!(of(&v6(0, 58, 3), 0), Sender::Stranger, "time exceeded");
    assert_eq!(of(&v6(0xc0, 6, 0), 0), Sender::Control);
}

#[test]
fn which_groups_the_box_is_in_is_control_though_options_stand_in_front() {
    let Some((share, program)) = limited(1_000) else { return };
    let of = |frame: &[u8], from| sender(&share, &program, frame, from);
    for kind in [130, 131, 132, 143] {
        assert_eq!(of(&alerting(kind), 0), Sender::Control, "{kind}");
        assert_eq!(of(&alerting(kind), FAR), Sender::Stranger, "{kind} of another");
    }
    assert_eq!(of(&alerting(128), 0), Sender::Box, "a ping that alerts routers");
    let longer = |mut frame: Vec<u8>| {
        frame[55] = 1;
        frame
    };
    assert_eq!(of(&longer(alerting(143)), 0), Sender::Box, "another header is elsewhere");
    assert_eq!(of(&alerting(143)[..62], 0), Sender::Box, "without its type");
}

#[test]
fn senders_are_told_as_the_rfcs_have_it_whatever_the_bytes_are() {
    let Some((share, program)) = limited(1_000) else { return };
    let ether_type = prop_oneof![Just([8, 0]), Just([8, 6]), Just([0x86, 0xdd]), any::<[u8; 2]>()];
    let protocol = prop_oneof![Just(1u8), Just(58), Just(6), Just(0), any::<u8>()];
    let bytes = prop::collection::vec(any::<u8>(), 34..120);
    // What options to each hop begin with, and the type behind them.
    let options = (prop_oneof![Just([58u8, 0]), any::<[u8; 2]>()], 127u8..146);
    let cases = (bytes, ether_type, protocol, any::<bool>(), 0x40u8..0x50, options);
    let mut runner = proptest::test_runner::TestRunner::default();
    runner
        .run(&cases, |(mut frame, ether_type, protocol, is_own, first, (options, kind))| {
            frame[12..14].copy_from_slice(&ether_type);
            match ether_type {
                [8, 0] => (frame[14], frame[23]) = (first, protocol),
                [0x86, 0xdd] => {
                    (frame[14], frame[20]) = (0x60 | frame[14] & 15, protocol);
                    // As long as the kernel asks of a test.
                    frame.resize(frame.len().max(54), 0);
                    if protocol == 0 && frame.len() > 62 {
                        frame[54..56].copy_from_slice(&options);
                        frame[62] = kind;
                    }
                }
                // A tag would be taken off.
                _ => prop_assume!(!matches!(ether_type, [0x81, 0] | [0x88, 0xa8])),
            }
            let from = if is_own { 0 } else { FAR };
            prop_assert_eq!(sender(&share, &program, &frame, from), model(&frame, from));
            Ok(())
        })
        .unwrap();
}

/// Runs `program` on a packet of the box `times` times, and returns how long that took.
fn flood(program: &SlowPath, frame: &[u8], times: u32) -> f64 {
    let began = Instant::now();
    test_run(program.program(), frame, times).unwrap();
    began.elapsed().as_secs_f64()
}

#[test]
fn the_kernel_has_the_rate_and_half_of_it_while_packets_wait() {
    let Some((share, program)) = limited(800) else { return };
    let frame = v4(0, 17, 0, 1_000);
    let share_of = |waits: bool| {
        let (before, mut elapsed) = (share.counters(), 0.0);
        share.set(CLOCK, 0);
        for _ in 0..100 {
            if waits {
                // Also while the machine stands still.
                share.set(WAITING_AT, now() + 10_000 * MS);
            }
            elapsed += flood(&program, &frame, 20_000);
        }
        let after = share.counters();
        assert_eq!(
            after.sent_packets + after.dropped_packets
                - before.sent_packets
                - before.dropped_packets,
            2_000_000
        );
        let sent = (after.sent_bytes - before.sent_bytes) as f64;
        // In bytes per second, without what may be sent ahead.
        (sent / 1e8, elapsed)
    };
    let (sent, elapsed) = share_of(false);
    assert!(sent < elapsed + 0.055 && sent > 0.5 * elapsed, "{sent} in {elapsed} s");
    let (sent, elapsed) = share_of(true);
    assert!(sent < elapsed / 2.0 + 0.055 && sent > 0.25 * elapsed, "{sent} in {elapsed} s");
}

#[test]
fn control_has_an_eighth_of_the_rate_for_itself_and_is_charged() {
    let Some((share, program)) = limited(800) else { return };
    // The box has used up its part for a while.
    share.set(CLOCK, now() + 10_000 * MS);
    let (mut elapsed, frame) = (0.0, v4(0xc0, 6, 0, 1_000));
    for _ in 0..50 {
        elapsed += flood(&program, &frame, 20_000);
    }
    let sent = share.counters().sent_bytes as f64 / 1e8;
    // An eighth, and what may be sent ahead.
    assert!(sent < elapsed / 8.0 + 0.0076 && sent > 0.005, "{sent} in {elapsed} s");
    assert_eq!(share.claim().0, share.counters().sent_bytes);
}

#[test]
fn each_byte_is_charged_once_as_the_limit_counts_it_whoever_asks() {
    let Some((share, program)) = limited(100_000) else { return };
    let overhead = Overhead { per_frame: 24, minimum: 84, framing: Framing::Atm };
    share.set_limit(Some((Rate::from_bits_per_sec(100_000_000_000), overhead)));
    let claimed = std::thread::scope(|scope| {
        let claim = || {
            let mut claimed = 0;
            for _ in 0..100_000 {
                claimed += share.claim().0;
            }
            claimed
        };
        let claims = [scope.spawn(claim), scope.spawn(claim)];
        for bytes in [60, 100, 500] {
            flood(&program, &v4(0, 17, 0, bytes), 10_000);
        }
        claims.map(|claim| claim.join().unwrap()).iter().sum::<u64>()
    });
    let sent = share.counters();
    let all: u64 = [60, 100, 500].iter().map(|bytes| overhead.cost(Bytes(*bytes)).0 * 10_000).sum();
    assert_eq!(sent.dropped_packets, 0);
    assert_eq!(claimed + share.claim().0, all);
    // Another process goes on with the same.
    let other = SlowPathShare::open(share.map().try_clone_to_owned().unwrap()).unwrap();
    assert_eq!((other.claim(), other.counters()), (Bytes::ZERO, sent));
}

#[test]
fn a_merged_packet_is_charged_as_its_frames_and_without_a_limit_all_is_only_counted() {
    let Some((share, program)) = limited(100_000) else { return };
    // Three frames of 1000 bytes of TCP.
    let mut packet = v4(0, 6, 0, 54 + 3_000);
    packet[46] = 0x50;
    let merged = Packet { segment_bytes: 1_000, segments: 3, ..Packet::default() };
    assert_eq!(run_at_tcx(program.program(), &packet, merged).unwrap().verdict, SENT);
    let sent = share.counters();
    assert_eq!((sent.sent_packets, sent.sent_bytes), (3, 3 * 1_054));
    assert_eq!(share.claim(), Bytes(3 * 1_054));
    share.set_limit(None);
    share.set(CLOCK, now() + 10_000 * MS);
    assert_eq!(run_at_tcx(program.program(), &packet, merged).unwrap().verdict, SENT);
    assert_eq!((share.counters().sent_packets, share.claim()), (6, Bytes::ZERO));
    share.set_limit(Some((Rate::from_bits_per_sec(1_000_000), Overhead::NONE)));
    assert_eq!(run_at_tcx(program.program(), &packet, merged).unwrap().verdict, DROPPED);
    assert_eq!(share.counters().dropped_packets, 3);
}
