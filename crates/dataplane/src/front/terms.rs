//! Filters in the form of the program in the driver.
//!
//! The conditions of a filter become bits of the headers, and its actions become steps. Sets are
//! identified by number.

use super::FrontError;
use narrows_bpf::{
    AccountKey, Accounts, Does, Endpoint, Field, LookUp, Policer, Step, Term, Then, Word, has,
};
use narrows_classify::{
    ANY_PROTOCOL, Action, ActionId, Control, End, Flower, Police, PortRange, Prefix, Selector, VLAN,
};
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
        match from.protocol {
            ANY_PROTOCOL => {}
            VLAN => term.ask_for(has::TAG),
            protocol => term.ask(Field::EtherType, &protocol.to_be_bytes(), &[0xff; 2]),
        }
        ask(&mut term, &from.flower);
        term.words = from.words.iter().map(word).collect();
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

fn word(selector: &Selector) -> Word {
    let Selector { value, mask, offset, is_behind_ip } = *selector;
    Word { value, mask, offset, is_behind_ip }
}

/// Adds the conditions of `flower`, by the rules of its own `matches`.
fn ask(term: &mut Term, flower: &Flower) {
    let link = Flower {
        vlan_id: flower.vlan_id,
        vlan_priority: flower.vlan_priority,
        vlan_ether_type: flower.vlan_ether_type,
        destination_mac: flower.destination_mac,
        source_mac: flower.source_mac,
        ..Flower::default()
    };
    if let Some(id) = flower.vlan_id {
        term.ask(Field::Tag, &id.to_be_bytes(), &0x0fff_u16.to_be_bytes());
        term.ask_for(has::TAG);
    }
    if let Some(priority) = flower.vlan_priority {
        let bits = u16::from(priority) << 13;
        term.ask(Field::Tag, &bits.to_be_bytes(), &0xe000_u16.to_be_bytes());
        term.ask_for(has::TAG);
    }
    if let Some(ether_type) = flower.vlan_ether_type {
        term.ask(Field::EtherType, &ether_type.to_be_bytes(), &[0xff; 2]);
        term.ask_for(has::TAG);
    }
    let macs =
        [(Field::DestinationMac, flower.destination_mac), (Field::SourceMac, flower.source_mac)];
    for (field, mac) in macs {
        if let Some((value, mask)) = mac {
            term.ask(field, &value.to_be_bytes()[2..], &mask.to_be_bytes()[2..]);
        }
    }
    if *flower == link {
        return;
    }
    // The bit that is set in 4 and 6, but not in 0 (no IP).
    term.ask(Field::Ip, &[4], &[4]);
    if let Some(protocol) = flower.protocol {
        term.ask(Field::Protocol, &[protocol], &[0xff]);
    }
    for (field, pair) in [(Field::TrafficClass, flower.traffic_class), (Field::Ttl, flower.ttl)] {
        if let Some((value, mask)) = pair {
            term.ask(field, &[value], &[mask]);
        }
    }
    ask_address(term, Field::Source, flower.source);
    ask_address(term, Field::Destination, flower.destination);
    term.source_ports = ask_port(term, Field::SourcePort, flower.source_port);
    term.destination_ports = ask_port(term, Field::DestinationPort, flower.destination_port);
    if let Some((value, mask)) = flower.tcp_flags {
        term.ask(Field::TcpFlags, &value.to_be_bytes(), &mask.to_be_bytes());
        term.ask_for(has::FLAGS);
    }
    for (field, pair) in [(Field::IcmpType, flower.icmp_type), (Field::IcmpCode, flower.icmp_code)]
    {
        if let Some((value, mask)) = pair {
            term.ask(field, &[value], &[mask]);
            term.ask_for(has::ICMP);
        }
    }
    let fragments = [(has::FRAGMENT, flower.is_fragment), (has::FIRST, flower.is_first_fragment)];
    for (bit, is) in fragments {
        if let Some(is) = is {
            term.ask(Field::Has, &[if is { bit } else { 0 }], &[bit]);
        }
    }
}

fn ask_address(term: &mut Term, field: Field, prefix: Option<Prefix>) {
    let Some(prefix) = prefix else { return };
    let (bits, mask) = (prefix.bits().0, prefix.mask());
    if prefix.is_v6() {
        term.ask(Field::Ip, &[6], &[0xff]);
        term.ask(field, &bits.to_be_bytes(), &mask.to_be_bytes());
    } else {
        term.ask(Field::Ip, &[4], &[0xff]);
        term.ask(field, &(bits as u32).to_be_bytes(), &(mask as u32).to_be_bytes());
    }
}

/// The range, if it is more than one port.
fn ask_port(term: &mut Term, field: Field, range: Option<PortRange>) -> Option<(u16, u16)> {
    let PortRange { first, last } = range?;
    term.ask_for(has::PORTS);
    if first < last {
        return Some((first, last));
    }
    term.ask(field, &first.to_be_bytes(), &[0xff; 2]);
    None
}

fn step(action: &Action) -> Step {
    let [then_control, other] = action.controls();
    let does = match action {
        Action::Gact { .. } => Does::Decide,
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
        // No action that runs here restarts the filters.
        Control::Pipe | Control::Reclassify => Then::Pipe,
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
