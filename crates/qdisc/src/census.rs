//! What the queues of a port tell each other of hosts and tins.
//!
//! A host may have flows on several queues, and a tin packets on all of them. A qdisc that
//! shares out its rate by host or tin counts those on its siblings, too, or each queue would give
//! them a share of its own. It holds a [`Census`], its seat at what the queues of one limit count
//! together, beside its [`crate::Meter`]. What stands behind it is the `coordination` layer's.
//!
//! Everything in it is a hint that may be a little old: what may be sent is the meter's to say.

/// Which host is counted: a keyed hash of the tin, the direction and the address, the same on
/// every queue of the port. All 64 bits must be equally good: different ones are used for
/// different things.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct HostKey(pub u64);

/// The most tins that can be told apart.
pub const TINS_MAX: usize = 8;

/// What one queue says, and all queues together have said, of one tin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TinCensus {
    /// The weights of flows that have more queued than they may send at once, in 1/65536 of a host.
    pub weight: u64,
    /// Bytes sent, as charged, since the beginning: it never shrinks.
    pub sent: u64,
}

/// One queue's seat at a census. What it has said of flows and weights counts until it says
/// otherwise or is dropped; what it has sent counts for ever.
pub trait Census: Send {
    /// `change` more flows of `host` stand here than was said before. Never take away more than
    /// was added: a seat that does so spoils its own figures, but nobody else's.
    fn count(&mut self, host: HostKey, change: i32);

    /// How many stand on all queues together, as far as they have said so. At least as many as
    /// this seat has counted itself; rarely more than there are, where hosts cannot be told apart.
    fn flows(&self, host: HostKey) -> u32;

    /// Says what this queue has in each tin; tins that are not listed are as before.
    fn tell(&mut self, tins: &[TinCensus]);

    /// Sums up what all queues, this one included, have said of each tin. Fills as many of `tins`
    /// as there can be.
    fn sum(&self, tins: &mut [TinCensus]);
}
