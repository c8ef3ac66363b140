//! The agent of one box: demand in, orders and messages out.
//!
//! *A turn* is an order to the data plane, its answer, and what is published after it:
//! [`order`](Agent::order), [`answered`](Agent::answered). Messages that arrive in between change
//! what the next turn does. The order of things is what makes loans safe: a loan is decided when an
//! order is made, which already leaves it out, and is published after the answer; what was borrowed
//! is confirmed, or given back, only once an order without it is in force. An agent whose data
//! plane does not answer publishes nothing, so its leases run out.
//!
//! *Start.* The first order changes nothing: it asks what there is. The second one sets every
//! limit, so that nothing that an earlier agent borrowed is in force; only then does the agent
//! speak. What the earlier agent may have lent counts as lent until it is certainly over.
//!
//! *Cost.* A turn costs O(limits that changed × boxes that share them). A limit of which nothing
//! changes costs nothing but its leases, which are one for each pair of boxes.

use crate::borrower::Mark;
use crate::claims::{self, Claim, Claims, ForgetError};
use crate::demand::{Below, by_tier};
use crate::event::{Event, NotClaimed};
use crate::limit::{Division, Known, Limit, Parts, part};
use crate::matching::Loan;
use crate::message::{
    Body, Fact, ITEMS_MAX, Loans, Message, MessageError, Report, Said, VERSION_WITH_FLOWS,
};
use crate::peer::{Peer, Speaker};
use crate::settings::{Settings, SettingsError};
use crate::shares::TIERS;
use compact_str::CompactString;
use foldhash::fast::RandomState;
use narrows_snapshot::{
    FLEET_FLOOR, FLEET_HOLD_NS, FleetFacts, FleetOrder, FleetShare, SharedLimit,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Each message has many names, and they come from members only: the standard hash, which holds
/// against strangers, takes a twelfth of an agent's time.
type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;
type HashSet<T> = std::collections::HashSet<T, RandomState>;

/// A loan changes when it is off by more than this part of what a box owns: a 512th.
const STEP: u64 = 512;

/// How often facts whose demand stays are told again, if what is sent changed: each second, all at
/// once. Nothing is divided by them; people see them.
const FACT_NS: u64 = 1_000_000_000;

/// The most limits that are kept of what others say, in all.
const LIMITS_MAX: usize = 1 << 18;

/// The most facts that are repeated in a turn.
const REPEATS_MAX: usize = 4 * ITEMS_MAX;

/// The most events that wait to be read.
const EVENTS_MAX: usize = 256;

/// A message to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// To whom; none means to all members.
    pub to: Option<String>,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// How far the agent is since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// It knows nothing of the data plane.
    Asks,
    /// It knows what is there, and has not set it.
    Sets,
    /// Everything is set: it speaks.
    Speaks,
}

/// An order that was made and is not answered.
#[derive(Clone, Debug)]
struct Pending {
    shares: Vec<FleetShare>,
    marks: Vec<(usize, Mark)>,
    deadline_ns: u64,
    since: u64,
}

/// The agent of a box.
#[derive(Clone, Debug)]
pub struct Agent {
    pub(crate) settings: Settings,
    incarnation: u64,
    pub(crate) me: usize,
    pub(crate) peers: Vec<Peer>,
    pub(crate) limits: HashMap<CompactString, Limit>,
    stage: Stage,
    cursor: u64,
    pending: Option<Pending>,
    /// Limits to divide anew.
    to_divide: HashSet<CompactString>,
    /// The memory of divisions.
    division: Division,
    /// Limits of which the data plane may have other parts than this agent wants.
    to_order: HashSet<CompactString>,
    /// Limits with traffic in the last turn.
    active: HashSet<CompactString>,
    /// Limits that may have something of an earlier agent lent.
    orphans: HashSet<CompactString>,
    /// Shared limits by the one that they are below.
    below: HashMap<CompactString, BTreeSet<CompactString>>,
    /// Facts to tell.
    to_tell: BTreeSet<CompactString>,
    /// Facts to tell again, with what is sent now, and when that was done last.
    details: BTreeSet<CompactString>,
    detailed_ns: u64,
    gone: Vec<CompactString>,
    /// Shares of boxes that are off.
    pub(crate) claims: Claims,
    /// Limits of which this box has a small part since its start, until others say that they do not
    /// claim its share.
    pub(crate) held_back: BTreeSet<CompactString>,
    /// Facts to repeat, for those who missed some.
    to_repeat: VecDeque<CompactString>,
    /// Whether a box missed facts.
    must_repeat: bool,
    repeated_ns: u64,
    reports: u64,
    reported_ns: u64,
    /// When facts were last told.
    told_ns: u64,
    /// When the last turn began.
    turn_ns: u64,
    /// Whether something changed that the next turn should not wait for: a loan, or this box's own
    /// demand.
    is_urgent: bool,
    /// Whether other boxes demand something else. They change by the hundred: several of them are
    /// one turn.
    has_news: bool,
    has_twin: bool,
    /// Whether all boxes that are heard understand reports with flows.
    speaks_of_flows: bool,
    pub(crate) events: VecDeque<Event>,
}

