//! Measures systems that route, one after the other, with one table.

use super::system::{Limited, System};
use super::{
    CLIENT, Cell, FRAME_BYTES, Family, LookUps, Networks, PORT_A, Results, SERVER, Samples, limit,
};
use crate::arrivals::{self, Sample};
use crate::narrows::Instance;
use crate::process;
use crate::progress::Progress;
use crate::receiving::Threaded;
use crate::{Rounds, Testbed};
use anyhow::{Context, Result, bail, ensure};
use narrows_units::Rate;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// How long a router may take to know all routes.
const LISTING: Duration = Duration::from_secs(120);
/// How often look-ups are measured for a table, each by the median of many runs.
const LOOK_UPS: usize = 3;

/// Where systems are measured: with one table.
pub(super) struct InBed<'a> {
    pub(super) bed: &'a Testbed,
    pub(super) networks: &'a Networks,
    pub(super) cores: &'a [usize],
    pub(super) options: &'a Rounds,
}

impl InBed<'_> {
    /// Measures `cells` in all rounds, and then look-ups.
    pub(super) fn run(&self, cells: &[Cell], results: &mut Results, progress: &mut Progress) {
        let rounds = self.options.rounds;
        for round in 1..=rounds {
            for cell in cells {
                if progress.is_over() {
                    return;
                }
                let what = format!("{} to {}", cell.system.name(), cell.destinations);
                progress.begin(&format!("round {round} of {rounds}: {what}"));
                let sample = limit_of(*cell, round, &results.samples)
                    .and_then(|limit| self.measure(*cell, limit));
                match sample {
                    Ok(sample) => {
                        results.samples.entry(*cell).or_default().insert(round, sample);
                    }
                    Err(why) => results.failures.push((*cell, Some(round), format!("{why:#}"))),
                }
            }
        }
        progress.say("look-ups");
        for cell in cells.iter().filter(|cell| cell.system == System::Kernel) {
            match self.measure_look_ups(*cell) {
                Err(why) => results.failures.push((*cell, None, format!("{why:#}"))),
                Ok(found) => {
                    for LookUps { table_ns, helper_ns } in found {
                        let mut add = |system, time| {
                            let of = Cell { system, ..*cell };
                            results.look_ups.entry(of).or_default().push(time);
                        };
                        add(System::Kernel, helper_ns);
                        add(System::NarrowsXdp, table_ns);
                        add(System::NarrowsXsk, table_ns);
                    }
                }
            }
        }
    }

    /// Measures look-ups of the destinations of `cell`, alone.
    fn measure_look_ups(&self, cell: Cell) -> Result<Vec<LookUps>> {
        let addresses = fs::read_to_string(&self.networks.files[&cell.destinations])?;
        let one = || -> Result<LookUps> {
            let mut command = self.bed.shaper().command(&self.options.program);
            let said = process::run_with(command.args(["bench", "look-ups", PORT_A]), &addresses)?;
            serde_json::from_str(&said).context("no times of look-ups")
        };
        (0..LOOK_UPS).map(|_| one()).collect()
    }

    fn measure(&self, cell: Cell, limit: Option<Rate>) -> Result<Sample> {
        let Self { bed, networks, cores, options } = self;
        let Rounds { program, window, .. } = options;
        let (routers, senders) = (&cores[..cell.cpus], &cores[cores.len() - cell.cpus..]);
        // All systems alike: a `veth` takes redirected frames only with GRO on.
        bed.take_redirected(true)?;
        let receives = Threaded::start(bed.shaper(), PORT_A, bed.queues(), routers)?;
        let running = cell.system.start(bed, program, routers)?;
        if cell.system.has_routes() {
            self.wait_for_routes(cell)?;
        }
        if let Some(rate) = limit {
            running.set_limit(cell.system, rate)?;
        }
        // What is no UDP over IPv4 is for the server itself, but nothing is of IPv6.
        let drain = ["bench", "drain", SERVER, "--udp"];
        let drain = if cell.family == Family::Ipv4 { &drain[..] } else { &drain[..3] };
        let _drain = Instance::start_in(bed.server(), program, drain)?;
        let bytes = FRAME_BYTES.to_string();
        let file = networks.files[&cell.destinations].to_string_lossy().into_owned();
        let send = |core: &usize| {
            let core = core.to_string();
            let words = ["bench", "routed-frames", CLIENT, &bytes, &core, &file, "--unrouted"];
            let words = if cell.system.is_wire() { &words[..] } else { &words[..6] };
            Instance::start_in(bed.client(), program, words)
        };
        let start = || senders.iter().map(send).collect::<Result<Vec<_>>>();
        let busy = || Ok(receives.cpu()? + running.cpu()?);
        let sample = arrivals::measure(bed, *window, start, busy, || running.dropped())?;
        ensure!(sample.packets_per_second > 0.0, "nothing arrived");
        running.has_sent(sample.packets_per_second * window.as_secs_f64())?;
        Ok(sample)
    }

    /// Waits until what routes there knows all routes of `cell`.
    fn wait_for_routes(&self, cell: Cell) -> Result<()> {
        let deadline = Instant::now() + LISTING;
        loop {
            let mut command = self.bed.shaper().command(&self.options.program);
            let output = command.args(["route", "stats", "--json"]).output()?;
            let stats: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let of_family = &stats["families"][cell.family as usize];
            let prefixes = of_family["prefixes"].as_u64().unwrap_or(0);
            if of_family["in_use"] == true && prefixes >= cell.routes as u64 {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("the table of routes is not in use after {LISTING:?}: {of_family}");
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}

/// The limit of `cell`, if it has one. One that binds is half of what passed in this `round`
/// without.
fn limit_of(cell: Cell, round: u32, samples: &BTreeMap<Cell, Samples>) -> Result<Option<Rate>> {
    let Some(Limited { unlimited, binds, .. }) = cell.system.limit() else { return Ok(None) };
    if !binds {
        return Ok(Some(limit::FAR_ABOVE));
    }
    let rounds = samples.get(&Cell { system: unlimited, ..cell });
    let passed = rounds.and_then(|rounds| rounds.get(&round)).with_context(|| {
        format!("what {} passes was not measured in this round", unlimited.name())
    })?;
    let bits = passed.packets_per_second * FRAME_BYTES as f64 * 8.0;
    Ok(Some(Rate::from_bits_per_sec((bits / 2.0) as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_binds_is_half_of_what_passed_without() {
        let cell =
            |system| Cell { family: Family::Ipv4, cpus: 1, routes: 1, destinations: 1, system };
        let sample =
            |packets| Sample { packets_per_second: packets, taken_per_second: packets, cores: 1.0 };
        let samples = BTreeMap::from([(
            cell(System::NarrowsXdp),
            BTreeMap::from([(1, sample(1e6)), (2, sample(2e6))]),
        )]);
        let limit = |system| limit_of(cell(system), 2, &samples);
        assert_eq!(limit(System::Kernel).unwrap(), None);
        assert_eq!(limit(System::NarrowsXdpTree).unwrap(), Some(limit::FAR_ABOVE));
        let half = Rate::from_bits_per_sec(512_000_000);
        assert_eq!(limit(System::NarrowsXdpTreeBinding).unwrap(), Some(half));
        assert!(limit(System::NarrowsXskCakeBinding).is_err());
    }
}
