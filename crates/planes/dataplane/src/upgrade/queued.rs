//! The queued packets, as they are passed on: where each is, in which order, and when it arrived;
//! and the free frames. All other frames are in the rings or with the driver, and come back through
//! the rings.
//!
//! In little-endian binary and not in JSON, since nothing is forwarded while it is written and
//! read. For each worker: the numbers of its ports and devices (a byte each); the number of free
//! frames and each one's number (32 bits); for each port the same for those that the kernel has to
//! send, of packets that arrived there; for each device a packet of which only the first frames
//! arrived, or nothing (a byte); for each port the packets queued to leave there (their number in
//! 32 bits, and each). A packet is its arrival (64 bits), the number of its frames (a byte), and
//! for each where its data begins (64) and its length (32).

use super::binary::{StateError, read, read_u32};
use narrows_forwarding::{DEVICES_MAX, PORTS_MAX, PerDevice, PerPort};
use narrows_units::Nanos;
use std::collections::HashSet;

/// The location of one frame's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// From the start of the UMEM, in bytes.
    pub addr: u64,
    /// In bytes.
    pub len: u32,
}

/// Packets in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Queued {
    /// The arrival of each, and its number of frames.
    heads: Vec<(Nanos, u8)>,
    /// The frames of all.
    frames: Vec<Frame>,
}

impl Queued {
    /// Adds a packet that arrived at `arrival`. A packet has at least one frame.
    pub fn push(&mut self, arrival: Nanos, frames: impl Iterator<Item = Frame>) {
        let before = self.frames.len();
        self.frames.extend(frames);
        self.heads.push((arrival, (self.frames.len() - before) as u8));
    }

    /// How many packets there are.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Each packet: its arrival and its frames.
    pub fn iter(&self) -> impl Iterator<Item = (Nanos, &[Frame])> {
        let mut rest = &self.frames[..];
        self.heads.iter().map(move |&(arrival, count)| {
            let (frames, behind) = rest.split_at(usize::from(count).min(rest.len()));
            rest = behind;
            (arrival, frames)
        })
    }
}

/// The state of one worker.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WorkerQueued {
    /// Its free frames, by their number within its part of the UMEM.
    pub free: Vec<u32>,
    /// Those that the kernel has to send, likewise, by the port where their packets arrived.
    pub sending: PerPort<Vec<u32>>,
    /// By device: a packet of which more frames will follow.
    pub partial: PerDevice<Queued>,
    /// By the port through which they leave.
    pub queued: PerPort<Queued>,
}

impl WorkerQueued {
    /// Whether it is of a worker of so many ports and devices.
    pub fn is_of(&self, ports: usize, devices: usize) -> bool {
        [self.sending.len(), self.queued.len()] == [ports; 2] && self.partial.len() == devices
    }

    /// Whether each frame is named at most once and its data is within one of the `count` frames of
    /// `frame_size` bytes from number `first` on.
    pub fn fits(&self, first: u32, count: u32, frame_size: u32) -> bool {
        let mut seen = HashSet::with_capacity(count as usize);
        let size = u64::from(frame_size);
        let frames = self.partial.iter().chain(&self.queued).flat_map(|queued| &queued.frames);
        let lie_within = frames.map(|frame| {
            let number = (frame.addr / size).checked_sub(u64::from(first))?;
            let fits = frame.addr % size + u64::from(frame.len) <= size;
            u32::try_from(number).ok().filter(|_| fits)
        });
        let partial_fit = self.partial.iter().all(|partial| partial.len() <= 1);
        partial_fit
            && lie_within
                .chain(self.free.iter().chain(self.sending.iter().flatten()).copied().map(Some))
                .all(|number| number.is_some_and(|number| number < count && seen.insert(number)))
    }

    /// How many packets are queued.
    pub fn packets(&self) -> usize {
        self.queued.iter().map(Queued::len).sum()
    }

    pub(super) fn write(&self, into: &mut Vec<u8>) {
        into.extend([self.queued.len() as u8, self.partial.len() as u8]);
        for frames in std::iter::once(&self.free).chain(&self.sending) {
            into.extend((frames.len() as u32).to_le_bytes());
            for frame in frames {
                into.extend(frame.to_le_bytes());
            }
        }
        for partial in &self.partial {
            into.push(u8::from(!partial.is_empty()));
            write_packets(partial, into);
        }
        for queued in &self.queued {
            into.extend((queued.len() as u32).to_le_bytes());
            write_packets(queued, into);
        }
    }

