//! Packets in, answers and changed subscribers out.

use super::attribute::{
    ACCT_DELAY_TIME, ACCT_SESSION_ID, ACCT_STATUS_TYPE, CALLING_STATION_ID, DELEGATED_IPV6_PREFIX,
    EVENT_TIMESTAMP, FRAMED_IP_ADDRESS, FRAMED_IPV6_ADDRESS, FRAMED_IPV6_PREFIX,
    MESSAGE_AUTHENTICATOR, NAS_IDENTIFIER, NAS_IP_ADDRESS, NAS_IPV6_ADDRESS, PROXY_STATE,
    SERVICE_TYPE, STATE,
};
use super::config::{Client, Config};
use super::duplicates::Duplicates;
use super::offer::Offer;
use super::packet::{AnswerCode, Authentic, Code, ErrorCause, Packet, Type};
use super::report::{IDENTIFICATION, Key, Nas, Report, Selector};
use super::table::{Change, Outcome, Table};
use narrows_directory::Subscriber;
use narrows_units::Nanos;
use std::net::SocketAddr;

/// Acct-Status-Type (RFC 2866 section 5.1).
const START: u32 = 1;
const STOP: u32 = 2;
const INTERIM_UPDATE: u32 = 3;
const ACCOUNTING_ON: u32 = 7;
const ACCOUNTING_OFF: u32 = 8;
/// The longest Acct-Delay-Time that is believed, in seconds.
const DELAY_MAX: u64 = 86_400;

/// What time it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// By a clock that only goes forward.
    pub steady: Nanos,
    /// In seconds since 1970.
    pub unix: u64,
}

/// What was done with packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Packets that changed something, or might have.
    pub taken: u64,
    /// Dropped: from an address of no client.
    pub unknown_client: u64,
    /// Dropped: no packet of accounting, CoA or Disconnect.
    pub malformed: u64,
    /// Dropped: signed with another secret, or not signed as the client has to.
    pub not_authentic: u64,
    /// Dropped: the client may not send such packets.
    pub not_allowed: u64,
    /// Answered again, and not done twice.
    pub duplicate: u64,
    /// Not done: its Event-Timestamp is too far from now.
    pub outside_window: u64,
    /// Answered and not done: something newer is known of the session.
    pub late: u64,
    /// Dropped: there are as many sessions as there may be.
    pub full: u64,
    /// Answered and not done: it does not say which session or whose.
    pub nobody: u64,
    /// Values in packets of accounting that cannot be used. The rest of the packet was.
    pub unusable_values: u64,
    /// Disconnects and CoAs that were refused.
    pub refused: u64,
    /// Sessions that ended since nothing was heard of them.
    pub silent: u64,
}

/// A server of accounting, CoA and Disconnect, without its sockets.
#[derive(Debug)]
pub struct Sessions {
    config: Config,
    table: Table,
    duplicates: Duplicates,
    counters: Counters,
}

