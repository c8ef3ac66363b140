//! Shares of boxes that are off.
//!
//! *The idea.* What a silent box owns stays its own, since it may be cut off and send as much. An
//! operator knows more. The box to which he says that others are off *claims* their shares: it owns
//! them together with its own, and lends of them as it does of that. So a share has one owner at
//! each moment, as before, and no copy of it can be used twice.
//!
//! *What the operator asserts*: the box sends nothing now, and its instance starts anew when it
//! comes back. Its limits [rejoin](narrows_snapshot::SharedLimit::rejoins): after a start it has no
//! more than a small part ([`FLEET_FLOOR`]), which is never claimed, until its agent says more.
//!
//! *One owner.* A box that wants a share (another's that it claims, or its own after a start) notes
//! so first, then asks all boxes that are not off, and takes it once each said that it does not
//! claim it. Of two that want one share, one noted it after it answered the other and before it
//! asked, so it is told; if both noted before, both are told. A number makes an answer that of its
//! question, whenever it arrives.
//!
//! *When a box comes back.* A box that hears it gives back what it claims of it: lends no more of
//! it, waits for what is lent, and enforces the lower rate. It answers only then.
//!
//! *Starts.* What is noted is saved before anybody is asked, and what is given back before anybody
//! is told. An agent that starts again asks anew. A box that was off itself claims nothing, as
//! others may have said that it is off.
//!
//! Non-goals: to find out who is off.

use crate::message::{Answer, ITEMS_MAX, Question};
use compact_str::CompactString;
use narrows_snapshot::FLEET_HOLD_NS;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// How long a question waits for its answer before it is asked again, in nanoseconds: 200 ms.
const REPEAT_NS: u64 = 200_000_000;

/// What an agent saves of a box whose share it claims.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Claim {
    /// The box that is off.
    pub of: String,
    /// What is claimed of its part of each limit, in bits per second.
    pub shares: Vec<(CompactString, u64)>,
}

/// Why a box's share cannot be claimed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ForgetError {
    /// No such box.
    #[error("{0} is not a member of this fleet; `narrows-fleet show` has the names")]
    Stranger(String),
    /// This box itself.
    #[error("{0} is this box, and it is not off; say so to the agent of another one")]
    Me(String),
    /// A box that is not off.
    #[error("{0} is heard, so it is not off; stop its instance and its agent first")]
    Heard(String),
    /// Nothing of it can be claimed.
    #[error(
        "{0} has no share that this box could take: a limit must be in both policies, and have the word `rejoin` in that of {0}, and its agent must have told this one"
    )]
    Nothing(String),
    /// Too many.
    #[error("a box claims the shares of at most {ITEMS_MAX} others; tell another agent")]
    TooMany,
    /// Too early.
    #[error("this agent has just started, or its instance does not answer; try again in a moment")]
    Early,
}

/// How far a claim is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Stage {
    /// Others are asked.
    Waits,
    /// The share is this box's.
    Holds,
    /// The box is back, and its share is given back.
    Returns,
}

impl Stage {
    /// As views name it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Waits => "waits",
            Self::Holds => "claimed",
            Self::Returns => "returns",
        }
    }
}

/// A claim on the share of one box.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Held {
    pub(crate) shares: BTreeMap<CompactString, u64>,
    pub(crate) stage: Stage,
    /// Before this, what the box lent may be in force elsewhere.
    from_ns: u64,
}

/// What this box claims, and whom it asks. Boxes are indices of members.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Claims {
    held: BTreeMap<usize, Held>,
    /// Boxes whose share was given back, which is not saved.
    returned: BTreeSet<usize>,
    is_saved: bool,
    /// The number of the questions that are asked now.
    number: u64,
    /// Who answered, and whose shares it claims.
    answers: BTreeMap<usize, BTreeSet<usize>>,
    asked_ns: Option<u64>,
    /// Who asked, and the number of the question.
    to_answer: BTreeMap<usize, u64>,
    /// Whether this box's own share is its own.
    pub(crate) is_cleared: bool,
}

/// What became of the claims.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    /// Boxes whose share is this box's from now on.
    pub(crate) taken: Vec<usize>,
    /// Boxes that another one claims, too, and which: neither has it.
    pub(crate) denied: Vec<(usize, usize)>,
    /// Whether this box's own share is its own from now on.
    pub(crate) is_cleared: bool,
}

impl Claims {
    /// Notes that these boxes are off, whose shares are to be claimed.
    pub(crate) fn claim(&mut self, now: u64, claims: Vec<(usize, BTreeMap<CompactString, u64>)>) {
        for (of, shares) in claims {
            let from_ns = now.saturating_add(FLEET_HOLD_NS);
            self.returned.remove(&of);
            self.held.insert(of, Held { shares, stage: Stage::Waits, from_ns });
        }
        self.is_saved = false;
        self.ask_anew();
    }

    /// Goes on with what an earlier agent of this box saved.
    pub(crate) fn restore(&mut self, held: Vec<(usize, BTreeMap<CompactString, u64>)>) {
        for (of, shares) in held {
            self.held.insert(of, Held { shares, stage: Stage::Waits, from_ns: u64::MAX });
        }
        self.is_saved = true;
        self.ask_anew();
    }

