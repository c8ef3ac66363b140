//! A lab of other kernels and real drivers: Debian's own kernels under qemu, with network cards
//! that qemu emulates and whose ordinary Linux drivers run.
//!
//! ```text
//!   host: vmlab                                guest: the same program, as its init
//!   packages ▸ kernel ▸ root ▸ qemu  ──boots──▶  bed ▸ checks: narrows run · doctor · tc
//!            ◀──────── a line for each check, over a serial port ────────┘
//! ```
//!
//! A *cell* is one kernel with one driver under the ports. In each the guest boots as a stock
//! machine does (drivers by their aliases, nothing else loaded), starts Narrows between two ports,
//! and goes through the [checks](guest). What works where is a table that this program writes. One
//! more cell has the kernel's CAKE beside ours, under the [same loads](cake).
//!
//! Principles:
//!
//! - *Nothing but Debian's packages*, verified by apt, and the host's own programs copied into
//!   the guest. Nothing is changed on the host but the packages that it lacks.
//! - *Behaviour, not performance.* Without KVM a guest runs in a time of its own, in which each
//!   instruction takes 4 ns: some ten times slower than a real machine, and the same whatever else
//!   the host does. So limits are a few Mbit/s. Where delays are measured it takes 1 ns: a slow
//!   machine's pace, at limits that leave it idle for most of the time.
//! - *One machine at a time*, bounded in time and memory. Where machines have a time of their own,
//!   the one that measures runs beside the others.
//!
//! Non-goals: other processors than x86-64, other distributions, measuring how fast anything is.

mod apt;
mod archive;
mod cake;
mod guest;
mod host;
mod kernel;
mod matrix;
mod qemu;
mod report;
mod root;
mod verdict;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    if std::process::id() == 1 {
        guest::main();
    }
    match host::execute(&host::Options::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("vmlab: {error:#}");
            ExitCode::FAILURE
        }
    }
}
