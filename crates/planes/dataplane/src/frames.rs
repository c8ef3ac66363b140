//! A worker's own part of the UMEM: where packets are in its frames, and their bytes.
//!
//! A packet's id is the number of its first frame within this part. A packet that needs more (a
//! jumbo frame) names its further frames in a chain. [`Owners`] tracks who has which frame.
//!
//! *Who may touch a byte.* Only this module gives frames to the kernel and borrows bytes, and both
//! go by the record: a frame is the kernel's before its address is in a ring, and the worker's
//! again when the kernel says so (or the process that this one continues, whose word counts the
//! same: it has the same memory). Bytes are borrowed of the worker's frames only, and the record
//! with them, so that the owner stays. Whatever other modules do with the id of a packet, they
//! reach no frame that the kernel has.
//!
//! Cost: to borrow bytes compares one byte of the record, which the next change of owner writes.
//!
//! Non-goals: what the bytes mean; memory that the kernel writes where it must not.
#![allow(unsafe_code)]

use crate::owners::{FrameCounts, Owners, Shares};
use narrows_forwarding::{DeviceId, Forwarding, PerPort, PortId};
use narrows_packet::PacketId;
use narrows_units::Bytes;
use narrows_xsk::{Consumer, Desc, Producer, UmemPart};

/// No further frame.
const END: u32 = u32::MAX;

/// The most frames that one packet may take. The kernel's own limit is its
/// `MAX_SKB_FRAGS` (17) and the head.
pub(crate) const FRAMES_PER_PACKET_MAX: usize = 18;

/// The location of one frame's data.
#[derive(Clone, Copy)]
struct Location {
    addr: u64,
    len: u32,
    next: u32,
}

/// The frames of one worker. Never shared, never reallocated.
pub(crate) struct Frames {
    part: UmemPart,
    owners: Owners,
    locations: Box<[Location]>,
    /// Frames that the kernel returned but did not own.
    strays: u64,
    /// What is copied from one frame to another.
    scratch: Box<[u8]>,
}

impl Frames {
    /// All frames of `part`, divided into `shares` among the ports of `forwarding`.
    ///
    /// # Panics
    /// If the number of frames of `part` differs from that of the shares.
    pub(crate) fn new(part: UmemPart, forwarding: &Forwarding, shares: &Shares) -> Self {
        let owners = Owners::new(forwarding, shares);
        assert_eq!(part.count(), owners.count(), "the shares must add up to all frames");
        let unused = Location { addr: 0, len: 0, next: END };
        let locations = vec![unused; owners.count() as usize].into_boxed_slice();
        let scratch = vec![0; part.frame_size() as usize].into_boxed_slice();
        Self { part, owners, locations, strays: 0, scratch }
    }

    /// See [`Owners::restore`].
    pub(crate) fn restore(&mut self, free: &[u32], sending: &PerPort<Vec<u32>>) {
        self.owners.restore(free, sending);
    }

    /// See [`Owners::free`].
    pub(crate) fn free(&self) -> Vec<u32> {
        self.owners.free()
    }

    /// See [`Owners::sending`].
    pub(crate) fn sending(&self) -> PerPort<Vec<u32>> {
        self.owners.sending()
    }

    /// The location of the data of `packet`, frame by frame: address and length.
    pub(crate) fn data(&self, packet: PacketId) -> impl Iterator<Item = (u64, u32)> {
        let mut frame = packet.0;
        std::iter::from_fn(move || {
            let Location { addr, len, next } = *self.locations.get(frame as usize)?;
            frame = next;
            Some((addr, len))
        })
    }

    pub(crate) fn count(&self) -> u32 {
        self.owners.count()
    }

    /// The number of frames for queued packets of all ports.
    pub(crate) fn places(&self) -> u32 {
        self.owners.places()
    }

    /// The size of each.
    pub(crate) fn frame(&self) -> Bytes {
        Bytes(u64::from(self.part.frame_size()))
    }

