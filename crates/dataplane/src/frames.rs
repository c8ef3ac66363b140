//! A worker's own part of the UMEM: where packets are in its frames.
//!
//! A packet's id is the number of its first frame within this part. A packet that needs more (a
//! jumbo frame) names its further frames in a chain. [`Owners`] tracks who has which frame.

use crate::owners::{FrameCounts, Owners, Share};
use narrows_packet::PacketId;
use narrows_shaper::Side;
use narrows_units::Bytes;
use narrows_xsk::{Desc, UmemPart};

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
    /// All frames of `part`, divided into `shares` by the port of arrival.
    ///
    /// # Panics
    /// If the number of frames of `part` differs from that of the shares.
    pub(crate) fn new(part: UmemPart, shares: [Share; 2]) -> Self {
        let owners = Owners::new(shares);
        assert_eq!(part.count(), owners.count(), "the shares must add up to all frames");
        let unused = Location { addr: 0, len: 0, next: END };
        let locations = vec![unused; owners.count() as usize].into_boxed_slice();
        let scratch = vec![0; part.frame_size() as usize].into_boxed_slice();
        Self { part, owners, locations, strays: 0, scratch }
    }

    /// See [`Owners::restore`].
    pub(crate) fn restore(&mut self, free: &[u32], sending: &[u32]) {
        self.owners.restore(free, sending);
    }

    /// See [`Owners::free_and_sending`].
    pub(crate) fn free_and_sending(&self) -> (Vec<u32>, Vec<u32>) {
        self.owners.free_and_sending()
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

    /// The number of frames for queued packets of both directions.
    pub(crate) fn places(&self) -> u32 {
        self.owners.places()
    }

    /// The size of each.
    pub(crate) fn frame(&self) -> Bytes {
        Bytes(u64::from(self.part.frame_size()))
    }

    /// Where they are.
    pub(crate) fn counts(&self) -> FrameCounts {
        let mut counts = self.owners.counts(Side::A);
        counts.merge(&self.owners.counts(Side::B));
        counts
    }

    /// Frames that the kernel returned but did not own, so far.
    pub(crate) fn strays(&self) -> u64 {
        self.strays
    }

    /// The number of frames left for packets that arrive at `ingress`; `None` if the arrivals
    /// exceed it.
    #[inline]
    pub(crate) fn spare(&self, ingress: Side) -> Option<u32> {
        self.owners.spare(ingress)
    }

    /// Takes a free frame for the kernel to receive into at `ingress`: its address, for a fill
    /// ring.
    #[inline]
    pub(crate) fn lend(&mut self, ingress: Side) -> Option<u64> {
        let frame = self.owners.lend(ingress)?;
        Some(self.part.addr_of(frame))
    }

    /// Takes back the sent frame that contains `addr`. An address that the kernel did not have to
    /// send is an error of the kernel; accepting it would corrupt another packet.
    #[inline]
    pub(crate) fn complete(&mut self, addr: u64) {
        let known = self.part.frame_at(addr).is_some_and(|frame| self.owners.completed(frame));
        self.strays += u64::from(!known);
    }

    /// Gives back all frames of `packet`, which is dropped.
    #[inline]
    pub(crate) fn release(&mut self, packet: PacketId) {
        let mut frame = packet.0;
        while frame != END {
            self.owners.released(frame);
            frame = self.locations[frame as usize].next;
        }
    }

    /// Gives back one frame, which is in no chain.
    pub(crate) fn release_one(&mut self, frame: PacketId) {
        self.owners.released(frame.0);
    }

    /// Takes free frames for a copy of a packet of up to `longest` bytes that arrived at `ingress`.
    pub(crate) fn put_aside(&mut self, ingress: Side, longest: Bytes) -> Option<PacketId> {
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
                if let Some(bytes) = self.part.bytes(addr + u64::from(copied), count) {
                    scratch.copy_from_slice(bytes);
                }
                let location = &mut self.locations[target as usize];
                if let Some(bytes) = self.part.bytes_mut(location.addr + u64::from(filled), count) {
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

    /// Records a frame received at `ingress` as a packet of its own.
    #[inline]
    pub(crate) fn receive(&mut self, ingress: Side, desc: Desc) -> Option<PacketId> {
        let frame = self.part.frame_at(desc.addr);
        let Some(frame) = frame.filter(|&frame| self.owners.received(ingress, frame)) else {
            self.strays += 1;
            return None;
        };
        self.locations[frame as usize] = Location { addr: desc.addr, len: desc.len, next: END };
        Some(PacketId(frame))
    }

    /// Appends `frame` to the packet whose last frame is `last`.
    #[inline]
    pub(crate) fn append(&mut self, last: PacketId, frame: PacketId) {
        self.locations[last.0 as usize].next = frame.0;
    }

    /// The bytes in the first frame of `packet`, which was received and is not yet sent: until
    /// then no other owner has its frames.
    #[inline]
    pub(crate) fn bytes(&self, packet: PacketId) -> &[u8] {
        let Location { addr, len, .. } = self.locations[packet.0 as usize];
        self.part.bytes(addr, len).unwrap_or_default()
    }

    /// The `len` bytes in front of `packet`; none if its first frame does not begin that far in
    /// front.
    #[inline]
    pub(crate) fn before(&self, packet: PacketId, len: u32) -> &[u8] {
        let Location { addr, .. } = self.locations[packet.0 as usize];
        addr.checked_sub(u64::from(len))
            .filter(|&start| self.part.frame_at(start) == Some(packet.0))
            .and_then(|start| self.part.bytes(start, len))
            .unwrap_or_default()
    }

    /// The bytes of its first frame, to write to.
    #[inline]
    pub(crate) fn bytes_mut(&mut self, packet: PacketId) -> &mut [u8] {
        let Location { addr, len, .. } = self.locations[packet.0 as usize];
        self.part.bytes_mut(addr, len).unwrap_or_default()
    }

    /// Passes `packet` to the kernel: the descriptors that send it, in order.
    #[inline]
    pub(crate) fn hand_over(&mut self, packet: PacketId) -> impl Iterator<Item = Desc> + '_ {
        let mut frame = packet.0;
        std::iter::from_fn(move || {
            if frame == END {
                return None;
            }
            self.owners.handed_over(frame);
            let location = self.locations[frame as usize];
            frame = location.next;
            let options = if frame == END { 0 } else { Desc::CONTINUES };
            Some(Desc { addr: location.addr, len: location.len, options })
        })
    }

    /// Marks all frames that are being sent at `egress` as possibly refused.
    pub(crate) fn suspect(&mut self, egress: Side) {
        self.owners.suspect(egress);
    }

    /// Takes back the remaining suspects, if their number equals `refused`.
    pub(crate) fn take_back_suspects(&mut self, egress: Side, refused: u64) -> bool {
        self.owners.take_back_suspects(egress, refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_xsk::Umem;

    fn frames() -> Frames {
        let umem = Umem::new(8, 2048).expect("there is memory");
        let [_, part] = [4, 4].map(|count| umem.part(count).expect("enough are left"));
        let share = |receive| Share { receive, wait: 0 };
        Frames::new(part, [share(3), share(1)])
    }

    fn lend(frames: &mut Frames) -> u64 {
        frames.lend(Side::A).expect("a free frame")
    }

    #[test]
    fn a_packets_bytes_are_those_of_its_first_frame() {
        let mut frames = frames();
        let addrs: Vec<u64> = (0..2).map(|_| lend(&mut frames) + 256).collect();
        let desc = |i: usize, len| Desc { addr: addrs[i], len, options: 0 };
        let packet = frames.receive(Side::A, desc(0, 100)).expect("ours");
        let last = frames.receive(Side::A, desc(1, 50)).expect("ours");
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
            let shares = [Share { receive: 4, wait: 8 }, Share { receive: 2, wait: 2 }];
            let mut frames = Frames::new(part, shares);
            let mut packet: Option<(PacketId, PacketId)> = None;
            let mut bytes = Vec::new();
            for (at, len) in lens.iter().enumerate() {
                let offset = if *len > 1792 { 0 } else { 256 };
                let desc = Desc { addr: lend(&mut frames) + offset, len: *len, options: 0 };
                let frame = frames.receive(Side::A, desc).expect("ours");
                frames.bytes_mut(frame).fill(at as u8 + 1);
                bytes.extend(vec![at as u8 + 1; *len as usize]);
                if let Some((_, last)) = packet {
                    frames.append(last, frame);
                }
                packet = Some((packet.map_or(frame, |(first, _)| first), frame));
            }
            let (packet, _) = packet.expect("there is a frame");
            let copy = frames.put_aside(Side::A, Bytes(9000)).expect("enough are free");
            frames.copy(packet, copy);
            let whole = |frames: &Frames, packet| {
                let parts: Vec<_> = frames.data(packet).collect();
                let part = |(addr, len): (u64, u32)| frames.part.bytes(addr, len).unwrap().to_vec();
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
        assert_eq!(frames().put_aside(Side::A, Bytes(60)), None);
        let umem = Umem::new(8, 2048).expect("there is memory");
        let part = umem.part(8).expect("enough are left");
        let shares = [Share { receive: 2, wait: 3 }, Share { receive: 2, wait: 1 }];
        let mut frames = Frames::new(part, shares);
        assert!(frames.put_aside(Side::A, Bytes(4096)).is_some());
        assert_eq!(frames.put_aside(Side::A, Bytes(4096)), None);
        assert_eq!(frames.counts().waiting, 2);
        assert!(frames.put_aside(Side::A, Bytes(2048)).is_some());
    }

    #[test]
    fn a_packet_that_claims_more_than_its_frame_has_no_bytes() {
        let mut frames = frames();
        let addr = lend(&mut frames) + 256;
        let packet = frames.receive(Side::A, Desc { addr, len: 2048, options: 0 }).expect("ours");
        assert!(frames.bytes(packet).is_empty() && frames.bytes_mut(packet).is_empty());
    }

    #[test]
    fn metadata_before_a_packet_is_read_within_its_frame_only() {
        for (headroom, len, seen) in [(0, 44, 0), (43, 44, 0), (44, 44, 44), (256, 44, 44)] {
            let mut frames = frames();
            let start = lend(&mut frames);
            let neighbour = lend(&mut frames);
            let whole = |addr| Desc { addr, len: 2048, options: 0 };
            for (addr, value) in [(start, 1), (neighbour, 2)] {
                let packet = frames.receive(Side::A, whole(addr)).expect("ours");
                frames.bytes_mut(packet).fill(value);
                frames.release(packet);
            }
            let again = [lend(&mut frames), lend(&mut frames)];
            assert!(again.contains(&neighbour));
            let desc = Desc { addr: neighbour + headroom, len: 100, options: 0 };
            let packet = frames.receive(Side::A, desc).expect("ours");
            assert_eq!(frames.before(packet, len), vec![2; seen], "headroom {headroom}");
        }
    }

    #[test]
    fn a_jumbo_packet_is_sent_as_it_came_and_gives_all_its_frames_back() {
        let mut frames = frames();
        let addrs: Vec<u64> = (0..3).map(|_| lend(&mut frames) + 256).collect();
        let desc = |i: usize, options| Desc { addr: addrs[i], len: 100 + i as u32, options };
        let packet = frames.receive(Side::A, desc(0, Desc::CONTINUES)).expect("ours");
        let mut last = packet;
        for (i, options) in [(1, Desc::CONTINUES), (2, 0)] {
            let next = frames.receive(Side::A, desc(i, options)).expect("ours");
            frames.append(last, next);
            last = next;
        }
        let sent: Vec<Desc> = frames.hand_over(packet).collect();
        assert_eq!(sent, [desc(0, Desc::CONTINUES), desc(1, Desc::CONTINUES), desc(2, 0)]);
        let sending = FrameCounts { free: 1, sending: 3, ..FrameCounts::default() };
        assert_eq!(frames.counts(), sending);
        sent.iter().for_each(|desc| frames.complete(desc.addr));
        assert_eq!(frames.counts(), FrameCounts { free: 4, ..FrameCounts::default() });
        assert_eq!(frames.strays(), 0);
    }

    #[test]
    fn frames_that_the_kernel_does_not_have_are_never_taken_in() {
        let mut frames = frames();
        let desc = |addr| Desc { addr, len: 60, options: 0 };
        // A frame of another worker, one out of range, one that the kernel does not have, one lent
        // at the other port.
        let lent = frames.lend(Side::B).expect("a free frame");
        for addr in [0, 8 * 2048, 4 * 2048, lent] {
            frames.complete(addr);
            assert_eq!(frames.receive(Side::A, desc(addr)), None);
        }
        assert_eq!(frames.strays(), 8);
        let counts = FrameCounts { free: 3, receiving: 1, ..FrameCounts::default() };
        assert_eq!(frames.counts(), counts);
    }
}
