//! A worker's table of packet metadata.

use crate::copies::Copies;
use crate::headers::{Acknowledgement, Ecn, Headers, Reading, Rewrite};
use crate::sizes::{Sizes, Turnover};
use crate::{Batch, DropCounters, DropReason, Fifo, Pace, Paces};
use narrows_units::{Bytes, Nanos};

/// A packet: an index into the [`Packets`] of the worker that owns it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct PacketId(pub u32);

impl PacketId {
    /// Marks the end of a list; never a packet.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

/// The metadata of a packet that is known without its payload.
#[derive(Clone, Copy, Debug)]
pub struct Meta {
    /// When it arrived.
    pub arrival: Nanos,
    /// Its earliest departure time, if a meter has set one; otherwise zero.
    pub edt: Nanos,
    /// The length of its frame, Ethernet header included, FCS not.
    pub len: Bytes32,
    /// The next packet in its queue.
    pub(crate) next: PacketId,
    /// What to write into its frame before it is sent.
    pub rewrite: Rewrite,
    /// Its ECN field, if a qdisc that may mark has read it.
    pub ecn: Ecn,
    /// Whether a pacing qdisc has already set a later time to separate it from the packets before
    /// it.
    pub is_postponed: bool,
    /// Its charged length, if a qdisc has computed it on arrival.
    pub charge: Bytes32,
    /// The number of the class that a filter assigned; 0 for none.
    pub class: u32,
    /// The classes at classful qdiscs further down: below that class, and below that one.
    pub inner: [u16; INNER_LEVELS],
}

/// How many classful qdiscs may be below another one.
pub const INNER_LEVELS: usize = 2;

/// A frame's length in 32 bits, so that all metadata of a packet fits a cache line.
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

    /// Its class at a classful qdisc with `level` others above it; 0 for none.
    #[inline]
    pub fn class_at(&self, level: u8) -> u32 {
        match level {
            0 => self.class,
            inner => self.inner.get(usize::from(inner) - 1).map_or(0, |class| u32::from(*class)),
        }
    }
}

/// All metadata of a packet, in one cache line: code that needs a part soon needs the rest.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Record {
    meta: Meta,
    headers: Headers,
}

impl Record {
    const UNUSED: Self = Self { meta: Meta::UNUSED, headers: Headers::NOTHING };
}

/// The default memory of a packet: the smaller frame size of AF_XDP.
const FRAME: Bytes = Bytes(2048);

/// The metadata of all packets of a worker, and the dropped packets whose frames are not reclaimed
/// yet.
pub struct Packets {
    records: Box<[Record]>,
    /// Empty until a qdisc needs them.
    acknowledgements: Box<[Acknowledgement]>,
    frame: Bytes,
    /// Frames that may hold queued packets.
    places: u32,
    /// Free ones among them, for the direction that is being served.
    spare: u32,
    discarded: Fifo,
    drops: DropCounters,
    copies: Copies,
    sizes: Sizes,
    turnover: Turnover,
    paces: Paces,
}

impl Packets {
    /// A table for ids below `capacity`. Allocates now and never again.
    pub fn new(capacity: u32) -> Self {
        let mut records = Vec::with_capacity(capacity as usize);
        narrows_cpu::ask_for_huge_pages(&mut records);
        records.resize(capacity as usize, Record::UNUSED);
        Self {
            records: records.into_boxed_slice(),
            acknowledgements: Box::default(),
            frame: FRAME,
            places: capacity,
            spare: u32::MAX,
            discarded: Fifo::new(),
            drops: DropCounters::default(),
            copies: Copies::default(),
            sizes: Sizes::default(),
            turnover: Turnover::default(),
            paces: Paces::default(),
        }
    }

    /// This table, for packets stored in frames of `frame` bytes.
    #[must_use]
    pub fn in_frames_of(mut self, frame: Bytes) -> Self {
        self.frame = Bytes(frame.0.max(1));
        self
    }

    /// This table, with that many frames for queued packets; the others are for reception.
    #[must_use]
    pub fn with_places(self, places: u32) -> Self {
        Self { places, ..self }
    }