impl Agent {
    /// An agent that begins at `now` (nanoseconds of a clock that never jumps: `CLOCK_BOOTTIME`).
    /// The incarnation grows with each start: the wall clock in nanoseconds.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the settings.
    pub fn new(settings: Settings, incarnation: u64, now: u64) -> Result<Self, SettingsError> {
        let settings = settings.checked()?;
        let me = settings.members.iter().position(|member| member.name == settings.me);
        let peers =
            settings.members.iter().map(|member| Peer::new(member.clone(), settings.lease_ns));
        Ok(Self {
            me: me.unwrap_or(0),
            peers: peers.collect(),
            settings,
            incarnation,
            limits: HashMap::default(),
            stage: Stage::Asks,
            cursor: 0,
            pending: None,
            to_divide: HashSet::default(),
            division: Division::default(),
            to_order: HashSet::default(),
            active: HashSet::default(),
            orphans: HashSet::default(),
            below: HashMap::default(),
            to_tell: BTreeSet::new(),
            details: BTreeSet::new(),
            detailed_ns: now,
            gone: Vec::new(),
            claims: Claims::default(),
            held_back: BTreeSet::new(),
            to_repeat: VecDeque::new(),
            must_repeat: false,
            repeated_ns: 0,
            reports: 0,
            reported_ns: 0,
            told_ns: 0,
            turn_ns: now,
            is_urgent: true,
            has_news: false,
            has_twin: false,
            speaks_of_flows: false,
            events: VecDeque::new(),
        })
    }

    /// Goes on with the claims that an earlier agent of this box saved. Boxes that are no members
    /// any more are passed over.
    pub fn restore(&mut self, claims: Vec<Claim>) {
        let claims = claims.into_iter().take(ITEMS_MAX);
        let known = claims.filter_map(|claim| {
            let of = self.member(&claim.of).filter(|of| *of != self.me)?;
            Some((of, claim.shares.into_iter().collect()))
        });
        let known = known.collect();
        self.claims.restore(known);
    }

    /// The claims to save, if they changed: before anything else that this agent returns is passed
    /// on. [`saved`](Agent::saved) says that it was done; until then nobody is told of them.
    pub fn unsaved(&self) -> Option<Vec<Claim>> {
        let claim = |(of, held): (usize, &claims::Held)| Claim {
            of: self.settings.members[of].name.clone(),
            shares: held.shares.iter().map(|(name, &bps)| (name.clone(), bps)).collect(),
        };
        Some(self.claims.unsaved()?.map(claim).collect())
    }

    /// The claims are saved.
    pub fn saved(&mut self) {
        self.claims.saved();
    }

    /// An operator says that these boxes are off: they send nothing, and their instances start anew
    /// when they come back. This box claims their shares, and lends of them.
    ///
    /// # Errors
    ///
    /// Says which box is not off, or has no share that this box could take. Nothing changed then.
    pub fn forget(&mut self, now: u64, names: &[String]) -> Result<(), ForgetError> {
        if self.stage != Stage::Speaks {
            return Err(ForgetError::Early);
        }
        let mut claims: BTreeMap<usize, BTreeMap<CompactString, u64>> = BTreeMap::new();
        for name in names {
            let of = self.member(name).ok_or_else(|| ForgetError::Stranger(name.clone()))?;
            if of == self.me {
                return Err(ForgetError::Me(name.clone()));
            }
            if self.peers[of].is_live {
                return Err(ForgetError::Heard(name.clone()));
            }
            if self.claims.get(of).is_some() {
                continue;
            }
            let shares: BTreeMap<CompactString, u64> = self
                .limits
                .iter()
                .filter_map(|(name, limit)| {
                    let own = limit.own.as_ref()?;
                    let said = limit.of(of)?.said;
                    let safe_bps = said.safe_bps - said.of_others_bps();
                    // What it has after a start is its own.
                    let free_bps = safe_bps - safe_bps / FLEET_FLOOR;
                    let bps = part(free_bps, own.limit_bps, said.limit_bps);
                    (said.rejoins && bps > 0).then(|| (name.clone(), bps))
                })
                .collect();
            // Of a box that was never heard, nothing is known: then nobody waits for its answer.
            let is_known = self.limits.values().any(|limit| limit.of(of).is_some());
            if shares.is_empty() && is_known {
                return Err(ForgetError::Nothing(name.clone()));
            }
            claims.insert(of, shares);
        }
        if self.claims.iter().count() + claims.len() > ITEMS_MAX {
            return Err(ForgetError::TooMany);
        }
        if !claims.is_empty() {
            self.claims.claim(now, claims.into_iter().collect());
            self.is_urgent = true;
        }
        Ok(())
    }

    /// The index of a member.
    fn member(&self, name: &str) -> Option<usize> {
        let members = &self.settings.members;
        members.binary_search_by(|member| member.name.as_str().cmp(name)).ok()
    }

    /// What happened since this was last asked.
    pub fn events(&mut self) -> Vec<Event> {
        self.events.drain(..).collect()
    }

    /// When the next turn is due.
    pub fn next_turn(&self) -> u64 {
        let interval = self.settings.interval_ns;
        let soon = if self.is_urgent {
            interval / 8
        } else if self.has_news {
            interval / 4
        } else {
            interval
        };
        self.turn_ns + soon
    }

