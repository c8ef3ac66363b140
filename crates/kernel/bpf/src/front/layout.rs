//! Terms as `programs/front.bpf.c` has them.

use super::skeleton::types;
use crate::front::COUNTERS_MAX;
use crate::front::maps::{row_count, ticks_of, ticks_per_byte};
use crate::front::term::{Does, Policer, Step, Term};
use narrows_units::Nanos;

/// The number of no counter.
const NO_COUNTER: u8 = COUNTERS_MAX as u8;
/// `DECIDE`, `POLICE` and `EDIT` of `programs/front.bpf.c`.
const DECIDE: u8 = 1;
const POLICE: u8 = 2;
const EDIT: u8 = 3;

pub(super) fn write(into: &mut types::term, term: &Term, has_more: bool) {
    into.has_more = has_more.into();
    [into.values, into.masks] = term.headers.words();
    let range = |range: Option<(u16, u16)>| range.map_or([0; 2], |(first, last)| [first, last]);
    into.source_ports = range(term.headers.source_ports);
    into.destination_ports = range(term.headers.destination_ports);
    let (value, mask) = term.mark.unwrap_or_default();
    (into.mark, into.mark_mask) = (value & mask, mask);
    for (into, word) in into.selectors.iter_mut().zip(&term.words) {
        into.is_used = 1;
        into.value = word.value.to_be();
        into.mask = word.mask.to_be();
        into.offset = word.offset;
        into.is_behind_ip = word.is_behind_ip.into();
        into.is_in_carrier = word.is_in_carrier.into();
    }
    for (into, look_up) in into.look_ups.iter_mut().zip(&term.look_ups) {
        into.set = look_up.set;
        into.how = look_up.how();
        into.is_negated = look_up.is_negated.into();
    }
    for (into, step) in into.steps.iter_mut().zip(&term.steps) {
        write_step(into, step);
    }
}

fn write_step(into: &mut types::step, step: &Step) {
    into.conform = step.then as u8;
    into.exceed = step.exceed as u8;
    into.counter = step.counter.unwrap_or(NO_COUNTER);
    match &step.does {
        Does::Decide => into.kind = DECIDE,
        Does::Edit { mark, priority } => {
            into.kind = EDIT;
            let (value, mask) = mark.unwrap_or_default();
            (into.mark, into.mark_mask) = (value & mask, mask);
            (into.priority, into.priority_mask) =
                priority.map_or((0, 0), |value| (value, u32::MAX));
        }
        Does::Police(policer) => {
            into.kind = POLICE;
            into.police.account = into.counter.into();
            write_policer(&mut into.police, policer);
        }
    }
}

fn write_policer(into: &mut types::police, policer: &Policer) {
    if let Some((rate, burst)) = policer.rate {
        into.per_byte = ticks_per_byte(rate);
        into.burst = ticks_of(rate.time_for(burst));
    }
    if let Some((rate, burst)) = policer.packets {
        into.per_packet = ticks_of(Nanos(1_000_000_000)) / rate.max(1);
        into.burst = into.per_packet.saturating_mul(burst.max(1));
    }
    into.longest = policer.longest;
    into.per_frame = policer.per_frame;
    into.minimum = policer.minimum;
    if let Some(accounts) = policer.accounts {
        into.who = accounts.key as u32;
        into.block = ticks_of(accounts.block);
        into.rows = row_count(accounts.room);
        into.newcomers = ticks_of(Nanos(1_000_000_000));
        into.per_newcomer = into.newcomers / u64::from(accounts.newcomers.max(1));
    }
}
