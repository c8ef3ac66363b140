//! Which source host each flow belongs to, and the hosts' demands.
//!
//! The demand of open-loop traffic follows from its rate, the part of the measured time in which it
//! exists, and how many of its flows are the host's: not from the arrivals, which are random.

use super::fairness::{self, Claim};
use crate::setup::{Kind, Run, Setup, Traffic};
use crate::traffic::headers::host_of;

/// The source hosts of a run.
pub(super) struct Hosts {
    /// By flow.
    pub(super) of_flow: Vec<u32>,
    /// By host, in bytes of the measured time; infinity for all that it can get.
    wanted: Vec<f64>,
}

impl Hosts {
    /// The hosts of `setup`, with the group of each flow; flows are numbered group by group. Flows
    /// without a group in `setup` belong to one host.
    pub(super) fn new(setup: &Setup, groups: &[u16]) -> Self {
        let mut hosts = Self { of_flow: Vec::with_capacity(groups.len()), wanted: Vec::new() };
        for flows in groups.chunk_by(|one, other| one == other) {
            let first = hosts.wanted.len() as u32;
            let group = flows.first().and_then(|group| setup.traffic.get(usize::from(*group)));
            let count = group.map_or(1, |group| group.headers.source_hosts.max(1));
            let wanted = group.map_or(f64::INFINITY, |group| wanted(group, &setup.run));
            hosts.wanted.resize(hosts.wanted.len() + count as usize, 0.0);
            for flow in 0..flows.len() as u32 {
                let host = first + host_of(flow, flows.len() as u32, count);
                hosts.of_flow.push(host);
                hosts.wanted[host as usize] += wanted / flows.len() as f64;
            }
        }
        hosts
    }

    /// By host, what its flows got.
    pub(super) fn got(&self, flow_bytes: &[u64]) -> Vec<u64> {
        let mut got = vec![0; self.wanted.len()];
        for (host, bytes) in self.of_flow.iter().zip(flow_bytes) {
            got[*host as usize] += bytes;
        }
        got
    }

    /// The fairness of `got`, the hosts' parts of `capacity`.
    pub(super) fn jain(&self, capacity: f64, got: &[u64]) -> Option<f64> {
        let claim =
            |(wanted, got): (&f64, &u64)| Claim { wanted: *wanted, got: *got as f64, weight: 1.0 };
        let claims: Vec<Claim> = self.wanted.iter().zip(got).map(claim).collect();
        fairness::of_claims(capacity, &claims)
    }
}

/// The demand of all flows of `group` together, in bytes over the measured time.
fn wanted(group: &Traffic, run: &Run) -> f64 {
    let from = group.start.max(run.warmup);
    let secs = group.stop.min(run.end()).since(from).as_secs_f64();
    if secs <= 0.0 {
        return 0.0;
    }
    let bytes = |bits_per_sec: u64| bits_per_sec as f64 / 8.0 * secs;
    match group.kind {
        Kind::Constant(rate)
        | Kind::Uneven(rate)
        | Kind::Poisson(rate)
        | Kind::Trace { load: rate, .. } => bytes(rate.bits_per_sec()),
        Kind::OnOff { rate, on, off } => {
            bytes(rate.bits_per_sec()) * on.as_secs_f64() / (on + off).as_secs_f64()
        }
        Kind::Tcp { .. } | Kind::Backlogged { .. } => f64::INFINITY,
        Kind::Ping { interval } => {
            let longest = group.sizes.iter().map(|(len, _)| *len).max().unwrap_or(0);
            f64::from(group.flows) * f64::from(longest) * secs / interval.as_secs_f64()
        }
    }
}
