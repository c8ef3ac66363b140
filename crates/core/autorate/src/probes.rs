//! When to ask which reflector, and what its answers say.
//!
//! *Idea.* A controller needs round trips. Where the packets that pass make none (UDP, tunnels, a
//! line that is idle), hosts beyond the line are asked for echoes, one after the other. While
//! packets make trips, nobody is asked.
//!
//! *Rates.* A question every [`LOADED_EVERY`] while the direction is loaded, every [`IDLE_EVERY`]
//! while it is not, for as long as there was no other trip for [`QUIET`]. A reflector that left
//! [`UNANSWERED`] questions in a row without an answer is asked every [`REST`] only.
//!
//! *Principles.* No clock, no I/O: times are arguments, a question is returned. An answer counts
//! once, and only from the reflector that was asked, with the number of the question, within
//! [`PATIENCE`]. At most [`IN_FLIGHT`] questions are remembered.
//!
//! *Non-goals.* One-way delays, which need clocks of others (ICMP time stamps count milliseconds
//! and are answered by few).

use crate::baselines::Trip;
use narrows_units::Nanos;
use std::collections::VecDeque;
use std::net::IpAddr;

/// How often one of the reflectors is asked while the direction is loaded: 10 kbit/s of
/// frames of 64 bytes.
pub const LOADED_EVERY: Nanos = Nanos::from_millis(50);
/// … and while it is not: bases stay known.
pub const IDLE_EVERY: Nanos = Nanos::from_secs(1);
/// Nobody is asked while packets made a trip in this time.
pub const QUIET: Nanos = Nanos::from_millis(500);
/// An answer that takes longer is none.
pub const PATIENCE: Nanos = Nanos::from_secs(4);
/// Questions in a row without an answer after which a reflector rests.
pub const UNANSWERED: u32 = 5;
/// How often a reflector that rests is asked.
pub const REST: Nanos = Nanos::from_secs(30);
/// Questions that are remembered.
const IN_FLIGHT: usize = 128;
/// The bit of a path that tells trips of probes from those of packets to the same host.
const PROBED: u64 = 1 << 63;

/// A question to send now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Question {
    /// Who is asked.
    pub to: IpAddr,
    /// The number that the answer has.
    pub number: u16,
}

/// An answer that came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Who answers.
    pub from: IpAddr,
    /// The number of the question.
    pub number: u16,
    /// When it came, by the clock of the questions.
    pub came: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Reflector {
    address: IpAddr,
    /// Questions in a row without an answer.
    unanswered: u32,
    /// When it may be asked again.
    next: Nanos,
}

/// The reflectors beyond a line.
#[derive(Clone, Debug, Default)]
pub struct Probes {
    reflectors: Vec<Reflector>,
    /// Who is asked next, and when.
    turn: usize,
    next: Nanos,
    number: u16,
    /// Reflector, number and time of questions without an answer, the oldest first.
    asked: VecDeque<(IpAddr, u16, Nanos)>,
    /// When packets made a trip last.
    passed: Option<Nanos>,
}

impl Probes {
    /// Probes of these reflectors; the first question's number follows `number`.
    pub fn new(reflectors: impl IntoIterator<Item = IpAddr>, number: u16) -> Self {
        let of = |address| Reflector { address, unanswered: 0, next: Nanos::ZERO };
        let reflectors = reflectors.into_iter().map(of).collect();
        Self { reflectors, number, ..Self::default() }
    }

    /// The reflectors.
    pub fn reflectors(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.reflectors.iter().map(|reflector| reflector.address)
    }

    /// Packets made a round trip beyond the line.
    pub fn passed(&mut self, now: Nanos) {
        self.passed = Some(now);
    }

    /// The question to send at `now`, if it is time for one.
    pub fn ask(&mut self, is_loaded: bool, now: Nanos) -> Option<Question> {
        while self.asked.front().is_some_and(|(.., at)| now.since(*at) > PATIENCE) {
            self.asked.pop_front();
        }
        let is_quiet = self.passed.is_none_or(|passed| now.since(passed) >= QUIET);
        // What was to be asked on an idle line is early on a loaded one.
        let every = if is_loaded { LOADED_EVERY } else { IDLE_EVERY };
        self.next = self.next.min(now + every);
        if !is_quiet || now < self.next {
            return None;
        }
        let count = self.reflectors.len();
        let turn = (0..count)
            .map(|step| (self.turn + step) % count)
            .find(|turn| self.reflectors[*turn].next <= now)?;
        self.turn = (turn + 1) % count;
        self.next = now + every;
        self.number = self.number.wrapping_add(1);
        let reflector = &mut self.reflectors[turn];
        reflector.unanswered += 1;
        if reflector.unanswered > UNANSWERED {
            reflector.unanswered = UNANSWERED;
            reflector.next = now + REST;
        }
        if self.asked.len() == IN_FLIGHT {
            self.asked.pop_front();
        }
        self.asked.push_back((reflector.address, self.number, now));
        Some(Question { to: reflector.address, number: self.number })
    }

