//! The limit: a `cake` of `tc` words, which gets them again with another rate.

use crate::tc;
use narrows_packet::{Batch, Headers, PacketId, Packets};
use narrows_policy::Policy;
use narrows_qdisc::{Handover, Next, Slot};
use narrows_shaper::Installation;
use narrows_tc::OfflineHost;
use narrows_units::{Bytes, Nanos, Rate};

/// Packets that it can hold.
const PACKETS: u32 = 1 << 15;
/// The name of its port.
const PORT: &str = "line";

/// The limit, with packets that each have a `P`.
pub(super) struct Shaper<P> {
    host: OfflineHost,
    installation: Installation,
    slot: Slot,
    words: &'static str,
    rate: Rate,
    packets: Packets,
    free: Vec<PacketId>,
    held: Vec<Option<(P, u32)>>,
    ask_at: Nanos,
    batch: Batch,
}

impl<P> Shaper<P> {
    /// A limit at `rate`, with `words` beside.
    ///
    /// # Errors
    /// The message of `tc` if it refuses them.
    pub(super) fn new(words: &'static str, rate: Rate) -> Result<Self, String> {
        let mut host = OfflineHost::new(Policy::default());
        let command = command(words, rate);
        let (installation, specs) = tc::lay_out(&mut host, PORT, &command, 1, None)?;
        let spec = specs.into_iter().next().ok_or("no qdisc")?;
        let slot = Slot::new(spec);
        let mut packets = Packets::new(PACKETS);
        packets.prepare(slot.qdisc().reading());
        Ok(Self {
            host,
            installation,
            slot,
            words,
            rate,
            packets,
            free: (0..PACKETS).rev().map(PacketId).collect(),
            held: (0..PACKETS).map(|_| None).collect(),
            ask_at: Nanos::MAX,
            batch: Batch::new(1),
        })
    }

    /// The rate in force.
    pub(super) fn rate(&self) -> Rate {
        self.rate
    }

    /// Puts another rate in force.
    pub(super) fn set(&mut self, rate: Rate, now: Nanos) -> Result<(), String> {
        if rate == self.rate {
            return Ok(());
        }
        self.rate = rate;
        let command = command(self.words, rate);
        let before = Some(&self.installation);
        let (next, specs) = tc::lay_out(&mut self.host, PORT, &command, 1, before)?;
        next.commit();
        self.installation = next;
        if let Some(spec) = specs.into_iter().next() {
            self.slot.take_over(spec, &mut Handover::new(&mut self.packets, now));
        }
        self.ask_at = now;
        Ok(())
    }

    /// Offers a packet of this flow.
    pub(super) fn enqueue(&mut self, packet: P, len: Bytes, flow: u32, now: Nanos) {
        let Some(id) = self.free.pop() else { return };
        self.held[id.0 as usize] = Some((packet, len.0 as u32));
        self.packets.arrive(id, len.0 as u32, now);
        let headers = Headers { flow, source: flow, destination: !flow, ..Headers::default() };
        self.packets.set_headers(id, headers);
        self.slot.qdisc_mut().enqueue(&mut self.packets, id, now);
        self.reclaim();
        self.ask_at = self.ask_at.min(now);
    }

    /// Takes back the frames of what was dropped.
    fn reclaim(&mut self) {
        let mut dropped = Batch::new(64);
        loop {
            dropped.clear();
            self.packets.reclaim(&mut dropped);
            if dropped.is_empty() {
                return;
            }
            for &id in dropped.as_slice() {
                self.held[id.0 as usize] = None;
                self.free.push(id);
            }
        }
    }

    /// A packet that leaves at `now`, with its length.
    pub(super) fn dequeue(&mut self, now: Nanos) -> Option<(P, Bytes)> {
        if self.ask_at > now {
            return None;
        }
        self.batch.clear();
        let next = self.slot.qdisc_mut().dequeue(&mut self.packets, now, &mut self.batch);
        let id = self.batch.as_slice().first().copied();
        self.ask_at = match next {
            Next::Now => now,
            Next::At(at) | Next::Held(at) => at.max(now),
            Next::Empty => Nanos::MAX,
        };
        self.reclaim();
        let id = id?;
        self.free.push(id);
        let (packet, len) = self.held[id.0 as usize].take()?;
        Some((packet, Bytes(u64::from(len))))
    }

    /// When to ask for packets; [`Nanos::MAX`] if there are none.
    pub(super) fn next_at(&self) -> Nanos {
        self.ask_at
    }

    /// What waits.
    pub(super) fn backlog(&self) -> Bytes {
        self.slot.qdisc().backlog().bytes
    }
}

/// The words of the limit at `rate`.
fn command(words: &str, rate: Rate) -> Vec<String> {
    let rate = format!("{}bit", rate.bits_per_sec());
    let words = words.split_whitespace().map(str::to_owned);
    ["cake", "bandwidth", &rate].map(str::to_owned).into_iter().chain(words).collect()
}
