//! A class on one queue: the qdisc below it, and its turns.

use super::{Class as Config, quantum};
use crate::class_queue::{ClassQueue, Tenure, Totals};
use crate::rotation::{Link, Linked};
use crate::sink::Sink;
use crate::{Above, Handover, Next, Spec, Stats, Verdict};
use narrows_packet::{Backlog, PacketId, Packets};
use narrows_units::{Bytes, Nanos, Spread};

/// The state of a class that takes turns. An ordered class is in no line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// In no list: it has no packets.
    Idle,
    /// In line.
    InLine,
    /// Outside the line: its qdisc holds all packets until that time.
    Waiting(Nanos),
}

/// The result of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// The batch is full.
    Full,
    /// Its next packet is longer than its deficit was.
    Over,
    /// It has no packets.
    Empty,
    /// Its qdisc holds everything back until then.
    Held(Nanos),
}

/// A class on one queue: its packets, its place in the turns, and its counters.
pub(super) struct Class {
    pub(super) id: u16,
    pub(super) state: State,
    link: Link,
    pub(super) queue: ClassQueue,
    /// The delays of packets that it has sent, from arrival on.
    pub(super) delays: Spread,
    totals: Totals,
    tenure: Tenure,
    quantum: Bytes,
    /// Its share of a turn on this queue, in proportion to others.
    turn: Bytes,
    /// Whether the other queues know that it has packets here.
    pub(super) is_counted: bool,
    /// The bytes that it may still send in its turn.
    deficit: Bytes,
}

impl Linked for Class {
    #[inline]
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

impl Class {
    pub(super) fn new(config: Config, child: Spec) -> Self {
        let (queue, tenure) = ClassQueue::new(child);
        Self {
            id: config.id,
            state: State::Idle,
            link: Link::END,
            queue,
            delays: Spread::default(),
            totals: Totals::default(),
            tenure,
            quantum: quantum(config),
            turn: quantum(config),
            is_counted: false,
            deficit: Bytes::ZERO,
        }
    }

    /// Applies new parameters. Afterwards the class is in no list.
    pub(super) fn retune(&mut self, config: Config, child: Spec, handover: &mut Handover<'_>) {
        self.quantum = quantum(config);
        self.turn = self.quantum;
        self.state = State::Idle;
        self.queue.retune(child, &mut self.tenure, self.totals, handover);
    }

    pub(super) fn deficit(&self) -> Bytes {
        self.deficit
    }

    #[inline]
    pub(super) fn enqueue(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) -> Verdict {
        let verdict = self.queue.enqueue(packets, id, now);
        self.totals.drops += u64::from(verdict == Verdict::Dropped);
        verdict
    }

    /// The figures of the qdiscs below it.
    pub(super) fn stats_below(&self, above: Above, into: &mut Vec<Stats>) {
        self.queue.stats_below(&self.tenure, self.totals, above, into);
    }

    /// Joins the line with a quantum.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.state = State::InLine;
        self.deficit = self.turn;
    }

    /// Its share if it has packets on `queues` queues, times four.
    pub(super) fn due(&self, queues: u32) -> Bytes {
        Bytes(4 * self.quantum.0 / u64::from(queues))
    }

    /// From now on it has packets on `queues` queues, and no class here on more than `most`. A
    /// class on `most` queues gets its quantum, others more.
    pub(super) fn divide(&mut self, queues: u32, most: u32) {
        self.turn = Bytes(self.quantum.0 * u64::from(most) / u64::from(queues));
    }

    /// Sends its packets while there is room. Also returns what it has sent.
    #[inline]
    pub(super) fn send_all(
        &mut self,
        packets: &mut Packets,
        now: Nanos,
        out: &mut impl Sink,
    ) -> (Next, Backlog) {
        let mut sent = Backlog::default();
        let delays = &mut self.delays;
        let mut sends = |packets: &Packets, id| {
            let meta = packets.meta(id);
            delays.record(now.since(meta.arrival));
            sent.packets += 1;
            sent.bytes += Bytes::from(meta.len);
        };
        // It had turns before.
        if let Some(held) = self.queue.held.take() {
            sends(packets, held.id);
            out.push(held.id);
        }
        let next = match out.has_room() {
            true => self.queue.send_into(packets, now, out, sends),
            false => Next::Now,
        };
        self.has_sent(sent);
        (next, sent)
    }

    /// Counts what it has sent.
    #[inline]
    fn has_sent(&mut self, sent: Backlog) {
        self.totals.sent_packets += u64::from(sent.packets);
        self.totals.sent_bytes += sent.bytes.0;
        self.queue.settle();
    }

    /// Sends while its deficit lasts. Also returns the bytes sent.
    #[inline]
    pub(super) fn turn(
        &mut self,
        packets: &mut Packets,
        now: Nanos,
        out: &mut impl Sink,
    ) -> (Turn, Backlog) {
        let mut sent = Backlog::default();
        let turn = loop {
            let held = match self.queue.held {
                Some(held) => held,
                None => match self.queue.next(packets, now) {
                    Ok(held) => *self.queue.held.insert(held),
                    Err(Next::At(at) | Next::Held(at)) => break Turn::Held(at),
                    Err(Next::Empty | Next::Now) => break Turn::Empty,
                },
            };
            if held.len() > self.deficit {
                self.deficit += self.turn;
                break Turn::Over;
            }
            self.queue.held = None;
            self.deficit = Bytes(self.deficit.0 - held.len().0);
            sent.packets += 1;
            sent.bytes += held.len();
            self.delays.record(now.since(packets.meta(held.id).arrival));
            out.push(held.id);
            if self.queue.qdisc().backlog().is_empty() {
                break Turn::Empty;
            }
            if !out.has_room() {
                break Turn::Full;
            }
        };
        self.has_sent(sent);
        (turn, sent)
    }
}
