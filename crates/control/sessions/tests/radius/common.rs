//! A configuration, clients that sign, and a store that takes what changed.

use narrows_directory::Subscriber;
use narrows_sessions::radius::packet::{Code, Request, Type};
use narrows_sessions::radius::{Config, Now, Sessions};
use narrows_units::Nanos;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// When all of it begins, in seconds since 1970.
pub const BASE: u64 = 1_800_000_000;
/// The secret of all clients.
pub const SECRET: &[u8] = b"tested secret";
/// Two NASes and a server, without what a test adds.
pub const CONFIG: &str = r#"
default_plan = "basic"
silent = "1h"
keep = "1d"

[plans]
basic = { down = "10mbit", up = "2mbit" }
fast = { down = "100mbit", up = "20mbit", down_min = "5mbit" }

[sites]
"bng-1" = "west"

[[client]]
name = "bng-1"
from = ["192.0.2.1"]
secret = "tested secret"

[[client]]
name = "bng-2"
from = ["192.0.2.2"]
secret = "tested secret"

[[client]]
name = "server"
from = ["192.0.2.64/26"]
secret = "tested secret"
allow = ["accounting", "coa"]
"#;

/// Sessions, the subscribers that a store has of them, and a clock.
pub struct World {
    /// What is tested.
    pub sessions: Sessions,
    /// What a store has.
    pub stored: BTreeMap<String, Subscriber>,
    /// Seconds since the beginning.
    pub second: u64,
    identifier: u8,
}

impl World {
    /// With [`CONFIG`], and `more` before it.
    pub fn new(more: &str) -> Self {
        let config = Config::parse(&format!("{more}{CONFIG}")).unwrap();
        let sessions = Sessions::new(config);
        Self { sessions, stored: BTreeMap::new(), second: 0, identifier: 0 }
    }

    /// What time it is.
    pub fn now(&self) -> Now {
        Now { steady: Nanos::from_secs(self.second), unix: BASE + self.second }
    }

    /// Sends a datagram, stores what changed, and returns the answer.
    pub fn send(&mut self, from: [u8; 4], datagram: &[u8]) -> Option<Vec<u8>> {
        let answer = self.sessions.receive(self.now(), SocketAddr::from((from, 40_000)), datagram);
        self.store();
        answer
    }

    /// Sends a request with these attributes.
    pub fn request(
        &mut self,
        from: [u8; 4],
        code: Code,
        attributes: &[(Type, &[u8])],
    ) -> Option<Vec<u8>> {
        let datagram = self.signed(code, attributes);
        self.send(from, &datagram)
    }

    /// A request with these attributes, and an identifier of its own.
    pub fn signed(&mut self, code: Code, attributes: &[(Type, &[u8])]) -> Vec<u8> {
        self.identifier = self.identifier.wrapping_add(1);
        let request = Request::new(code, self.identifier);
        let request =
            attributes.iter().fold(request, |request, (kind, value)| request.with(*kind, value));
        request.signed(SECRET, true)
    }

    /// Time passes.
    pub fn wait(&mut self, seconds: u64) {
        self.second += seconds;
        let now = self.now();
        self.sessions.tick(now);
        self.store();
    }

    /// The listener starts again.
    pub fn restart(&mut self) {
        let mut sessions = Sessions::new(self.sessions.config().clone());
        for (identity, subscriber) in &self.stored {
            sessions.restore(self.now(), identity, subscriber);
        }
        assert!(!sessions.is_changed(), "what is restored is stored");
        self.sessions = sessions;
    }

    fn store(&mut self) {
        for change in self.sessions.changes() {
            match change.subscriber {
                Some(subscriber) => self.stored.insert(change.identity, subscriber),
                None => self.stored.remove(&change.identity),
            };
        }
        assert!(!self.sessions.is_changed());
    }
}
