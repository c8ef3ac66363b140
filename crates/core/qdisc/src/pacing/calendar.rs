//! What holds packets until their time.

use narrows_packet::{Batch, PacketId, Packets};
use narrows_units::Nanos;

/// The departure time of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// No earlier than this: its earliest departure time.
    pub at: Nanos,
    /// No earlier than the one before it in its flow: what [`Calendar::insert`] returned then.
    pub behind: Nanos,
    /// The spacing of its flow's packets, as a power of two of nanoseconds: rounding a departure up
    /// by this much never makes two of them meet. A calendar of one granularity ignores it.
    pub spacing: u32,
}

impl Slot {
    /// A slot for a fixed time: it is not rounded.
    pub(super) const fn exactly(at: Nanos) -> Self {
        Self { at, behind: at, spacing: 0 }
    }
}

/// A time-indexed queue of packets.
///
/// All implementations promise:
/// - *Never early.* A packet is returned at its [`Slot::at`] or later.
/// - *At most a slot late.* A slot is the granularity of some calendars, and the flow's spacing in
///   others; then it is returned as soon as the caller asks.
/// - *In order within a flow*, if each packet's `at` is no earlier than its predecessor's and
///   `behind` is what was returned for that.
/// - *The past is now.* Overdue packets leave next.
/// - *An empty calendar costs nothing*, however long it was empty.
///
/// While a packet is in the calendar, its place is stored in its [`narrows_packet::Meta::edt`].
pub trait Calendar: Send {
    /// Inserts `id`, which is in no queue. Returns the time at which it leaves if the caller asks
    /// then: at least `slot.at` and `slot.behind`.
    ///
    /// `now` never goes back, neither here nor between this and [`Calendar::pop`].
    fn insert(&mut self, packets: &mut Packets, id: PacketId, slot: Slot, now: Nanos) -> Nanos;

    /// Takes out the packet that leaves next, if its time has come.
    fn pop(&mut self, packets: &mut Packets, now: Nanos) -> Option<PacketId>;

    /// Takes out all due packets, as far as there is room in `out`.
    #[inline]
    fn release(&mut self, packets: &mut Packets, now: Nanos, out: &mut Batch) {
        let mut count = 0;
        for place in out.free() {
            let Some(id) = self.pop(packets, now) else { break };
            *place = id;
            count += 1;
        }
        out.filled(count);
    }

    /// When to ask again after [`Calendar::pop`] returned nothing; `None` when it is empty. There
    /// may be nothing to take then, but asking then misses nothing.
    fn next(&self) -> Option<Nanos>;

    /// Takes out the packet that would leave next, regardless of time. Called until the calendar is
    /// empty, before it is dropped.
    fn drain(&mut self, packets: &mut Packets) -> Option<PacketId>;

    /// Its own memory in bytes, of which untouched parts may not be in use.
    fn memory(&self) -> usize;
}
