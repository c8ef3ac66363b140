//! Filters in the form of the program in the driver.
//!
//! The conditions of a filter become bits of the headers, and its actions become steps. Sets are
//! identified by number.

use super::FrontError;
use narrows_bpf::{AccountKey, Accounts, Does, Endpoint, LookUp, Policer, Step, Term, Then, Word};
use narrows_classify::{Action, ActionId, Control, End, Network, Police, Selector};
use narrows_policy::{FrontTerm, SetLookUp};
use narrows_sets::Sets;

/// A term, and which action each of its steps is; `None` if that counts elsewhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Resolved {
    term: Term,
    actions: Vec<Option<ActionId>>,
}

/// What runs in front of a port.
pub(crate) type Terms = Vec<Resolved>;

impl Resolved {
    /// The actions that count here.
    pub(super) fn counting(&self) -> impl Iterator<Item = ActionId> {
        self.actions.iter().flatten().copied()
    }

    /// The term with its counters, which `counter` assigns.
    pub(super) fn counted_by(&self, counter: impl Fn(&ActionId) -> Option<u8>) -> Term {
        let mut term = self.term.clone();
        for (step, action) in term.steps.iter_mut().zip(&self.actions) {
            step.counter = action.as_ref().and_then(&counter);
        }
        term
    }
}

/// `front` in the form of the program.
///
/// # Errors
/// If it names missing sets, or sets of other types.
pub(crate) fn resolve(front: &[FrontTerm], sets: &Sets) -> Result<Terms, FrontError> {
    let resolve = |from: &FrontTerm| {
        let mut term = Term::any();
        term.headers = narrows_xdp::headers(from.protocol, &from.flower);
        let is_in_carrier = Network::of(from.protocol) == Network::Carrier;
        term.words = from.words.iter().map(|one| word(one, is_in_carrier)).collect();
        term.mark = from.mark.map(|mark| (mark.value, mark.mask));
        for look_up in &from.look_ups {
            term.look_ups.push(look_up_in(look_up, sets)?);
        }
        term.steps = from.actions.iter().map(|(_, action)| step(action)).collect();
        term.has_more = from.has_more;
        let counts = |(id, _): &(ActionId, Action)| (!from.is_repeated).then_some(*id);
        Ok(Resolved { term, actions: from.actions.iter().map(counts).collect() })
    };
    front.iter().map(resolve).collect()
}

fn look_up_in(look_up: &SetLookUp, sets: &Sets) -> Result<LookUp, FrontError> {
    let Some(named) = sets.get(&look_up.set) else {
        return Err(FrontError::NoSet(look_up.set.to_string()));
    };
    let shape = named.set.kind().shape;
    if 1 + usize::from(look_up.port.is_some()) != shape.dimensions() {
        return Err(FrontError::Words {
            set: look_up.set.to_string(),
            shape: shape.name(),
            words: if shape.dimensions() == 2 { "src,dst" } else { "src" },
        });
    }
    Ok(LookUp {
        set: named.slot as u16,
        address: by(look_up.address),
        port: look_up.port.map(by),
        is_negated: look_up.is_negated,
    })
}

fn by(end: End) -> Endpoint {
    match end {
        End::Source => Endpoint::Source,
        End::Destination => Endpoint::Destination,
    }
}

fn word(selector: &Selector, is_in_carrier: bool) -> Word {
    let Selector { value, mask, offset, is_behind_ip } = *selector;
    Word { value, mask, offset, is_behind_ip, is_in_carrier }
}

fn step(action: &Action) -> Step {
    let [then_control, other] = action.controls();
    let does = match action {
        // No pace is in the driver.
        Action::Gact { .. } | Action::Mirred(_) | Action::Pace { .. } => Does::Decide,
        Action::Police(police) => Does::Police(policer(police)),
        Action::Skbedit { mark, priority, .. } => {
            let mark = mark.map(|mark| (mark.value, mark.mask));
            Does::Edit { mark, priority: *priority }
        }
    };
    Step { does, then: then(then_control), exceed: then(other), counter: None }
}

fn then(control: Control) -> Then {
    match control {
        Control::Pass => Then::Pass,
        Control::Drop => Then::Drop,
        Control::Continue => Then::Continue,
        // No action that runs here restarts the filters or jumps.
        Control::Pipe | Control::Reclassify | Control::Jump(_) => Then::Pipe,
    }
}

fn policer(police: &Police) -> Policer {
    Policer {
        rate: police.rate.map(|rate| (rate, police.burst)),
        packets: police.packets,
        longest: u32::try_from(police.mtu.0).unwrap_or(u32::MAX),
        per_frame: police.overhead.per_frame,
        minimum: police.overhead.minimum,
        accounts: police.per.map(|per| Accounts {
            key: match per.key {
                narrows_classify::AccountKey::Source => AccountKey::Source,
                narrows_classify::AccountKey::Destination => AccountKey::Destination,
                narrows_classify::AccountKey::Flow => AccountKey::Flow,
            },
            block: per.block,
            room: per.room,
            newcomers: per.newcomers,
        }),
    }
}