    /// A message arrived from this member.
    ///
    /// # Errors
    ///
    /// Says why it is no message of the fleet. It changed nothing then, and is among the events.
    pub fn on_message(&mut self, now: u64, from: &str, bytes: &[u8]) -> Result<(), MessageError> {
        let result = self.message(now, from, bytes);
        if let Err(error) = &result {
            self.event(Event::Malformed { from: from.to_owned(), why: error.to_string() });
        }
        result
    }

    fn message(&mut self, now: u64, from: &str, bytes: &[u8]) -> Result<(), MessageError> {
        let message = Message::decode(bytes)?;
        let index = self.member(from).ok_or_else(|| MessageError::Stranger(from.to_owned()))?;
        if index == self.me {
            if message.incarnation != self.incarnation && !self.has_twin {
                self.has_twin = true;
                self.event(Event::Twin);
            }
            return Ok(());
        }
        match self.peers[index].speaker(message.incarnation) {
            Speaker::Former => return Ok(()),
            Speaker::Known => {}
            speaker @ (Speaker::First | Speaker::Later) => {
                let peer = &mut self.peers[index];
                peer.begin(message.incarnation);
                let over = peer.lender.restarted();
                for limit in self.limits.values_mut() {
                    limit.begin(index);
                }
                self.ended(over);
                self.claims.restarted(index);
                if speaker == Speaker::Later {
                    self.event(Event::Restarted(from.to_owned()));
                }
            }
        }
        let peer = &mut self.peers[index];
        peer.understands_flows |= message.understands >= VERSION_WITH_FLOWS;
        peer.heard_ns = Some(now);
        peer.lender.heard(now, message.stamp);
        if !peer.is_live {
            peer.is_live = true;
            self.divide_all_of(index);
            self.event(Event::Heard(from.to_owned()));
        }
        if self.claims.heard(index) {
            self.claims_changed(index);
        }
        match message.body {
            Body::Report(report) => self.report(now, index, report),
            Body::Loans(loans) if loans.to == self.incarnation => {
                self.loans(now, index, message.incarnation, loans)
            }
            Body::Question(question) if question.to == self.incarnation => {
                self.claims.asked(index, &question);
                self.is_urgent = true;
            }
            Body::Answer(answer) if answer.to == self.incarnation => {
                let claims = answer.claims.iter().filter_map(|name| self.member(name)).collect();
                self.claims.answered(index, answer.number, claims);
                self.is_urgent = true;
            }
            Body::Loans(_) | Body::Question(_) | Body::Answer(_) => {}
        }
        Ok(())
    }

    /// What this box has by its claim on the share of a box is otherwise than it was.
    fn claims_changed(&mut self, of: usize) {
        let Some(held) = self.claims.get(of) else { return };
        let names: Vec<CompactString> = held.shares.keys().cloned().collect();
        for name in names {
            self.appraise(&name);
            self.to_divide.insert(name.clone());
            self.to_order.insert(name);
        }
        self.is_urgent = true;
    }

    /// Takes what nobody else claims.
    fn settle_claims(&mut self, now: u64) {
        let others = (0..self.peers.len()).filter(|&index| index != self.me);
        let is_held_back = !self.held_back.is_empty();
        let is_live = |index: usize| self.peers[index].is_live;
        let settled = self.claims.settle(now, is_held_back, others, is_live);
        let name = |index: usize| self.settings.members[index].name.clone();
        let denied: Vec<Event> = settled
            .denied
            .iter()
            .map(|&(of, by)| Event::NotClaimed { of: name(of), why: NotClaimed::By(name(by)) })
            .collect();
        let taken: Vec<Event> = settled.taken.iter().map(|&of| Event::Claimed(name(of))).collect();
        denied.into_iter().chain(taken).for_each(|event| self.event(event));
        for of in settled.taken {
            self.claims_changed(of);
        }
        if settled.is_cleared {
            for name in std::mem::take(&mut self.held_back) {
                self.appraise(&name);
                self.to_order.insert(name);
            }
            self.event(Event::Cleared);
        }
    }

    /// Ends the claims of which nothing is in force any more, here or where it was lent.
    fn finish_returns(&mut self) {
        let is_over = |name: &CompactString| {
            let Some(limit) = self.limits.get(name).filter(|limit| limit.own.is_some()) else {
                return true;
            };
            let is_back = limit.claimed_bps <= self.claims.holds_bps(name);
            is_back && limit.in_force == Some(self.parts(name, limit))
        };
        let returns = self.claims.iter().filter(|(_, held)| held.stage == claims::Stage::Returns);
        let over = returns.filter(|(_, held)| held.shares.keys().all(is_over));
        let over: Vec<usize> = over.map(|(of, _)| of).collect();
        for of in over {
            self.claims.is_returned(of);
            self.event(Event::Returned(self.settings.members[of].name.clone()));
            self.is_urgent = true;
        }
    }

    /// Whether this box waits for the others' word before it has more than a small part of a limit.
    fn is_held_back(&self, own: &SharedLimit) -> bool {
        own.rejoins && own.unset_since_ns.is_some() && !self.claims.is_cleared
    }