    pub(super) fn read(from: &mut &[u8]) -> Result<Self, StateError> {
        let [ports, devices] = read::<2>(from)?.map(usize::from);
        if ports > PORTS_MAX || devices > DEVICES_MAX {
            return Err(StateError::Malformed("a worker's ports"));
        }
        let numbers = |from: &mut &[u8]| {
            let count = read_u32(from)? as usize;
            // Claimed lengths reserve no memory: only bytes that are there are read.
            (0..count).map(|_| read_u32(from)).collect::<Result<Vec<u32>, StateError>>()
        };
        let mut worker = Self { free: numbers(from)?, ..Self::default() };
        for _ in 0..ports {
            worker.sending.push(numbers(from)?);
        }
        for _ in 0..devices {
            let [count] = read::<1>(from)?;
            if count > 1 {
                return Err(StateError::Malformed("a partial packet"));
            }
            worker.partial.push(read_packets(from, usize::from(count))?);
        }
        for _ in 0..ports {
            let count = read_u32(from)? as usize;
            worker.queued.push(read_packets(from, count)?);
        }
        Ok(worker)
    }
}

fn write_packets(packets: &Queued, into: &mut Vec<u8>) {
    for (arrival, frames) in packets.iter() {
        into.extend(arrival.0.to_le_bytes());
        into.push(frames.len() as u8);
        for frame in frames {
            into.extend(frame.addr.to_le_bytes());
            into.extend(frame.len.to_le_bytes());
        }
    }
}

fn read_packets(from: &mut &[u8], count: usize) -> Result<Queued, StateError> {
    let mut packets = Queued::default();
    for _ in 0..count {
        let arrival = Nanos(u64::from_le_bytes(read(from)?));
        let [frames] = read(from)?;
        if frames == 0 {
            return Err(StateError::Malformed("a packet without frames"));
        }
        for _ in 0..frames {
            let addr = u64::from_le_bytes(read(from)?);
            let len = read_u32(from)?;
            packets.frames.push(Frame { addr, len });
        }
        packets.heads.push((arrival, frames));
    }
    Ok(packets)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    prop_compose! {
        fn packets(most: usize)(
            list in prop::collection::vec(
                (any::<u64>(), prop::collection::vec((any::<u64>(), any::<u32>()), 1..4)), 0..most,
            ),
        ) -> Queued {
            let mut queued = Queued::default();
            for (arrival, frames) in list {
                queued.push(Nanos(arrival), frames.into_iter().map(|(addr, len)| Frame { addr, len }));
            }
            queued
        }
    }

    prop_compose! {
        pub(in crate::upgrade) fn worker()(
            free in prop::collection::vec(any::<u32>(), 0..9),
            partial in prop::collection::vec(packets(2), 1..4),
            of_ports in prop::collection::vec(
                (prop::collection::vec(any::<u32>(), 0..9), packets(9)), 2..5,
            ),
        ) -> WorkerQueued {
            let (sending, queued): (Vec<_>, Vec<_>) = of_ports.into_iter().unzip();
            let (sending, partial) = (sending.into(), partial.into());
            WorkerQueued { free, sending, partial, queued: queued.into() }
        }
    }

    fn frame(addr: u64, len: u32) -> Frame {
        Frame { addr, len }
    }

    #[test]
    fn a_frame_has_one_place_at_most_and_lies_in_the_workers_part() {
        let with = |free: &[u32], frames: &[Frame]| {
            let mut worker = WorkerQueued { free: free.to_vec(), ..Default::default() };
            let mut queued = Queued::default();
            queued.push(Nanos(1), frames.iter().copied());
            worker.queued.push(queued);
            worker.fits(10, 4, 2048)
        };
        let at = |number: u64| number * 2048;
        assert!(with(&[0, 3], &[frame(at(11) + 256, 1792), frame(at(12), 2048)]));
        assert!(!with(&[0, 0], &[frame(at(11), 60)]), "free twice");
        assert!(!with(&[1], &[frame(at(11), 60)]), "free and queued");
        assert!(!with(&[], &[frame(at(11), 60), frame(at(11) + 100, 60)]), "queued twice");
        assert!(!with(&[4], &[frame(at(11), 60)]), "free beyond the end");
        assert!(!with(&[], &[frame(at(9), 60)]), "before the part");
        assert!(!with(&[], &[frame(at(14), 60)]), "behind the part");
        assert!(!with(&[], &[frame(at(11) + 256, 1793)]), "longer than the frame");
        assert!(!with(&[], &[frame(u64::MAX, u32::MAX)]), "nowhere");
    }

    #[test]
    fn packets_come_back_in_order_with_their_frames() {
        let mut queued = Queued::default();
        queued.push(Nanos(1), [frame(1, 2)].into_iter());
        queued.push(Nanos(2), [frame(3, 4), frame(5, 6)].into_iter());
        let seen: Vec<_> = queued.iter().collect();
        assert_eq!(seen[0], (Nanos(1), &[frame(1, 2)][..]));
        assert_eq!(seen[1], (Nanos(2), &[frame(3, 4), frame(5, 6)][..]));
    }
}
