//! The source of snapshots.

use crate::TopError;
use crate::app::Feed;
use narrows_control::fleet_agent::AgentSocket;
use narrows_control::{Client, ControlError, NamesFile};
use narrows_snapshot::Snapshot;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// An instance that is queried repeatedly. It is identified by the name of one of its ports, so it
/// is found again after a restart.
#[derive(Debug)]
pub struct Source {
    dev: String,
    names: NamesFile,
    agent: AgentSocket,
}

impl Source {
    /// The instance with the port `dev`, or the only one on this host; `names` has the names of
    /// classes.
    ///
    /// # Errors
    /// If there is none or, without `dev`, more than one.
    pub fn find(dev: Option<&str>, names: NamesFile) -> Result<Self, TopError> {
        let found = Client::find(dev)?;
        if let (None, [_, _, ..]) = (dev, &found[..]) {
            let ports: Vec<String> = found.iter().map(|client| client.ports.join(",")).collect();
            return Err(TopError::Several(ports.join(" and ")));
        }
        let ports = found.into_iter().flat_map(|client| client.ports);
        let dev = dev.map(str::to_owned).or_else(|| ports.into_iter().next()).unwrap_or_default();
        Ok(Self { dev, names, agent: AgentSocket::default() })
    }

    /// Has it ask the agent of the fleet at `agent`.
    ///
    /// # Errors
    /// If that names a socket, and no agent answers there.
    pub fn with_agent(self, agent: AgentSocket) -> Result<Self, TopError> {
        agent.check()?;
        Ok(Self { agent, ..self })
    }

    /// Takes a snapshot.
    ///
    /// # Errors
    /// If the instance does not answer.
    pub fn ask(&mut self) -> Result<Snapshot, ControlError> {
        let found = Client::find(Some(&self.dev))?;
        let client = found.first().ok_or_else(|| ControlError::NoInstance(String::new()))?;
        let mut snapshot = client.snapshot(true)?;
        self.names.name(&mut snapshot);
        self.agent.add_to(&mut snapshot);
        Ok(snapshot)
    }

    /// Queries every `interval` on a thread of its own, so that a slow instance does not delay the
    /// keys. The thread ends when the receiver is dropped.
    pub(crate) fn follow(self, interval: Duration) -> Receiver<Feed> {
        let (sender, receiver) = channel();
        thread::spawn(move || self.run(interval, &sender));
        receiver
    }

    fn run(mut self, interval: Duration, sender: &Sender<Feed>) {
        // A channel that serves only as a timer.
        let (_waker, nothing) = channel::<()>();
        loop {
            let began = Instant::now();
            let feed = match self.ask() {
                Ok(snapshot) => Feed::Snapshot(Box::new(snapshot)),
                Err(error) => Feed::Gone(error.to_string()),
            };
            if sender.send(feed).is_err() {
                return;
            }
            let left = interval.saturating_sub(began.elapsed());
            if nothing.recv_timeout(left) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }
}
