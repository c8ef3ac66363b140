//! A host in virtual time: senders, the tree, and what holds packets until they depart.
//!
//! A connection has a window that grows and, at a mark or a loss, shrinks to seven tenths, once a
//! round trip (CUBIC's factor). It sends super-packets of a millisecond of its rate, at a pace of
//! its own, and never has more than two of them in the host (TSQ). As in Linux, it knows at once of
//! a packet that the host drops. It sends that when it next hears something, or 200 ms later if
//! nothing is under way. Now and then an answer is late, since receivers wait for a second packet.

use super::super::{Answer, Departures, Packet};
use crate::tree::layout::Class;
use narrows_units::Nanos;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

pub(super) const MS: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1_000_000_000;
/// When runs begin.
pub(super) const BEGIN: u64 = 10 * SECOND;
/// A full frame.
pub(super) const FRAME: u64 = 1514;
/// The longest super-packet.
const MERGED_MAX: u64 = 64 << 10;

/// A connection of which nothing is under way tries again what did not leave the host.
const RETRY: u64 = 200 * MS;

/// One of so many answers to a short packet is that much later: its receiver waits for another.
const DELAYED: (u32, u64) = (30, 40 * MS);

/// What a sender sends.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Load {
    /// A connection with this round trip in ns, in which marks replace drops, or do not.
    Tcp { round_trip: u64, is_ecn: bool },
    /// Packets of so many bytes at this rate in bytes per second.
    Udp { rate: u64, bytes: u64 },
}

impl Load {
    /// The time between two packets; within so much time a connection begins.
    fn gap(self) -> u64 {
        match self {
            Self::Tcp { .. } => MS,
            Self::Udp { rate, bytes } => bytes * SECOND / rate,
        }
    }
}

/// A flow.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Sender {
    pub(super) leaf: u32,
    pub(super) hash: u32,
    pub(super) host: u32,
    pub(super) load: Load,
    /// When it sends, in ns from the beginning of the run.
    pub(super) from: u64,
    pub(super) to: u64,
}

/// A packet that departed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Departed {
    /// In ns from the beginning of the run.
    pub(super) at: u64,
    pub(super) sender: usize,
    pub(super) bytes: u64,
    pub(super) waited: u64,
}

/// What a connection knows.
#[derive(Clone, Copy)]
struct Window {
    bytes: f64,
    threshold: f64,
    in_flight: u64,
    in_host: u64,
    cut_at: u64,
    round_trip: f64,
    /// When its own pace lets the next packet depart.
    paced: u64,
}

impl Window {
    const FIRST: Self = Self {
        bytes: 10.0 * FRAME as f64,
        threshold: f64::INFINITY,
        in_flight: 0,
        in_host: 0,
        cut_at: 0,
        round_trip: 0.0,
        paced: 0,
    };

    /// An answer to so many bytes that were sent then.
    fn hear(&mut self, now: u64, bytes: u64, sent: u64, is_signal: bool) {
        let sample = (now - sent) as f64;
        let before = if self.round_trip == 0.0 { sample } else { self.round_trip };
        self.round_trip = before * 0.875 + sample * 0.125;
        if is_signal && sent >= self.cut_at {
            self.cut(now);
        } else if !is_signal && self.bytes < self.threshold {
            self.bytes += bytes as f64;
        } else if !is_signal {
            self.bytes += FRAME as f64 * bytes as f64 / self.bytes;
        }
    }

    /// A packet that did not leave the host. That is known at once; it goes later.
    fn refused(&mut self, now: u64, bytes: u64) {
        self.in_flight -= bytes;
        if now >= self.cut_at + self.round_trip as u64 {
            self.cut(now);
        }
    }

    /// Plans its own pace: a fifth more than what a round trip carries, or twice that at the start.
    fn pace(&mut self, asked: u64, bytes: u64) {
        let ahead = if self.bytes < self.threshold / 2.0 { 2.0 } else { 1.2 };
        let lasts = bytes as f64 * self.round_trip / (ahead * self.bytes);
        self.paced = asked + lasts as u64;
    }

