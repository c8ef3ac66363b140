//! The cost of a qdisc per packet: one qdisc, some flows, one round.

use super::load::{self, Class};
use super::system::System;
use crate::Rounds;
use crate::accounting::{Books, Devices};
use crate::bed::{PORT_B, Testbed};
use crate::narrows::Instance;
use crate::progress::Progress;
use crate::{cpu, frames};
use anyhow::{Context, Result};
use narrows_snapshot::Queue;
use narrows_units::Rate;
use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

/// Flows that share the rate evenly.
pub(super) const FLOWS: [u16; 3] = [16, 64, 1024];
/// All flows together: some 51,000 packets a second, one in 20 us, which every system here carries
/// on a part of a core. Each of 1024 flows has 600 kbit/s.
const TOTAL: Rate = Rate::from_bits_per_sec(1024 * 600_000);
/// The drop reason of a flow whose queue is full.
const FLOW_LIMIT: &str = "flow_limit";

/// The parameters of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cell {
    pub(super) flows: u16,
    pub(super) system: System,
}

/// The measurements of one round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Packets that the server's device received, a second.
    pub(super) packets_per_second: f64,
    /// Packets that the server's device received, in percent of the sum of all rates.
    pub(super) of_rate_percent: f64,
    /// The offered load, in percent of the same.
    pub(super) offered_percent: f64,
    /// System calls made to send, a second.
    pub(super) kicks_per_second: f64,
    /// Packets sent for each.
    pub(super) packets_per_kick: f64,
    /// Time of Narrows's threads for each packet, in nanoseconds.
    pub(super) cpu_nanos: f64,
    /// Frames of the whole load that their flow's limit dropped.
    pub(super) flow_limit_drops: u64,
    /// Frames of the whole load that were lost in any other way.
    pub(super) lost: u64,
}

/// Every round of every cell.
pub(super) type Samples = BTreeMap<Cell, Vec<Sample>>;

/// Flows of the cell with `flows` of them.
pub(super) fn class(flows: u16) -> Class {
    Class {
        ports: (0..flows).map(frames::port).collect(),
        rate: Rate::from_bits_per_sec(TOTAL.bits_per_sec() / u64::from(flows)),
        share: 1,
    }
}

/// Measures all of it.
pub(super) fn run(options: &Rounds, progress: &mut Progress) -> Result<Samples> {
    let bed = Testbed::up(1)?;
    let instance = Instance::start(&bed, &options.program, &["--fail-closed"])?;
    let mut samples = Samples::new();
    for round in 1..=options.rounds {
        if round > 1 && progress.is_over() {
            break;
        }
        for flows in FLOWS {
            for system in System::ALL {
                let title = format!(
                    "round {round} of {}: {}, {flows} flows",
                    options.rounds,
                    system.name()
                );
                progress.begin(&title);
                let cell = Cell { flows, system };
                let sample = measure(&bed, &instance, cell, options.window)
                    .with_context(|| format!("{title}; narrows says:\n{}", instance.log()))?;
                progress.end(&format!(
                    "{title}: {:.0} ns a packet, {:.1} packets a kick, {:.2} % of the rate",
                    sample.cpu_nanos, sample.packets_per_kick, sample.of_rate_percent
                ));
                samples.entry(cell).or_default().push(sample);
            }
        }
    }
    Ok(samples)
}

/// The readings at both ends of the window.
struct Look {
    at: Instant,
    cpu: Duration,
    devices: Devices,
    /// Port B's counters, read at another moment than the rest and only compared with each other.
    queue: Queue,
}

fn queue(instance: &Instance) -> Result<Queue> {
    let show = instance.show()?;
    Ok(show.port(PORT_B).context("narrows show does not list port B")?.total.clone())
}

fn measure(bed: &Testbed, instance: &Instance, cell: Cell, window: Duration) -> Result<Sample> {
    let class = class(cell.flows);
    let words = cell.system.words(class.rate, class.flow_limit(), u32::from(cell.flows));
    instance.tc(&format!("qdisc replace dev {PORT_B} root {words}"))?;
    let before = queue(instance)?;
    let mut books = Books::open(bed)?;
    let load = load::start(bed, std::slice::from_ref(&class), Some(cpu::last_core()?), window)?;
    // `narrows show` is outside the measured time.
    let queue_at_start = queue(instance)?;
    let start = look(instance, &mut books, queue_at_start)?;
    thread::sleep(window);
    let mut end = look(instance, &mut books, Queue::default())?;
    end.queue = queue(instance)?;
    load.stop()?;
    let all = books.settle()?;
    sample(&class, [&start, &end], &all, [&before, &queue(instance)?])
}

