//! Departure times of what the kernel sends, in the kernel.

use super::*;
use crate::slow_path::SlowPath;
use crate::test_run::{Left, Packet, run_at_tcx_leaving};
use layout::Hosts;
use narrows_testbed::frames;
use narrows_testbed::namespace::Namespace;
use narrows_testbed::translation::hide;
use rustix::time::{ClockId, clock_gettime};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;

/// Without a permission to load programs, none.
fn tree_and_stamp(class: Class) -> Option<(Tree, SlowPath)> {
    let mut tree = tree()?;
    let stamp = tree.departures(&[], HostAddresses::InHeaders).unwrap().program;
    tree.install(one_class(class), &[1]).unwrap();
    Some((tree, stamp))
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// 10 MB/s, and a queue that no test fills.
fn paced() -> Class {
    Class { limit: 500 * MS, target: 1000 * MS, ..class(10_000_000) }
}

/// Sends `bytes` as `packet` through the program; returns the verdict and when it departs.
fn send(stamp: &SlowPath, bytes: &[u8], packet: Packet) -> (u32, u64) {
    let (run, Left { departure, .. }) = run_at_tcx_leaving(stamp.program(), bytes, packet).unwrap();
    (as_xdp(Entry::Tcx, run.verdict), departure)
}

/// An IPv6 packet of UDP to `port`, `bytes` long.
fn frame_v6(port: u16, bytes: usize) -> Vec<u8> {
    let mut frame = vec![0; bytes];
    frame[..6].fill(4);
    frame[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
    frame[18..20].copy_from_slice(&((bytes - 54) as u16).to_be_bytes());
    frame[20..22].copy_from_slice(&[17, 64]);
    frame[37] = 1;
    frame[53] = 2;
    frame[56..58].copy_from_slice(&port.to_be_bytes());
    frame
}

#[test]
fn packets_depart_at_their_class_s_rate_and_none_is_dropped() {
    let Some((tree, stamp)) = tree_and_stamp(paced()) else { return };
    for (number, bytes) in [frame(53, 0, 1000), frame_v6(53, 1000)].into_iter().enumerate() {
        let began = now();
        let times: Vec<u64> = (0..100)
            .map(|_| {
                let (verdict, departure) = send(&stamp, &bytes, Packet::default());
                assert_eq!(verdict, PASS);
                departure
            })
            .collect();
        // The first ones depart at once; the other family's are behind them.
        let last = times.last().copied().unwrap_or_default();
        let least = 100_000 * (100 * (number as u64 + 1) - 40);
        assert!(last > began + least - 10 * MS * number as u64, "{times:?}");
        assert!(last < now() + 30 * MS, "{times:?}");
        assert!(times.iter().filter(|at| **at != 0).is_sorted(), "{times:?}");
    }
    let expected = Totals { sent_packets: 200, sent_bytes: 200_000, ..Totals::default() };
    assert_eq!(tree.slow_path_totals().unwrap(), expected);
    assert_eq!(tree.class_counters(1).unwrap().own_packets, 200);
}

#[test]
fn a_merged_packet_is_charged_with_all_its_frames() {
    let overhead = Class { per_frame: 100, ..paced() };
    let Some((tree, stamp)) = tree_and_stamp(overhead) else { return };
    let merged = Packet { segment_bytes: 1000, segments: 3, ..Packet::default() };
    let bytes = frame(53, 0, 3042);
    let began = now();
    let times: Vec<u64> = (0..20).map(|_| send(&stamp, &bytes, merged).1).collect();
    // Three frames of 1042 and 100 bytes in each, without the first burst.
    let last = 19 * 3 * 1142 * 100 - MS;
    assert!(times[19] > began + last - 2 * MS, "{times:?}, {began}");
    assert!(times[19] < now() + last + 2 * MS, "{times:?}, {began}");
    assert_eq!(tree.slow_path_totals().unwrap().sent_packets, 60);
}

#[test]
fn a_sender_s_later_time_is_kept_and_one_of_another_clock_is_none() {
    let Some((_tree, stamp)) = tree_and_stamp(paced()) else { return };
    let bytes = frame(53, 0, 100);
    let asked = now() + 50 * MS;
    let send_at = |departure| send(&stamp, &bytes, Packet { departure, ..Packet::default() });
    assert_eq!(send_at(asked), (PASS, asked));
    // Of a clock of years: as if there was none. It is not the program's to remove.
    let of_years = 1_800_000_000_000_000_000;
    let (verdict, departure) = send_at(of_years);
    assert!(verdict == PASS && (departure == of_years || departure < asked), "{departure}");
}

#[test]
fn what_would_wait_beyond_the_limit_is_dropped_and_control_is_not() {
    let short = Class { limit: 10 * MS, target: 1000 * MS, ..class(1_000_000) };
    let Some((tree, stamp)) = tree_and_stamp(short) else { return };
    let bytes = frame(53, 0, 1500);
    let verdicts: Vec<u32> = (0..40).map(|_| send(&stamp, &bytes, Packet::default()).0).collect();
    let passed = verdicts.iter().filter(|verdict| **verdict == PASS).count();
    // Of a millisecond and a half each.
    assert!((4..=14).contains(&passed), "{verdicts:?}");
    assert_eq!(tree.slow_path_totals().unwrap().limit_drops, 40 - passed as u64);
    let control = frame(179, 0xc0, 100);
    assert_eq!(send(&stamp, &control, Packet::default()), (PASS, 0));
}

/// Of what is under way there is nothing else to be kept.
#[test]
fn departures_of_another_layout_begin_anew() {
    let Some(tree) = tree() else { return };
    let old = tree.departures(&[], HostAddresses::InHeaders).unwrap();
    let owned = |map: &BorrowedFd<'_>| map.try_clone_to_owned().unwrap();
    let owned: Vec<OwnedFd> = old.maps().iter().map(owned).collect();
    let mut kept: Vec<BorrowedFd<'_>> = owned.iter().map(AsFd::as_fd).collect();
    let id = |map: BorrowedFd<'_>| {
        let path = format!("/proc/self/fdinfo/{}", map.as_raw_fd());
        let said = std::fs::read_to_string(path).unwrap();
        said.lines().find_map(|line| line.strip_prefix("map_id:")).unwrap().trim().to_owned()
    };
    let ids = |of: &Departures| of.maps().into_iter().map(id).collect::<Vec<String>>();
    let continued =
        |kept: &[BorrowedFd<'_>]| tree.departures(kept, HostAddresses::InHeaders).unwrap();
    assert_eq!(ids(&continued(&kept)), ids(&old));
    // One that knew less.
    assert_eq!(ids(&continued(&kept[..2]))[..2], ids(&old)[..2]);
    kept.swap(0, 1);
    let anew = ids(&continued(&kept));
    assert!(anew.iter().all(|id| !ids(&old).contains(id)), "{anew:?}");
}

/// The flows of one of two hosts that are hidden behind the same address; the other one has a
/// single flow.
const MANY: u16 = 7;
/// How long they send, and how often a packet each: 32 MB/s, and a flow less than half of the
/// rate.
const SPAN_NS: u64 = 600 * MS;
const ROUND_NS: u64 = MS / 4;

/// The part of the first flow's packets for which there is room.
fn first_flow_s_part(
    behind: &Namespace,
    hosts: Hosts,
    addresses: HostAddresses,
) -> Result<f64, TreeError> {
    let mut tree = tree().expect("it was loaded before");
    let stamp = tree.departures(&[], addresses)?.program;
    tree.install(one_class(Class { hosts, ..paced() }), &[1]).unwrap();
    let is_answer = [Hosts::Destinations, Hosts::DestinationsInside].contains(&hosts);
    let flow = |flow| {
        let mut bytes = frames::udp(frames::port(flow), [4; 6], 1000).unwrap();
        if is_answer {
            bytes[26..34].rotate_left(4);
            bytes[34..38].rotate_left(2);
        }
        bytes
    };
    let flows: Vec<_> = (0..=MANY).map(flow).collect();
    let (mut first, rounds) = (0, SPAN_NS / ROUND_NS);
    let began = now();
    behind
        .enter(|| {
            for round in 0..rounds {
                while now() < began + round * ROUND_NS {}
                for (flow, bytes) in flows.iter().enumerate() {
                    let (verdict, _) = send(&stamp, bytes, Packet::default());
                    first += u64::from(flow == 0 && verdict == PASS);
                }
            }
            Ok(())
        })
        .unwrap();
    Ok(first as f64 / rounds as f64)
}

#[test]
fn hosts_behind_one_address_share_evenly_by_their_own_and_only_if_asked_to() {
    if tree().is_none() {
        return;
    }
    let behind = Namespace::create(&format!("nrw-inside-{}", std::process::id())).unwrap();
    for flow in 0..=MANY {
        let host = if flow == 0 { 1 } else { 2 };
        if let Err(error) = hide(&behind, Ipv4Addr::new(10, 0, 0, host), frames::port(flow)) {
            println!("SKIPPED: {error:#}");
            return;
        }
    }
    let part = |hosts, addresses| first_flow_s_part(&behind, hosts, addresses);
    for hosts in [Hosts::SourcesInside, Hosts::DestinationsInside] {
        match part(hosts, HostAddresses::Inside) {
            Err(TreeError::Load(error @ LoadError::Missing { .. })) => {
                println!("SKIPPED: {error}");
            }
            part => assert!(part.as_ref().is_ok_and(|part| *part > 0.95), "{hosts:?}: {part:?}"),
        }
    }
    for (hosts, addresses) in [
        (Hosts::Sources, HostAddresses::Inside),
        (Hosts::Destinations, HostAddresses::Inside),
        (Hosts::DestinationsInside, HostAddresses::InHeaders),
        (Hosts::SourcesInside, HostAddresses::InHeaders),
    ] {
        let part = part(hosts, addresses);
        assert!(part.as_ref().is_ok_and(|part| *part < 0.7), "{hosts:?} {addresses:?}: {part:?}");
    }
}
