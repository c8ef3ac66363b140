//! Any bytes as a scenario of the simulator.
//!
//! No file may panic. A valid one has runs, the same ones when it is read again; an invalid one is
//! refused with one of its lines, or as a whole.

#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_sim::scenario::Experiment;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    match Experiment::read("fuzz", &text, &[]) {
        Ok(scenario) => {
            if let Experiment::Shaper(shaper) = &scenario {
                assert!(!shaper.cases.is_empty(), "a scenario without a run");
            }
            let again = Experiment::read("fuzz", &text, &[]).expect("it was understood before");
            assert_eq!(format!("{again:?}"), format!("{scenario:?}"));
        }
        Err(error) => {
            let error = error.to_string();
            let place = error.strip_prefix("fuzz").expect("an error begins with the file's name");
            if let Some(rest) = place.strip_prefix(", line ") {
                let (line, _) = rest.split_once(": ").expect("behind the line is what is wrong");
                let line: usize = line.parse().expect("a line is a number");
                let lines = 1 + text.matches('\n').count();
                assert!((1..=lines).contains(&line), "there is no line {line}: {error}");
            } else {
                assert!(place.starts_with(": "), "neither a line nor the whole file: {error}");
            }
        }
    }
});
