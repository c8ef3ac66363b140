//! The network between boxes: one delay for each message, losses, copies, and cuts.

use rand::{Rng, RngExt};

/// How messages travel.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Network {
    /// The shortest time in nanoseconds.
    pub delay_ns: u64,
    /// At most so much more. More than the time between messages reorders them.
    pub jitter_ns: u64,
    /// The part of messages that is lost.
    pub loss: f64,
    /// The part of messages that arrives twice.
    pub copies: f64,
    /// The part of messages that arrives very late: up to `late_ns` more.
    pub late: f64,
    /// How late.
    pub late_ns: u64,
}

impl Network {
    /// A good network: a delay, a tenth more at times, and nothing lost.
    pub fn of_delay_ms(delay_ms: u64) -> Self {
        let delay_ns = delay_ms * 1_000_000;
        Self { delay_ns, jitter_ns: delay_ns / 10, loss: 0.0, copies: 0.0, late: 0.0, late_ns: 0 }
    }

    /// After how long a message arrives: not at all, once or twice.
    pub(crate) fn deliver(&self, random: &mut impl Rng) -> Vec<u64> {
        let mut delays = Vec::new();
        if random.random_bool(self.loss) {
            return delays;
        }
        for copy in 0..2 {
            if copy == 1 && !random.random_bool(self.copies) {
                break;
            }
            let mut delay = self.delay_ns + random.random_range(0..=self.jitter_ns);
            if random.random_bool(self.late) {
                delay += random.random_range(0..=self.late_ns);
            }
            delays.push(delay);
        }
        delays
    }
}
