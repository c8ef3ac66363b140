//! What it takes to load each program, as it is built: its length, and what the verifier goes
//! through. Who starts a plane or changes a policy waits for both. They are counts, so a test can
//! bound them.
//!
//! The time grows with the square of the length: the kernel moves the rest of a program for each
//! piece of it that it changes, and Linux 7.3 follows pointers through all of a function, again and
//! again, whatever is behind constants that are not set.
//!
//! Non-goals: programs with their constants set, which go other ways. Filters have a test of their
//! own (`front/tests/verified.rs`).

use crate::load::{LoadError, Tries};
use crate::test_run::verified;
use libbpf_rs::ObjectBuilder;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::Path;

/// The most instructions of a program, with the functions that it calls.
const LENGTH: usize = 7_600;
/// What the verifier may go through, in instructions, of all that is not here.
const FEW: u32 = 5_000;
/// And of these: half as much again as it did on Linux 6.18.
const MANY: [(&str, u32); 15] = [
    ("balance", 145_000),
    ("front", 15_000),
    ("front_tcx", 30_000),
    ("receive_on", 20_000),
    ("router", 25_000),
    ("router_tcx", 95_000),
    ("slow_path", 15_000),
    ("stamp", 140_000),
    ("stamp_inside", 140_000),
    ("steer_router", 25_000),
    ("switch_tcx", 17_000),
    ("tree", 80_000),
    ("tree_slow_path", 105_000),
    ("tree_tcx", 105_000),
    ("vlans_tcx", 14_000),
];

/// The objects of all programs, by name.
fn objects() -> BTreeMap<String, Vec<u8>> {
    let files = std::fs::read_dir(Path::new(env!("OUT_DIR"))).unwrap();
    let paths = files.map(|file| file.unwrap().path());
    let object = |path: std::path::PathBuf| {
        let name = path.file_name()?.to_str()?.strip_suffix(".bpf.o")?.to_owned();
        Some((name, std::fs::read(path).unwrap()))
    };
    paths.filter_map(object).collect()
}

#[test]
fn each_program_is_short_and_the_verifier_goes_through_few_instructions() {
    let objects = objects();
    assert!(MANY.iter().all(|(name, _)| objects.contains_key(*name)), "no program has that name");
    for (name, bytes) in objects {
        let load = |_: &mut _| ObjectBuilder::default().open_memory(&bytes)?.load();
        let loaded = match Tries::new().explained(load) {
            Ok(loaded) => loaded,
            // Of what a kernel may lack, there are programs that do without.
            Err(error @ (LoadError::NotPermitted | LoadError::Missing { .. })) => {
                println!("SKIPPED: {error}: {name}");
                continue;
            }
            Err(error) => panic!("{name}: {error}"),
        };
        let most = MANY.iter().find(|(many, _)| *many == name).map_or(FEW, |(_, most)| *most);
        for program in loaded.progs() {
            let (length, took) = (program.insn_cnt(), verified(program.as_fd()).unwrap());
            println!("{name}: {length} of {LENGTH} instructions, {took} of {most} verified");
            assert!(length <= LENGTH, "{name} has {length} instructions");
            assert!(took <= most, "{name}: the verifier goes through {took} instructions");
        }
    }
}