    /// Shrinks the window.
    fn cut(&mut self, now: u64) {
        self.cut_at = now;
        self.bytes = (self.bytes * 0.7).max(2.0 * FRAME as f64);
        self.threshold = self.bytes;
    }

    /// The bytes of the super-packet that it may send now.
    fn next(&self, round_trip: u64) -> Option<u64> {
        let pace = 1.2 * self.bytes / self.round_trip.max(round_trip as f64);
        let most = MERGED_MAX.min(self.bytes as u64 / 2).max(2 * FRAME);
        let merged = ((pace * MS as f64) as u64).clamp(2 * FRAME, most) / FRAME * FRAME;
        let room = (self.bytes as u64).saturating_sub(self.in_flight) / FRAME * FRAME;
        let waits = room < merged && self.in_flight > 0 && room < self.bytes as u64 / 2;
        (self.in_host < 2 * merged && room > 0 && !waits).then_some(merged.min(room))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Begins { sender: usize },
    Departs { sender: usize, bytes: u64, sent: u64, is_marked: bool },
    Heard { sender: usize, bytes: u64, sent: u64, is_signal: bool },
}

pub(super) struct Host {
    tree: Departures,
    senders: Vec<Sender>,
    windows: Vec<Window>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    events_so_far: u64,
    random: Pcg64,
    /// The clocks of CPUs are up to that far apart, in ns.
    pub(super) skew: u64,
    pub(super) departed: Vec<Departed>,
    pub(super) dropped: u64,
}

impl Host {
    pub(super) fn new(classes: &BTreeMap<u32, Class>, senders: Vec<Sender>) -> Self {
        let windows = vec![Window::FIRST; senders.len()];
        let mut host = Self {
            tree: Departures::new(classes),
            windows,
            events: BinaryHeap::new(),
            events_so_far: 0,
            random: Pcg64::seed_from_u64(1),
            skew: 0,
            departed: Vec::new(),
            dropped: 0,
            senders,
        };
        for sender in 0..host.senders.len() {
            let Sender { load, from, .. } = host.senders[sender];
            let at = BEGIN + from + host.random.random_range(0..=load.gap());
            host.plan(at, Event::Begins { sender });
        }
        host
    }

    /// Runs for `length` from the beginning.
    pub(super) fn run(mut self, length: u64) -> Self {
        while let Some(Reverse((now, _, event))) = self.events.pop()
            && now < BEGIN + length
        {
            match event {
                Event::Begins { sender } => self.begin(sender, now),
                Event::Departs { sender, bytes, sent, is_marked } => {
                    let (at, waited) = (now - BEGIN, now - sent);
                    self.departed.push(Departed { at, sender, bytes, waited });
                    self.windows[sender].in_host -= bytes;
                    if let Load::Tcp { round_trip, .. } = self.senders[sender].load {
                        let heard = Event::Heard { sender, bytes, sent, is_signal: is_marked };
                        let is_delayed =
                            bytes <= 2 * FRAME && self.random.random_ratio(1, DELAYED.0);
                        let delay = if is_delayed { DELAYED.1 } else { 0 };
                        self.plan(now + round_trip + delay, heard);
                        self.send(sender, now);
                    }
                }
                Event::Heard { sender, bytes, sent, is_signal } => {
                    self.windows[sender].in_flight -= bytes;
                    self.windows[sender].hear(now, bytes, sent, is_signal);
                    self.send(sender, now);
                }
            }
        }
        self
    }

    pub(super) fn senders(&self) -> &[Sender] {
        &self.senders
    }

    fn plan(&mut self, at: u64, event: Event) {
        self.events_so_far += 1;
        self.events.push(Reverse((at, self.events_so_far, event)));
    }

