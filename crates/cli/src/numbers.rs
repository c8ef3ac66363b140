//! Every number that the command line takes, at and beyond the ends of its range.
//!
//! The options are those of clap's tree at run time, so a new one is tested, too. Each value is
//! refused with a sentence or accepted; nothing is executed. What a number sizes (threads, rings,
//! buffers, rounds) must have a bound there, so the largest numbers are refused, except where
//! [`UNBOUNDED`] says why not.

use super::Cli;
use clap::error::ErrorKind;
use clap::{Arg, Command, CommandFactory};
use std::any::TypeId;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

/// An option that accepts any of these takes a number, maybe with a unit.
const NUMBERS: [&str; 9] = ["0", "1", "2", "5", "16", "100", "1024", "1mbit", "0.5"];

/// At the ends of types, and what is no number.
const WORDS: [&str; 29] = [
    "",
    " ",
    "-0",
    "-1",
    "+1",
    "1 ",
    "0x10",
    "1_000",
    "1e3",
    "255",
    "256",
    "32767",
    "32768",
    "65534",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "4294967294",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551614",
    "-9223372036854775809",
    "0.0000000000000000000001",
    "1.5",
    "9999999999999999999999tbit",
    "1,2,,3",
    "\u{661}",
];

/// Larger than anything that may be sized, or no number at all.
const ENDLESS: [&str; 9] = [
    "4294967295",
    "18446744073709551615",
    "18446744073709551616",
    "340282366920938463463374607431768211456",
    "1e400",
    "1e18",
    "inf",
    "NaN",
    "-inf",
];

/// Options whose numbers size nothing, or are checked later, and why.
const UNBOUNDED: [(&str, &str, &str); 10] = [
    ("narrows run", "dispatcher", "a priority that libxdp compares"),
    ("narrows run", "front", "a file's name"),
    ("narrows bench connection-frames", "begin", "a count that a counter is compared with"),
    ("narrows import libreqos", "up", "a rate in the text of a policy"),
    ("narrows import libreqos", "down", "a rate in the text of a policy"),
    ("narrows history show", "to", "a time in seconds since 1970"),
    ("narrows history worst", "to", "a time in seconds since 1970"),
    ("narrows history export", "to", "a time in seconds since 1970"),
    ("narrows chaos", "seed", "a seed"),
    ("narrows sim", "seed", "a seed"),
];

/// All commands with their whole names.
fn commands() -> Vec<(String, Command)> {
    let root = Cli::command();
    let mut found = vec![(root.get_name().to_owned(), root)];
    let mut next = 0;
    while let Some((name, command)) = found.get(next).cloned() {
        let below = command.get_subcommands().cloned();
        found.extend(below.map(|below| (format!("{name} {}", below.get_name()), below)));
        next += 1;
    }
    found
}

/// Whether its values are text that nothing looks at while the command line is read.
fn is_text(arg: &Arg) -> bool {
    let text = [
        TypeId::of::<String>(),
        TypeId::of::<OsString>(),
        TypeId::of::<PathBuf>(),
        TypeId::of::<SocketAddr>(),
    ];
    text.iter().any(|text| arg.get_value_parser().type_id() == *text)
}

/// Reads `word` as the value of `arg`. What else the command needs is missed after that.
fn read(command: &Command, arg: &Arg, word: &str) -> Result<(), clap::Error> {
    let result = match arg.get_long() {
        Some(long) => {
            let words = ["narrows".to_owned(), format!("--{long}={word}")];
            command.clone().try_get_matches_from(words)
        }
        // A positional one, without those before it.
        None => {
            let command = Command::new("narrows").arg(arg.clone().index(1));
            command.try_get_matches_from(["narrows", "--", word])
        }
    };
    let missed = [
        ErrorKind::MissingRequiredArgument,
        ErrorKind::MissingSubcommand,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
    ];
    match result {
        Err(error) if !missed.contains(&error.kind()) => Err(error),
        _ => Ok(()),
    }
}

#[test]
fn every_number_is_refused_with_a_sentence_or_has_a_bound() {
    let (mut numbers, mut wrong) = (Vec::new(), Vec::new());
    for (name, command) in commands() {
        let values = command.get_arguments().filter(|arg| arg.get_action().takes_values());
        for arg in values.filter(|arg| !is_text(arg)) {
            let id = arg.get_id().as_str();
            let accepts = |word: &str| match read(&command, arg, word) {
                Ok(()) => true,
                Err(error) => {
                    let said = error.to_string();
                    let kinds = [ErrorKind::InvalidValue, ErrorKind::ValueValidation];
                    assert!(kinds.contains(&error.kind()), "{name} {id} {word:?}: {said}");
                    assert!(said.len() > 20, "{name} {id} {word:?}: {said}");
                    false
                }
            };
            if !NUMBERS.iter().any(|number| accepts(number)) {
                continue;
            }
            for word in WORDS {
                accepts(word);
            }
            let endless: Vec<&str> = ENDLESS.into_iter().filter(|word| accepts(word)).collect();
            let may = UNBOUNDED.iter().any(|(of, option, _)| *of == name && *option == id);
            if endless.is_empty() == may {
                wrong.push(format!("{name}: {id} accepts {endless:?}"));
            }
            numbers.push((name.clone(), id.to_owned()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(numbers.len() > 20, "the options are found: {numbers:?}");
    for (name, option, why) in UNBOUNDED {
        let known = numbers.iter().any(|(of, id)| of == name && id == option);
        assert!(known, "{name} has no {option} that is {why}");
    }
}