    fn report(&mut self, now: u64, index: usize, report: Report) {
        self.peers[index].reported(now, report.number);
        for fact in &report.facts {
            let is_full = self.limits.len() >= LIMITS_MAX;
            let limit = match self.limits.get_mut(&fact.name) {
                Some(limit) => limit,
                None if is_full => continue,
                None => self.limits.entry(fact.name.clone()).or_default(),
            };
            let known = Known { said: fact.said, report: report.number };
            // What a later report said holds.
            if limit.of(index).is_some_and(|later| later.report > known.report) {
                continue;
            }
            let before = limit.say(index, known);
            let facts = |said: Said| (said.limit_bps, said.safe_bps, said.demand, said.flows);
            let is_new = before.is_none_or(|before| facts(before.said) != facts(known.said));
            if is_new {
                self.has_news |= limit.own.is_some();
                self.to_divide.insert(fact.name.clone());
            }
        }
        for name in report.gone {
            let Some(limit) = self.limits.get_mut(&name) else { continue };
            if limit.of(index).is_some_and(|later| later.report > report.number) {
                continue;
            }
            limit.forget(index);
            if limit.known.is_empty() && limit.lenders.is_empty() && limit.borrowers.is_empty() {
                self.limits.remove(&name);
            } else {
                self.to_divide.insert(name);
            }
        }
    }

    fn loans(&mut self, now: u64, index: usize, incarnation: u64, loans: Loans) {
        let peer = &mut self.peers[index];
        if let Some(lend) = &loans.lend {
            let changed = peer.borrower.receive(now, incarnation, lend);
            self.is_urgent |= !changed.is_empty();
            for name in changed {
                self.limits.entry(name.clone()).or_default().lenders.insert(index);
                self.to_divide.insert(name.clone());
                self.to_order.insert(name);
            }
        }
        let peer = &mut self.peers[index];
        if let Some(held) = loans.held.filter(|held| held.lender == self.incarnation) {
            let changed = peer.lender.confirm(&held);
            peer.lender.accept_returns(&held);
            self.is_urgent |= !changed.is_empty();
            self.ended(changed);
        }
        self.must_repeat |= loans.repeat;
    }

    /// Less of these limits is lent than before.
    fn ended(&mut self, names: Vec<CompactString>) {
        for name in names {
            self.to_divide.insert(name.clone());
            self.to_order.insert(name);
        }
    }

    /// Divides all limits anew that this box shares.
    fn divide_all_of(&mut self, index: usize) {
        let shared = self.limits.iter().filter(|(_, limit)| limit.of(index).is_some());
        self.to_divide.extend(shared.map(|(name, _)| name.clone()));
        self.is_urgent = true;
    }

    /// The order of this turn. It is in force when the data plane answers.
    pub fn order(&mut self, now: u64) -> FleetOrder {
        self.turn_ns = now;
        self.is_urgent = false;
        self.has_news = false;
        if self.stage == Stage::Asks {
            self.pending =
                Some(Pending { shares: Vec::new(), marks: Vec::new(), deadline_ns: 0, since: 0 });
            return FleetOrder::default();
        }
        self.expire(now);
        self.follow_versions();
        self.settle_claims(now);
        let mut division = std::mem::take(&mut self.division);
        for name in std::mem::take(&mut self.to_divide) {
            self.divide(now, &name, &mut division);
        }
        self.division = division;
        let mut shares = Vec::new();
        let mut to_order = std::mem::take(&mut self.to_order);
        to_order.retain(|name| {
            let Some(limit) = self.limits.get(name).filter(|limit| limit.own.is_some()) else {
                return false;
            };
            if self.held_back.contains(name) {
                return true;
            }
            let wanted = self.parts(name, limit);
            let differs = limit.in_force != Some(wanted);
            if differs {
                let Parts { lent_bps, borrowed_bps } = wanted;
                shares.push(FleetShare { name: name.clone(), lent_bps, borrowed_bps });
            }
            differs
        });
        self.to_order = to_order;
        let valid = self.peers.iter().filter_map(|peer| peer.borrower.valid_until());
        let deadline_ns = valid.fold(now + self.settings.lease_ns, u64::min);
        let marks = self.peers.iter().enumerate();
        let marks =
            marks.filter_map(|(index, peer)| Some((index, peer.borrower.mark()?))).collect();
        let order = FleetOrder { shares, deadline_ns, since: self.cursor };
        self.pending =
            Some(Pending { shares: order.shares.clone(), marks, deadline_ns, since: self.cursor });
        order
    }

    /// Ends what time ends: leases, liveness, what an earlier agent lent.
    fn expire(&mut self, now: u64) {
        let guard_ns = 2 * self.settings.interval_ns;
        let lease_ns = self.settings.lease_ns;
        for index in 0..self.peers.len() {
            let peer = &mut self.peers[index];
            let mut over = peer.lender.expire(now);
            over.extend(peer.borrower.expire(now, guard_ns));
            let is_silent = peer.heard_ns.is_none_or(|heard| now >= heard + lease_ns);
            self.ended(over);
            if self.peers[index].is_live && is_silent {
                self.peers[index].is_live = false;
                self.divide_all_of(index);
                self.event(Event::Silent(self.peers[index].member.name.clone()));
            }
        }
        let limits = &mut self.limits;
        let over = self.orphans.extract_if(|name| {
            let Some(limit) = limits.get_mut(name) else { return true };
            let is_over = limit.orphan.is_none_or(|(_, until)| now >= until);
            if is_over {
                limit.orphan = None;
            }
            is_over
        });
        let over = over.collect();
        self.ended(over);
    }

