//! A lab for other kernels and real drivers: Debian's own kernels under qemu, with emulated network
//! cards that use their ordinary Linux drivers.
//!
//! ```text
//!   host: vmlab                                guest: the same program, as its init
//!   packages ▸ kernel ▸ root ▸ qemu  ──boots──▶  bed ▸ checks: narrows run · doctor · tc
//!            ◀──────── a line for each check, over a serial port ────────┘
//! ```
//!
//! A *cell* is one kernel with one driver under the ports. In each cell the guest boots like a
//! stock machine (drivers by their aliases, nothing else loaded), starts Narrows between two ports,
//! and runs the [checks](guest). This program writes a table of what works where. One more cell
//! compares the kernel's CAKE with Narrows', under the [same loads](cake).
//!
//! Principles:
//!
//! - *Only Debian's packages*, verified by apt, and the host's own programs copied into the guest.
//!   What is tried itself, kernel and [xdp-tools](tools), is that of the cell's release.
//!   Nothing on the host changes except that missing packages are installed.
//! - *Behaviour, not performance.* Without KVM a guest has emulated time, in which each instruction
//!   takes 4 ns: about ten times slower than a real machine, and the same whatever else the host
//!   does. So limits are a few Mbit/s. Where delays are measured, an instruction takes 1 ns: the
//!   pace of a slow machine, at limits that leave it idle most of the time.
//! - *One machine at a time*, bounded in time and memory. With emulated time, the one that measures
//!   runs beside the others.
//!
//! - *The host is an x86-64.* Guests of [another processor](architecture) have programs that were
//!   built for it, and all others from Debian's packages for it. They run few checks: whether
//!   Narrows works there, not everything again.
//!
//! Non-goals: other hosts, other distributions, measuring speed.

mod apt;
mod architecture;
mod archive;
mod cake;
mod foreign;
mod guest;
mod host;
mod kernel;
mod matrix;
mod qemu;
mod report;
mod root;
mod tools;
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
