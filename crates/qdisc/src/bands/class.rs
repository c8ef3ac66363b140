//! A class on one queue: the qdisc below it, and its turns.

use super::{Class as Config, quantum};
use crate::class_queue::ClassQueue;
use crate::rotation::{Link, Linked};
use crate::sink::Sink;
use crate::{Handover, Next, Spec};
use narrows_packet::{Backlog, PacketId, Packets};
use narrows_units::{Bytes, Nanos};

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

/// See the module's documentation.
pub(super) struct Class {
    pub(super) id: u16,
    pub(super) state: State,
    link: Link,
    pub(super) queue: ClassQueue,
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
        Self {
            id: config.id,
            state: State::Idle,
            link: Link::END,
            queue: ClassQueue::new(child),
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
        self.queue.retune(child, handover);
    }

    pub(super) fn deficit(&self) -> Bytes {
        self.deficit
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

    /// Sends its packets while there is room.
    #[inline]
    pub(super) fn send_all<S: Sink>(
        &mut self,
        packets: &mut Packets,
        now: Nanos,
        out: &mut S,
        mut tell: impl FnMut(&Packets, PacketId),
    ) -> Next {
        // It had turns before.
        if let Some(held) = self.queue.held.take() {
            tell(packets, held.id);
            self.queue.sent(packets, held.id, now);
            out.push(held.id);
        }
        let next = match out.has_room() {
            true => self.queue.send_into(packets, now, out, tell),
            false => Next::Now,
        };
        self.queue.settle();
        next
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
            self.queue.sent(packets, held.id, now);
            out.push(held.id);
            if self.queue.qdisc().backlog().is_empty() {
                break Turn::Empty;
            }
            if !out.has_room() {
                break Turn::Full;
            }
        };
        self.queue.settle();
        (turn, sent)
    }
}
