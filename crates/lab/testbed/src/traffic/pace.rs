//! The pace of a sender, in small bursts: it sends due packets and then sleeps briefly.
//!
//! If a sender had no core for longer than 20 ms, packets due beyond that are skipped, so that no
//! burst follows a stall.

use std::time::Duration;

/// Sleep between bursts: at a gigabit of full frames, about 16 of them.
pub(crate) const NAP: Duration = Duration::from_micros(200);
/// How much of a stall is made up for.
const MEMORY: Duration = Duration::from_millis(20);

/// How fast to send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Frames per second.
    Packets(f64),
    /// Bits per second of whole frames.
    Bits(f64),
    /// As fast as one core can.
    FlatOut,
}

impl Pace {
    /// Frames per second, of frames that are sent in turn; `None` for [`Pace::FlatOut`].
    pub(crate) fn frames_per_second<F: AsRef<[u8]>>(self, frames: &[F]) -> Option<f64> {
        let bits: usize = frames.iter().map(|frame| frame.as_ref().len() * 8).sum();
        match self {
            Self::Packets(rate) => Some(rate),
            Self::Bits(rate) => Some(rate * frames.len() as f64 / bits as f64),
            Self::FlatOut => None,
        }
    }
}

/// Frames that may be sent by now.
pub(crate) struct Credit {
    per_second: Option<f64>,
    frames: f64,
    at: Duration,
}

impl Credit {
    pub(crate) fn new(per_second: Option<f64>) -> Self {
        Self { per_second, frames: 0.0, at: Duration::ZERO }
    }

    pub(crate) fn due(&mut self, now: Duration) -> usize {
        let Some(per_second) = self.per_second else { return usize::MAX };
        self.frames += (now - self.at).as_secs_f64() * per_second;
        self.frames = self.frames.min(MEMORY.as_secs_f64() * per_second + 1.0);
        self.at = now;
        self.frames as usize
    }

    pub(crate) fn spend(&mut self, frames: usize) {
        self.frames -= frames as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_grows_with_time_and_is_spent() {
        let mut credit = Credit::new(Some(10_000.0));
        assert_eq!(credit.due(Duration::from_millis(1)), 10);
        credit.spend(7);
        assert_eq!(credit.due(Duration::from_millis(2)), 13);
    }

    #[test]
    fn a_stall_is_not_followed_by_a_burst() {
        let mut credit = Credit::new(Some(10_000.0));
        assert_eq!(credit.due(Duration::from_secs(5)), 201);
    }

    #[test]
    fn flat_out_knows_no_credit() {
        assert_eq!(Credit::new(None).due(Duration::ZERO), usize::MAX);
    }

    #[test]
    fn bits_are_of_whole_frames() {
        let frames = [vec![0; 100], vec![0; 300]];
        assert_eq!(Pace::Bits(16_000.0).frames_per_second(&frames), Some(10.0));
        assert_eq!(Pace::FlatOut.frames_per_second(&frames), None);
    }
}