    /// Speaks of flows once all who are heard understand it. Then all facts are told again: others
    /// do not know the flows of those that were told before.
    fn follow_versions(&mut self) {
        let mut others = self.peers.iter().filter(|peer| peer.is_live).peekable();
        let speaks = others.peek().is_some() && others.all(|peer| peer.understands_flows);
        if std::mem::replace(&mut self.speaks_of_flows, speaks) != speaks {
            self.to_divide.extend(self.limits.keys().cloned());
            if speaks {
                (self.must_repeat, self.repeated_ns) = (true, 0);
            }
            self.is_urgent = true;
        }
    }

    /// What this agent wants to have lent and borrowed of a limit.
    fn parts(&self, name: &str, limit: &Limit) -> Parts {
        let held = limit.lenders.iter().map(|&index| self.peers[index].borrower.held_bps(name));
        let lent_bps = self.all_lent_bps(name, limit);
        // The data plane knows nothing of claims: of what is claimed, it has as borrowed what is
        // not lent. So it ends with the orders, as what is borrowed.
        let kept_bps = limit.claimed_bps.saturating_sub(lent_bps);
        Parts {
            lent_bps: lent_bps.saturating_sub(limit.claimed_bps),
            borrowed_bps: held.fold(kept_bps, u64::saturating_add),
        }
    }

    /// What this agent wants to have lent of a limit, by the data plane's account.
    fn lent_bps(&self, name: &str, limit: &Limit) -> u64 {
        self.all_lent_bps(name, limit).saturating_sub(limit.claimed_bps)
    }

    /// What is lent and withheld of what this box owns and claims.
    fn all_lent_bps(&self, name: &str, limit: &Limit) -> u64 {
        let lent = limit.borrowers.iter().map(|&index| self.peers[index].lender.lent_bps(name));
        lent.fold(limit.orphan_bps().saturating_add(limit.withheld_bps), u64::saturating_add)
    }

    /// Lends and gives back what the division of a limit asks for. What cannot be done now, since
    /// there is no room or the borrower has not answered, is looked at again when that changes.
    fn divide(&mut self, now: u64, name: &CompactString, division: &mut Division) {
        let Some(limit) = self.limits.get_mut(name) else { return };
        let (me, members) = (self.me, &self.settings.members);
        let peers = &mut self.peers;
        let is_owned = limit.own.is_some() && limit.of(me).is_some();
        let is_live = |index: usize| index == me || peers[index].is_live;
        let member = |index: usize| (members[index].weight, members[index].most_bps);
        limit.divide(self.speaks_of_flows, is_live, member, division);
        let place = division.boxes.binary_search(&me).ok().filter(|_| is_owned);
        limit.is_by_flow = division.is_by_flow;
        limit.shares.clear();
        let boxes = division.boxes.iter().copied();
        limit.shares.extend(boxes.zip(division.share_bps.iter().copied()));
        let owned_bps = place.map_or(0, |place| division.owned_bps[place]);
        let step = owned_bps / STEP;
        let mut lends: Vec<(usize, u64)> = Vec::new();
        let mut borrows: Vec<(usize, u64)> = Vec::new();
        for &Loan { lender, borrower, bps } in &division.loans {
            if place == Some(lender) {
                lends.push((division.boxes[borrower], bps));
            } else if place == Some(borrower) {
                borrows.push((division.boxes[lender], bps));
            }
        }
        let wanted = |loans: &[(usize, u64)], index: usize| {
            loans.iter().find(|loan| loan.0 == index).map_or(0, |loan| loan.1)
        };
        let own_bps = limit.own.as_ref().map_or(0, |own| own.safe_bps);
        let holds_bps = self.claims.holds_bps(name);
        let safe_bps = own_bps.saturating_add(holds_bps);
        let withheld_bps = if is_owned { safe_bps.saturating_sub(owned_bps) } else { 0 };
        // Most divisions change nothing for this box.
        let mut is_changed = withheld_bps != limit.withheld_bps;
        limit.withheld_bps = withheld_bps;
        // Give back first: at once, and without asking.
        for &index in &limit.lenders {
            let wants = wanted(&borrows, index);
            let borrower = &mut peers[index].borrower;
            let over = borrower.held_bps(name).saturating_sub(wants);
            if over > step || wants == 0 {
                is_changed |= borrower.keep(name, wants);
            }
        }
        limit.lenders.retain(|&index| peers[index].borrower.held_bps(name) > 0);
        // Lend less: it is lent until the borrower confirms.
        for &index in &limit.borrowers {
            let wants = wanted(&lends, index);
            let lender = &mut peers[index].lender;
            let over = lender.lent_bps(name).saturating_sub(wants);
            if over > step || (wants == 0 && over > 0) {
                is_changed |= lender.offer(now, name, wants);
            }
        }
        limit.borrowers.retain(|&index| peers[index].lender.has(name));
        if !is_owned || self.stage != Stage::Speaks {
            if self.claim(name) || is_changed {
                self.to_order.insert(name.clone());
            }
            return;
        }
        // Lend more, into the room that is there: this box keeps its own share.
        let share_bps = place.map_or(0, |place| division.share_bps[place]);
        let lent = limit.borrowers.iter().map(|&index| peers[index].lender.lent_bps(name));
        let kept_bps = lent.fold(limit.orphan_bps().saturating_add(share_bps), u64::saturating_add);
        let mut room = owned_bps.saturating_sub(kept_bps);
        for (index, wants) in lends {
            let lender = &mut peers[index].lender;
            let lent = lender.lent_bps(name);
            let more = wants.saturating_sub(lent);
            if more <= step {
                continue;
            }
            let given = more.min(room);
            if (given > step || given == more) && lender.offer(now, name, lent + given) {
                room -= given;
                limit.borrowers.insert(index);
                is_changed = true;
            }
        }
        if self.claim(name) || is_changed {
            self.to_order.insert(name.clone());
        }
        self.compare(name, division);
    }

