//! How accurately single flows are paced: the kernel's times at the receiver.
//!
//! The time of a frame is taken when the receiving device passes it to its kernel, which with
//! `veth` happens in the system call that sends it. So it is the time at which Narrows sent the
//! frame, within a few microseconds, including the delays of scheduler and timers.
//!
//! The bound of the deviation over a window: a packet leaves at most one slot late, so a window
//! deviates by at most the slot's fraction of it. `flowbundler`'s slot is up to a packet's time at
//! the flow's rate: at 500 Mbit/s 16 us, which is 1.6 % of a millisecond, at 2 Mbit/s 4.2 ms. That
//! is the price of bundling several flows.

use super::load::{self, Class};
use super::system::System;
use super::trace::{self, Deviation, Gaps, Trace};
use crate::Rounds;
use crate::bed::{PORT_B, SERVER, Testbed};
use crate::capture::{Arrival, Capture};
use crate::narrows::Instance;
use crate::progress::Progress;
use crate::spread::Spread;
use crate::{frames, steering};
use anyhow::{Context, Result};
use narrows_units::{Nanos, Rate};
use serde::Serialize;
use std::collections::BTreeMap;
use std::thread;

/// The rate of the single flow.
const SINGLE: Rate = Rate::from_bits_per_sec(500_000_000);
/// The rates of flows in one measurement: a queue for each, as all flows of a qdisc have one rate.
const RATES_MBIT: [u64; 4] = [2, 4, 8, 16];
/// Flows at each of them.
const FLOWS_PER_RATE: usize = 16;
/// Windows over which the rate is measured, in milliseconds.
const WINDOWS_MS: [u64; 3] = [1, 10, 100];
/// Where an Ethernet frame without a tag has its UDP source port, after an IP header without
/// options.
const SOURCE_PORT: std::ops::Range<usize> = 34..36;

/// One qdisc with flows at one rate.
#[derive(Clone, Debug, Serialize)]
pub struct ConformanceRow {
    /// Its name.
    pub system: &'static str,
    /// Flows measured together, at any rates.
    pub flows_together: usize,
    /// Flows at this rate.
    pub flows: usize,
    /// The rate of each, in bits per second.
    pub rate_bps: u64,
    /// Their packets looked at.
    pub packets: usize,
    /// Packets that the capture missed, of all flows: if there are any, gaps are too long.
    pub missed: u64,
    /// The error of each flow's rate over the whole time, in percent; the extremes.
    pub whole_percent: Spread,
    /// The error of each flow's rate over windows, in percent; those in which a flow has less than
    /// four packets are left out.
    pub windows: Vec<Deviation>,
    /// Between a packet and the next but one of its flow.
    pub alternate_gaps: Gaps,
}

/// How many measurements there are.
pub(super) const fn measurements() -> usize {
    2 * System::PACING.len()
}

/// Measures all of it.
pub(super) fn run(options: &Rounds, progress: &mut Progress) -> Result<Vec<ConformanceRow>> {
    let mut rows = Vec::new();
    for (queues, title) in [(1, "one flow"), (RATES_MBIT.len(), "64 flows at four rates")] {
        let bed = Testbed::up(u32::try_from(queues)?)?;
        let classes = classes(&bed)?;
        let instance = Instance::start(&bed, &options.program, &["--fail-closed"])?;
        for system in System::PACING {
            let title = format!("conformance of {}: {title}", system.name());
            progress.begin(&title);
            let found = measure(&bed, &instance, system, &classes, options)
                .with_context(|| format!("{title}; narrows says:\n{}", instance.log()))?;
            rows.extend(found);
        }
    }
    Ok(rows)
}

/// One flow if there is one queue, and otherwise a class for each queue.
fn classes(bed: &Testbed) -> Result<Vec<Class>> {
    if bed.queues() == 1 {
        return Ok(vec![Class { ports: vec![frames::port(0)], rate: SINGLE, share: 1 }]);
    }
    let flows = steering::flows(bed, FLOWS_PER_RATE)?;
    let class = |(ports, mbit): (Vec<u16>, u64)| Class {
        ports,
        rate: Rate::from_bits_per_sec(mbit * 1_000_000),
        share: (mbit / RATES_MBIT[0]) as usize,
    };
    Ok(flows.into_iter().zip(RATES_MBIT).map(class).collect())
}

