//! Any bytes as a mapping file and, after a zero, as the data that it reads.
//!
//! Nothing may panic, and whatever comes out is sound: it compiles.

#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_sources::files::{Format, Main, load};
use narrows_sources::{Mapping, SourceError, convert};
use std::path::Path;

/// A mapping for data without one of their own.
const MAPPING: &str = "[subscribers]\nid = \"id\"\nname = { text = \"{n} {id}\" }\nsite = \"s\"\n\
                       site_parent = \"p\"\ndownload = \"d\"\nupload = [\"u\", \"d\"]\n\
                       unit = \"mbit\"\naddresses = [\"ip\", \"$.ips[*]\"]\n";

fuzz_target!(|bytes: &[u8]| {
    let (mapping, text) = match bytes.iter().position(|byte| *byte == 0) {
        Some(end) => (String::from_utf8_lossy(&bytes[..end]).into_owned(), &bytes[end + 1..]),
        None => (MAPPING.to_owned(), bytes),
    };
    let mapping = match Mapping::parse(&mapping) {
        Ok(mapping) => mapping,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    // No file is opened: fuzzing reads nothing of this machine.
    if mapping.lists.values().any(|list| list.file.is_some()) {
        return;
    }
    let main = Main { title: "input", text };
    for format in [Format::Csv, Format::Json] {
        let Ok(lists) = load(&mapping, format, Some(&main), Path::new("/nowhere")) else {
            continue;
        };
        let converted = match convert(&mapping, &lists) {
            Ok(converted) => converted,
            // A table without a column that the mapping names.
            Err(SourceError::Format(_, why)) if format == Format::Csv => {
                assert!(why.contains("no column"), "{why}");
                continue;
            }
            Err(error) => panic!("all lists are there: {error}"),
        };
        // Sites may be deeper than an htb has levels: the check says so.
        let unsound: Vec<String> = converted.directory.check();
        assert!(unsound.iter().all(|fault| fault.contains("levels deep")), "{unsound:?}");
    }
});
