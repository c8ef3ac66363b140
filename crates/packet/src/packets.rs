//! The table of packet metadata that a worker owns.

use crate::headers::{Acknowledgement, Ecn, Headers, Reading, Rewrite};
use crate::{Batch, DropCounters, DropReason, Fifo};
use narrows_units::{Bytes, Nanos};

/// A packet: an index into the [`Packets`] of the worker that owns it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct PacketId(pub u32);

impl PacketId {
    /// Marks the end of a list; never a packet.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

/// The metadata of a packet, known without looking at its payload.
#[derive(Clone, Copy, Debug)]
pub struct Meta {
    /// When it came in.
    pub arrival: Nanos,
    /// Its earliest departure time, where a meter stamped one; else zero.
    pub edt: Nanos,
    /// The length of its frame, Ethernet header included, FCS not.
    pub len: Bytes32,
    /// The next packet in its queue.
    pub(crate) next: PacketId,
    /// What to write into its frame before it is sent.
    pub rewrite: Rewrite,
    /// Its explicit congestion notification, where a qdisc that may mark has looked it up.
    pub ecn: Ecn,
    /// Whether a qdisc that keeps packets apart has given it a later time already.
    pub is_postponed: bool,
    /// What it is charged, if a qdisc has computed that on arrival.
    pub charge: Bytes32,
    /// The class to which a filter has assigned it, by its number; 0 where none has.
    pub class: u32,
    /// The same at qdiscs with classes further down: below that class, and below that one.
    pub inner: [u16; INNER_LEVELS],
}

/// How many qdiscs with classes may stand below another one.
pub const INNER_LEVELS: usize = 2;

/// A frame's length: 32 bits of bytes, so that all that is known of a packet fits a cache line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bytes32(pub u32);

impl From<Bytes32> for Bytes {
    fn from(len: Bytes32) -> Self {
        Self(u64::from(len.0))
    }
}

impl Meta {
    const UNUSED: Self = Self::arrived(0, Nanos::ZERO);

    const fn arrived(len: u32, arrival: Nanos) -> Self {
        Self {
            arrival,
            edt: Nanos::ZERO,
            len: Bytes32(len),
            next: PacketId::NONE,
            rewrite: Rewrite::NOTHING,
            ecn: Ecn::NotCapable,
            is_postponed: false,
            charge: Bytes32(0),
            class: 0,
            inner: [0; INNER_LEVELS],
        }
    }

    /// Its class at a qdisc with classes that has `level` others above it; 0 where it has none.
    #[inline]
    pub fn class_at(&self, level: u8) -> u32 {
        match level {
            0 => self.class,
            inner => self.inner.get(usize::from(inner) - 1).map_or(0, |class| u32::from(*class)),
        }
    }
}

/// All of a packet's metadata, in a cache line: code that needs a part soon needs the rest.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Record {
    meta: Meta,
    headers: Headers,
}

impl Record {
    const UNUSED: Self = Self { meta: Meta::UNUSED, headers: Headers::NOTHING };
}

/// The default memory of a packet: the smaller frame of AF_XDP.
const FRAME: Bytes = Bytes(2048);

/// The metadata of all packets of one worker, and the dropped packets whose frames have not been
/// reclaimed.
pub struct Packets {
    records: Box<[Record]>,
    /// Empty until a qdisc asks for them.
    acknowledgements: Box<[Acknowledgement]>,
    frame: Bytes,
    /// Frames in which packets may wait.
    places: u32,
    /// Those of them that are left for packets of the direction that is served.
    spare: u32,
    discarded: Fifo,
    drops: DropCounters,
}

impl Packets {
    /// A table for ids below `capacity`. Allocates now and never again.
    pub fn new(capacity: u32) -> Self {
        Self {
            records: vec![Record::UNUSED; capacity as usize].into_boxed_slice(),
            acknowledgements: Box::default(),
            frame: FRAME,
            places: capacity,
            spare: u32::MAX,
            discarded: Fifo::new(),
            drops: DropCounters::default(),
        }
    }

    /// The same, where each takes memory in frames of `frame` bytes.
    #[must_use]
    pub fn in_frames_of(mut self, frame: Bytes) -> Self {
        self.frame = Bytes(frame.0.max(1));
        self
    }

    /// The same, where so many frames may hold queued packets and the others are for reception.
    #[must_use]
    pub fn with_places(self, places: u32) -> Self {
        Self { places, ..self }
    }

    /// Makes room for what `reading` asks for beyond the metadata. Allocates on the first request;
    /// recorded values stay.
    pub fn prepare(&mut self, reading: Reading) {
        if (reading.acknowledgements || reading.echoes) && self.acknowledgements.is_empty() {
            let none = vec![Acknowledgement::default(); self.records.len()];
            self.acknowledgements = none.into_boxed_slice();
        }
    }

    /// The headers of `id`, if they were parsed; else defaults.
    #[inline]
    pub fn headers(&self, id: PacketId) -> Headers {
        self.record(id).headers
    }

    /// Records the headers. Call it after [`Packets::arrive`].
    #[inline]
    pub fn set_headers(&mut self, id: PacketId, headers: Headers) {
        self.record_mut(id).headers = headers;
    }

    /// The headers of `id`, to write to.
    #[inline]
    pub fn headers_mut(&mut self, id: PacketId) -> &mut Headers {
        &mut self.record_mut(id).headers
    }

    /// The metadata of `id`, to write to, and its headers.
    #[inline]
    pub fn meta_and_headers(&mut self, id: PacketId) -> (&mut Meta, &Headers) {
        let Record { meta, headers } = self.record_mut(id);
        (meta, headers)
    }

    #[inline]
    fn record(&self, id: PacketId) -> &Record {
        &self.records[id.0 as usize]
    }

