//! Switching of frames that never were on a wire.

use super::*;
use crate::attach::{Entry, Hook, XdpMode};
use crate::chooser::Chooser;
use crate::egress_port::egress_port;
use crate::heartbeat::{Heart, Heartbeats};
use crate::outcome::{Outcome, OutcomeCounters};
use crate::steer::{Stalled, Steer, Watchdog};
use crate::test_run::{PASS, Packet, REDIRECT, TestRun, as_xdp, run_arriving, run_at_tcx};
use crate::tree::{Port, Tree};
use model::{Bridge, Frame, HERE, a_bridge, a_frame};
use narrows_units::Nanos;
use proptest::prelude::*;
use rustix::net::{AddressFamily, SocketType, socket};
use std::os::fd::OwnedFd;

mod model;

const SEAL: u32 = 0x1234_5678;
/// The loopback device of any namespace.
const LOOPBACK: u32 = 1;

/// Whether programs can be loaded; says why not.
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("SKIPPED: BPF programs need root");
    }
    is_root
}

/// What decides about frames that arrive at the port [`HERE`].
enum Program {
    /// For a worker.
    Steer { steer: Box<Steer>, _heart: Heart, _socket: OwnedFd },
    /// In front of a tree for each port but the last, which has none.
    Chooser(Chooser, Vec<Tree>),
}

impl Program {
    fn steer(switch: &Switch) -> Self {
        let heartbeats = Heartbeats::new().unwrap();
        let mut heart = heartbeats.heart(0, Nanos(1)).unwrap();
        heart.beat(Nanos::ZERO);
        let after = Nanos::from_millis(60_000);
        let watchdog = Watchdog { heartbeats, after, stalled: Stalled::Pass };
        let steer =
            Steer::load_switch([2; 6], false, SEAL, watchdog, Entry::Own, switch, HERE).unwrap();
        let socket = socket(AddressFamily::XDP, SocketType::RAW, None).unwrap();
        // Linux 7.3 takes no other.
        rustix::net::sockopt::set_xdp_rx_ring_size(&socket, 64).unwrap();
        steer.serve(0, socket.as_fd()).unwrap();
        Self::Steer { steer: Box::new(steer), _heart: heart, _socket: socket }
    }

    fn chooser(switch: &Switch, entry: Entry, multi_buffer: bool) -> Self {
        let hook = if entry == Entry::Tcx { Hook::Tcx } else { Hook::Xdp(XdpMode::Native) };
        let tree = |port| {
            let at = Port::new([2; 6], multi_buffer, entry);
            let mut tree = Tree::behind(switch.takers(), at, hook, &[]).unwrap();
            // Nothing is sent in a test run, so any device does.
            tree.connect(LOOPBACK).unwrap();
            tree.take(switch.takers(), port).unwrap();
            tree
        };
        let trees = PortId::first(model::PORTS - 1).map(tree).collect();
        Self::Chooser(switch.program(HERE, multi_buffer, entry, None).unwrap(), trees)
    }

    /// The verdict, as XDP's, the frame after it, and the port where it leaves, if it does.
    fn run(&self, frame: &[u8]) -> (u32, Vec<u8>, Option<u8>) {
        match self {
            Self::Steer { steer, .. } => {
                let (run, before) = run_arriving(steer.first(), &[], frame, LOOPBACK).unwrap();
                (run.verdict, run.frame, egress_port(&before, SEAL))
            }
            Self::Chooser(chooser, trees) => {
                let sent = || trees.iter().map(|tree| tree.totals().unwrap().sent_packets);
                let before: Vec<u64> = sent().collect();
                let TestRun { verdict, frame, .. } = match chooser.entry() {
                    Entry::Tcx => run_at_tcx(chooser.program(), frame, Packet::default()).unwrap(),
                    _ => run_arriving(chooser.program(), &[], frame, LOOPBACK).unwrap().0,
                };
                let port = sent().zip(before).position(|(now, before)| now > before);
                (as_xdp(chooser.entry(), verdict), frame, port.map(|port| port as u8))
            }
        }
    }

    /// Whether a tag that was put on is beside the packet, and not among its bytes.
    fn is_at_tcx(&self) -> bool {
        matches!(self, Self::Chooser(chooser, _) if chooser.entry() == Entry::Tcx)
    }

    fn outcomes(&self) -> OutcomeCounters {
        match self {
            Self::Steer { steer, .. } => steer.outcomes().unwrap(),
            Self::Chooser(chooser, _) => chooser.outcomes().unwrap(),
        }
    }
}

/// Has `switch` know `bridge`.
fn tell(switch: &Switch, bridge: &Bridge) {
    for (port, member) in (0..).zip(&bridge.members) {
        switch.set_member(PortId::new(port).unwrap(), *member).unwrap();
    }
    for vid in model::VLANS {
        switch.set_vlan(vid, bridge.vlan(vid)).unwrap();
    }
    for vid in model::VLANS {
        for mac in model::MACS {
            let station = Station { mac, vid };
            match bridge.stations.get(&station) {
                Some(location) => assert!(switch.put(station, *location).unwrap()),
                None => switch.forget(station).unwrap(),
            }
        }
    }
}