    /// The data plane said for the first time what there is. `was_on` tells that the box was not
    /// off since an agent last set something; `over_ns` when what it lent is over.
    pub(crate) fn begin(&mut self, was_on: bool, over_ns: u64) -> Vec<usize> {
        for held in self.held.values_mut() {
            held.from_ns = over_ns;
        }
        if was_on || self.held.is_empty() {
            return Vec::new();
        }
        self.is_saved = false;
        std::mem::take(&mut self.held).into_keys().collect()
    }

    fn ask_anew(&mut self) {
        self.number += 1;
        self.answers.clear();
        self.asked_ns = None;
    }

    pub(crate) fn get(&self, of: usize) -> Option<&Held> {
        self.held.get(&of)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &Held)> {
        self.held.iter().map(|(&of, held)| (of, held))
    }

    /// What is claimed of a limit, and is this box's.
    pub(crate) fn holds_bps(&self, name: &str) -> u64 {
        let holds = self.held.values().filter(|held| held.stage == Stage::Holds);
        holds.filter_map(|held| held.shares.get(name)).fold(0, |sum, &bps| sum.saturating_add(bps))
    }

    /// What to save, if anything changed.
    pub(crate) fn unsaved(&self) -> Option<impl Iterator<Item = (usize, &Held)>> {
        (!self.is_saved).then(|| self.iter())
    }

    pub(crate) fn saved(&mut self) {
        self.is_saved = true;
        self.returned.clear();
    }

    /// A box is heard. Returns whether its share is to be given back.
    pub(crate) fn heard(&mut self, of: usize) -> bool {
        match self.held.get_mut(&of) {
            Some(held) if held.stage == Stage::Holds => {
                held.stage = Stage::Returns;
                true
            }
            Some(held) if held.stage == Stage::Waits => {
                self.is_returned(of);
                false
            }
            _ => false,
        }
    }

    /// The share of this box is given back.
    pub(crate) fn is_returned(&mut self, of: usize) {
        self.held.remove(&of);
        self.returned.insert(of);
        self.is_saved = false;
    }

    /// A box asks.
    pub(crate) fn asked(&mut self, by: usize, question: &Question) {
        let number = self.to_answer.entry(by).or_default();
        *number = question.number.max(*number);
    }

    /// A box's agent starts again: its questions begin anew.
    pub(crate) fn restarted(&mut self, index: usize) {
        self.to_answer.remove(&index);
    }

    /// A box answers: it claims these.
    pub(crate) fn answered(&mut self, by: usize, number: u64, claims: BTreeSet<usize>) {
        if number == self.number {
            self.answers.insert(by, claims);
        }
    }

    /// Whether others are to be asked.
    fn asks(&self, is_held_back: bool) -> bool {
        is_held_back || self.held.values().any(|held| held.stage == Stage::Waits)
    }

    /// Decides by the answers, if all are there. `is_held_back` tells that this box waits for its
    /// own share, `is_live` whether a box is heard.
    pub(crate) fn settle(
        &mut self,
        now: u64,
        is_held_back: bool,
        others: impl Iterator<Item = usize>,
        is_live: impl Fn(usize) -> bool,
    ) -> Settled {
        let mut settled = Settled::default();
        if !self.asks(is_held_back) || !self.is_saved {
            return settled;
        }
        for (&by, claims) in &self.answers {
            let denied = claims
                .iter()
                .filter(|of| self.held.get(of).is_some_and(|held| held.stage == Stage::Waits));
            settled.denied.extend(denied.map(|&of| (of, by)));
        }
        for &(of, _) in &settled.denied {
            self.is_returned(of);
        }
        // Who is off, as an operator said here or elsewhere, needs not answer.
        let is_off = |index: usize| {
            self.held.contains_key(&index)
                || self.answers.values().any(|claims| claims.contains(&index))
        };
        let mut others = others;
        let all = others.all(|index| self.answers.contains_key(&index) || is_off(index));
        if !all || !settled.denied.is_empty() {
            return settled;
        }
        settled.is_cleared = is_held_back;
        self.is_cleared |= is_held_back;
        for (&of, held) in &mut self.held {
            if held.stage == Stage::Waits && now >= held.from_ns && !is_live(of) {
                held.stage = Stage::Holds;
                settled.taken.push(of);
            }
        }
        settled
    }

    /// Whether it is time to ask those who did not answer.
    pub(crate) fn is_time_to_ask(&mut self, now: u64, is_held_back: bool) -> bool {
        let is_due = self.asked_ns.is_none_or(|asked| now >= asked.saturating_add(REPEAT_NS));
        let asks = is_due && self.is_saved && self.asks(is_held_back);
        if asks {
            self.asked_ns = Some(now);
        }
        asks
    }

    /// What to ask a box now, if it did not answer.
    pub(crate) fn question(&self, to: usize, incarnation: u64) -> Option<Question> {
        let is_open = !self.answers.contains_key(&to) && !self.held.contains_key(&to);
        is_open.then_some(Question { to: incarnation, number: self.number })
    }

    /// What to answer a box now, if it asked. A box whose share is claimed waits until it has it
    /// back, and nobody is told what is not saved.
    pub(crate) fn answer(
        &mut self,
        to: usize,
        incarnation: u64,
        name: impl Fn(usize) -> CompactString,
    ) -> Option<Answer> {
        if !self.is_saved || self.held.contains_key(&to) {
            return None;
        }
        let number = self.to_answer.remove(&to)?;
        let claims = self.held.keys().map(|&of| name(of)).collect();
        Some(Answer { to: incarnation, number, claims })
    }
}

#[cfg(test)]
mod tests;
