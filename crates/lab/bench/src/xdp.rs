//! The cost of a frame in the driver: the XDP plane's tree compared with token buckets, by test
//! runs in the kernel.
//!
//! The same frame of 64 bytes goes through each program a few hundred thousand times
//! (`BPF_PROG_TEST_RUN`), on one CPU and on all of them at once, each CPU by a thread that stays
//! there. All programs take turns within each repeat; the median over the repeats counts, of the
//! threads' CPU time, and so does the difference to the empty program in the same repeat.
//!
//! *Contended* means that all CPUs charge one bucket, or one leaf of the tree. Otherwise each has a
//! bucket, or a leaf, of its own ([`LEAVES`] at most); the classes above the leaves are
//! shared.
//!
//! *Two loads.* `free`: the rate is never reached. `bound`: most frames exceed it.
//!
//! *What favours all of them:* the same frame each time, so headers and tables are in the nearest
//! cache. A test run neither receives nor sends. Only in rows `spread…` has each frame another
//! source, of 65,536; they are compared with the program that changes it.
//!
//! *Live frames* (`BPF_F_TEST_XDP_LIVE_FRAMES`) are frames each in a page of its own, which leave
//! by a port, and are compared with a program that does nothing but that. At the other end of the
//! port a program counts them and drops them: what is lost between is an error, not a fast row.
//!
//! What sends them to `bench forward` is here, too ([`driver`]).
//!
//! Non-goals: receiving (`bench forward`), whether rates are kept.

pub mod driver;
pub(crate) mod object;
mod prefixes;
mod program;
mod report;
mod shape;
mod sink;

pub use report::{Report, Row};
pub use shape::{LEAVES, LookUp, Members, Shape, Sharing, Subject};

use crate::coordination::cores::Cores;
use crate::processor;
use crate::qdisc::median;
use anyhow::{Context, Result};
use narrows_bpf::test_run::{live_run, test_run};
use program::Program;
use sink::Sink;

/// How to run it.
#[derive(Clone, Debug)]
pub struct Options {
    /// Frames through each program on each CPU in one repeat.
    pub packets: u32,
    /// Repeats, at least one.
    pub repeats: usize,
    /// Where live frames leave, and where they arrive.
    pub live: Option<Live>,
}

/// The two ends of a link, in the caller's network namespace.
#[derive(Clone, Copy, Debug)]
pub struct Live {
    /// The number of the one by which live frames leave.
    pub port: u32,
    /// The number of the one at which they arrive. No XDP program is attached to it.
    pub end: u32,
}

/// The loopback device, where nothing is sent.
const NOWHERE: u32 = 1;

/// The number of calls of `begin`.
pub fn steps(options: &Options) -> u64 {
    options.repeats as u64
}

/// Measures. Calls `begin` with the title of each step at its start.
///
/// # Errors
/// If the kernel does not load or run a program; without root it does not.
pub fn run(options: &Options, mut begin: impl FnMut(&str)) -> Result<Report> {
    let cores = Cores::allowed()?;
    let mut shapes = shape::all(cores.len());
    let sink = options.live.map(|live| Sink::attach(live.end)).transpose()?;
    if sink.is_some() {
        shapes.extend(shape::live(cores.len()));
    }
    let port = options.live.map_or(NOWHERE, |live| live.port);
    let mut programs = Vec::new();
    for shape in shapes {
        let program = Program::load(shape, port).with_context(|| format!("{shape}"))?;
        programs.push((program, Vec::with_capacity(options.repeats)));
    }
    for repeat in 0..options.repeats {
        begin(&format!("repeat {}", repeat + 1));
        for (program, costs) in &mut programs {
            let sink = sink.as_ref().filter(|_| program.shape().is_live);
            let before = sink.map(Sink::frames).transpose()?;
            costs.push(measure(program, options.packets, &cores)?);
            if let (Some(sink), Some(before)) = (sink, before) {
                sink.judge(program.shape(), before, u64::from(options.packets))?;
            }
        }
    }
    let floors: Vec<(Shape, Vec<f64>)> = programs
        .iter()
        .map(|(program, costs)| (program.shape(), costs.clone()))
        .filter(|(shape, _)| shape.subject == shape.subject.floor())
        .collect();
    let mut rows = Vec::new();
    for (program, costs) in programs {
        let shape = program.shape();
        let floor = floors.iter().find(|(floor, _)| {
            floor.cpus == shape.cpus
                && floor.is_live == shape.is_live
                && floor.subject == shape.subject.floor()
        });
        let (_, floor) = floor.context("the empty program runs on as many CPUs")?;
        let above = costs.iter().zip(floor).map(|(cost, floor)| cost - floor);
        rows.push(Row::new(shape, &costs, median(above.collect())));
    }
    Ok(Report { rows, notes: report::notes(cores.physical()) })
}

/// The CPU time of a frame, in nanoseconds, on average over all CPUs.
fn measure(program: &Program, packets: u32, cores: &Cores) -> Result<f64> {
    processor::time_of_each(packets, program.shape().cpus, cores, |number| {
        let frame = program.frame(number);
        let refused = "the kernel does not run it";
        if program.shape().is_live {
            live_run(program.fd(), &frame, packets).context(refused)?;
        } else {
            let run = test_run(program.fd(), &frame, packets).context(refused)?;
            program.judge(run.verdict)?;
        }
        Ok(())
    })
}
