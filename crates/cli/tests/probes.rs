//! Tracers find the probe points of the data plane in the program.

use std::process::Command;

/// `readelf` prints a note for each probe: its provider, its name and its arguments.
#[test]
fn the_program_has_a_note_for_each_probe_point() {
    let notes = Command::new("readelf").args(["-nW", env!("CARGO_BIN_EXE_narrows")]).output();
    let notes = String::from_utf8(notes.expect("readelf (binutils) is installed").stdout).unwrap();
    for (name, arguments) in [("enqueue", 3), ("dequeue", 4), ("drop", 3)] {
        let lines: Vec<&str> = notes.lines().map(str::trim).collect();
        let found: Vec<_> = lines
            .windows(4)
            .filter(|four| four[0].ends_with("Provider: narrows"))
            .filter(|four| four[1] == format!("Name: {name}"))
            .collect();
        assert!(!found.is_empty(), "narrows:{name} is not in the program");
        for four in found {
            let given = four.iter().find_map(|line| line.strip_prefix("Arguments: ")).unwrap();
            assert_eq!(given.split(' ').count(), arguments, "narrows:{name} has {given}");
        }
    }
}
