//! The stick: VLANs of one device, in pairs. Frames are sent and looked at beyond that device.
//!
//! This machine's kernel need not have VLAN devices: frames carry their tags themselves.

use crate::setup::{NARROWS, narrows, show, turn_to_count, turn_to_measure};
use narrows_testbed::bed::{CLIENT, PORT_A, SERVER_MAC, SINK_MAC};
use narrows_testbed::capture::Capture;
use narrows_testbed::narrows::Instance;
use narrows_testbed::raw::RawSocket;
use narrows_testbed::{Testbed, frames};
use serde_json::Value;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The protocol and the control information of a tag.
type Tag = (u16, u16);

const PATIENCE: Duration = Duration::from_secs(5);
const PLANES: [&[&str]; 3] = [&[], &["--plane", "xdp", "--xdp", "tcx"], &["--xdp", "generic"]];

/// An instance on the first port of `bed`, with the VLANs 100 and 200, and 101 of 802.1ad and 201.
fn stick(bed: &Testbed, arguments: &[&str]) -> Instance {
    let run = ["run", "--stick", PORT_A, "--vlans", "100:200,s101:201", "--fail-closed"];
    let words: Vec<&str> = run.iter().chain(arguments).copied().collect();
    Instance::start_command(bed, Path::new(NARROWS), &words).unwrap()
}

/// A frame of a flow in a VLAN: `tci` holds its priority, too. From a host that is not the client,
/// so that captures at the client show it when it comes back.
fn tagged(protocol: u16, tci: u16, flow: u16, length: usize) -> Vec<u8> {
    let mut frame = frames::udp(frames::port(flow), SINK_MAC, length).unwrap();
    frame[6..12].copy_from_slice(&SERVER_MAC);
    let [high, low] = protocol.to_be_bytes();
    let [tci_high, tci_low] = tci.to_be_bytes();
    frame.splice(12..12, [high, low, tci_high, tci_low]);
    frame
}

fn tag_of(frame: &[u8]) -> Tag {
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    (word(12), word(14))
}

fn port<'a>(show: &'a Value, name: &str) -> &'a Value {
    let ports = show["ports"].as_array().unwrap();
    ports.iter().find(|port| port["name"] == name).unwrap_or_else(|| panic!("{show:#}"))
}

#[test]
fn a_frame_of_a_vlan_leaves_with_the_tag_of_its_partner_and_nothing_else_changes() {
    let Some(_turn) = turn_to_count() else { return };
    for plane in PLANES {
        let bed = Testbed::up(1).unwrap();
        let _instance = stick(&bed, plane);
        let capture = Capture::start(bed.client(), CLIENT, "").unwrap();
        let socket = RawSocket::open(bed.client(), CLIENT).unwrap();
        // The priority (5) and the drop eligibility stay; a tag behind the first one is payload.
        let cases: [(u16, u16, Option<Tag>); 7] = [
            (0x8100, 0xb000 | 100, Some((0x8100, 0xb000 | 200))),
            (0x8100, 200, Some((0x8100, 100))),
            (0x88a8, 0x2000 | 101, Some((0x8100, 0x2000 | 201))),
            (0x8100, 201, Some((0x88a8, 101))),
            (0x8100, 101, None),
            (0x8100, 300, None),
            (0x0806, 100, None),
        ];
        let sent: Vec<Vec<u8>> = (0..)
            .zip(cases)
            .map(|(flow, (protocol, tci, _))| tagged(protocol, tci, flow, 200))
            .collect();
        assert_eq!(socket.send(&sent).unwrap(), sent.len());
        let mut came = capture.wait_for(4, PATIENCE);
        sleep(Duration::from_millis(200));
        came.extend(capture.frames().into_iter().skip(4));
        let expected: Vec<Vec<u8>> = sent
            .iter()
            .zip(cases)
            .filter_map(|(frame, (.., leaves))| {
                let (protocol, tci) = leaves?;
                let mut frame = frame.clone();
                frame[12..14].copy_from_slice(&protocol.to_be_bytes());
                frame[14..16].copy_from_slice(&tci.to_be_bytes());
                Some(frame)
            })
            .collect();
        came.sort();
        let mut wanted = expected.clone();
        wanted.sort();
        let tags =
            |frames: &[Vec<u8>]| frames.iter().map(|frame| tag_of(frame)).collect::<Vec<_>>();
        assert_eq!(came, wanted, "{plane:?}: {:x?} for {:x?}", tags(&came), tags(&wanted));
        let shown = show(&bed);
        for name in ["port-a.100", "port-a.200", "port-a.101", "port-a.201"] {
            let total = &port(&shown, name)["total"];
            assert_eq!(
                (&total["rx_packets"], &total["tx_packets"]),
                (&1.into(), &1.into()),
                "{name}"
            );
        }
        let others = port(&shown, "port-a.100")["others"].as_u64().unwrap();
        assert!(others >= 3, "{plane:?}: {others} went to the kernel");
        assert_eq!(shown["conservation"]["unaccounted"], 0);
    }
}

/// The frame bytes a second that come back in each of `vlans` while frames of all are sent, each at
/// `mbit`.
fn rates(bed: &Testbed, vlans: [u16; 2], mbit: f64) -> [f64; 2] {
    let socket = RawSocket::open(bed.client(), CLIENT).unwrap();
    let frames = vlans.map(|vid| tagged(0x8100, vid, vid, 1000));
    let before = show(bed);
    let (begin, time) = (Instant::now(), Duration::from_secs(2));
    let each = Duration::from_secs_f64(1004.0 * 8.0 / (mbit * 1e6));
    let mut due = begin;
    while begin.elapsed() < time {
        let _ = socket.send(&frames);
        due += each;
        sleep(due.saturating_duration_since(Instant::now()));
    }
    let took = begin.elapsed().as_secs_f64();
    let after = show(bed);
    vlans.map(|vid| {
        // What arrives in a VLAN leaves in its partner.
        let name = if vid == 100 { "port-a.200" } else { "port-a.100" };
        let sent = |show: &Value| port(show, name)["total"]["tx_bytes"].as_f64().unwrap();
        (sent(&after) - sent(&before)) * 8.0 / took / 1e6
    })
}

