//! The measurements of one queue at one port.

use crate::awaited::{Answer, Awaited, HALF, Meaning, is_after};
use crate::flows::{Flows, Passed};
use crate::known::{Class, Host};
use crate::losses::Losses;
use crate::turns::Turns;
use crate::windows::{Known, Windows};
use narrows_packet::dissect::{Conversation, Segment, Spin};
use narrows_units::Nanos;
use std::net::IpAddr;
use std::sync::Arc;

/// The number of the class of a packet that has none.
pub const NO_CLASS: u32 = 0;

/// The round trips and losses that one queue measures at one port.
pub struct Observer {
    board: Arc<Awaited>,
    /// The key of all hashes.
    key: u64,
    turns: Turns,
    flows: Flows,
    hosts: Windows<Host>,
    classes: Windows<Class>,
    losses: Losses,
}

impl Observer {
    /// An observer at the port of `board`. All queues of both ports hash with one `key`, which
    /// should be random; hosts and classes are reported in windows of this length.
    pub fn new(board: Arc<Awaited>, key: u64, window: Nanos) -> Self {
        Self {
            board,
            key,
            turns: Turns::default(),
            flows: Flows::new(),
            hosts: Windows::new(window, IpAddr::from([0; 4])),
            classes: Windows::new(window, NO_CLASS),
            losses: Losses::default(),
        }
    }

    /// Whether to [examine](Observer::leaves) packets that leave at `now`; if so, in which stretch
    /// of time.
    #[inline]
    pub fn stretch(&mut self, now: Nanos) -> Option<u16> {
        self.turns.stretch(now)
    }

    /// `frame` leaves through the port at `now`, in this `stretch` of time, sent by `class`: its
    /// number at the outermost qdisc with classes, or [`NO_CLASS`].
    pub fn leaves(&mut self, frame: &[u8], class: u32, stretch: u16, now: Nanos) {
        self.turns.count(1);
        let Some(conversation) = Conversation::of(frame, self.key) else { return };
        let connection = conversation.connection;
        let Some(flow) = self.flows.of(connection, stretch, now) else { return };
        if !conversation.is_tcp() {
            if let Some(spin) = conversation.spin(frame)
                && flow.spins(spin)
            {
                // A server sends what it has seen, a client the opposite.
                let answer = Answer::Spin(spin.is_set == spin.is_clients);
                self.board.expect(connection, answer, class, now);
            }
            return;
        }
        let Some(segment) = conversation.segment(frame) else { return };
        let passed = flow.passes(&segment, now);
        let mut lost = Losses::default();
        match passed {
            Passed::Unknown => {
                // Acknowledgements of a download, whose data echo their time stamps.
                if segment.end == segment.first
                    && !segment.is_opening
                    && self.board.line().is_watched()
                    && let Some((stamp, _)) = segment.time_stamp
                    && flow.is_to_be_timed(now, || true)
                {
                    self.board.expect(connection, Answer::echoed(stamp), class, now);
                }
                return;
            }
            Passed::New => {
                let is_watched = || self.board.line().is_watched();
                if flow.is_to_be_timed(now, is_watched) && !(is_watched() && flow.is_left_out()) {
                    let stamp = segment.time_stamp.map(|(value, _)| value);
                    let answer = Answer::acknowledged(segment.end, stamp);
                    self.board.expect(connection, answer, class, now);
                }
            }
            Passed::Again => lost.beyond = 1,
            Passed::Late => lost.before = 1,
        }
        let is_lost = passed != Passed::New;
        if is_lost && segment.time_stamp.is_none() {
            self.board.forget(connection);
        }
        let Some(segments) = flow.count(is_lost) else { return };
        lost.segments = segments;
        self.losses.merge(&lost);
        if self.board.line().is_watched() {
            self.board.line().count(lost.segments, lost.beyond);
        }
        if class != NO_CLASS {
            self.classes.of(class, now).losses.merge(&lost);
        }
        if let Some([source, destination]) = conversation.hosts(frame) {
            self.hosts.of(source, now).from.merge(&lost);
            self.hosts.of(destination, now).to.merge(&lost);
        }
    }

    /// `frame` comes in at the port at `now`. Returns the round trip beyond it, if the frame is an
    /// awaited answer.
    #[inline]
    pub fn comes(&mut self, frame: &[u8], now: Nanos) -> Option<Nanos> {
        let conversation = Conversation::of(frame, self.key)?;
        if !self.board.awaits(conversation.connection) {
            return None;
        }
        self.answers(&conversation, frame, now)
    }

    #[inline(never)]
    fn answers(&mut self, conversation: &Conversation, frame: &[u8], now: Nanos) -> Option<Nanos> {
        let connection = conversation.connection;
        let mut is_echo = false;
        let (trip, class) = if conversation.is_tcp() {
            let segment = conversation.segment(frame)?;
            self.board.comes(connection, now, |answer| {
                is_echo = matches!(answer, Answer::Echoed(_));
                of_segment(answer, &segment)
            })?
        } else {
            let spin = conversation.spin(frame)?;
            self.board.comes(connection, now, |answer| of_spin(answer, spin))?
        };
        let [source, _]: [IpAddr; 2] = conversation.hosts(frame)?;
        if self.board.line().is_watched() {
            self.board.line().record(Host::bits(source), connection, trip);
        }
        if is_echo {
            return None;
        }
        self.hosts.of(source, now).trips.record(trip);
        if class != NO_CLASS {
            self.classes.of(class, now).trips.record(trip);
        }
        Some(trip)
    }

    /// The losses of all segments that were examined.
    pub fn losses(&self) -> Losses {
        self.losses
    }

    /// The hosts of the last window that is over at `now`. Allocates.
    pub fn hosts(&self, now: Nanos) -> Vec<Host> {
        self.hosts.complete(now)
    }

    /// The classes of the same window. Allocates.
    pub fn classes(&self, now: Nanos) -> Vec<Class> {
        self.classes.complete(now)
    }
}

/// The effect of `segment` on an awaited answer.
fn of_segment(answer: Answer, segment: &Segment) -> Meaning {
    let (end, stamp) = match answer {
        Answer::Acknowledged { end, stamp } => (end, stamp),
        Answer::Echoed(stamp) => return of_echo(stamp, segment),
        Answer::Spin(_) => return Meaning::No,
    };
    // Later bytes are answered together with it.
    match segment.acknowledged {
        Some(all) if !is_after(end, all) => {}
        _ => return Meaning::No,
    }
    match (stamp, segment.time_stamp) {
        (Some(stamp), Some((_, echo))) if is_after(echo, stamp) => Meaning::Past,
        _ => Meaning::Answer,
    }
}

/// The effect of `segment` on an awaited echo of `stamp`.
fn of_echo(stamp: u32, segment: &Segment) -> Meaning {
    match segment.time_stamp {
        Some((_, echo)) if is_after(echo & HALF, stamp) => Meaning::Past,
        Some((_, echo)) if echo & HALF == stamp && segment.end != segment.first => Meaning::Answer,
        _ => Meaning::No,
    }
}

/// The effect of `spin` on an awaited answer.
fn of_spin(answer: Answer, spin: Spin) -> Meaning {
    match answer {
        Answer::Spin(wanted) if wanted == spin.is_set => Meaning::Answer,
        _ => Meaning::No,
    }
}