    fn begin(&mut self, sender: usize, now: u64) {
        let Sender { load, to, .. } = self.senders[sender];
        match load {
            Load::Tcp { .. } => self.send(sender, now),
            Load::Udp { bytes, .. } if now - BEGIN < to => {
                self.submit(sender, bytes, now, false, now);
                let gap = load.gap();
                let next = now + gap - gap / 16 + self.random.random_range(0..=gap / 8);
                self.plan(next, Event::Begins { sender });
            }
            Load::Udp { .. } => {}
        }
    }

    /// Lets a connection send what it may.
    fn send(&mut self, sender: usize, now: u64) {
        let Sender { load: Load::Tcp { round_trip, is_ecn }, to, .. } = self.senders[sender] else {
            return;
        };
        while now - BEGIN < to
            && let Some(bytes) = self.windows[sender].next(round_trip)
        {
            let window = &mut self.windows[sender];
            window.in_flight += bytes;
            let asked = window.paced.max(now);
            window.pace(asked, bytes);
            if !self.submit(sender, bytes, now, is_ecn, asked) {
                self.windows[sender].refused(now, bytes);
                if self.windows[sender].in_flight == 0 {
                    self.plan(now + RETRY, Event::Begins { sender });
                }
                return;
            }
        }
    }

    /// Gives a packet to the tree that its sender asks to depart then. Returns whether it departs.
    fn submit(&mut self, sender: usize, cost: u64, now: u64, is_ecn: bool, asked: u64) -> bool {
        let Sender { leaf, hash, host, .. } = self.senders[sender];
        let on_its_cpu = Nanos(now - self.random.random_range(0..=self.skew));
        let asked = if asked > now { Nanos(asked) } else { Nanos::ZERO };
        let packet = Packet { leaf, cost, hash, host, asked, is_ecn };
        let (answer, at) = self.tree.ask(on_its_cpu, &packet);
        let Some(at) = at else {
            self.dropped += 1;
            return false;
        };
        assert!(at >= on_its_cpu, "no packet departs in the past");
        self.windows[sender].in_host += cost;
        let is_marked = answer == Answer::MarkOrDrop;
        let departs = Event::Departs { sender, bytes: cost, sent: now, is_marked };
        self.plan(at.0.max(now), departs);
        true
    }

    /// The bytes of these senders in the time from `from` to `to`.
    pub(super) fn bytes(&self, from: u64, to: u64, which: impl Fn(&Sender) -> bool) -> u64 {
        let of = |it: &&Departed| (from..to).contains(&it.at) && which(&self.senders[it.sender]);
        self.departed.iter().filter(of).map(|it| it.bytes).sum()
    }

    /// The most bytes by which these senders exceed `rate` in any time, whichever it is.
    pub(super) fn excess(&self, rate: u64, which: impl Fn(&Sender) -> bool) -> u64 {
        let of = self.departed.iter().filter(|it| which(&self.senders[it.sender]));
        excess(rate, of.map(|it| (it.at, it.bytes)))
    }

    /// The longest that a packet of the sender `number` waited after so much time.
    pub(super) fn longest_wait(&self, number: usize, after: u64) -> u64 {
        let of = self.departed.iter().filter(|it| it.sender == number && it.at >= after);
        of.map(|it| it.waited).max().unwrap_or(0)
    }
}

/// The most bytes by which packets, in the order of their times, exceed `rate` in any time.
pub(super) fn excess(rate: u64, packets: impl Iterator<Item = (u64, u64)>) -> u64 {
    let (mut level, mut last, mut most) = (0_f64, 0, 0_f64);
    for (at, bytes) in packets {
        level = (level - (at - last) as f64 * rate as f64 / 1e9).max(0.0) + bytes as f64;
        last = at;
        most = most.max(level);
    }
    most as u64
}

/// Jain's index of fairness.
pub(super) fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|it| *it as f64).sum();
    let squares: f64 = shares.iter().map(|it| (*it as f64).powi(2)).sum();
    sum * sum / (squares * shares.len() as f64)
}
