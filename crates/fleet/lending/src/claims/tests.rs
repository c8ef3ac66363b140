//! All histories of one share that three boxes may want, in a small world: it has at most one
//! owner.
//!
//! A box is off and comes back. An operator, who says what is true, says so to the two others. The
//! network may deliver any message that was ever sent, at any time, any number of times, in any
//! order, or never. The agent of one may start again. What a box lent before it was off is not in
//! here: the fleet in virtual time has that.

use super::*;
use all_states::{spend, visit};

#[path = "../../tests/all_states/mod.rs"]
mod all_states;

/// The box that is off for a while; the boxes before it are told so.
const OFF: usize = 2;
const BOXES: usize = 3;
/// Late enough for everything.
const LATE: u64 = u64::MAX - 1;

/// How often each thing may happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Budget {
    forgets: [u8; 2],
    questions: [u8; BOXES],
    restarts: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
enum Said {
    Question { number: u64 },
    Answer { number: u64, claims: BTreeSet<usize> },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
struct Sent {
    from: usize,
    /// The incarnation of the sender.
    of: u64,
    to: usize,
    /// The incarnation of the receiver to which it is said.
    at: u64,
    said: Said,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Agent {
    incarnation: u64,
    /// The incarnations of the others that it listens to.
    heard: [u64; BOXES],
    claims: Claims,
    /// What is on its disk.
    saved: BTreeSet<usize>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    left: Budget,
    agents: [Agent; BOXES],
    is_off: bool,
    was_off: bool,
    sent: BTreeSet<Sent>,
}

fn share() -> BTreeMap<CompactString, u64> {
    BTreeMap::from([("limit".into(), 1)])
}

impl State {
    fn new(left: Budget) -> Self {
        let agent = Agent {
            incarnation: 1,
            heard: [1; BOXES],
            claims: Claims { is_saved: true, is_cleared: true, ..Claims::default() },
            saved: BTreeSet::new(),
        };
        let agents = std::array::from_fn(|_| agent.clone());
        Self { left, agents, is_off: false, was_off: false, sent: BTreeSet::new() }
    }

    /// Whose the share is now.
    fn owners(&self) -> usize {
        let holds =
            |agent: &&Agent| agent.claims.get(OFF).is_some_and(|held| held.stage != Stage::Waits);
        let own = !self.is_off && self.agents[OFF].claims.is_cleared;
        self.agents[..OFF].iter().filter(holds).count() + usize::from(own)
    }

    fn is_held_back(&self, index: usize) -> bool {
        index == OFF && !self.agents[OFF].claims.is_cleared
    }

    /// The states that follow.
    fn next(&self) -> Vec<Self> {
        let mut next = Vec::new();
        let mut with = |change: &dyn Fn(&mut Self) -> bool| {
            let mut state = self.clone();
            if change(&mut state) {
                next.push(state);
            }
        };
        with(&Self::power);
        for index in 0..BOXES {
            if index == OFF && self.is_off {
                continue;
            }
            with(&|state| spend(&mut state.left.questions[index]) && state.ask(index));
            with(&|state| state.answer(index));
            with(&|state| state.settle(index));
            if index != OFF {
                with(&|state| spend(&mut state.left.forgets[index]) && state.forget(index));
                with(&|state| state.give_back(index));
            }
        }
        with(&|state| spend(&mut state.left.restarts) && state.restart());
        for sent in &self.sent {
            with(&|state| state.deliver(sent));
        }
        next
    }

    /// The box is off, or on again: its agent knows nothing.
    fn power(&mut self) -> bool {
        if self.was_off && !self.is_off {
            return false;
        }
        self.is_off = !self.is_off;
        self.was_off = true;
        if !self.is_off {
            let off = &mut self.agents[OFF];
            off.incarnation += 1;
            off.heard = [0; BOXES];
            off.claims = Claims::default();
            off.claims.restore(Vec::new());
            off.claims.begin(false, 0);
        }
        true
    }

    fn save(&mut self, index: usize) {
        let Agent { claims, saved, .. } = &mut self.agents[index];
        let unsaved = claims.unsaved().map(|claims| claims.map(|(of, _)| of).collect());
        if let Some(unsaved) = unsaved {
            *saved = unsaved;
            claims.saved();
        }
    }

    fn forget(&mut self, index: usize) -> bool {
        let claims = &mut self.agents[index].claims;
        if !self.is_off || claims.get(OFF).is_some() {
            return false;
        }
        claims.claim(0, vec![(OFF, share())]);
        self.save(index);
        true
    }

