//! Asks the kernel's look-up for routes, as a router's programs do: for a self-check.

use crate::load::{LoadError, Tries, keep};
use crate::test_run::test_run;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

#[allow(missing_docs, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
mod ask_fib {
    include!(concat!(env!("OUT_DIR"), "/ask_fib.skel.rs"));
}

/// Of `sys/socket.h`.
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
/// An Ethernet header.
const HEADER: usize = 14;
/// The size of `struct bpf_fib_lookup` of `linux/bpf.h`, and where its fields are.
const LOOKUP: usize = 64;
const LENGTH: usize = 6;
const IFINDEX: usize = 8;
const SOURCE: usize = 16;
const DESTINATION: usize = 32;
const NEXT_MAC: usize = 58;

/// The kernel's look-up.
pub struct AskFib {
    program: OwnedFd,
}

/// What it says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FibAnswer {
    /// A packet leaves so.
    Leaves {
        /// Through that device,
        ifindex: u32,
        /// to that MAC address.
        mac: [u8; 6],
    },
    /// It does not: `BPF_FIB_LKUP_RET_…` of `linux/bpf.h`.
    Not(u32),
}

impl AskFib {
    /// Loads the program that asks.
    ///
    /// # Errors
    /// If the kernel refuses it: for lack of privileges.
    pub fn load() -> Result<Self, LoadError> {
        let mut tries = Tries::new();
        let loaded = tries
            .explained(|storage| ask_fib::AskFibSkelBuilder::default().open(storage)?.load())?;
        Ok(Self { program: keep(&loaded.progs.ask_fib)? })
    }

    /// The way of a small packet that arrives at the device `ifindex`. Both addresses are of one
    /// family.
    ///
    /// # Errors
    /// If the kernel does not run it.
    pub fn ask(&self, from: IpAddr, to: IpAddr, ifindex: u32) -> io::Result<FibAnswer> {
        let mut frame = vec![0; HEADER + LOOKUP];
        let question = &mut frame[HEADER..];
        question[0] = if to.is_ipv4() { AF_INET } else { AF_INET6 };
        // It fits any MTU.
        question[LENGTH..][..2].copy_from_slice(&1_u16.to_ne_bytes());
        question[IFINDEX..][..4].copy_from_slice(&ifindex.to_ne_bytes());
        for (at, address) in [(SOURCE, from), (DESTINATION, to)] {
            match address {
                IpAddr::V4(address) => question[at..][..4].copy_from_slice(&address.octets()),
                IpAddr::V6(address) => question[at..][..16].copy_from_slice(&address.octets()),
            }
        }
        let run = test_run(self.program.as_fd(), &frame, 1)?;
        let answer = &run.frame[HEADER..];
        let number = |at: usize| answer[at..].first_chunk().map_or(0, |it| u32::from_ne_bytes(*it));
        match (run.verdict, answer[NEXT_MAC..].first_chunk()) {
            (0, Some(mac)) => Ok(FibAnswer::Leaves { ifindex: number(IFINDEX), mac: *mac }),
            (said, _) => Ok(FibAnswer::Not(said)),
        }
    }
}