    /// Makes room for what `reading` needs beyond the metadata. Allocates on the first request;
    /// recorded values stay.
    pub fn prepare(&mut self, reading: Reading) {
        if (reading.acknowledgements || reading.echoes) && self.acknowledgements.is_empty() {
            let none = vec![Acknowledgement::default(); self.records.len()];
            self.acknowledgements = none.into_boxed_slice();
        }
        if reading.copies {
            self.copies.prepare();
        }
        if reading.sizes {
            self.sizes.prepare(self.records.len());
        }
    }

    /// The headers of `id`, if they were parsed; otherwise defaults.
    #[inline]
    pub fn headers(&self, id: PacketId) -> Headers {
        self.record(id).headers
    }

    /// Records the headers. Call it after [`Packets::arrive`].
    #[inline]
    pub fn set_headers(&mut self, id: PacketId, headers: Headers) {
        self.record_mut(id).headers = headers;
    }

    /// The headers of `id`, mutable.
    #[inline]
    pub fn headers_mut(&mut self, id: PacketId) -> &mut Headers {
        &mut self.record_mut(id).headers
    }

    /// The metadata of `id`, mutable, and its headers.
    #[inline]
    pub fn meta_and_headers(&mut self, id: PacketId) -> (&mut Meta, &Headers) {
        let Record { meta, headers } = self.record_mut(id);
        (meta, headers)
    }

    /// The rates of the numbers that packets carry.
    #[inline]
    pub fn paces(&self) -> &Paces {
        &self.paces
    }

    /// Replaces them. Queued packets keep their numbers.
    pub fn set_paces(&mut self, paces: Paces) {
        self.paces = paces;
    }

    /// The rate of the flow of `id`, if a filter has given it one. Only for packets whose headers
    /// were [read](Reading::headers).
    #[inline]
    pub fn pace(&self, id: PacketId) -> Option<Pace> {
        self.paces.get(self.record(id).headers.pace)
    }

    #[inline]
    fn record(&self, id: PacketId) -> &Record {
        &self.records[id.0 as usize]
    }

    #[inline]
    fn record_mut(&mut self, id: PacketId) -> &mut Record {
        &mut self.records[id.0 as usize]
    }

    /// The acknowledgement of `id`, if it was parsed; otherwise one that says "not TCP".
    pub fn acknowledgement(&self, id: PacketId) -> Acknowledgement {
        self.acknowledgements.get(id.0 as usize).copied().unwrap_or_default()
    }

    /// Records the acknowledgement. Call it after [`Packets::arrive`] and [`Packets::prepare`].
    pub fn set_acknowledgement(&mut self, id: PacketId, acknowledgement: Acknowledgement) {
        if let Some(place) = self.acknowledgements.get_mut(id.0 as usize) {
            *place = acknowledgement;
        }
    }

    /// The memory of a packet of `len` bytes: whole frames.
    #[inline]
    pub fn memory_for(&self, len: Bytes) -> Bytes {
        if len <= self.frame { self.frame } else { Bytes(len.0.next_multiple_of(self.frame.0)) }
    }

    /// The memory of `ids`, if none is longer than `longest`.
    #[inline]
    pub fn memory_for_all(&self, ids: &[PacketId], longest: Bytes) -> Bytes {
        if longest <= self.frame {
            return Bytes(self.frame.0 * ids.len() as u64);
        }
        Bytes(ids.iter().map(|&id| self.memory_for(self.len(id)).0).sum())
    }

    /// How many frames may hold queued packets.
    #[inline]
    pub fn places(&self) -> u32 {
        self.places
    }

    /// The memory for queued packets.
    pub fn memory(&self) -> Bytes {
        Bytes(self.frame.0.saturating_mul(u64::from(self.places)))
    }

    /// Records how many frames are free for the direction that is served next.
    #[inline]
    pub fn set_spare_frames(&mut self, frames: u32) {
        self.spare = frames;
    }

    /// The last value of [`Packets::set_spare_frames`]. A flow with a queue of its own should queue
    /// at most this many packets: then, however much it sends, it leaves as many frames to others
    /// as it has.
    #[inline]
    pub fn spare_frames(&self) -> u32 {
        self.spare
    }