    fn ask(&mut self, index: usize) -> bool {
        let is_held_back = self.is_held_back(index);
        let Agent { incarnation, heard, claims, .. } = &mut self.agents[index];
        claims.asked_ns = None;
        if !claims.is_time_to_ask(0, is_held_back) {
            return false;
        }
        for to in (0..BOXES).filter(|to| *to != index) {
            // A box of which nothing was heard is asked, too: it makes no difference to what holds.
            let at = heard[to].max(1);
            if let Some(question) = claims.question(to, at) {
                let said = Said::Question { number: question.number };
                self.sent.insert(Sent { from: index, of: *incarnation, to, at, said });
            }
        }
        true
    }

    fn answer(&mut self, index: usize) -> bool {
        let Agent { incarnation, heard, claims, .. } = &mut self.agents[index];
        let mut any = false;
        for to in (0..BOXES).filter(|to| *to != index) {
            let Some(answer) = claims.answer(to, heard[to], |_| "off".into()) else { continue };
            let claims = answer.claims.iter().map(|_| OFF).collect();
            let said = Said::Answer { number: answer.number, claims };
            self.sent.insert(Sent { from: index, of: *incarnation, to, at: answer.to, said });
            any = true;
        }
        any
    }

    fn settle(&mut self, index: usize) -> bool {
        let is_held_back = self.is_held_back(index);
        let before = self.agents[index].claims.clone();
        let others = (0..BOXES).filter(|other| *other != index);
        self.agents[index].claims.settle(LATE, is_held_back, others, |_| false);
        self.save(index);
        self.agents[index].claims != before
    }

    /// Nothing of the share is in force any more.
    fn give_back(&mut self, index: usize) -> bool {
        let claims = &mut self.agents[index].claims;
        if claims.get(OFF).is_none_or(|held| held.stage != Stage::Returns) {
            return false;
        }
        claims.is_returned(OFF);
        self.save(index);
        true
    }

    /// The first box's agent starts again.
    fn restart(&mut self) -> bool {
        let agent = &mut self.agents[0];
        agent.incarnation += 1;
        agent.heard = [0; BOXES];
        agent.claims = Claims::default();
        agent.claims.restore(agent.saved.iter().map(|of| (*of, share())).collect());
        agent.claims.begin(true, 0);
        agent.claims.is_cleared = true;
        true
    }

    fn deliver(&mut self, sent: &Sent) -> bool {
        let before = self.agents[sent.to].clone();
        let is_off = sent.to == OFF && self.is_off;
        let agent = &mut self.agents[sent.to];
        if is_off || sent.of < agent.heard[sent.from] {
            return false;
        }
        if sent.of != agent.heard[sent.from] {
            agent.heard[sent.from] = sent.of;
            agent.claims.restarted(sent.from);
        }
        agent.claims.heard(sent.from);
        if sent.at == agent.incarnation {
            match &sent.said {
                Said::Question { number } => {
                    agent.claims.asked(sent.from, &Question { to: sent.at, number: *number });
                }
                Said::Answer { number, claims } => {
                    agent.claims.answered(sent.from, *number, claims.clone());
                }
            }
        }
        self.save(sent.to);
        self.agents[sent.to] != before
    }
}

/// Visits all states. Returns how many there are, and in how many of them the share is claimed, and
/// the box that was off has it back.
fn search(left: Budget) -> [usize; 3] {
    let [mut claimed, mut back] = [0; 2];
    let all = visit(State::new(left), State::next, |state| {
        assert!(state.owners() <= 1, "{state:#?}");
        let is_owned = state.owners() == 1;
        claimed += usize::from(is_owned && state.is_off);
        back += usize::from(is_owned && state.was_off && !state.is_off);
    });
    [all, claimed, back]
}

#[test]
fn a_share_has_one_owner_at_most() {
    let visited = search(Budget { forgets: [1, 1], questions: [1, 1, 2], restarts: 0 });
    eprintln!("states, claimed, back: {visited:?}");
    assert!(visited.iter().all(|number| *number > 100), "{visited:?}");
}

#[test]
fn nor_two_where_an_agent_starts_again() {
    let visited = search(Budget { forgets: [1, 1], questions: [2, 1, 1], restarts: 1 });
    eprintln!("states, claimed, back: {visited:?}");
    assert!(visited.iter().all(|number| *number > 100), "{visited:?}");
}

#[test]
fn nor_where_an_operator_says_so_twice() {
    let visited = search(Budget { forgets: [2, 1], questions: [2, 1, 1], restarts: 0 });
    eprintln!("states, claimed, back: {visited:?}");
    assert!(visited.iter().all(|number| *number > 100), "{visited:?}");
}