    /// What this box has of its claims on a limit: all that it holds, and what is given back as far
    /// as it is lent. Returns whether it is otherwise than before.
    fn claim(&mut self, name: &CompactString) -> bool {
        let holds_bps = self.claims.holds_bps(name);
        let Some(limit) = self.limits.get_mut(name) else { return false };
        if limit.claimed_bps == holds_bps {
            return false;
        }
        let own_bps = limit.own.as_ref().map_or(0, |own| own.safe_bps);
        let peers = &self.peers;
        let lent = limit.borrowers.iter().map(|&index| peers[index].lender.lent_bps(name));
        let lent_bps = lent.fold(limit.orphan_bps(), u64::saturating_add);
        let lent_of_it = lent_bps.saturating_sub(own_bps).min(limit.claimed_bps);
        let claimed_bps = holds_bps.max(lent_of_it);
        std::mem::replace(&mut limit.claimed_bps, claimed_bps) != claimed_bps
    }

    /// Tells the operator, once, if boxes differ in a limit, or own more than it.
    fn compare(&mut self, name: &CompactString, division: &Division) {
        let Some(limit) = self.limits.get_mut(name) else { return };
        let limit_of = |known: &Known| known.said.limit_bps;
        let has_too_much = division.safe_sum_bps > division.limit_bps;
        let differs = limit.known.iter().find(|(_, known)| limit_of(known) != division.limit_bps);
        let is_reported =
            std::mem::replace(&mut limit.is_reported, has_too_much || differs.is_some());
        if is_reported {
            return;
        }
        if let Some((index, known)) = differs {
            let ours_bps = limit.of(self.me).map_or(0, limit_of);
            let (at, theirs_bps) = if *index == self.me {
                let mut all = limit.known.iter();
                let other = all.find(|(_, known)| limit_of(known) == division.limit_bps);
                other.map_or((*index, ours_bps), |(index, known)| (*index, limit_of(known)))
            } else {
                (*index, limit_of(known))
            };
            let at = self.settings.members[at].name.clone();
            self.event(Event::Differs { limit: name.clone(), at, theirs_bps, ours_bps });
        } else if has_too_much {
            let (sum_bps, limit_bps) = (division.safe_sum_bps, division.limit_bps);
            self.event(Event::Oversubscribed { limit: name.clone(), sum_bps, limit_bps });
        }
    }

    /// The data plane answered the last order. Returns what to publish now.
    pub fn answered(&mut self, now: u64, facts: &FleetFacts) -> Vec<Outgoing> {
        let Some(pending) = self.pending.take() else { return Vec::new() };
        if facts.cursor < pending.since {
            self.event(Event::InstanceRestarted);
            self.cursor = 0;
        } else {
            self.cursor = facts.cursor;
        }
        let is_in_force =
            facts.deadline_ns == pending.deadline_ns && facts.now_ns < pending.deadline_ns;
        if self.stage != Stage::Asks && !is_in_force {
            // The order came too late, or to an instance that forgot it at once: nothing of it
            // counts.
            self.learn(now, facts);
            return Vec::new();
        }
        for share in &pending.shares {
            if let Some(limit) = self.limits.get_mut(&share.name) {
                limit.in_force =
                    Some(Parts { lent_bps: share.lent_bps, borrowed_bps: share.borrowed_bps });
            }
        }
        for (index, mark) in pending.marks {
            self.peers[index].borrower.in_force(mark);
        }
        self.learn(now, facts);
        self.finish_returns();
        match self.stage {
            Stage::Asks => {
                self.stage = Stage::Sets;
                self.begin_claims(now, facts);
            }
            Stage::Sets => {
                self.stage = Stage::Speaks;
                self.to_divide.extend(self.limits.keys().cloned());
            }
            // A data plane that let an earlier order run out before this one came has less lent
            // than was published. It is told first.
            Stage::Speaks if !self.is_behind(facts) => return self.speak(now),
            Stage::Speaks => {}
        }
        self.is_urgent = true;
        Vec::new()
    }

