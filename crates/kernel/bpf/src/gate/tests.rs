//! The gate, loaded as the XDP program that it is outside a dispatcher, with programs behind it.

use super::*;
use crate::attach::Entry;
use crate::attach::Hook;
use crate::heartbeat::Heartbeats;
use crate::steer::{Stalled, Steer, Watchdog};
use crate::test_run::{TX, test_run};
use crate::tree::{Port, Tree};
use crate::vlans::{Vlans, tests as vlans};
use libbpf_rs::ObjectBuilder;
use narrows_forwarding::TagProtocol;
use narrows_units::Nanos;
use std::os::fd::AsFd;
use std::time::Instant;

const DROP: u32 = 1;
const PASS: u32 = 2;
const OWN: [u8; 6] = [2, 0, 0, 0, 0, 9];

/// The program, and its array; `None`, and a line with the reason, if it cannot be loaded here.
pub(crate) fn gate() -> Option<(OwnedFd, OwnedFd)> {
    let load = || {
        let mut open = ObjectBuilder::default().open_memory(OBJECT)?;
        // As libxdp has it.
        open.progs_mut().for_each(|mut program| {
            program.set_attach_type(libbpf_rs::ProgramAttachType::CgroupInetIngress)
        });
        let object = open.load()?;
        let program = object.progs().find(|program| program.name() == NAME).expect("its only one");
        let array = object.maps().next().expect("its only one");
        Ok((program.as_fd().try_clone_to_owned()?, array.as_fd().try_clone_to_owned()?))
    };
    load().map_err(|error: libbpf_rs::Error| eprintln!("SKIPPED: {error}")).ok()
}

/// A steering program that drops all frames, with `multi_buffer`.
fn dropping(multi_buffer: bool) -> Steer {
    let heartbeats = Heartbeats::new().unwrap();
    let mut heart = heartbeats.heart(0, Nanos::ZERO).unwrap();
    heart.beat(Nanos(1));
    let watchdog = Watchdog { heartbeats, after: Nanos(1), stalled: Stalled::Drop };
    Steer::load(OWN, multi_buffer, 1, watchdog, Entry::Shared).unwrap()
}

fn verdict(gate: &OwnedFd) -> u32 {
    test_run(gate.as_fd(), &[4; 64], 1).unwrap().verdict
}

#[test]
fn frames_pass_a_gate_with_nothing_behind_it() {
    let Some((program, behind)) = gate() else { return };
    assert!(!leads_on(&behind));
    assert_eq!(verdict(&program), PASS);
}

#[test]
fn frames_go_on_behind_a_gate_until_it_is_left() {
    for multi_buffer in [false, true] {
        let Some((program, behind)) = gate() else { return };
        let mut steer = dropping(multi_buffer);
        steer.take_over(behind.try_clone().unwrap()).unwrap();
        assert!(leads_on(&behind));
        assert_eq!(verdict(&program), DROP);
        steer.detach();
        assert!(!leads_on(&behind));
        assert_eq!(verdict(&program), PASS);
    }
}

#[test]
fn a_tree_stands_behind_a_gate_as_well() {
    let Some((program, behind)) = gate() else { return };
    let mut tree = Tree::load(OWN, true, Entry::Shared, Hook::Xdp(XdpMode::Native)).unwrap();
    tree.take_over(behind.try_clone().unwrap()).unwrap();
    // It has no plan.
    assert_eq!(verdict(&program), DROP);
    drop(tree);
    assert!(leads_on(&behind), "only an end of all processes opens it, or a detach");
}

#[test]
fn the_vlans_of_a_device_stand_behind_a_gate_as_well_and_another_process_takes_over() {
    for multi_buffer in [false, true] {
        let Some((program, behind)) = gate() else { return };
        let verdict_in = |vid| {
            let frame = vlans::frame(0x8100, vid);
            test_run(program.as_fd(), &frame, 1).unwrap().verdict
        };
        let mut old = dropping(multi_buffer);
        old.split(&[vlans::tag(TagProtocol::Customer, 100)]).unwrap();
        old.take_over(behind.try_clone().unwrap()).unwrap();
        assert_eq!([100, 200].map(verdict_in), [DROP, PASS]);
        let mut new = dropping(multi_buffer);
        new.split(&[vlans::tag(TagProtocol::Customer, 200)]).unwrap();
        new.take_over(behind.try_clone().unwrap()).unwrap();
        drop(old);
        assert_eq!([100, 200].map(verdict_in), [PASS, DROP]);
        assert_eq!(new.others(), 1);
        new.detach();
        assert_eq!([100, 200].map(verdict_in), [PASS, PASS]);
    }
}

#[test]
fn trees_behind_vlans_stand_behind_a_gate_as_well() {
    let Some((program, behind)) = gate() else { return };
    let tags = [100, 200].map(|vid| vlans::tag(TagProtocol::Customer, vid));
    let mut vlans = Vlans::load(&tags, false, Entry::Shared, None).unwrap();
    let port = Port { other_tag: Some(tags[1]), ..Port::new(OWN, false, Entry::Shared) };
    let mut tree = Tree::at(port, Hook::Xdp(XdpMode::Native), &[]).unwrap();
    tree.stand_behind(&vlans, 0).unwrap();
    vlans.take_over(behind.try_clone().unwrap()).unwrap();
    let run = |vid| test_run(program.as_fd(), &vlans::frame(0x8100, vid), 1).unwrap();
    let sent = run(100);
    assert_eq!((sent.verdict, sent.frame), (TX, vlans::frame(0x8100, 200)));
    assert_eq!((run(200).verdict, vlans.others()), (PASS, 1));
    vlans.detach();
    assert!(!leads_on(&behind));
    assert_eq!(run(100).verdict, PASS);
}

/// As when a process is killed.
#[test]
fn a_gate_opens_when_the_last_process_closes_its_array() {
    let Some((program, behind)) = gate() else { return };
    let mut steer = dropping(false);
    steer.take_over(behind).unwrap();
    assert_eq!(verdict(&program), DROP);
    // Its program stays loaded, as long as it can: what counts is the array.
    drop(steer);
    let begin = Instant::now();
    while verdict(&program) != PASS {
        assert!(begin.elapsed() < Duration::from_secs(5), "it is still shut");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn each_reason_says_what_to_do() {
    let refused = |errno| GateError::Libxdp {
        attempt: "put the gate into its dispatcher",
        source: io::Error::from_raw_os_error(errno),
        said: String::new(),
    };
    assert!(refused(libc::EPERM).to_string().contains("needs root"));
    assert!(refused(libc::ENOENT).to_string().contains("/sys/fs/bpf"));
    assert!(GateError::Full.to_string().starts_with("all 10 places"));
}
