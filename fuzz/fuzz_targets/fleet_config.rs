//! Any bytes as the configuration of a fleet's agent.
//!
//! No file may panic. A valid one has bounds that the core of the agent accepts, and names that are
//! one token of a subject; an invalid one is refused with a reason.

#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_fleet::config::Config;
use narrows_fleet::subjects::Subjects;
use narrows_lending::{Agent, Member, Settings};
use std::path::Path;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let config = match Config::parse(&text, Path::new("/etc/narrows")) {
        Ok(config) => config,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let subjects = Subjects::new(config.fleet.clone(), config.me.clone());
    for member in &config.members {
        assert_eq!(subjects.to(Some(member.name.as_str())).split('.').count(), 5);
        let theirs = Subjects::new(config.fleet.clone(), member.name.clone());
        assert_eq!(subjects.sender(&theirs.to(None)), Some(member.name.as_str()));
    }
    let member = |member: &narrows_fleet::config::Member| Member {
        name: member.name.to_string(),
        weight: member.weight,
        most_bps: member.most.map(|rate| rate.bits_per_sec()),
    };
    let settings = Settings {
        me: config.me.to_string(),
        members: config.members.iter().map(member).collect(),
        interval_ns: config.interval.0,
        lease_ns: config.lease.0,
    };
    Agent::new(settings, 1, 1).expect("the core takes what the configuration allows");
});
