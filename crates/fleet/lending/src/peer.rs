//! Another box, as this one sees it.

use crate::borrower::Borrower;
use crate::lender::Lender;
use crate::message::{Body, Held, Loans, Message, VERSION_WITH_FLOWS};
use crate::settings::Member;
use std::collections::BTreeMap;

/// How long an offer waits for confirmation before it is sent again, in nanoseconds: 200 ms. The
/// transport is reliable but for failures.
const REPEAT_NS: u64 = 200_000_000;

/// How long a report that is missing may be on its way, in nanoseconds: half a second.
const LATE_NS: u64 = 500_000_000;

/// The most reports that may be missing before all are asked for.
const MISSING_MAX: u64 = 64;

/// Another box.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) member: Member,
    /// The incarnation of its agent that is listened to.
    pub(crate) incarnation: Option<u64>,
    /// Whether that agent understands reports with flows.
    pub(crate) understands_flows: bool,
    /// When it was last heard.
    pub(crate) heard_ns: Option<u64>,
    /// Whether it was heard within a lease.
    pub(crate) is_live: bool,
    /// The largest number of its reports.
    pub(crate) report: u64,
    /// Reports below it that did not arrive, and since when they are missed.
    missing: BTreeMap<u64, u64>,
    /// Whether it should repeat its facts: a report is missing. Cleared when it was asked.
    pub(crate) misses: bool,
    pub(crate) lender: Lender,
    pub(crate) borrower: Borrower,
    /// When it was last written to, with loans.
    wrote_ns: u64,
    /// The number of offers when it was last written to.
    offered: u64,
    /// What it was last told of its loans.
    told: Option<Held>,
}

/// What became of a message's incarnation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Speaker {
    /// The agent that was heard before.
    Known,
    /// The first that is heard of this box.
    First,
    /// A later agent of this box.
    Later,
    /// An agent that another one followed: not listened to.
    Former,
}

impl Peer {
    pub(crate) fn new(member: Member, lease_ns: u64) -> Self {
        Self {
            member,
            incarnation: None,
            understands_flows: false,
            heard_ns: None,
            is_live: false,
            report: 0,
            missing: BTreeMap::new(),
            misses: false,
            lender: Lender::new(lease_ns),
            borrower: Borrower::new(lease_ns),
            wrote_ns: 0,
            offered: 0,
            told: None,
        }
    }

    /// Who speaks: an agent of this incarnation.
    pub(crate) fn speaker(&self, incarnation: u64) -> Speaker {
        match self.incarnation {
            None => Speaker::First,
            Some(known) if known == incarnation => Speaker::Known,
            // Incarnations follow the wall clock. If that was set back, the later agent is heard
            // once the former one is silent.
            Some(known) if incarnation > known || !self.is_live => Speaker::Later,
            Some(_) => Speaker::Former,
        }
    }

    /// Another agent of this box speaks: its reports begin anew.
    pub(crate) fn begin(&mut self, incarnation: u64) {
        self.incarnation = Some(incarnation);
        self.understands_flows = false;
        self.report = 0;
        self.missing.clear();
        self.misses = false;
    }

    /// A report of this number arrived. Others may have been lost, or be late.
    pub(crate) fn reported(&mut self, now: u64, number: u64) {
        self.missing.remove(&number);
        if number <= self.report {
            return;
        }
        if number - self.report > MISSING_MAX {
            self.missing.clear();
            self.misses = true;
        } else {
            self.missing.extend((self.report + 1..number).map(|missing| (missing, now)));
        }
        self.report = number;
    }

    /// What is to be said to it about loans now, if anything. `pulse_ns` is how long it waits at
    /// most for the renewal of a lease.
    pub(crate) fn loans(&mut self, now: u64, incarnation: u64, pulse_ns: u64) -> Option<Message> {
        let to = self.incarnation?;
        if self.missing.first_key_value().is_some_and(|(_, since)| now >= since + LATE_NS) {
            self.missing.clear();
            self.misses = true;
        }
        let held = self.borrower.held();
        let since = now.saturating_sub(self.wrote_ns);
        let has_news = self.lender.offers_made() > self.offered || held != self.told || self.misses;
        let is_used = self.lender.is_used() || self.borrower.is_used();
        let is_due = (is_used && since >= pulse_ns) || (self.lender.waits() && since >= REPEAT_NS);
        if !has_news && !is_due {
            return None;
        }
        self.wrote_ns = now;
        self.offered = self.lender.offers_made();
        self.told = held.clone();
        let lend = self.lender.lend(now);
        let repeat = std::mem::take(&mut self.misses);
        let body = Body::Loans(Loans { to, lend, held, repeat });
        Some(Message { incarnation, stamp: now, body, understands: VERSION_WITH_FLOWS })
    }
}