    /// Whose driver receives into the frame at `addr`; `None` if it is none of these.
    pub(crate) fn device_of(&self, addr: u64) -> Option<DeviceId> {
        self.owners.device_of(self.part.frame_at(addr)?)
    }

    /// Where they are.
    pub(crate) fn counts(&self) -> FrameCounts {
        self.owners.counts()
    }

    /// Frames that the kernel returned but did not own, so far.
    pub(crate) fn strays(&self) -> u64 {
        self.strays
    }

    /// The number of frames left for packets that arrive at `ingress` and leave through `egress`;
    /// `None` if the arrivals exceed it.
    #[inline]
    pub(crate) fn spare(&self, ingress: PortId, egress: PortId) -> Option<u32> {
        self.owners.spare_for(ingress, egress)
    }

    /// `packet`, which is the worker's, leaves through `egress`, which is its own affair.
    #[inline]
    pub(crate) fn leaves(&mut self, egress: PortId, packet: PacketId) {
        let mut frame = packet.0;
        while frame != END {
            self.owners.leaves(egress, frame);
            frame = self.locations[frame as usize].next;
        }
    }

    /// Gives the kernel a free frame to receive into at `device`, whose ring `fill` is and has
    /// room. False if none is left for that.
    #[inline]
    pub(crate) fn lend(&mut self, device: DeviceId, fill: &mut Producer<u64>) -> bool {
        let Some(frame) = self.owners.lend(device) else { return false };
        // SAFETY: the record has it as the kernel's now, and was not borrowed, so neither were
        // bytes.
        unsafe { fill.push(self.part.addr_of(frame)) };
        true
    }

    /// Takes back the frames that the kernel has sent. False if there were none.
    #[inline]
    pub(crate) fn complete(&mut self, completion: &mut Consumer<u64>) -> bool {
        let mut any = false;
        while let Some(addr) = completion.pop() {
            self.take_back(addr);
            any = true;
        }
        any
    }

    /// Takes back the sent frame that contains `addr`. An address that the kernel did not have to
    /// send is an error of the kernel; accepting it would corrupt another packet.
    #[inline]
    fn take_back(&mut self, addr: u64) {
        let known = self.part.frame_at(addr).is_some_and(|frame| self.owners.completed(frame));
        self.strays += u64::from(!known);
    }

    /// Gives back all frames of `packet`, which is dropped.
    #[inline]
    pub(crate) fn release(&mut self, packet: PacketId) {
        let mut frame = packet.0;
        while frame != END {
            self.release_one(PacketId(frame));
            frame = self.locations[frame as usize].next;
        }
    }

    /// Gives back one frame, and no other of its packet.
    #[inline]
    pub(crate) fn release_one(&mut self, frame: PacketId) {
        let waited = self.owners.released(frame.0);
        debug_assert!(waited, "{frame:?} does not wait");
    }

    /// Takes free frames for a copy of a packet of up to `longest` bytes that arrived at `ingress`.
    pub(crate) fn put_aside(&mut self, ingress: PortId, longest: Bytes) -> Option<PacketId> {
        let frames = longest.0.div_ceil(u64::from(self.part.frame_size())).max(1) as usize;
        let (mut first, mut last) = (None, None);
        for _ in 0..frames.min(FRAMES_PER_PACKET_MAX) {
            let Some(frame) = self.owners.take(ingress) else {
                if let Some(first) = first {
                    self.release(first);
                }
                return None;
            };
            let addr = self.part.addr_of(frame);
            self.locations[frame as usize] = Location { addr, len: 0, next: END };
            if let Some(last) = last.replace(PacketId(frame)) {
                self.append(last, PacketId(frame));
            }
            first.get_or_insert(PacketId(frame));
        }
        first
    }

