//! Another box, as this one sees it.

use crate::borrower::Borrower;
use crate::lender::Lender;
use crate::message::{Body, Held, Loans, Message};
use crate::settings::Member;

/// How long an offer waits for confirmation before it is sent again, in nanoseconds: 200 ms. The
/// transport is reliable but for failures.
const REPEAT_NS: u64 = 200_000_000;

/// Another box.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) member: Member,
    /// The incarnation of its agent that is listened to.
    pub(crate) incarnation: Option<u64>,
    /// When it was last heard.
    pub(crate) heard_ns: Option<u64>,
    /// Whether it was heard within a lease.
    pub(crate) is_live: bool,
    /// The number of its last report.
    pub(crate) report: Option<u64>,
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
            heard_ns: None,
            is_live: false,
            report: None,
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

    /// What is to be said to it about loans now, if anything. `pulse_ns` is how long it waits at
    /// most for the renewal of a lease.
    pub(crate) fn loans(&mut self, now: u64, incarnation: u64, pulse_ns: u64) -> Option<Message> {
        let to = self.incarnation?;
        let held = self.borrower.held();
        let since = now.saturating_sub(self.wrote_ns);
        let has_news = self.lender.newest() > self.offered || held != self.told || self.misses;
        let is_used = self.lender.is_used() || self.borrower.is_used();
        let is_due = (is_used && since >= pulse_ns) || (self.lender.waits() && since >= REPEAT_NS);
        if !has_news && !is_due {
            return None;
        }
        self.wrote_ns = now;
        self.offered = self.lender.newest();
        self.told = held.clone();
        let lend = self.lender.lend(now);
        let repeat = std::mem::take(&mut self.misses);
        let body = Body::Loans(Loans { to, lend, held, repeat });
        Some(Message { incarnation, stamp: now, body })
    }
}
