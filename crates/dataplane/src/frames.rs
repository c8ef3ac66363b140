//! A worker's own part of the UMEM: which frames are free, and where packets lie in theirs.
//!
//! A packet's id is the number of its first frame within this part. A packet that needs more
//! (a jumbo frame) names its further frames in a chain.

use narrows_packet::PacketId;
use narrows_units::Bytes;
use narrows_xsk::{Desc, UmemPart};

/// No further frame.
const END: u32 = u32::MAX;

/// The most frames that one packet may take. The kernel's own limit is its
/// `MAX_SKB_FRAGS` (17) and the head.
pub(crate) const FRAMES_PER_PACKET_MAX: usize = 18;

/// Where the data of one frame lies.
#[derive(Clone, Copy)]
struct Location {
    addr: u64,
    len: u32,
    next: u32,
}

/// The frames of one worker. Never shared, never reallocated.
pub(crate) struct Frames {
    part: UmemPart,
    free: Vec<u32>,
    locations: Box<[Location]>,
}

impl Frames {
    /// All frames of `part`.
    pub(crate) fn new(part: UmemPart) -> Self {
        let unused = Location { addr: 0, len: 0, next: END };
        Self {
            free: (0..part.count()).rev().collect(),
            locations: vec![unused; part.count() as usize].into_boxed_slice(),
            part,
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.locations.len() as u32
    }

    /// The size of each.
    pub(crate) fn frame(&self) -> Bytes {
        Bytes(u64::from(self.part.frame_size()))
    }

    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes a free frame: its address, for a fill ring.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<u64> {
        let frame = self.free.pop()?;
        Some(self.part.addr_of(frame))
    }

    /// Gives back the frame in which `addr` lies. An address that is not this worker's can
    /// only be a fault of the kernel's; taking it in would corrupt another worker's packets.
    #[inline]
    pub(crate) fn put_addr(&mut self, addr: u64) {
        if let Some(frame) = self.part.frame_at(addr) {
            self.free.push(frame);
        }
    }

    /// Gives back all frames of `packet`.
    #[inline]
    pub(crate) fn put_packet(&mut self, packet: PacketId) {
        let mut frame = packet.0;
        while frame != END {
            self.free.push(frame);
            frame = self.locations[frame as usize].next;
        }
    }

    /// Records a received frame as a packet of its own.
    #[inline]
    pub(crate) fn receive(&mut self, desc: Desc) -> Option<PacketId> {
        let frame = self.part.frame_at(desc.addr)?;
        self.locations[frame as usize] = Location { addr: desc.addr, len: desc.len, next: END };
        Some(PacketId(frame))
    }

    /// Appends a received frame to the packet whose last frame is `last`.
    #[inline]
    pub(crate) fn append(&mut self, last: PacketId, desc: Desc) -> Option<PacketId> {
        let frame = self.receive(desc)?;
        self.locations[last.0 as usize].next = frame.0;
        Some(frame)
    }

    /// The bytes in the first frame of `packet`, which was received and is not yet sent: until
    /// then its frames are in nobody else's hands.
    #[inline]
    pub(crate) fn bytes(&self, packet: PacketId) -> &[u8] {
        let Location { addr, len, .. } = self.locations[packet.0 as usize];
        self.part.bytes(addr, len).unwrap_or_default()
    }

    /// The `len` bytes in front of `packet`; none where its first frame does not begin that far
    /// in front.
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

    /// The descriptors that send `packet`, in order.
    #[inline]
    pub(crate) fn descriptors(&self, packet: PacketId) -> impl Iterator<Item = Desc> + '_ {
        let mut frame = packet.0;
        std::iter::from_fn(move || {
            if frame == END {
                return None;
            }
            let location = self.locations[frame as usize];
            frame = location.next;
            let options = if frame == END { 0 } else { Desc::CONTINUES };
            Some(Desc { addr: location.addr, len: location.len, options })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_xsk::Umem;

    fn frames() -> Frames {
        let umem = Umem::new(8, 2048).expect("there is memory");
        let [_, part] = [4, 4].map(|count| umem.part(count).expect("enough are left"));
        Frames::new(part)
    }

    #[test]
    fn a_packets_bytes_are_those_of_its_first_frame() {
        let mut frames = frames();
        let addrs: Vec<u64> = (0..2).map(|_| frames.take().expect("a free frame") + 256).collect();
        let desc = |i: usize, len| Desc { addr: addrs[i], len, options: 0 };
        let packet = frames.receive(desc(0, 100)).expect("ours");
        let last = frames.append(packet, desc(1, 50)).expect("ours");
        frames.bytes_mut(packet).fill(1);
        frames.bytes_mut(last).fill(2);
        assert_eq!(frames.bytes(packet), [1; 100]);
        assert_eq!(frames.bytes(last), [2; 50]);
    }

    #[test]
    fn a_packet_that_claims_more_than_its_frame_has_no_bytes() {
        let mut frames = frames();
        let addr = frames.take().expect("a free frame") + 256;
        let packet = frames.receive(Desc { addr, len: 2048, options: 0 }).expect("ours");
        assert!(frames.bytes(packet).is_empty() && frames.bytes_mut(packet).is_empty());
    }

    #[test]
    fn what_stands_in_front_of_a_packet_is_read_within_its_frame_only() {
        let mut frames = frames();
        let start = frames.take().expect("a free frame");
        let neighbour = frames.take().expect("a free frame");
        for (addr, value) in [(start, 1), (neighbour, 2)] {
            let whole = frames.receive(Desc { addr, len: 2048, options: 0 }).expect("ours");
            frames.bytes_mut(whole).fill(value);
        }
        for (headroom, len, seen) in [(0, 44, 0), (43, 44, 0), (44, 44, 44), (256, 44, 44)] {
            let desc = Desc { addr: neighbour + headroom, len: 100, options: 0 };
            let packet = frames.receive(desc).expect("ours");
            assert_eq!(frames.before(packet, len), vec![2; seen], "headroom {headroom}");
        }
    }

    #[test]
    fn a_jumbo_packet_is_sent_as_it_came_and_gives_all_its_frames_back() {
        let mut frames = frames();
        let addrs: Vec<u64> = (0..3).map(|_| frames.take().expect("a free frame") + 256).collect();
        let desc = |i: usize, options| Desc { addr: addrs[i], len: 100 + i as u32, options };
        let packet = frames.receive(desc(0, Desc::CONTINUES)).expect("ours");
        let second = frames.append(packet, desc(1, Desc::CONTINUES)).expect("ours");
        frames.append(second, desc(2, 0)).expect("ours");
        let sent: Vec<Desc> = frames.descriptors(packet).collect();
        assert_eq!(sent, [desc(0, Desc::CONTINUES), desc(1, Desc::CONTINUES), desc(2, 0)]);
        frames.put_packet(packet);
        assert_eq!(frames.free(), 4);
    }

    #[test]
    fn frames_of_another_worker_are_never_taken_in() {
        let mut frames = frames();
        frames.put_addr(3 * 2048);
        frames.put_addr(8 * 2048);
        assert_eq!(frames.free(), 4);
        assert_eq!(frames.receive(Desc { addr: 0, len: 60, options: 0 }), None);
    }
}
