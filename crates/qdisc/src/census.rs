//! What the queues of a port tell each other of hosts and tins.
//!
//! A host may have flows on several queues, and a tin packets on all of them. A qdisc that
//! shares out its rate by host or tin counts those on its siblings, too, or each queue would give
//! them a share of its own. It holds a [`Census`], its seat at what the queues of one limit count
//! together, beside its [`crate::Meter`]. What stands behind it is the `coordination` layer's.
//!
//! Everything in it is a hint that may be a little old: what may be sent is the meter's to say.

/// Which host is counted: a keyed hash of the tin, the direction and the address, the same on
/// every queue of the port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct HostKey(pub u64);

/// The most tins that can be told apart.
pub const TINS_MAX: usize = 8;

/// What one queue says, and all queues together have said, of one tin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TinCensus {
    /// The weights of flows that have more queued than they may send at once, in 1/65536 of a host.
    pub weight: u64,
    /// Bytes sent, as charged, since the beginning.
    pub sent: u64,
}

/// One queue's seat at a census.
pub trait Census: Send {
    /// `change` more flows of `host` stand here than was said before.
    fn count(&mut self, host: HostKey, change: i32);

    /// How many stand on all queues together, this one included, as far as they have said so.
    fn flows(&self, host: HostKey) -> u32;

    /// Says what this queue has in each tin; tins that are not listed are as before.
    fn tell(&mut self, tins: &[TinCensus]);

    /// Sums up what all queues have said of each tin, up to `tins.len()`.
    fn sum(&self, tins: &mut [TinCensus]);
}