    /// What the data plane is found with tells whether this box was off.
    fn begin_claims(&mut self, now: u64, facts: &FleetFacts) {
        // An agent set a limit that waits for its word after a start: so there was none since.
        let is_set = |own: &&SharedLimit| own.unset_since_ns.is_none();
        let was_on = facts.limits.iter().any(|own| is_set(&own));
        self.claims.is_cleared = facts.limits.iter().filter(is_set).any(|own| own.rejoins);
        if self.claims.is_cleared {
            self.held_back.clear();
        }
        let over_ns = now.max(facts.deadline_ns).saturating_add(FLEET_HOLD_NS);
        for of in self.claims.begin(was_on, over_ns) {
            let of = self.settings.members[of].name.clone();
            self.event(Event::NotClaimed { of, why: NotClaimed::WasOff });
        }
    }

    /// Whether the data plane has less lent of a limit than this agent counts.
    fn is_behind(&self, facts: &FleetFacts) -> bool {
        facts.limits.iter().any(|own| {
            let limit = self.limits.get(&own.name);
            limit.is_some_and(|limit| self.lent_bps(&own.name, limit) > own.lent_bps)
        })
    }

    /// Takes in what the data plane says.
    fn learn(&mut self, now: u64, facts: &FleetFacts) {
        let mut idle = std::mem::take(&mut self.active);
        for own in &facts.limits {
            idle.remove(&own.name);
        }
        for name in &idle {
            if let Some(limit) = self.limits.get_mut(name) {
                limit.meter.idle(facts.now_ns);
            }
        }
        let mut touched: Vec<CompactString> = idle.into_iter().collect();
        for own in &facts.limits {
            let limit = self.limits.entry(own.name.clone()).or_default();
            if limit.own.is_none() && own.lent_bps > 0 {
                // Not by this agent. At the first answer, the deadline is that of an earlier agent.
                let since = own.unset_since_ns.unwrap_or(facts.deadline_ns);
                let until = since.saturating_add(FLEET_HOLD_NS);
                if now < until {
                    limit.orphan = Some((own.lent_bps, until));
                    self.orphans.insert(own.name.clone());
                }
            }
            let within = limit.own.as_ref().and_then(|own| own.within.clone());
            if within != own.within {
                if let Some(above) = within.and_then(|above| self.below.get_mut(&above)) {
                    above.remove(&own.name);
                }
                if let Some(above) = &own.within {
                    self.below.entry(above.clone()).or_default().insert(own.name.clone());
                }
            }
            let in_force = Parts { lent_bps: own.lent_bps, borrowed_bps: own.borrowed_bps };
            // What no agent set is only there until the data plane's start is over.
            let in_force = own.unset_since_ns.is_none().then_some(in_force);
            // What this agent wants otherwise, it notes when it does.
            if in_force.is_none() || limit.in_force != in_force || limit.own.is_none() {
                self.to_order.insert(own.name.clone());
            }
            limit.in_force = in_force;
            limit.meter.sample(facts.now_ns, own);
            limit.own = Some(own.clone());
            touched.push(own.name.clone());
            if self.is_held_back(own) {
                // Until then it neither lends nor borrows of it.
                if self.held_back.insert(own.name.clone())
                    && let Some(limit) = self.limits.get_mut(&own.name)
                {
                    limit.forget(self.me);
                }
            } else {
                self.held_back.remove(&own.name);
            }
        }
        for name in &facts.gone {
            let Some(limit) = self.limits.get_mut(name) else { continue };
            let Some(own) = limit.own.take() else { continue };
            if let Some(above) = own.within.and_then(|above| self.below.get_mut(&above)) {
                above.remove(name);
            }
            limit.forget(self.me);
            self.held_back.remove(name);
            self.to_divide.insert(name.clone());
            self.gone.push(name.clone());
        }
        let above =
            touched.iter().filter_map(|name| self.limits.get(name)?.own.as_ref()?.within.clone());
        let above: BTreeSet<CompactString> = above.collect();
        touched.retain(|name| !above.contains(name));
        touched.extend(above);
        for name in &touched {
            if let Some(limit) = self.limits.get_mut(name) {
                let share_bps = limit.share_bps(self.me).unwrap_or(0);
                limit.meter.appraise(share_bps);
            }
        }
        for name in touched {
            self.appraise(&name);
        }
    }

    /// What is to be said of a limit that this box has.
    fn said(&self, name: &CompactString) -> Option<Said> {
        let limit = self.limits.get(name)?;
        let own = limit.own.as_ref().filter(|_| !self.held_back.contains(name))?;
        let claimed_bps = self.claims.holds_bps(name);
        let below = self.below.get(name).into_iter().flatten().filter_map(|class| {
            let class = self.limits.get(class)?;
            let own = class.own.as_ref()?;
            let assured = u128::from(own.assured_bps) * u128::from(own.in_force_bps)
                / u128::from(own.limit_bps.max(1));
            let assured_bps = u64::try_from(assured).unwrap_or(u64::MAX);
            Some(Below { demand_bps: class.meter.demand_bps(), assured_bps, prio: own.prio })
        });
        let below: Vec<Below> = below.collect();
        let mut demand = by_tier(limit.meter.demand_bps(), &below);
        let rest = &mut demand.0[TIERS - 1];
        *rest = rest.saturating_add(limit.meter.rest_bps());
        Some(Said {
            limit_bps: own.limit_bps,
            safe_bps: own.safe_bps.saturating_add(claimed_bps),
            claimed_bps,
            rejoins: own.rejoins,
            in_force_bps: own.in_force_bps,
            sent_bps: limit.meter.sent_bps(),
            demand,
            flows: limit.meter.flows(),
        })
    }

