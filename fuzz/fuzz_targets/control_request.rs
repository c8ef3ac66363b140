//! Any bytes as a request on the control socket.
//!
//! No request may panic, with any words or text; a valid one survives a round trip, and a failing
//! command changes nothing.

#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_dataplane::control::Request;
use narrows_sets::{Host as Users, Key, Named, Restore, Sets};
use narrows_tc::{
    ClassNames, CommandLine, Host, OfflineHost, Options, execute_batch, execute_named,
};
use narrows_units::Nanos;
use std::sync::Arc;

/// Nothing uses the sets.
struct Alone;

impl Users for Alone {
    fn references(&self, _: &str) -> usize {
        0
    }

    fn counted(&self, named: &Named, key: &Key) -> (u64, u64) {
        named.set.initial(key)
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(request) = serde_json::from_slice::<Request>(bytes) else { return };
    let written = serde_json::to_string(&request).expect("a request can be written");
    let again: Request = serde_json::from_str(&written).expect("what was written can be read");
    assert_eq!(format!("{again:?}"), format!("{request:?}"));
    let mut host = OfflineHost::default();
    let read = |names: Option<String>| names.map(|text| Arc::new(ClassNames::parse(&text)));
    match request {
        Request::Ports
        | Request::Show
        | Request::ShowWithTrees
        | Request::LetGo { .. }
        | Request::Upgrade { .. }
        | Request::UpgradeStatus => {}
        Request::Set { args } => {
            let mut sets = Sets::default();
            sets.run(&args, Nanos::ZERO, &Alone);
        }
        Request::RestoreSets { first, may_exist, text } => {
            let (mut sets, mut restore) = (Sets::default(), Restore::new(text, first, may_exist));
            while restore.step(&mut sets, Nanos::ZERO, &Alone) {}
            restore.end();
        }
        Request::Tc { args, names } => {
            if execute_named(&args, read(names), &mut host).code != 0 {
                assert!(host.policy() == Default::default(), "a failed line changed the policy");
            }
        }
        Request::Batch { options, name, text, names } => {
            if let Ok(line) = CommandLine::parse(&options) {
                let options = Options { names: read(names), ..line.options };
                execute_batch(&text, &name, &options, &mut host);
            }
        }
    }
});