    /// How many packets there can be.
    pub fn capacity(&self) -> u32 {
        self.records.len() as u32
    }

    /// Records that packet `id` of `len` bytes arrived at `now`.
    #[inline]
    pub fn arrive(&mut self, id: PacketId, len: u32, now: Nanos) {
        self.record_mut(id).meta = Meta::arrived(len, now);
    }

    /// The metadata of `id`.
    #[inline]
    pub fn meta(&self, id: PacketId) -> &Meta {
        &self.record(id).meta
    }

    /// The metadata of `id`, to change.
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
        self.reset_size(id);
        let bytes = self.len(id).0;
        narrows_cpu::probes::dropped(id.0, bytes, reason as usize);
        self.turnover.dropped += 1;
        self.turnover.dropped_bytes += bytes;
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

    /// How many dropped packets wait for [`Packets::reclaim`].
    pub fn unreclaimed(&self) -> u32 {
        self.discarded.backlog().packets
    }

    /// Puts `spare` packets aside for copies, each with a frame for `room` bytes.
    pub fn put_aside(&mut self, spare: &[PacketId], room: Bytes) {
        self.copies.spare.extend_from_slice(spare);
        self.copies.room = room;
    }

    /// A copy of `id`, in a packet that was put aside. `None` if there is none, or if `id` is too
    /// long: then the copy counts as made and dropped.
    pub fn copy(&mut self, id: PacketId) -> Option<PacketId> {
        self.copies.count += 1;
        let frame = self.sizes.frame(id).unwrap_or(self.meta(id).len);
        let fits = Bytes::from(frame) <= self.copies.room;
        let Some(copy) = self.copies.spare.pop_if(|_| fits) else {
            self.drops.add(DropReason::NoFrame, 1);
            return None;
        };
        let mut record = *self.record(id);
        record.meta.next = PacketId::NONE;
        *self.record_mut(copy) = record;
        self.set_acknowledgement(copy, self.acknowledgement(id));
        self.sizes.forget(copy);
        if self.sizes.frame(id).is_some() {
            self.sizes.remember(copy, frame);
        }
        self.turnover.copied_bytes += Bytes::from(frame).0;
        self.copies.made.push((id, copy));
        Some(copy)
    }

    /// The next copy whose bytes are to be copied: of which packet, and which, in the order in
    /// which they were made.
    pub fn copies(&mut self) -> impl Iterator<Item = (PacketId, PacketId)> + '_ {
        self.copies.made.drain(..)
    }

    /// Takes back what was put aside and not used, as much as fits into `out`.
    pub fn take_aside(&mut self, out: &mut Batch) {
        while out.has_room() {
            let Some(spare) = self.copies.spare.pop() else { break };
            out.push(spare);
        }
    }

    /// From here on `id` counts as `len` bytes. Its frame's length is remembered. Allocates on the
    /// first call, unless [prepared](Packets::prepare).
    #[inline]
    pub fn set_size(&mut self, id: PacketId, len: Bytes) {
        let frame = self.meta(id).len;
        self.sizes.prepare(self.records.len());
        self.sizes.remember(id, frame);
        self.meta_mut(id).len = Bytes32(u32::try_from(len.0).unwrap_or(u32::MAX));
    }

    /// From here on `id` counts as its frame is.
    #[inline]
    pub fn reset_size(&mut self, id: PacketId) {
        if let Some(frame) = self.sizes.forget(id) {
            self.meta_mut(id).len = frame;
        }
    }

    /// What was dropped and copied so far.
    #[inline]
    pub fn turnover(&self) -> Turnover {
        self.turnover
    }

    /// How many copies were to be made since the last call.
    pub fn take_copied(&mut self) -> u64 {
        std::mem::take(&mut self.copies.count)
    }

    /// The drops since the last [`Packets::take_drops`], by reason.
    pub fn drops(&self) -> &DropCounters {
        &self.drops
    }

    /// The drops since this was last called, by reason; resets them, for owners that count per
    /// direction.
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
    fn a_packet_s_metadata_is_a_cache_line() {
        assert_eq!(size_of::<Record>(), 64);
    }
}