impl Sessions {
    /// No sessions yet.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            table: Table::default(),
            duplicates: Duplicates::default(),
            counters: Counters::default(),
        }
    }

    /// The rules.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// How many sessions there are.
    pub fn count(&self) -> usize {
        self.table.len()
    }

    /// Takes over a subscriber that an earlier listener saved, and its sessions.
    pub fn restore(&mut self, now: Now, identity: &str, subscriber: &Subscriber) {
        self.table.restore(now.steady, identity, subscriber);
    }

    /// Ends sessions of which nothing is heard, and lets subscribers go that stayed away. Looks at
    /// all sessions; once in ten seconds is often enough.
    pub fn tick(&mut self, now: Now) {
        self.counters.silent += self.table.tick(&self.config, now.steady) as u64;
    }

    /// Whether subscribers changed since [`Sessions::changes`].
    pub fn is_changed(&self) -> bool {
        self.table.is_changed()
    }

    /// The subscribers that changed since the last time.
    pub fn changes(&mut self) -> Vec<Change> {
        self.table.changes()
    }

    /// These changes could not be stored: they will be among the next. Answers that were given with
    /// them are forgotten, so that a repeated packet is taken again.
    pub fn not_stored(&mut self, changes: Vec<Change>) {
        self.table.again(changes.into_iter().map(|change| change.identity));
        self.duplicates.clear();
    }

    /// These subscribers count as changed, though they are as they were.
    pub fn again(&mut self, identities: impl IntoIterator<Item = String>) {
        self.table.again(identities);
    }

    /// A datagram came. Returns the answer. It may be sent when what changed is stored.
    pub fn receive(&mut self, now: Now, from: SocketAddr, datagram: &[u8]) -> Option<Vec<u8>> {
        let Some(client) = self.config.client(from.ip()).cloned() else {
            self.counters.unknown_client += 1;
            log::debug!("a packet from {from}, which is no client: add it as a [[client]]");
            return None;
        };
        let packet = match Packet::decode(datagram) {
            Ok(packet) => packet,
            Err(why) => {
                self.counters.malformed += 1;
                log::debug!("a packet of {} from {from} is dropped: {why}", client.name);
                return None;
            }
        };
        let by_message = match packet.authentic(&client.secret) {
            Authentic::Yes { by_message } if by_message || !client.needs_message_authenticator => {
                by_message
            }
            Authentic::Yes { .. } => {
                self.counters.not_authentic += 1;
                log::debug!("a packet of {} has no Message-Authenticator", client.name);
                return None;
            }
            Authentic::No => {
                self.counters.not_authentic += 1;
                log::debug!("{} and this listener have different secrets", client.name);
                return None;
            }
        };
        let request = (from, packet.identifier(), packet.authenticator());
        if let Some(answer) = self.duplicates.answer(now.steady, &request) {
            self.counters.duplicate += 1;
            return Some(answer.clone());
        }
        let (code, cause) = match packet.code() {
            Code::Accounting => (self.account(now, &client, from, &packet)?, None),
            Code::Disconnect => match self.disconnect(now, &client, &packet)? {
                Ok(()) => (AnswerCode::DisconnectAck, None),
                Err(cause) => (AnswerCode::DisconnectNak, Some(cause)),
            },
            Code::ChangeOfAuthorization => match self.change(now, &client, &packet)? {
                Ok(()) => (AnswerCode::CoaAck, None),
                Err(cause) => (AnswerCode::CoaNak, Some(cause)),
            },
        };
        self.counters.refused += u64::from(cause.is_some());
        let answer = packet.answer(code, cause, &client.secret, by_message);
        self.duplicates.remember(now.steady, request, answer.clone());
        Some(answer)
    }

    /// `None`: there is no answer.
    fn account(
        &mut self,
        now: Now,
        client: &Client,
        from: SocketAddr,
        packet: &Packet<'_>,
    ) -> Option<AnswerCode> {
        if !client.accounting {
            self.counters.not_allowed += 1;
            log::debug!("{} may not send accounting: see its `allow`", client.name);
            return None;
        }
        let nas = Nas::of(packet, &client.name, from.ip().to_canonical());
        let stamp = packet.integer(EVENT_TIMESTAMP.number).map(u64::from);
        if stamp.is_some_and(|stamp| is_outside(now, stamp, self.config.accounting_window)) {
            self.counters.outside_window += 1;
            log::debug!("the clock of {} is wrong, or its packet is old", nas.name());
            return Some(AnswerCode::Accounting);
        }
        let delay = u64::from(packet.integer(ACCT_DELAY_TIME.number).unwrap_or(0)).min(DELAY_MAX);
        let event = stamp.unwrap_or(now.unix.saturating_sub(delay));
        let Some(status) = packet.integer(ACCT_STATUS_TYPE.number) else {
            self.counters.malformed += 1;
            log::debug!("a packet of {} has no Acct-Status-Type", client.name);
            return None;
        };
        let outcome = match status {
            START | INTERIM_UPDATE => {
                let is_interim = status == INTERIM_UPDATE;
                match Report::read(&self.config, packet, nas, event, is_interim) {
                    Some((report, fault)) => {
                        if let Some((kind, why)) = fault {
                            self.counters.unusable_values += 1;
                            log::debug!("{kind} of session {}: {why}", report.key.id);
                        }
                        self.table.report(&self.config, now.steady, report)
                    }
                    None => Outcome::Nobody,
                }
            }
            STOP => match packet.value(ACCT_SESSION_ID).and_then(super::attribute::text) {
                Some(id) => self.table.stop(now.steady, &Key { id, nas }, event),
                None => Outcome::Nobody,
            },
            ACCOUNTING_ON | ACCOUNTING_OFF => {
                self.table.stop_all(now.steady, event, |theirs| *theirs == nas);
                Outcome::Done
            }
            // Tunnels and links (RFC 2867) have no rate of their own.
            _ => Outcome::Done,
        };
        match outcome {
            Outcome::Done => self.counters.taken += 1,
            Outcome::Late => self.counters.late += 1,
            Outcome::Nobody => self.counters.nobody += 1,
            // RFC 2866 section 4.1: what is not recorded is not answered, so it comes again.
            Outcome::Full => {
                self.counters.full += 1;
                return None;
            }
        }
        Some(AnswerCode::Accounting)
    }

    /// The sessions that a Disconnect or CoA means. Outer `None`: there is no answer.
    fn meant(
        &mut self,
        now: Now,
        client: &Client,
        packet: &Packet<'_>,
    ) -> Option<Result<Vec<std::sync::Arc<Key>>, ErrorCause>> {
        if !client.coa {
            return Some(Err(ErrorCause::AdministrativelyProhibited));
        }
        let stamp = packet.integer(EVENT_TIMESTAMP.number).map(u64::from);
        if stamp.is_some_and(|stamp| is_outside(now, stamp, self.config.window)) {
            // RFC 5176 section 6.3: silently discarded.
            self.counters.outside_window += 1;
            log::debug!("the clock of {} is wrong, or its packet is old", client.name);
            return None;
        }
        if packet.value(SERVICE_TYPE).is_some() {
            return Some(Err(ErrorCause::UnsupportedService));
        }
        let is_unsupported = |kind: Type| !self.is_supported(packet.code(), kind);
        if self.config.refuse_unsupported
            && let Some((kind, _)) = packet.attributes().find(|(kind, _)| is_unsupported(*kind))
        {
            log::debug!("{} sent {kind}, which is not supported in such a request", client.name);
            return Some(Err(ErrorCause::UnsupportedAttribute));
        }
        let Some(selector) = Selector::read(&self.config, packet) else {
            return Some(Err(ErrorCause::MissingAttribute));
        };
        let keys = self.table.meant(&selector);
        Some(if keys.is_empty() { Err(ErrorCause::SessionContextNotFound) } else { Ok(keys) })
    }

    fn disconnect(
        &mut self,
        now: Now,
        client: &Client,
        packet: &Packet<'_>,
    ) -> Option<Result<(), ErrorCause>> {
        let keys = match self.meant(now, client, packet)? {
            Ok(keys) => keys,
            Err(cause) => return Some(Err(cause)),
        };
        let event = packet.integer(EVENT_TIMESTAMP.number).map_or(now.unix, u64::from);
        self.table.disconnect(now.steady, &keys, event);
        self.counters.taken += 1;
        Some(Ok(()))
    }

    fn change(
        &mut self,
        now: Now,
        client: &Client,
        packet: &Packet<'_>,
    ) -> Option<Result<(), ErrorCause>> {
        let keys = match self.meant(now, client, packet)? {
            Ok(keys) => keys,
            Err(cause) => return Some(Err(cause)),
        };
        let (offer, fault) = Offer::read(&self.config, packet);
        if let Some((kind, why)) = fault {
            log::debug!("{kind} of {}: {why}", client.name);
            return Some(Err(ErrorCause::InvalidAttributeValue));
        }
        if offer.is_empty() {
            return Some(Err(ErrorCause::MissingAttribute));
        }
        self.table.change(&self.config, &keys, &offer);
        self.counters.taken += 1;
        Some(Ok(()))
    }

    /// Whether an attribute says something here: which session, since when, or how fast.
    fn is_supported(&self, code: Code, kind: Type) -> bool {
        let is_of_session = kind.vendor.is_none() && IDENTIFICATION.contains(&kind.number);
        is_of_session
            || kind == self.config.identity
            || [
                ACCT_SESSION_ID,
                CALLING_STATION_ID,
                DELEGATED_IPV6_PREFIX,
                EVENT_TIMESTAMP,
                FRAMED_IPV6_ADDRESS,
                FRAMED_IPV6_PREFIX,
                FRAMED_IP_ADDRESS,
                MESSAGE_AUTHENTICATOR,
                NAS_IDENTIFIER,
                NAS_IPV6_ADDRESS,
                NAS_IP_ADDRESS,
                PROXY_STATE,
                STATE,
            ]
            .contains(&kind)
            // Acct-Terminate-Cause (RFC 5176 section 3.6).
            || (code == Code::Disconnect && kind == Type::standard(49))
            || (code == Code::ChangeOfAuthorization
                && self.config.rules.iter().any(|rule| rule.attribute == kind))
    }
}

fn is_outside(now: Now, stamp: u64, window: Nanos) -> bool {
    window.0 > 0 && now.unix.abs_diff(stamp) > window.0 / 1_000_000_000
}
