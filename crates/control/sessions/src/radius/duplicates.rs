//! Requests that were answered before.
//!
//! A client that gets no answer sends the same datagram again. RFC 2865 section 3 and RFC 5176
//! section 2.3 know it by its source, its identifier and its authenticator. It gets the same answer
//! and changes nothing.

use narrows_units::Nanos;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

/// For how long an answer is remembered: clients give up earlier.
const AGE_MAX: Nanos = Nanos::from_secs(30);
/// How many are remembered.
const COUNT_MAX: usize = 65_536;

/// What makes a request the same.
pub type Identification = (SocketAddr, u8, [u8; 16]);

/// The answers of the last half minute.
#[derive(Debug, Default)]
pub struct Duplicates {
    answers: HashMap<Identification, Vec<u8>>,
    /// All identifications, the oldest first.
    order: VecDeque<(Nanos, Identification)>,
}

impl Duplicates {
    /// The answer that this request had.
    pub fn answer(&mut self, now: Nanos, request: &Identification) -> Option<&Vec<u8>> {
        self.forget(now, COUNT_MAX);
        self.answers.get(request)
    }

    /// Remembers an answer.
    pub fn remember(&mut self, now: Nanos, request: Identification, answer: Vec<u8>) {
        self.forget(now, COUNT_MAX - 1);
        if self.answers.insert(request, answer).is_none() {
            self.order.push_back((now, request));
        }
    }

    /// Forgets all: what was answered did not last.
    pub fn clear(&mut self) {
        self.answers.clear();
        self.order.clear();
    }

    fn forget(&mut self, now: Nanos, count: usize) {
        while let Some((then, request)) = self.order.front() {
            if self.order.len() <= count && now.0.saturating_sub(then.0) < AGE_MAX.0 {
                break;
            }
            self.answers.remove(request);
            self.order.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(identifier: u8) -> Identification {
        (([192, 0, 2, 1], 5_000).into(), identifier, [0; 16])
    }

    #[test]
    fn an_answer_is_remembered_for_half_a_minute() {
        let mut duplicates = Duplicates::default();
        duplicates.remember(Nanos::from_secs(1), request(1), vec![1]);
        let after = |seconds: u64| Nanos::from_secs(1 + seconds);
        assert_eq!(duplicates.answer(after(29), &request(1)), Some(&vec![1]));
        assert_eq!(duplicates.answer(after(29), &request(2)), None);
        assert_eq!(duplicates.answer(after(30), &request(1)), None);
    }

    #[test]
    fn the_oldest_is_forgotten_when_there_are_too_many() {
        let mut duplicates = Duplicates::default();
        for count in 0..=COUNT_MAX {
            let mut request = request(1);
            request.2[..8].copy_from_slice(&count.to_be_bytes());
            duplicates.remember(Nanos::ZERO, request, vec![]);
        }
        assert_eq!(duplicates.answers.len(), COUNT_MAX);
        assert_eq!(duplicates.answer(Nanos::ZERO, &request(1)), None);
    }
}
