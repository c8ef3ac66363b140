//! Frames for other CPUs, in test runs: which CPU gets them.

use super::*;
use crate::maps::map;
use crate::test_run::{PASS, REDIRECT, test_run};
use libbpf_rs::MapType;
use proptest::prelude::*;

/// The CPUs of the list that gets all: one CPU, several times, as a machine may have only one.
const LIST: [u32; 4] = [0; 4];

fn receive_on(cpus: &[u32], entry: Entry) -> Result<ReceiveOn, ReceiveOnError> {
    let totals = map(MapType::PercpuArray, "totals", [4, 80, 2], 0).unwrap();
    ReceiveOn::load(cpus, &totals, false, entry)
}

fn frame(source: [u8; 4], port: u16, fragment: u16) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([8, 0, 0x45, 0, 0, 36, 0, 7]);
    frame.extend(fragment.to_be_bytes());
    frame.extend([64, 17, 0, 0]);
    frame.extend(source);
    frame.extend([192, 0, 2, 1]);
    frame.extend(port.to_be_bytes());
    frame.extend([0, 53, 0, 16, 0, 0]);
    frame.resize(60, 0);
    frame
}

/// Which of the list a frame goes to: the one without which it goes up the stack here.
fn went(receive_on: &ReceiveOn, frame: &[u8]) -> usize {
    let put = |at: usize, cpu: u32| {
        let (key, value) = ((at as u32).to_ne_bytes(), cpu.to_ne_bytes());
        receive_on.list.update(&key, &value, MapFlags::ANY).unwrap();
    };
    let verdict = || test_run(receive_on.program(), frame, 1).unwrap().verdict;
    assert_eq!(verdict(), REDIRECT);
    let needs = |at: &usize| {
        put(*at, u32::MAX);
        let passes = verdict() == PASS;
        put(*at, LIST[*at]);
        passes
    };
    let needed: Vec<usize> = (0..LIST.len()).filter(needs).collect();
    assert_eq!(needed.len(), 1, "{needed:?}");
    needed[0]
}

#[test]
fn flows_are_spread_and_each_stays_where_it_is() {
    let receive_on = receive_on(&LIST, Entry::Own).unwrap();
    let flows: Vec<usize> =
        (0..400).map(|port| went(&receive_on, &frame([10, 0, 0, 1], port, 0))).collect();
    for at in 0..LIST.len() {
        let share = flows.iter().filter(|went| **went == at).count();
        assert!((60..140).contains(&share), "{share} of 400 at {at}");
    }
    for (port, at) in (0..).zip(&flows) {
        assert_eq!(went(&receive_on, &frame([10, 0, 0, 1], port, 0)), *at);
    }
}

#[test]
fn fragments_of_a_packet_go_to_one_cpu() {
    let receive_on = receive_on(&LIST, Entry::Own).unwrap();
    const MORE: u16 = 0x2000;
    for host in 0..50 {
        let first = went(&receive_on, &frame([10, 0, 0, host], 1000, MORE));
        // What would be ports is data.
        assert_eq!(went(&receive_on, &frame([10, 0, 0, host], 7777, 185)), first);
    }
}

#[test]
fn what_is_no_list_is_refused() {
    for (cpus, entry, why) in [
        (vec![], Entry::Own, "1 to 1024"),
        (vec![0; LIST_MAX + 1], Entry::Own, "1 to 1024"),
        (vec![0], Entry::Tcx, "--xdp native"),
        (vec![99_999], Entry::Own, "CPU 99999"),
    ] {
        let refused = receive_on(&cpus, entry).map(drop).unwrap_err();
        assert!(refused.to_string().contains(why), "{refused}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn any_frame_goes_to_a_cpu_of_the_list(bytes in prop::collection::vec(any::<u8>(), 14..200)) {
        thread_local! {
            static RECEIVE_ON: ReceiveOn = receive_on(&LIST, Entry::Own).unwrap();
        }
        let verdict = RECEIVE_ON.with(|receive_on| {
            test_run(receive_on.program(), &bytes, 1).unwrap().verdict
        });
        prop_assert_eq!(verdict, REDIRECT);
    }
}