/// Puts `system` over port B, with a queue for each class if there are several.
fn set_up(instance: &Instance, system: System, classes: &[Class]) -> Result<()> {
    let words =
        |class: &Class| system.words(class.rate, class.flow_limit(), class.ports.len() as u32);
    if let [class] = classes {
        return instance.tc(&format!("qdisc replace dev {PORT_B} root {}", words(class))).map(drop);
    }
    instance.tc(&format!("qdisc replace dev {PORT_B} root handle 1: mq"))?;
    for (queue, class) in (1..).zip(classes) {
        instance.tc(&format!("qdisc replace dev {PORT_B} parent 1:{queue} {}", words(class)))?;
    }
    Ok(())
}

fn measure(
    bed: &Testbed,
    instance: &Instance,
    system: System,
    classes: &[Class],
    options: &Rounds,
) -> Result<Vec<ConformanceRow>> {
    set_up(instance, system, classes)?;
    let core = (bed.queues() == 1).then(crate::cpu::last_core).transpose()?;
    let load = load::start(bed, classes, core, options.window)?;
    let capture = Capture::of_times(bed.server(), SERVER, "udp")?;
    thread::sleep(options.window);
    let (arrivals, missed) = capture.arrivals()?;
    load.stop()?;
    let flows = by_source_port(&arrivals);
    let flows_together = classes.iter().map(|class| class.ports.len()).sum();
    classes
        .iter()
        .map(|class| row(system, class, &flows, flows_together, missed))
        .collect::<Option<_>>()
        .context("a flow did not arrive")
}

/// The times of UDP packets over IPv4, by the flow that they are of.
pub fn by_source_port(arrivals: &[Arrival]) -> BTreeMap<u16, Vec<Nanos>> {
    let mut flows: BTreeMap<u16, Vec<Nanos>> = BTreeMap::new();
    for Arrival { at, bytes } in arrivals {
        if let Some(&[high, low]) = bytes.get(SOURCE_PORT) {
            flows.entry(u16::from_be_bytes([high, low])).or_default().push(*at);
        }
    }
    flows
}

fn row(
    system: System,
    class: &Class,
    flows: &BTreeMap<u16, Vec<Nanos>>,
    flows_together: usize,
    missed: u64,
) -> Option<ConformanceRow> {
    let packet_nanos = load::packet_nanos(class.rate);
    let trace = |port| Some(Trace { at: flows.get(port)?.clone(), packet_nanos });
    let traces: Vec<Trace> = class.ports.iter().map(trace).collect::<Option<_>>()?;
    let window = |ms| trace::deviation(&traces, Nanos::from_millis(ms));
    Some(ConformanceRow {
        system: system.name(),
        flows_together,
        flows: traces.len(),
        rate_bps: class.rate.bits_per_sec(),
        packets: traces.iter().map(|trace| trace.at.len()).sum(),
        missed,
        whole_percent: trace::whole(&traces)?,
        windows: WINDOWS_MS.into_iter().filter_map(window).collect(),
        alternate_gaps: trace::gaps(&traces)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed::SINK_MAC;

    #[test]
    fn packets_are_assigned_by_source_port() {
        let arrival =
            |at, port| Arrival { at: Nanos(at), bytes: frames::udp(port, SINK_MAC, 96).unwrap() };
        let flows = by_source_port(&[arrival(1, 20_000), arrival(2, 20_001), arrival(3, 20_000)]);
        assert_eq!(flows[&20_000], [Nanos(1), Nanos(3)]);
        assert_eq!(flows[&20_001], [Nanos(2)]);
    }

    #[test]
    fn a_row_covers_the_flows_of_one_class() {
        let class = Class { ports: vec![1], rate: Rate::from_bits_per_sec(12_000_000), share: 1 };
        // A packet takes a millisecond.
        let flows = BTreeMap::from([(1, (0..300).map(Nanos::from_millis).collect()), (2, vec![])]);
        let row = row(System::Fq, &class, &flows, 2, 0).unwrap();
        assert_eq!((row.system, row.flows, row.flows_together, row.packets), ("fq", 1, 2, 300));
        assert_eq!(row.whole_percent.median, 0.0);
        // Four packets are not within a window of 1 ms.
        let windows: Vec<f64> = row.windows.iter().map(|window| window.window_ms).collect();
        assert_eq!(windows, [10.0, 100.0]);
        assert_eq!(row.alternate_gaps.p50, 1.0);
    }
}