    /// Copies the bytes of `from` into the frames of `to`, which were put aside for so many, and
    /// gives back those that it does not need.
    pub(crate) fn copy(&mut self, from: PacketId, to: PacketId) {
        let (mut source, mut target) = (from.0, to.0);
        let mut filled = 0;
        while source != END {
            let Location { addr, len, next } = self.locations[source as usize];
            let mut copied = 0;
            while copied < len && target != END {
                let room = self.part.frame_size() - filled;
                if room == 0 {
                    (target, filled) = (self.locations[target as usize].next, 0);
                    continue;
                }
                let count = room.min(len - copied);
                let scratch = &mut self.scratch[..count as usize];
                let start = addr + u64::from(copied);
                if let Some(bytes) = borrow(&self.part, &self.owners, source, start, count) {
                    scratch.copy_from_slice(bytes);
                }
                let location = &mut self.locations[target as usize];
                let start = location.addr + u64::from(filled);
                if let Some(bytes) = borrow_mut(&mut self.part, &self.owners, target, start, count)
                {
                    bytes.copy_from_slice(scratch);
                }
                filled += count;
                location.len = filled;
                copied += count;
            }
            source = next;
        }
        if target != END {
            let rest = std::mem::replace(&mut self.locations[target as usize].next, END);
            if rest != END {
                self.release(PacketId(rest));
            }
        }
    }

    /// Takes the next frame that was received at `ingress`, whose ring `rx` is: its descriptor, and
    /// which packet of its own it is now, if it is one of these frames.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        ingress: PortId,
        rx: &mut Consumer<Desc>,
    ) -> Option<(Desc, Option<PacketId>)> {
        let desc = rx.pop()?;
        Some((desc, self.take_in(ingress, desc)))
    }

    /// Records a frame as a packet of its own that the kernel, or the process that this one
    /// continues, has received at `ingress`.
    #[inline]
    pub(crate) fn take_in(&mut self, ingress: PortId, desc: Desc) -> Option<PacketId> {
        let frame = self.part.frame_at(desc.addr);
        let Some(frame) = frame.filter(|&frame| self.owners.received(ingress, frame)) else {
            self.strays += 1;
            return None;
        };
        self.locations[frame as usize] = Location { addr: desc.addr, len: desc.len, next: END };
        Some(PacketId(frame))
    }

    /// `packet`, which is the worker's, arrived at `ingress`: another port of the same device than
    /// it was taken in at.
    #[inline]
    pub(crate) fn arrived_at(&mut self, ingress: PortId, packet: PacketId) {
        let mut frame = packet.0;
        while frame != END {
            self.owners.arrived_at(ingress, frame);
            frame = self.locations[frame as usize].next;
        }
    }

    /// Appends `frame` to the packet whose last frame is `last`.
    #[inline]
    pub(crate) fn append(&mut self, last: PacketId, frame: PacketId) {
        self.locations[last.0 as usize].next = frame.0;
    }

    /// The bytes in the first frame of `packet`; none if it is not the worker's.
    #[inline]
    pub(crate) fn bytes(&self, packet: PacketId) -> &[u8] {
        let Location { addr, len, .. } = self.locations[packet.0 as usize];
        borrow(&self.part, &self.owners, packet.0, addr, len).unwrap_or_default()
    }

    /// The `len` bytes in front of `packet`; none if its first frame does not begin that far in
    /// front.
    #[inline]
    pub(crate) fn before(&self, packet: PacketId, len: u32) -> &[u8] {
        let Location { addr, .. } = self.locations[packet.0 as usize];
        addr.checked_sub(u64::from(len))
            .and_then(|start| borrow(&self.part, &self.owners, packet.0, start, len))
            .unwrap_or_default()
    }

    /// The bytes of its first frame, to write to.
    #[inline]
    pub(crate) fn bytes_mut(&mut self, packet: PacketId) -> &mut [u8] {
        let Location { addr, len, .. } = self.locations[packet.0 as usize];
        borrow_mut(&mut self.part, &self.owners, packet.0, addr, len).unwrap_or_default()
    }

    /// Passes `packet` to the kernel to send: its descriptors, in order, to `tx`, which has room.
    #[inline]
    pub(crate) fn hand_over(&mut self, packet: PacketId, tx: &mut Producer<Desc>) {
        let mut frame = packet.0;
        while frame != END {
            let Location { addr, len, next } = self.locations[frame as usize];
            let waited = self.owners.handed_over(frame);
            debug_assert!(waited, "{frame} does not wait");
            if waited {
                let options = if next == END { 0 } else { Desc::CONTINUES };
                // SAFETY: as in `lend`; and a location is in the frame that it is recorded for.
                unsafe { tx.push(Desc { addr, len, options }) };
            }
            frame = next;
        }
    }

    /// Marks all frames that are being sent through `device` as possibly refused.
    pub(crate) fn suspect(&mut self, device: DeviceId) {
        self.owners.suspect(device);
    }

    /// Takes back the remaining suspects, if their number equals `refused`.
    pub(crate) fn take_back_suspects(&mut self, device: DeviceId, refused: u64) -> bool {
        self.owners.take_back_suspects(device, refused)
    }
}