fn agrees(
    switch: &Switch,
    program: &Program,
    bridge: &Bridge,
    frame: &Frame,
) -> Result<Outcome, TestCaseError> {
    tell(switch, bridge);
    let bytes = frame.bytes();
    let mut expected = program.outcomes();
    let (verdict, after, port) = program.run(&bytes);
    let outcome = match bridge.way_of(frame) {
        // It has no tree.
        Ok((port, _)) if port == model::PORTS - 1 && matches!(program, Program::Chooser(..)) => {
            prop_assert_eq!(verdict, PASS);
            if !program.is_at_tcx() {
                prop_assert_eq!(after, bytes);
            }
            Outcome::Nobody
        }
        Ok((leaves, frame)) => {
            prop_assert_eq!(verdict, REDIRECT);
            if !program.is_at_tcx() {
                prop_assert_eq!(after, frame.bytes());
            }
            prop_assert_eq!(port, Some(leaves as u8));
            Outcome::Switched
        }
        Err(outcome) => {
            prop_assert_eq!(verdict, PASS);
            prop_assert_eq!(after, bytes);
            prop_assert_eq!(port, None);
            outcome
        }
    };
    expected.0[outcome as usize] += 1;
    prop_assert_eq!(program.outcomes(), expected);
    let heard = switch.heard().unwrap();
    let source = bridge.vid_of(frame).ok().map(|vid| Station { mac: frame.source, vid });
    let left = matches!(outcome, Outcome::Switched | Outcome::Nobody);
    prop_assert_eq!(heard, Vec::from_iter(source.filter(|_| left)));
    Ok(outcome)
}

fn whatever_a_frame_is(program: impl Fn(&Switch) -> Program) {
    if !is_root() {
        return;
    }
    let switch = Switch::new().unwrap();
    let program = program(&switch);
    proptest!(ProptestConfig::with_cases(3000), |(bridge in a_bridge(), frame in a_frame())| {
        agrees(&switch, &program, &bridge, &frame)?;
    });
    let outcomes = program.outcomes();
    let more = [Outcome::OtherPort, Outcome::OwnSource, Outcome::TooLong];
    let of_switch = |(outcome, _): &(Outcome, u64)| {
        (Outcome::Switched..=Outcome::Special).contains(outcome) || more.contains(outcome)
    };
    for (outcome, frames) in outcomes.iter().filter(of_switch) {
        assert!(frames > 0, "{outcome:?} is never the reason");
    }
}

#[test]
fn a_worker_gets_a_frame_with_its_port_if_and_only_if_the_model_says_so() {
    whatever_a_frame_is(Program::steer);
}

#[test]
fn the_tree_of_its_port_sends_a_frame_if_and_only_if_the_model_says_so() {
    whatever_a_frame_is(|switch| Program::chooser(switch, Entry::Own, true));
}

#[test]
fn the_same_is_true_behind_a_gate_and_at_tcx() {
    whatever_a_frame_is(|switch| Program::chooser(switch, Entry::Shared, false));
    whatever_a_frame_is(|switch| Program::chooser(switch, Entry::Tcx, false));
}

#[test]
fn a_tag_makes_no_frame_too_long_whether_the_bridge_looks_at_it_or_not() {
    if !is_root() {
        return;
    }
    let [from, to] = [model::MACS[0], model::MACS[1]];
    for entry in [Entry::Own, Entry::Tcx] {
        let switch = Switch::new().unwrap();
        let program = Program::chooser(&switch, entry, false);
        for (tag_type, vid) in [(Some(0x8100), 100), (None, 0)] {
            let member = Member { forwards: true, mtu: model::MTU, tag_type, ..Member::default() };
            let stations = [(from, HERE), (to, PortId::from(1))];
            let bridge = Bridge {
                members: [member; model::PORTS],
                vlans: [[(true, false); 4]; model::PORTS],
                stations: stations
                    .map(|(mac, at)| (Station { mac, vid }, Location::Port(at)))
                    .into(),
            };
            for (more, outcome) in [(0, Outcome::Switched), (1, Outcome::TooLong)] {
                let payload = model::MTU as usize + more;
                let frame = Frame { to, source: from, tags: vec![(0x8100, 100)], payload };
                let became = agrees(&switch, &program, &bridge, &frame).unwrap();
                assert_eq!(became, outcome, "{entry:?}, {tag_type:?}");
            }
        }
    }
}

#[test]
fn a_table_that_is_full_says_so_and_takes_what_it_has() {
    if !is_root() {
        return;
    }
    let switch = Switch::new().unwrap();
    let station = |number: u32| {
        let [a, b, c, d] = number.to_be_bytes();
        Station { mac: [2, 0, a, b, c, d], vid: 0 }
    };
    let there = Location::Port(HERE);
    assert!((0..STATIONS_MAX).all(|number| switch.put(station(number), there).unwrap()));
    assert!(!switch.put(station(STATIONS_MAX), there).unwrap());
    assert!(switch.put(station(7), Location::Elsewhere).unwrap(), "it has a place");
    switch.forget(station(8)).unwrap();
    switch.forget(station(8)).unwrap();
    assert!(switch.put(station(STATIONS_MAX), there).unwrap());
    assert_eq!(switch.heard().unwrap(), []);
}
