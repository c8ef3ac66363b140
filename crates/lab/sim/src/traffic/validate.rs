//! Traffic that cannot be, and what to say instead.

use crate::setup::{Control, HeaderFields, Kind, MAX_QUEUES, Setup, Spread, Stack, Traffic};
use narrows_units::{Nanos, Rate};

/// Frame lengths in bytes: from the shortest Ethernet frame to a jumbo frame with a VLAN tag.
const LENGTHS: std::ops::RangeInclusive<u32> = 60..=9216;
/// The fastest that a group can be: 100 Tbit/s.
const FASTEST: Rate = Rate::from_bits_per_sec(100_000_000_000_000);
/// The shortest mean on time, respread and ping interval, and the shortest time between two
/// flows that end: anything shorter and a run would do nothing else.
const SHORTEST: Nanos = Nanos(1_000);
/// Packets that a backlogged flow keeps in the shaper.
const QUEUED: std::ops::RangeInclusive<u32> = 1..=1024;
/// The most flows of a byte-for-byte stack.
const MOST_SMOLTCP_FLOWS: u32 = 16;

/// Whether the traffic of `setup` can be made.
///
/// # Errors
/// If it cannot: the group and its mistake, and what to write instead.
pub fn validate(setup: &Setup) -> Result<(), String> {
    let queues = setup.port.queues;
    if !(1..=MAX_QUEUES).contains(&queues) {
        return Err(format!("port: {queues} queues; say how many, 1 to {MAX_QUEUES}"));
    }
    if setup.traffic.len() > usize::from(u16::MAX) {
        return Err("traffic: too many groups; the most is 65535".into());
    }
    let flows: u64 = setup.traffic.iter().map(|group| u64::from(group.flows)).sum();
    if u32::try_from(flows).is_err() {
        return Err(format!("traffic: {flows} flows in all groups; the most is {}", u32::MAX));
    }
    setup.traffic.iter().try_for_each(|group| {
        check(setup, group).map_err(|complaint| format!("traffic {:?}: {complaint}", group.name))
    })
}

fn check(setup: &Setup, group: &Traffic) -> Result<(), String> {
    if group.flows == 0 {
        return Err("no flows; say how many, at least 1".into());
    }
    if group.stop <= group.start {
        return Err(format!("stops at {} but starts at {}", group.stop, group.start));
    }
    check_sizes(group)?;
    check_spread(setup, group)?;
    check_moves(group)?;
    check_headers(group)?;
    match group.kind {
        Kind::Constant(rate) | Kind::Uneven(rate) | Kind::Poisson(rate) => check_rate(rate),
        Kind::OnOff { rate, on, off } => {
            check_rate(rate)?;
            if on < SHORTEST {
                return Err(format!("on for {on} on average; the least is {SHORTEST}"));
            }
            if off == Nanos::ZERO {
                return Err("never off; use a constant rate instead".into());
            }
            Ok(())
        }
        Kind::Ping { interval } if interval < SHORTEST => {
            Err(format!("a ping each {interval}; the shortest interval is {SHORTEST}"))
        }
        Kind::Ping { .. } => Ok(()),
        Kind::Trace { number, load } => {
            let flows = setup.traces.get(number).map_or(0, |trace| trace.flows().len());
            if flows != group.flows as usize {
                return Err(format!(
                    "{} flows, and its trace has {flows}; give as many",
                    group.flows
                ));
            }
            check_rate(load)
        }
        Kind::Backlogged { pace, queued } => {
            if group.sizes.len() != 1 {
                return Err("backlogged flows send frames of one length; give one".into());
            }
            if !QUEUED.contains(&queued) {
                let (least, most) = (QUEUED.start(), QUEUED.end());
                return Err(format!("{queued} packets of each flow; give {least} to {most}"));
            }
            check_rate(pace)
        }
        Kind::Tcp { stack, control, rtt } => check_tcp(setup, group, stack, control, rtt),
    }
}

fn check_sizes(group: &Traffic) -> Result<(), String> {
    let tcp = matches!(group.kind, Kind::Tcp { .. });
    if group.sizes.is_empty() && !tcp {
        return Err("no frame lengths; give at least one, as 1514".into());
    }
    if group.sizes.len() > 1 && tcp {
        return Err("TCP sends segments of one length; give one frame length".into());
    }
    for &(len, weight) in &group.sizes {
        if !LENGTHS.contains(&len) {
            let (least, most) = (LENGTHS.start(), LENGTHS.end());
            return Err(format!("frames of {len} bytes; a frame has {least} to {most}"));
        }
        if !(weight.is_finite() && weight >= 0.0) {
            return Err(format!("frames of {len} bytes have weight {weight}; give 0 or more"));
        }
    }
    if !group.sizes.is_empty() && group.sizes.iter().all(|&(_, weight)| weight == 0.0) {
        return Err("all frame lengths have weight 0; give one of them more".into());
    }
    Ok(())
}

