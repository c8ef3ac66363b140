//! A host that sends: its qdisc, and released packets that wait for the line.

use crate::fabric::device::Device;
use crate::fabric::packet::{ACK, FULL};
use crate::tc;
use crate::traffic::seed::hash;
use narrows_packet::{Acknowledgement, Batch, Headers, PacketId, Packets};
use narrows_policy::Policy;
use narrows_qdisc::{Detail, Next, Qdisc, Spec};
use narrows_tc::OfflineHost;
use narrows_units::Nanos;

/// Packets that a host can hold; a received packet has the last number.
const PACKETS: u32 = 1 << 15;
/// Packets that a qdisc is asked for at once.
const BATCH: usize = 256;
/// The hash of the receiver's address.
const RECEIVER: u32 = 0x5eed_0001;
/// TCP's flag of an acknowledgement.
const IS_ACK: u16 = 0x10;
/// TCP's flag that says that a mark was seen (RFC 3168).
const ECN_ECHO: u16 = 0x40;

/// The part of a packet that is not in its metadata.
#[derive(Clone, Copy, Default)]
pub(super) struct Held {
    pub(super) flow: u32,
    pub(super) transmission: u32,
}

/// A host.
pub(super) struct Host {
    qdisc: Box<dyn Qdisc>,
    packets: Packets,
    free: Vec<PacketId>,
    held: Vec<Held>,
    pub(super) device: Device,
    /// By how much its clock is ahead.
    ahead: Nanos,
    /// The time of the next dequeue.
    ask_at: Nanos,
    batch: Batch,
}

impl Host {
    /// A host with the qdisc of the words `qdisc`. `seed` determines everything random.
    ///
    /// # Errors
    /// The message of `tc` if it refuses the words.
    pub(super) fn new(qdisc: &[String], seed: u64) -> Result<Self, String> {
        let qdisc = build(qdisc)?;
        let mut packets = Packets::new(PACKETS + 1);
        packets.prepare(qdisc.reading());
        Ok(Self {
            qdisc,
            packets,
            free: (0..PACKETS).rev().map(PacketId).collect(),
            held: vec![Held::default(); PACKETS as usize],
            device: Device::default(),
            // Up to four seconds.
            ahead: Nanos(hash(seed, [0, 0, 0]) >> 32),
            ask_at: Nanos::MAX,
            batch: Batch::new(BATCH),
        })
    }

    /// TCP's time stamps: milliseconds.
    pub(super) fn stamp(&self, now: Nanos) -> u32 {
        ((now + self.ahead).0 / 1_000_000) as u32
    }

    /// Gives `held` to the qdisc. Whether it was taken.
    pub(super) fn enqueue(&mut self, held: Held, stamp: u32, now: Nanos) -> bool {
        let Some(id) = self.free.pop() else { return false };
        self.held[id.0 as usize] = held;
        self.packets.arrive(id, FULL, now + self.ahead);
        let flow = hash(u64::from(held.flow), [1, 0, 0]);
        let headers = Headers { flow: flow as u32, destination: RECEIVER, ..Headers::default() };
        self.packets.set_headers(id, headers);
        let data = Acknowledgement {
            connection: flow | 1,
            flags: IS_ACK,
            time_stamp: Some((stamp, 0)),
            ..Acknowledgement::default()
        };
        self.packets.set_acknowledgement(id, data);
        self.qdisc.enqueue(&mut self.packets, id, now + self.ahead);
        self.ask_at = now;
        let mut dropped = Batch::new(1);
        self.packets.reclaim(&mut dropped);
        self.free.extend_from_slice(dropped.as_slice());
        dropped.is_empty()
    }

    /// Hears an answer with the echo of the time stamp `stamp`.
    pub(super) fn hear(&mut self, flow: u32, marked: bool, stamp: u32, now: Nanos) {
        let id = PacketId(PACKETS);
        self.packets.arrive(id, ACK, now + self.ahead);
        self.packets.set_headers(id, Headers { source: RECEIVER, ..Headers::default() });
        let answer = Acknowledgement {
            connection: hash(u64::from(flow), [2, 0, 0]) | 1,
            flags: if marked { IS_ACK | ECN_ECHO } else { IS_ACK },
            is_empty: true,
            time_stamp: Some((0, stamp)),
            ..Acknowledgement::default()
        };
        self.packets.set_acknowledgement(id, answer);
        self.qdisc.observe_reverse(&self.packets, &[id], now + self.ahead);
    }

    /// Takes what may leave into `left`, which is empty.
    pub(super) fn take_due(&mut self, now: Nanos, left: &mut Vec<Held>) {
        if self.ask_at > now {
            return;
        }
        loop {
            self.batch.clear();
            let next = self.qdisc.dequeue(&mut self.packets, now + self.ahead, &mut self.batch);
            left.extend(self.batch.as_slice().iter().map(|id| self.held[id.0 as usize]));
            self.free.extend_from_slice(self.batch.as_slice());
            self.ask_at = match next {
                Next::Now => continue,
                Next::At(at) | Next::Held(at) => at.since(self.ahead).max(now),
                Next::Empty => Nanos::MAX,
            };
            return;
        }
    }

    /// When there is something to do; [`Nanos::MAX`] if there is nothing.
    pub(super) fn next_at(&self) -> Nanos {
        self.ask_at.min(self.device.next_at())
    }

    /// Packets in the qdisc.
    pub(super) fn backlog(&self) -> u32 {
        self.qdisc.backlog().packets
    }

    /// The number of congestion reports that the qdisc received.
    pub(super) fn congestion(&self) -> u64 {
        let mut stats = Vec::new();
        self.qdisc.stats(&mut stats);
        let details = stats.iter().filter_map(|stats| stats.detail.as_ref());
        details.filter_map(Detail::pacing).map(|it| it.congestion).sum()
    }
}

/// The qdisc that `tc` makes of `words`.
pub(super) fn build(words: &[String]) -> Result<Box<dyn Qdisc>, String> {
    let mut host = OfflineHost::new(Policy::default());
    let (_, specs) = tc::lay_out(&mut host, "sim", words, 1, None)?;
    specs.into_iter().next().map(Spec::build).ok_or_else(|| "no qdisc".to_owned())
}