/// The `len` bytes at `addr` in `frame`; none if it is not the worker's, or if they are not all in
/// it.
#[inline]
fn borrow<'a>(
    part: &'a UmemPart,
    owners: &'a Owners,
    frame: u32,
    addr: u64,
    len: u32,
) -> Option<&'a [u8]> {
    if !owners.waits(frame) {
        return None;
    }
    // SAFETY: the frame is the worker's, and stays so: to give it to the kernel changes the record,
    // which is borrowed as long as the bytes.
    unsafe { part.bytes(frame, addr, len) }
}

/// The `len` bytes at `addr` in `frame`, to write to; none if it is not the worker's, or if they
/// are not all in it.
#[inline]
fn borrow_mut<'a>(
    part: &'a mut UmemPart,
    owners: &'a Owners,
    frame: u32,
    addr: u64,
    len: u32,
) -> Option<&'a mut [u8]> {
    if !owners.waits(frame) {
        return None;
    }
    // SAFETY: as above.
    unsafe { part.bytes_mut(frame, addr, len) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_xsk::{Umem, ring_in_memory};

    /// The frames of a wire.
    fn wired(part: UmemPart, receive: [u32; 2], wait: [u32; 2]) -> Frames {
        let forwarding = Forwarding::wire("a", "b").unwrap();
        let receive = receive.into_iter().collect();
        Frames::new(part, &forwarding, &Shares { receive, wait: wait.into_iter().collect() })
    }

    fn frames() -> Frames {
        let umem = Umem::new(8, 2048).expect("there is memory");
        let [_, part] = [4, 4].map(|count| umem.part(count).expect("enough are left"));
        wired(part, [3, 1], [0, 0])
    }

    fn lend(frames: &mut Frames, device: DeviceId) -> u64 {
        let (mut fill, mut kernel) = ring_in_memory(1);
        assert!(frames.lend(device, &mut fill), "a free frame");
        fill.submit();
        kernel.pop().expect("what was lent")
    }

    fn hand_over(frames: &mut Frames, packet: PacketId) -> Vec<Desc> {
        let (mut tx, mut kernel) = ring_in_memory(4);
        frames.hand_over(packet, &mut tx);
        tx.submit();
        std::iter::from_fn(|| kernel.pop()).collect()
    }

    #[test]
    fn a_packets_bytes_are_those_of_its_first_frame() {
        let mut frames = frames();
        let addrs: Vec<u64> = (0..2).map(|_| lend(&mut frames, DeviceId::FIRST) + 256).collect();
        let desc = |i: usize, len| Desc { addr: addrs[i], len, options: 0 };
        let packet = frames.take_in(PortId::FIRST, desc(0, 100)).expect("ours");
        let last = frames.take_in(PortId::FIRST, desc(1, 50)).expect("ours");
        frames.append(packet, last);
        frames.bytes_mut(packet).fill(1);
        frames.bytes_mut(last).fill(2);
        assert_eq!(frames.bytes(packet), [1; 100]);
        assert_eq!(frames.bytes(last), [2; 50]);
    }

    #[test]
    fn a_copy_has_the_bytes_of_its_packet_in_frames_of_its_own() {
        for lens in [vec![60], vec![2048], vec![1792, 1792, 300], vec![1500, 1]] {
            let umem = Umem::new(16, 2048).expect("there is memory");
            let part = umem.part(16).expect("enough are left");
            let mut frames = wired(part, [4, 2], [8, 2]);
            let mut packet: Option<(PacketId, PacketId)> = None;
            let mut bytes = Vec::new();
            for (at, len) in lens.iter().enumerate() {
                let offset = if *len > 1792 { 0 } else { 256 };
                let desc = Desc {
                    addr: lend(&mut frames, DeviceId::FIRST) + offset,
                    len: *len,
                    options: 0,
                };
                let frame = frames.take_in(PortId::FIRST, desc).expect("ours");
                frames.bytes_mut(frame).fill(at as u8 + 1);
                bytes.extend(vec![at as u8 + 1; *len as usize]);
                if let Some((_, last)) = packet {
                    frames.append(last, frame);
                }
                packet = Some((packet.map_or(frame, |(first, _)| first), frame));
            }
            let (packet, _) = packet.expect("there is a frame");
            let copy = frames.put_aside(PortId::FIRST, Bytes(9000)).expect("enough are free");
            frames.copy(packet, copy);
            let whole = |frames: &Frames, packet| {
                let parts: Vec<_> = frames.data(packet).collect();
                let part = |(addr, len): (u64, u32)| {
                    let frame = frames.part.frame_at(addr).unwrap();
                    borrow(&frames.part, &frames.owners, frame, addr, len).unwrap().to_vec()
                };
                (parts.len(), parts.into_iter().flat_map(part).collect::<Vec<u8>>())
            };
            assert_eq!(whole(&frames, packet), (lens.len(), bytes.clone()));
            assert_eq!(whole(&frames, copy), (bytes.len().div_ceil(2048), bytes));
            frames.release(packet);
            frames.release(copy);
            assert_eq!(frames.counts(), FrameCounts { free: 16, ..FrameCounts::default() });
        }
    }

    #[test]
    fn frames_are_put_aside_while_packets_may_wait_and_all_or_none() {
        // Nothing may wait there.
        assert_eq!(frames().put_aside(PortId::FIRST, Bytes(60)), None);
        let umem = Umem::new(8, 2048).expect("there is memory");
        let part = umem.part(8).expect("enough are left");
        let mut frames = wired(part, [2, 2], [3, 1]);
        assert!(frames.put_aside(PortId::FIRST, Bytes(4096)).is_some());
        assert_eq!(frames.put_aside(PortId::FIRST, Bytes(4096)), None);
        assert_eq!(frames.counts().waiting, 2);
        assert!(frames.put_aside(PortId::FIRST, Bytes(2048)).is_some());
    }

    #[test]
    fn bytes_of_a_frame_are_out_of_reach_while_the_kernel_has_it_or_nobody() {
        let mut frames = frames();
        let addr = lend(&mut frames, DeviceId::FIRST);
        let frame = PacketId(frames.part.frame_at(addr).expect("ours"));
        assert!(frames.bytes(frame).is_empty());
        let desc = Desc { addr, len: 60, options: 0 };
        let packet = frames.take_in(PortId::FIRST, desc).expect("ours");
        assert_eq!((packet, frames.bytes(packet).len()), (frame, 60));
        assert_eq!(hand_over(&mut frames, packet), [desc]);
        assert!(frames.bytes(packet).is_empty() && frames.bytes_mut(packet).is_empty());
        frames.take_back(addr);
        assert!(frames.bytes(packet).is_empty() && frames.before(packet, 0).is_empty());
    }

    #[test]
    fn a_packet_that_claims_more_than_its_frame_has_no_bytes() {
        let mut frames = frames();
        let addr = lend(&mut frames, DeviceId::FIRST) + 256;
        let packet =
            frames.take_in(PortId::FIRST, Desc { addr, len: 2048, options: 0 }).expect("ours");
        assert!(frames.bytes(packet).is_empty() && frames.bytes_mut(packet).is_empty());
    }

    #[test]
    fn metadata_before_a_packet_is_read_within_its_frame_only() {
        for (headroom, len, seen) in [(0, 44, 0), (43, 44, 0), (44, 44, 44), (256, 44, 44)] {
            let mut frames = frames();
            let start = lend(&mut frames, DeviceId::FIRST);
            let neighbour = lend(&mut frames, DeviceId::FIRST);
            let whole = |addr| Desc { addr, len: 2048, options: 0 };
            for (addr, value) in [(start, 1), (neighbour, 2)] {
                let packet = frames.take_in(PortId::FIRST, whole(addr)).expect("ours");
                frames.bytes_mut(packet).fill(value);
                frames.release(packet);
            }
            let again = [lend(&mut frames, DeviceId::FIRST), lend(&mut frames, DeviceId::FIRST)];
            assert!(again.contains(&neighbour));
            let desc = Desc { addr: neighbour + headroom, len: 100, options: 0 };
            let packet = frames.take_in(PortId::FIRST, desc).expect("ours");
            assert_eq!(frames.before(packet, len), vec![2; seen], "headroom {headroom}");
        }
    }

    #[test]
    fn a_jumbo_packet_is_sent_as_it_came_and_gives_all_its_frames_back() {
        let mut frames = frames();
        let addrs: Vec<u64> = (0..3).map(|_| lend(&mut frames, DeviceId::FIRST) + 256).collect();
        let desc = |i: usize, options| Desc { addr: addrs[i], len: 100 + i as u32, options };
        let packet = frames.take_in(PortId::FIRST, desc(0, Desc::CONTINUES)).expect("ours");
        let mut last = packet;
        for (i, options) in [(1, Desc::CONTINUES), (2, 0)] {
            let next = frames.take_in(PortId::FIRST, desc(i, options)).expect("ours");
            frames.append(last, next);
            last = next;
        }
        let sent = hand_over(&mut frames, packet);
        assert_eq!(sent, [desc(0, Desc::CONTINUES), desc(1, Desc::CONTINUES), desc(2, 0)]);
        let sending = FrameCounts { free: 1, sending: 3, ..FrameCounts::default() };
        assert_eq!(frames.counts(), sending);
        sent.iter().for_each(|desc| frames.take_back(desc.addr));
        assert_eq!(frames.counts(), FrameCounts { free: 4, ..FrameCounts::default() });
        assert_eq!(frames.strays(), 0);
    }

    #[test]
    fn frames_that_the_kernel_does_not_have_are_never_taken_in() {
        let mut frames = frames();
        let desc = |addr| Desc { addr, len: 60, options: 0 };
        // A frame of another worker, one out of range, one that the kernel does not have, one lent
        // at the other device.
        let lent = lend(&mut frames, DeviceId::from(1));
        for addr in [0, 8 * 2048, 4 * 2048, lent] {
            frames.take_back(addr);
            assert_eq!(frames.take_in(PortId::FIRST, desc(addr)), None);
        }
        assert_eq!(frames.strays(), 8);
        let counts = FrameCounts { free: 3, receiving: 1, ..FrameCounts::default() };
        assert_eq!(frames.counts(), counts);
    }
}
