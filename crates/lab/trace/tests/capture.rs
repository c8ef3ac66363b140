//! Capture files, byte by byte: those that `tcpdump` and `wireshark` write, and broken ones.

use narrows_trace::{CaptureError, Remarks, Trace};
use narrows_units::Nanos;
use proptest::prelude::*;

/// A frame of UDP, from `port`.
fn frame(port: u8) -> Vec<u8> {
    let mut bytes = vec![0; 60];
    bytes[12] = 0x08;
    bytes[14..18].copy_from_slice(&[0x45, 0, 0, 46]);
    bytes[23] = 17;
    bytes[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    bytes[35] = port;
    bytes
}

const MICROS: u32 = 0xa1b2_c3d4;
const NANOS: u32 = 0xa1b2_3c4d;

/// A file of frames: seconds, parts of one, length on the wire, and what was captured.
fn file(magic: u32, link: u32, frames: &[(u32, u32, u32, Vec<u8>)]) -> Vec<u8> {
    let mut file = Vec::new();
    file.extend(magic.to_le_bytes());
    file.extend([2, 0, 4, 0]);
    file.extend([0; 8]);
    file.extend(65_536_u32.to_le_bytes());
    file.extend(link.to_le_bytes());
    for (seconds, part, len, bytes) in frames {
        for number in [*seconds, *part, bytes.len() as u32, *len] {
            file.extend(number.to_le_bytes());
        }
        file.extend(bytes);
    }
    file
}

fn times(trace: &Trace) -> Vec<u64> {
    trace.frames().iter().map(|frame| frame.at.0).collect()
}

#[test]
fn times_are_those_of_the_file_in_its_unit_from_the_first_frame_on() {
    let frames = [(7, 500, 60, frame(1)), (7, 900, 1_514, frame(2)), (8, 500, 60, frame(1))];
    let micros = Trace::read(file(MICROS, 1, &frames).as_slice()).unwrap();
    assert_eq!(times(&micros), [0, 400_000, 1_000_000_000]);
    let nanos = Trace::read(file(NANOS, 1, &frames).as_slice()).unwrap();
    assert_eq!(times(&nanos), [0, 400, 1_000_000_000]);
    let flows: Vec<u32> = micros.frames().iter().map(|frame| frame.flow).collect();
    assert_eq!((flows, micros.remarks()), (vec![0, 1, 0], Remarks::default()));
    assert_eq!(micros.frames()[1].len, 1_514);
}

#[test]
fn frames_without_an_ethernet_header_get_one_and_are_of_the_same_flow() {
    let of = |skipped: usize, port| [vec![0; skipped], frame(port)[14..].to_vec()].concat();
    for (link, skipped) in [(101, 0), (113, 16), (276, 20)] {
        let len = 46 + skipped as u32;
        let frames = [(1, 0, len, of(skipped, 1)), (1, 5, len, of(skipped, 2))];
        let trace = Trace::read(file(MICROS, link, &frames).as_slice()).unwrap();
        assert_eq!(trace.frames()[0].len, 60, "{link}");
        assert_eq!(trace.first_bytes(&trace.frames()[0]), frame(1), "{link}");
        assert_eq!(trace.flows().len(), 2);
    }
}

#[test]
fn a_capture_that_was_killed_in_the_middle_of_a_frame_ends_before_it() {
    let frames = [(1, 0, 60, frame(1)), (1, 5, 60, frame(1)), (1, 9, 60, frame(1))];
    let whole = file(MICROS, 1, &frames);
    let trace = Trace::read(&whole[..whole.len() - 1]).unwrap();
    assert_eq!(times(&trace), [0, 5_000]);
}

#[test]
fn what_is_no_trace_is_refused_with_what_to_do() {
    let one = [(1, 0, 60, frame(1))];
    for (bytes, why) in [
        (b"A page, and no capture".to_vec(), CaptureError::NotACapture),
        (Vec::new(), CaptureError::NotACapture),
        (file(MICROS, 0, &one), CaptureError::Link { frame: 1, link: 0 }),
        (file(MICROS, 1, &one), CaptureError::NoTime),
    ] {
        assert_eq!(Trace::read(bytes.as_slice()), Err(why));
    }
}

proptest! {
    #[test]
    fn any_bytes_behind_a_header_are_refused_or_a_trace(
        link in prop_oneof![Just(1_u32), Just(101), Just(113), Just(276)],
        numbers in prop::collection::vec((any::<u32>(), any::<u32>(), any::<u32>(), 0_usize..120), 0..20),
        cut in 0_usize..2_000,
        place in 0_usize..2_000,
        byte in any::<u8>(),
    ) {
        let frames: Vec<_> = numbers
            .into_iter()
            .map(|(seconds, part, len, kept)| (seconds, part, len, frame(1).into_iter().cycle().take(kept).collect()))
            .collect();
        let mut bytes = file(MICROS, link, &frames);
        if let Some(place) = bytes.get_mut(place) {
            *place = byte;
        }
        bytes.truncate(bytes.len().saturating_sub(cut % 40));
        if let Ok(trace) = Trace::read(bytes.as_slice()) {
            prop_assert!(trace.frames().is_sorted_by_key(|frame| frame.at));
            prop_assert!(trace.frames().iter().all(|frame| (60..=9_216).contains(&frame.len)));
            prop_assert!(trace.length() > Nanos::ZERO);
        }
    }
}