fn look(instance: &Instance, books: &mut Books, queue: Queue) -> Result<Look> {
    let (cpu, at) = (instance.cpu()?, Instant::now());
    Ok(Look { at, cpu, devices: books.read()?, queue })
}

/// `all` and `drops` are over the whole load, the readings over the window within it.
fn sample(
    class: &Class,
    [start, end]: [&Look; 2],
    all: &Devices,
    drops: [&Queue; 2],
) -> Result<Sample> {
    let seconds = (end.at - start.at).as_secs_f64();
    let offered = |devices: &Devices| devices.client.tx_packets + devices.client.tx_dropped;
    let received = end.devices.server.rx_packets - start.devices.server.rx_packets;
    anyhow::ensure!(received > 0, "nothing arrives at the server");
    let rate = load::total_packets_per_second(std::slice::from_ref(class));
    let per_second = |packets: u64| packets as f64 / seconds;
    let kicks = end.queue.tx_kicks - start.queue.tx_kicks;
    let sent = end.queue.tx_packets - start.queue.tx_packets;
    let packets_per_kick = sent as f64 / kicks.max(1) as f64;
    let dropped =
        |queue: &Queue| queue.drops_by_reason.get(FLOW_LIMIT).copied().unwrap_or_default();
    let flow_limit_drops = dropped(drops[1]) - dropped(drops[0]);
    Ok(Sample {
        packets_per_second: per_second(received),
        of_rate_percent: per_second(received) / rate * 100.0,
        offered_percent: per_second(offered(&end.devices) - offered(&start.devices)) / rate * 100.0,
        kicks_per_second: per_second(received) / packets_per_kick,
        packets_per_kick,
        cpu_nanos: (end.cpu - start.cpu).as_nanos() as f64 / received as f64,
        flow_limit_drops,
        lost: offered(all).saturating_sub(all.server.rx_packets + flow_limit_drops),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Counts;

    #[test]
    fn the_total_is_the_same_for_any_number_of_flows() {
        for flows in FLOWS {
            let packets = load::total_packets_per_second(&[class(flows)]);
            assert!((packets - 51_200.0).abs() < 1.0, "{flows} flows: {packets}");
            // And fits within the packets that a worker may hold.
            let queued = class(flows).flow_limit() * u32::from(flows);
            assert!((2000..=4096).contains(&queued), "{flows} flows: {queued}");
        }
    }

    #[test]
    fn a_sample_follows_from_the_counters() {
        let at = Instant::now();
        let look = |seconds: u64, sent: u64, kicks: u64| {
            let counts =
                |packets| Counts { tx_packets: packets, rx_packets: packets, ..Counts::default() };
            Look {
                at: at + Duration::from_secs(seconds),
                cpu: Duration::from_millis(100 * seconds),
                devices: Devices {
                    client: counts(2 * sent),
                    server: counts(sent),
                    ..Devices::default()
                },
                queue: Queue { tx_packets: sent, tx_kicks: kicks, ..Queue::default() },
            }
        };
        let (start, end) = (look(1, 51_200, 100), look(3, 3 * 51_200, 10_340));
        let drops = |count| Queue {
            drops_by_reason: [("flow_limit".to_owned(), count)].into(),
            ..Queue::default()
        };
        let sample =
            sample(&class(16), [&start, &end], &end.devices, [&drops(10), &drops(153_600)])
                .unwrap();
        assert_eq!(sample.packets_per_second, 51_200.0);
        assert_eq!((sample.of_rate_percent, sample.offered_percent), (100.0, 200.0));
        assert_eq!((sample.packets_per_kick, sample.kicks_per_second), (10.0, 5120.0));
        assert_eq!(sample.cpu_nanos, 200e6 / 102_400.0);
        assert_eq!((sample.flow_limit_drops, sample.lost), (153_590, 10));
    }
}