#[test]
fn each_direction_of_a_pair_has_a_limit_of_its_own() {
    let Some(_turn) = turn_to_measure() else { return };
    for plane in [PLANES[0], PLANES[1]] {
        let bed = Testbed::up(1).unwrap();
        let instance = stick(&bed, plane);
        instance.tc("qdisc add dev port-a.200 root tbf rate 2mbit burst 8k latency 20ms").unwrap();
        let [up, down] = rates(&bed, [100, 200], 6.0);
        assert!((1.7..2.2).contains(&up), "{plane:?}: {up} Mbit/s where the limit is 2");
        assert!(down > 5.0, "{plane:?}: {down} of 6 Mbit/s where there is none");
        instance.tc("qdisc del dev port-a.200 root").unwrap();
        let [up, _] = rates(&bed, [100, 200], 6.0);
        assert!(up > 5.0, "{plane:?}: {up} of 6 Mbit/s after the limit");
    }
}

#[test]
fn filters_of_a_vlan_see_its_frames_and_no_others() {
    let Some(_turn) = turn_to_count() else { return };
    for plane in PLANES {
        let bed = Testbed::up(1).unwrap();
        let instance = stick(&bed, plane);
        instance.tc("qdisc add dev port-a.100 clsact").unwrap();
        let drop = "filter add dev port-a.100 ingress protocol all flower ip_proto udp action drop";
        // As tc has it, the protocol is that behind the tag for these words.
        instance
            .tc(&drop.replace("protocol all", "protocol 802.1Q"))
            .unwrap_or_else(|_| instance.tc(&drop.replace("protocol all", "protocol ip")).unwrap());
        let capture = Capture::start(bed.client(), CLIENT, "").unwrap();
        let socket = RawSocket::open(bed.client(), CLIENT).unwrap();
        let frames = [100, 200, 201].map(|vid| tagged(0x8100, vid, vid, 100));
        assert_eq!(socket.send(&frames).unwrap(), 3);
        let came = capture.wait_for(2, PATIENCE);
        let mut tags: Vec<u16> = came.iter().map(|frame| tag_of(frame).1).collect();
        tags.sort_unstable();
        assert_eq!(tags, [100, 101], "{plane:?}");
        let shown = show(&bed);
        let dropped = &port(&shown, "port-a.200")["total"]["drops_by_reason"]["filter"];
        assert_eq!(*dropped, 1, "{plane:?}: {shown:#}");
    }
}

#[test]
fn an_upgrade_of_a_stick_loses_and_reorders_nothing() {
    let Some(_turn) = turn_to_count() else { return };
    for plane in PLANES {
        let bed = Testbed::up(1).unwrap();
        let mut instance = stick(&bed, plane);
        instance.tc("qdisc add dev port-a.200 root tbf rate 20mbit burst 16k latency 1s").unwrap();
        let capture = Capture::start(bed.client(), CLIENT, "").unwrap();
        let socket = RawSocket::open(bed.client(), CLIENT).unwrap();
        let number = |round: u16, frame: &mut Vec<u8>| {
            frame[60..62].copy_from_slice(&round.to_be_bytes());
        };
        const ROUNDS: u16 = 600;
        for round in 0..ROUNDS {
            let mut frames = [100, 200].map(|vid| tagged(0x8100, vid, vid, 500));
            frames.iter_mut().for_each(|frame| number(round, frame));
            assert_eq!(socket.send(&frames).unwrap(), 2);
            if round == ROUNDS / 2 {
                instance.upgrade().unwrap();
            }
            sleep(Duration::from_micros(500));
        }
        let came = capture.wait_for(2 * usize::from(ROUNDS), PATIENCE);
        for vid in [100_u16, 200] {
            let numbers: Vec<u16> = came
                .iter()
                .filter(|frame| tag_of(frame).1 == vid)
                .map(|frame| u16::from_be_bytes([frame[60], frame[61]]))
                .collect();
            assert_eq!(numbers, (0..ROUNDS).collect::<Vec<_>>(), "{plane:?}: VLAN {vid}");
        }
        assert_eq!(show(&bed)["conservation"]["unaccounted"], 0);
    }
}

#[test]
fn wrong_sticks_are_refused_with_what_to_do_instead() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(1).unwrap();
    let refused = |words: &str| {
        let words: Vec<&str> = words.split_whitespace().collect();
        let output = narrows(&bed, &words);
        assert!(!output.status.success(), "{words:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let nowhere = refused("run --stick nowhere --vlans 1:2 --fail-closed");
    assert!(nowhere.contains("nowhere"), "{nowhere}");
    let twice = refused("run --stick port-a --vlans 1:2,2:3 --fail-closed");
    assert!(twice.contains("VLAN 2 is named twice"), "{twice}");
    let _instance = stick(&bed, &[]);
    let other = refused("run --ports port-a,port-b --fail-closed");
    assert!(other.contains("another narrows already joins port-a"), "{other}");
    let unknown = refused("tc qdisc add dev port-a root pfifo");
    assert!(unknown.contains("port-a"), "{unknown}");
}
