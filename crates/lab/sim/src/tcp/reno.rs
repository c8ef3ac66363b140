//! Reno: slow start, congestion avoidance, half on loss (RFC 5681 section 3.1, RFC 6582).
//!
//! Recovery itself is the sender's; here is only how the window moves.

use crate::tcp::control::{Ack, CongestionControl, INITIAL_WINDOW, LEAST_WINDOW};

/// State of a flow.
pub(crate) struct Reno {
    window: f64,
    /// Where slow start ends.
    threshold: f64,
}

impl Reno {
    /// In slow start.
    pub(crate) fn new() -> Self {
        Self { window: INITIAL_WINDOW, threshold: f64::INFINITY }
    }

    /// Multiplies the window by `part` and leaves slow start.
    pub(crate) fn reduce(&mut self, part: f64) {
        self.window = (self.window * part).max(LEAST_WINDOW);
        self.threshold = self.window;
    }
}

impl CongestionControl for Reno {
    fn window(&self) -> f64 {
        self.window
    }

    fn threshold(&self) -> f64 {
        self.threshold
    }

    fn acked(&mut self, ack: &Ack) {
        if ack.recovering {
            return;
        }
        self.window += if self.window < self.threshold { 1.0 } else { 1.0 / self.window };
    }

    fn lost(&mut self) {
        self.reduce(0.5);
    }

    fn timed_out(&mut self) {
        self.reduce(0.5);
        self.window = 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::control::tests::ack;

    #[test]
    fn slow_start_doubles_in_a_round_trip() {
        let mut reno = Reno::new();
        for _ in 0..10 {
            reno.acked(&ack());
        }
        assert_eq!(reno.window(), 20.0);
    }

    #[test]
    fn a_loss_halves_and_then_a_segment_is_gained_in_a_round_trip() {
        let mut reno = Reno { window: 100.0, threshold: f64::INFINITY };
        reno.lost();
        assert_eq!(reno.window(), 50.0);
        for _ in 0..50 {
            reno.acked(&ack());
        }
        assert!((reno.window() - 51.0).abs() < 0.02, "{}", reno.window());
    }

    #[test]
    fn acknowledgements_of_segments_before_a_loss_do_not_count() {
        let mut reno = Reno::new();
        reno.lost();
        reno.acked(&Ack { recovering: true, ..ack() });
        assert_eq!(reno.window(), 5.0);
    }

    #[test]
    fn after_a_time_out_slow_start_ends_at_half_the_window() {
        let mut reno = Reno { window: 64.0, threshold: 1.0 };
        reno.timed_out();
        assert_eq!((reno.window(), reno.threshold), (1.0, 32.0));
    }
}
