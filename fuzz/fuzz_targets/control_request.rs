//! Any bytes as a request on the control socket, in any parts: its line, and the text of a batch.
//!
//! No request may panic, with any words or text; a valid one survives a round trip, it is the same
//! in whatever parts it arrives, and a failing command changes nothing.

#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_balance::{Seen, Services};
use narrows_control::{Answer, Inbox, Received, Request};
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

/// What comes of `bytes` if they arrive in parts of this length, and nothing follows.
fn received(bytes: &[u8], part: usize) -> Result<Option<Received>, Answer> {
    let mut inbox = Inbox::default();
    for part in bytes.chunks(part) {
        match inbox.take(part, false) {
            Ok(None) => {}
            received => return received,
        }
    }
    inbox.take(&[], true)
}

fuzz_target!(|bytes: &[u8]| {
    let whole = received(bytes, bytes.len().max(1));
    let in_parts = received(bytes, bytes.len() % 61 + 1);
    assert_eq!(format!("{whole:?}"), format!("{in_parts:?}"));
    let Ok(Some(Received { request, text })) = whole else { return };
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
        | Request::Route(_)
        | Request::Fleet(_)
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
        Request::Balance { args } => {
            Services::default().run(&args, &Seen::default, Nanos::ZERO);
        }
        Request::Health { servers } => {
            let mut services = Services::default();
            let text = "-A -t 192.0.2.1:80 -s rr\n-a -t 192.0.2.1:80 -r 10.0.0.1:80\n";
            services.restore(text, Nanos::ZERO).expect("it is good");
            let saved = services.save();
            services.set_health(&servers, Nanos::ZERO);
            assert_eq!(services.save(), saved, "health is in no file");
            let again = Services::resume(services.state()).expect("its own state is good");
            assert_eq!(again.state(), services.state());
        }
        Request::RestoreServices { text } => {
            let _ = Services::default().restore(&text, Nanos::ZERO);
        }
        Request::Tc { args, names } => {
            if execute_named(&args, read(names), &mut host).code != 0 {
                assert!(host.policy() == Default::default(), "a failed line changed the policy");
            }
        }
        Request::Batch { options, name, names, .. } => {
            if let Ok(line) = CommandLine::parse(&options) {
                let options = Options { names: read(names), ..line.options };
                execute_batch(&text, &name, &options, &mut host);
            }
        }
    }
});
