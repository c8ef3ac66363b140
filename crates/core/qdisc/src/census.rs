//! Counts of hosts and tins that the queues of a port share.
//!
//! A host may have flows on several queues, and a tin packets on all of them. A qdisc that divides
//! its rate by host or tin must count those on its siblings, too; otherwise each queue would give
//! them a share of its own. It holds a [`Census`], its handle at the common counts of one limit's
//! queues, beside its [`crate::Meter`]. The `coordination` layer implements it.
//!
//! All of it is a hint that may be slightly old: the meter decides what may be sent.

/// Which host is counted: a keyed hash of the tin, the direction and the address, the same on
/// every queue of the port. All 64 bits must be equally good: different ones are used for
/// different things.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct HostKey(pub u64);

impl HostKey {
    /// That of `bits`, all of which it mixes (the finalizer of SplitMix64).
    pub(crate) fn mixed(bits: u64) -> Self {
        let mut key = bits;
        key = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        key = (key ^ (key >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self(key ^ (key >> 31))
    }
}

/// The most tins.
pub const TINS_MAX: usize = 8;

/// The figures of one tin, of one queue or summed over all queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TinCensus {
    /// The weights of backlogged flows, in 1/65536 of a host.
    pub weight: u64,
    /// Bytes sent, as charged, since the beginning: it never shrinks.
    pub sent: u64,
}

/// One queue's handle at a census. The flows and weights that it published count until it changes
/// them or is dropped; the bytes that it sent count for ever.
pub trait Census: Send {
    /// `change` more flows of `host` are backlogged here than before. Never subtract more than was
    /// added: a handle that does so corrupts its own figures, but no other's.
    fn count(&mut self, host: HostKey, change: i32);

    /// How many are backlogged on all queues together, as published. At least as many as this
    /// handle has counted itself; rarely more than there are, if hosts collide.
    fn flows(&self, host: HostKey) -> u32;

    /// Publishes this queue's figures of each tin; unlisted tins keep theirs.
    fn tell(&mut self, tins: &[TinCensus]);

    /// Sums the published figures of all queues, including this one, by tin. Fills as many of
    /// `tins` as there are.
    fn sum(&self, tins: &mut [TinCensus]);
}