    #[inline]
    fn record_mut(&mut self, id: PacketId) -> &mut Record {
        &mut self.records[id.0 as usize]
    }

    /// What `id` acknowledges, if it was parsed; else that it is not TCP.
    pub fn acknowledgement(&self, id: PacketId) -> Acknowledgement {
        self.acknowledgements.get(id.0 as usize).copied().unwrap_or_default()
    }

    /// Records it. Call it after [`Packets::arrive`] and [`Packets::prepare`].
    pub fn set_acknowledgement(&mut self, id: PacketId, acknowledgement: Acknowledgement) {
        if let Some(place) = self.acknowledgements.get_mut(id.0 as usize) {
            *place = acknowledgement;
        }
    }

    /// The memory that a packet of `len` bytes takes: whole frames.
    #[inline]
    pub fn memory_for(&self, len: Bytes) -> Bytes {
        if len <= self.frame { self.frame } else { Bytes(len.0.next_multiple_of(self.frame.0)) }
    }

    /// The memory that `ids` take, none of which is longer than `longest`.
    #[inline]
    pub fn memory_for_all(&self, ids: &[PacketId], longest: Bytes) -> Bytes {
        if longest <= self.frame {
            return Bytes(self.frame.0 * ids.len() as u64);
        }
        Bytes(ids.iter().map(|&id| self.memory_for(self.len(id)).0).sum())
    }

    /// The memory for queued packets.
    pub fn memory(&self) -> Bytes {
        Bytes(self.frame.0.saturating_mul(u64::from(self.places)))
    }

    /// Records how many frames are left for packets of the direction that is served next, beside
    /// those that hold packets already.
    #[inline]
    pub fn set_spare_frames(&mut self, frames: u32) {
        self.spare = frames;
    }

    /// How many there are, as far as is known. A flow with a queue of its own should have no more
    /// packets than this: however much it sends, as many frames as it has are left to others.
    #[inline]
    pub fn spare_frames(&self) -> u32 {
        self.spare
    }

    /// How many packets there can be.
    pub fn capacity(&self) -> u32 {
        self.records.len() as u32
    }

    /// Records that packet `id` of `len` bytes came in at `now`.
    #[inline]
    pub fn arrive(&mut self, id: PacketId, len: u32, now: Nanos) {
        self.record_mut(id).meta = Meta::arrived(len, now);
    }

    /// The metadata of `id`.
    #[inline]
    pub fn meta(&self, id: PacketId) -> &Meta {
        &self.record(id).meta
    }

    /// The same, to write to.
    #[inline]
    pub fn meta_mut(&mut self, id: PacketId) -> &mut Meta {
        &mut self.record_mut(id).meta
    }

    /// Prefetches the metadata of `id`, if any.
    #[inline]
    pub fn prefetch(&self, id: Option<PacketId>) {
        if let Some(record) = id.and_then(|id| self.records.get(id.0 as usize)) {
            narrows_cpu::prefetch(record);
        }
    }

    /// The length of `id`'s frame.
    #[inline]
    pub fn len(&self, id: PacketId) -> Bytes {
        self.meta(id).len.into()
    }

    /// Drops `id`, which is in no queue. Its frame waits for [`Packets::reclaim`].
    pub fn discard(&mut self, id: PacketId, reason: DropReason) {
        self.drops.add(reason, 1);
        let mut discarded = self.discarded;
        discarded.push_back(self, id);
        self.discarded = discarded;
    }

    /// Moves dropped packets into `out` until it is full; their ids may then be used again.
    pub fn reclaim(&mut self, out: &mut Batch) {
        let mut discarded = self.discarded;
        while out.has_room() {
            let Some(id) = discarded.pop_front(self) else { break };
            out.push(id);
        }
        self.discarded = discarded;
    }

    /// Dropped packets whose frames still wait for [`Packets::reclaim`].
    pub fn unreclaimed(&self) -> u32 {
        self.discarded.backlog().packets
    }

    /// Everything dropped since the last [`Packets::take_drops`], by reason.
    pub fn drops(&self) -> &DropCounters {
        &self.drops
    }

    /// The same, and resets the counters: for owners that count per direction.
    pub fn take_drops(&mut self) -> DropCounters {
        std::mem::take(&mut self.drops)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_packet_is_counted_and_its_frame_comes_back() {
        let mut packets = Packets::new(4);
        packets.arrive(PacketId(2), 60, Nanos(1));
        packets.arrive(PacketId(3), 1514, Nanos(1));
        packets.discard(PacketId(3), DropReason::Limit);
        packets.discard(PacketId(2), DropReason::Horizon);
        let mut back = Batch::new(8);
        packets.reclaim(&mut back);
        assert_eq!(back.as_slice(), [PacketId(3), PacketId(2)]);
        assert_eq!(packets.unreclaimed(), 0);
        assert_eq!(packets.drops().get(DropReason::Limit), 1);
        assert_eq!(packets.drops().total(), 2);
    }

    #[test]
    fn a_small_batch_collects_the_dropped_in_several_turns() {
        let mut packets = Packets::new(3);
        for id in 0..3 {
            packets.arrive(PacketId(id), 60, Nanos::ZERO);
            packets.discard(PacketId(id), DropReason::Limit);
        }
        let mut back = Batch::new(2);
        packets.reclaim(&mut back);
        assert_eq!(packets.unreclaimed(), 1);
        back.clear();
        packets.reclaim(&mut back);
        assert_eq!(back.as_slice(), [PacketId(2)]);
    }

    #[test]
    fn what_is_known_of_a_packet_is_a_cache_line() {
        assert_eq!(size_of::<Record>(), 64);
    }
}