    /// The demand for a limit now, and whether others should know.
    fn appraise(&mut self, name: &CompactString) {
        let (Some(said), Some(limit)) = (self.said(name), self.limits.get(name)) else { return };
        if said.sent_bps > 0 || limit.meter.is_bound() {
            self.active.insert(name.clone());
        }
        let told = limit.of(self.me).map(|told| told.said);
        if told.is_none_or(|told| told.is_other(&said)) {
            self.tell(name, said);
            self.to_divide.insert(name.clone());
            self.is_urgent = true;
        } else if told.is_some_and(|told| told.moved(&said)) {
            self.details.insert(name.clone());
        }
    }

    /// The next report says this of a limit.
    fn tell(&mut self, name: &CompactString, said: Said) {
        if let Some(limit) = self.limits.get_mut(name) {
            limit.say(self.me, Known { said, report: 0 });
        }
        self.details.remove(name);
        self.to_tell.insert(name.clone());
    }

    /// Tells the facts of which only what is sent changed, or flows a little, if it is time.
    fn tell_details(&mut self, now: u64) {
        if now.saturating_sub(self.detailed_ns) < FACT_NS {
            return;
        }
        self.detailed_ns = now;
        for name in std::mem::take(&mut self.details) {
            let Some(said) = self.said(&name) else { continue };
            let told = self.limits.get(&name).and_then(|limit| limit.of(self.me));
            if told.is_some_and(|told| told.said.flows != said.flows) {
                self.to_divide.insert(name.clone());
            }
            self.tell(&name, said);
        }
    }

    /// What to publish: facts that changed, and loans.
    fn speak(&mut self, now: u64) -> Vec<Outgoing> {
        let pulse_ns = self.settings.lease_ns / 8;
        if self.must_repeat && self.to_repeat.is_empty() && now >= self.repeated_ns {
            self.must_repeat = false;
            self.repeated_ns = now.saturating_add(self.settings.lease_ns);
            let own = self.limits.iter().filter(|(_, limit)| limit.own.is_some());
            self.to_repeat = own.map(|(name, _)| name.clone()).collect();
        }
        self.tell_details(now);
        // Two reports for each interval: what changes meanwhile waits for the next one.
        let may_report = now.saturating_sub(self.told_ns) >= self.settings.interval_ns / 2;
        let mut names = BTreeSet::new();
        if may_report {
            let repeated = self.to_repeat.len().min(REPEATS_MAX);
            names = std::mem::take(&mut self.to_tell);
            names.extend(self.to_repeat.drain(..repeated));
        }
        if !names.is_empty() {
            self.told_ns = now;
        }
        let mut facts = Vec::with_capacity(names.len());
        for name in names {
            let Some(limit) = self.limits.get(&name) else { continue };
            let Some(known) = limit.of(self.me) else { continue };
            facts.push(Fact { name, said: known.said });
        }
        let mut out = Vec::new();
        let mut gone = std::mem::take(&mut self.gone);
        let is_due = now.saturating_sub(self.reported_ns) >= pulse_ns;
        while !facts.is_empty() || !gone.is_empty() || (is_due && out.is_empty()) {
            self.reports += 1;
            self.reported_ns = now;
            let report = Report {
                number: self.reports,
                facts: facts.split_off(facts.len().saturating_sub(ITEMS_MAX)),
                gone: gone.split_off(gone.len().saturating_sub(ITEMS_MAX)),
            };
            let message = Message {
                incarnation: self.incarnation,
                stamp: now,
                body: Body::Report(report),
                understands: VERSION_WITH_FLOWS,
            };
            let bytes = match self.speaks_of_flows {
                true => message.encode_with_flows(),
                false => message.encode(),
            };
            out.push(Outgoing { to: None, bytes });
        }
        let asks = self.claims.is_time_to_ask(now, !self.held_back.is_empty());
        let name = |of: usize| self.settings.members[of].name.as_str().into();
        for (index, peer) in self.peers.iter_mut().enumerate() {
            if index == self.me {
                continue;
            }
            let to = || Some(peer.member.name.clone());
            if let Some(incarnation) = peer.incarnation {
                let question = asks.then(|| self.claims.question(index, incarnation)).flatten();
                let answer = self.claims.answer(index, incarnation, name);
                let bodies = question.map(Body::Question).into_iter();
                for body in bodies.chain(answer.map(Body::Answer)) {
                    let message = Message {
                        incarnation: self.incarnation,
                        stamp: now,
                        body,
                        understands: VERSION_WITH_FLOWS,
                    };
                    out.push(Outgoing { to: to(), bytes: message.encode() });
                }
            }
            if let Some(message) = peer.loans(now, self.incarnation, pulse_ns) {
                out.push(Outgoing { to: Some(peer.member.name.clone()), bytes: message.encode() });
            }
        }
        out
    }

    fn event(&mut self, event: Event) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }
}