fn check_spread(setup: &Setup, group: &Traffic) -> Result<(), String> {
    let queues = setup.port.queues;
    let loaded = match &group.spread {
        Spread::RoundRobin | Spread::Hash => return Ok(()),
        Spread::Parts(parts) => {
            if parts.len() > queues {
                return Err(format!("{} parts for {queues} queues; leave some out", parts.len()));
            }
            if let Some(part) = parts.iter().find(|part| !(part.is_finite() && **part >= 0.0)) {
                return Err(format!("a part of {part}; give 0 or more"));
            }
            let loaded = parts.iter().filter(|&&part| part > 0.0).count();
            if loaded == 0 {
                return Err("no queue has a part of the load; give one of them more than 0".into());
            }
            loaded
        }
        Spread::Dirichlet(concentration) => {
            if !(concentration.is_finite() && *concentration > 0.0) {
                return Err(format!("a concentration of {concentration}; give more than 0, as 1"));
            }
            queues
        }
    };
    if (group.flows as usize) < loaded {
        let flows = group.flows;
        return Err(format!(
            "{flows} flows cannot load {loaded} queues; have at least {loaded} flows"
        ));
    }
    Ok(())
}

fn check_moves(group: &Traffic) -> Result<(), String> {
    if group.respread.is_none() && group.lifetime.is_none() {
        return Ok(());
    }
    if matches!(group.kind, Kind::Tcp { .. } | Kind::Backlogged { .. } | Kind::Trace { .. }) {
        return Err(
            "flows of TCP, of a trace, and backlogged ones stay where they are; leave respread and \
             lifetime out"
                .into(),
        );
    }
    if let Some(every) = group.respread.filter(|&every| every < SHORTEST) {
        return Err(format!("spread anew each {every}; the shortest is {SHORTEST}"));
    }
    let Some(lifetime) = group.lifetime else { return Ok(()) };
    if !matches!(group.spread, Spread::RoundRobin | Spread::Hash) {
        return Err(
            "flows that end begin again on any queue, so the queues' parts would not hold; \
                    spread by hash, or use respread instead of lifetime"
                .into(),
        );
    }
    if lifetime.0 / u64::from(group.flows) < SHORTEST.0 {
        let flows = group.flows;
        return Err(format!(
            "{flows} flows that last {lifetime} end more often than each {SHORTEST}; \
             let them last longer"
        ));
    }
    Ok(())
}

fn check_headers(group: &Traffic) -> Result<(), String> {
    let HeaderFields { source_hosts, destination_hosts, common_hosts: _, dscp, ecn, filter_rate } =
        group.headers;
    for hosts in [source_hosts, destination_hosts] {
        if !(1..=group.flows).contains(&hosts) {
            let flows = group.flows;
            return Err(format!("{hosts} hosts; {flows} flows are of 1 to {flows}"));
        }
    }
    if dscp > 63 {
        return Err(format!("a code point of {dscp}; the last is 63"));
    }
    if ecn && matches!(group.kind, Kind::Tcp { stack: Stack::Smoltcp, .. }) {
        return Err("smoltcp does not answer to marks; use the model, or no ECN".into());
    }
    filter_rate.map_or(Ok(()), check_rate)
}

fn check_rate(rate: Rate) -> Result<(), String> {
    if rate.is_zero() {
        return Err("a rate of zero; give more, or leave the group out".into());
    }
    if rate > FASTEST {
        return Err(format!("a rate of {rate}; the most is {FASTEST}"));
    }
    Ok(())
}

fn check_tcp(
    setup: &Setup,
    group: &Traffic,
    stack: Stack,
    control: Control,
    rtt: Nanos,
) -> Result<(), String> {
    if rtt < SHORTEST {
        return Err(format!("a round trip of {rtt}; the shortest is {SHORTEST}"));
    }
    if stack == Stack::Smoltcp {
        if control == Control::Dctcp {
            return Err("smoltcp has no DCTCP; use the model, or Cubic or Reno".into());
        }
        if group.flows > MOST_SMOLTCP_FLOWS {
            return Err(format!(
                "{} flows of smoltcp; the most is {MOST_SMOLTCP_FLOWS}. The model does as many \
                 as you want",
                group.flows
            ));
        }
    }
    let behind = setup.next_hop.is_some_and(|hop| hop.mark_above.is_some());
    let shaper = setup.port.qdisc.iter().any(|word| word == "cake");
    if control == Control::Dctcp && !behind && !shaper {
        return Err("DCTCP needs a shaper or a next hop that marks; give it mark_above".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