    /// The trip that `answer` tells of, if it answers a question that is open.
    pub fn answered(&mut self, answer: &Answer) -> Option<Trip> {
        let Answer { from, number, came } = *answer;
        let is_it = |asked: &(IpAddr, u16, Nanos)| (asked.0, asked.1) == (from, number);
        let at = self.asked.iter().position(is_it)?;
        let (.., sent) = self.asked.remove(at)?;
        if let Some(reflector) = self.reflectors.iter_mut().find(|it| it.address == from) {
            (reflector.unanswered, reflector.next) = (0, Nanos::ZERO);
        }
        let time = came.since(sent);
        let path = PROBED | word(from);
        (time <= PATIENCE).then_some(Trip { path, flow: path as u32, time })
    }
}

/// A word that tells `address` from others: an IPv4 address, or all bits of an IPv6 address mixed.
fn word(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            let mixed = ((bits >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ bits as u64;
            mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    const ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const TWO: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2));

    fn ms(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    /// The questions of `probes` from `from` to `to` milliseconds, looked for every 10 ms.
    fn asked(probes: &mut Probes, is_loaded: bool, from: u64, to: u64) -> Vec<Question> {
        (from / 10..to / 10).filter_map(|at| probes.ask(is_loaded, ms(10 * at))).collect()
    }

    fn answer(question: Question, came: u64) -> Answer {
        let Question { to: from, number } = question;
        Answer { from, number, came: ms(came) }
    }

    #[test]
    fn reflectors_are_asked_in_turn_often_under_load_and_rarely_without() {
        let mut probes = Probes::new([ONE, TWO], 0);
        let questions = asked(&mut probes, true, 0, 200);
        let to: Vec<IpAddr> = questions.iter().map(|question| question.to).collect();
        assert_eq!(to, [ONE, TWO, ONE, TWO]);
        let mut probes = Probes::new([ONE], 0);
        assert_eq!(asked(&mut probes, false, 0, 3_000).len(), 3);
        // A load need not wait for the idle line's next question.
        assert_eq!(asked(&mut probes, true, 3_000, 3_100).len(), 2);
    }

    #[test]
    fn nobody_is_asked_while_packets_make_trips() {
        let mut probes = Probes::new([ONE], 0);
        for at in 0..50 {
            probes.passed(ms(100 * at));
            assert!(asked(&mut probes, true, 100 * at, 100 * at + 100).is_empty());
        }
        assert!(asked(&mut probes, true, 5_000, 5_390).is_empty());
        assert!(!asked(&mut probes, true, 5_390, 5_600).is_empty());
    }

    #[test]
    fn a_reflector_that_does_not_answer_rests_and_its_first_answer_wakes_it() {
        let mut probes = Probes::new([ONE], 0);
        let questions = asked(&mut probes, true, 0, 10_000);
        assert_eq!(questions.len() as u32, UNANSWERED + 1);
        let late = asked(&mut probes, true, 10_000, 31_000);
        assert_eq!(late.len(), 1);
        assert!(probes.answered(&answer(late[0], 30_020)).is_some());
        assert_eq!(asked(&mut probes, true, 31_000, 31_200).len(), 4);
    }

    #[test]
    fn an_answer_counts_once_and_only_from_who_was_asked() {
        let mut probes = Probes::new([ONE, TWO], 0);
        let question = probes.ask(true, ms(0)).unwrap();
        let other = Question { to: TWO, ..question };
        assert_eq!(probes.answered(&answer(other, 20)), None);
        let wrong = Question { number: question.number + 1, ..question };
        assert_eq!(probes.answered(&answer(wrong, 20)), None);
        let trip = probes.answered(&answer(question, 20)).unwrap();
        assert_eq!(trip.time, ms(20));
        let second = probes.ask(true, ms(100)).unwrap();
        let other = probes.answered(&answer(second, 120)).unwrap();
        assert!(other.path != trip.path && other.flow != trip.flow, "hosts are told apart");
        assert_eq!(probes.answered(&answer(question, 20)), None);
    }

    proptest! {
        #[test]
        fn questions_are_bounded_whatever_happens(
            steps in prop::collection::vec((any::<bool>(), any::<bool>(), 0..200_u64), 1..400),
            reflectors in 0..9_u32,
        ) {
            let all: Vec<IpAddr> = (0..reflectors).map(|n| Ipv4Addr::from_bits(n + 1).into()).collect();
            let mut probes = Probes::new(all.clone(), u16::MAX);
            let (mut now, mut count) = (0, 0);
            for (is_loaded, is_answered, wait) in steps {
                now += wait;
                if let Some(question) = probes.ask(is_loaded, ms(now)) {
                    prop_assert!(all.contains(&question.to));
                    count += 1;
                    if is_answered {
                        probes.answered(&answer(question, now));
                    }
                }
                prop_assert!(probes.asked.len() <= IN_FLIGHT);
            }
            prop_assert!(count <= 1 + now / 50);
        }
    }
}
