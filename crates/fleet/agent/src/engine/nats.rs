//! NATS as the engine.
//!
//! A connection to one server of a cluster, and to the next where that one is gone. Only the
//! connection is looked after here; which box may say what is the server's to enforce.
//!
//! *Nothing piles up.* Whatever cannot be sent at once is dropped, and so is what arrives faster
//! than it is read: a later report replaces it.

use super::{Engine, Handed, Report};
use crate::config::Link;
use crate::subjects::Subjects;
use async_nats::connection::State;
use async_nats::{Client, ConnectOptions, Event, Message, ServerAddr, Subscriber};
use futures_util::{FutureExt, StreamExt};
use std::time::Duration;
use tokio::sync::mpsc;

/// How often a silent connection is asked for a sign; two that are missing end it.
const PING_EVERY: Duration = Duration::from_millis(500);
/// How long an attempt to connect may take.
const CONNECT_TIME: Duration = Duration::from_secs(2);
/// How long it waits before another attempt: longer from one to the next, up to this.
const RETRY_MAX: Duration = Duration::from_secs(1);
/// How much longer from one attempt to the next.
const RETRY_STEP: Duration = Duration::from_millis(50);
/// The messages that may wait to be read, and those that may wait to be sent.
const ARRIVED_MAX: usize = 2_048;
const SENT_MAX: usize = 256;
/// The events of the connection that may wait to be read.
const EVENTS_MAX: usize = 64;

/// A connection to a NATS server.
#[derive(Debug)]
pub struct Nats {
    client: Client,
    subjects: Subjects,
    to_all: Subscriber,
    to_me: Subscriber,
    events: mpsc::Receiver<Event>,
}

impl Nats {
    /// Connects to the servers of `link`, in this order, as who has the key from `seed`, and goes
    /// on in the background until one accepts.
    ///
    /// # Errors
    /// If this cannot even be tried: a certificate or a key that is none.
    pub async fn connect(
        link: &Link,
        seed: Option<String>,
        subjects: Subjects,
    ) -> Result<Self, async_nats::Error> {
        let (said, events) = mpsc::channel(EVENTS_MAX);
        let mut options = ConnectOptions::new()
            .name("narrows-fleet")
            .no_echo()
            .retry_on_initial_connect()
            .retain_servers_order()
            .ignore_discovered_servers()
            .max_reconnects(None)
            .connection_timeout(CONNECT_TIME)
            .reconnect_delay_callback(|attempts| {
                let steps = u32::try_from(attempts.saturating_sub(1)).unwrap_or(u32::MAX);
                RETRY_STEP.saturating_mul(steps).min(RETRY_MAX)
            })
            .ping_interval(PING_EVERY)
            .subscription_capacity(ARRIVED_MAX)
            .client_capacity(SENT_MAX)
            .event_callback(move |event| {
                let said = said.clone();
                // One that nobody reads in time is not worth waiting for.
                async move { drop(said.try_send(event)) }
            });
        if let Some(seed) = seed {
            options = options.nkey(seed);
        }
        if let Some(authority) = &link.authority {
            options = options.add_root_certificates(authority.clone()).require_tls(true);
        }
        if let Some((certificate, key)) = &link.certificate {
            options = options.add_client_certificate(certificate.clone(), key.clone());
        }
        let servers: Vec<ServerAddr> =
            link.servers.iter().map(|url| url.parse()).collect::<Result<_, _>>()?;
        let client = options.connect(servers).await?;
        let [to_all, to_me] = subjects.heard();
        let to_all = client.subscribe(to_all).await?;
        let to_me = client.subscribe(to_me).await?;
        Ok(Self { client, subjects, to_all, to_me, events })
    }

    fn message(&self, message: &Message) -> Option<Report> {
        let from = self.subjects.sender(&message.subject)?.to_owned();
        Some(Report::Message { from, bytes: message.payload.to_vec() })
    }

    fn event(&self, event: Event) -> Report {
        match event {
            Event::Connected => {
                let server = self.client.server_info();
                let through = format!("{} ({})", server.server_name, server.host);
                Report::Connected { through }
            }
            Event::Disconnected | Event::Closed => Report::Lost,
            Event::SlowConsumer(_) => {
                Report::Trouble("messages arrive faster than they are read: some are lost".into())
            }
            other => Report::Trouble(other.to_string()),
        }
    }
}

impl Engine for Nats {
    async fn next(&mut self) -> Report {
        loop {
            // In this order: after a connection is lost, that is known before what was left.
            tokio::select! {
                biased;
                Some(event) = self.events.recv() => return self.event(event),
                Some(message) = self.to_me.next() => {
                    if let Some(report) = self.message(&message) { return report }
                }
                Some(message) = self.to_all.next() => {
                    if let Some(report) = self.message(&message) { return report }
                }
                else => {
                    // The client has ended, which it does not without a limit of attempts.
                    return std::future::pending().await;
                }
            }
        }
    }

    fn publish(&mut self, to: Option<&str>, bytes: Vec<u8>) -> Handed {
        // What waits until there is a connection would be late by all that time.
        if self.client.connection_state() != State::Connected {
            return Handed::Dropped;
        }
        let sending = self.client.publish(self.subjects.to(to), bytes.into());
        match tokio::task::unconstrained(sending).now_or_never() {
            Some(Ok(())) => Handed::Over,
            _ => Handed::Dropped,
        }
    }
}
