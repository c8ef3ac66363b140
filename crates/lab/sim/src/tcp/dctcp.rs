//! DCTCP: the window shrinks by as much as is marked (RFC 8257 section 3.3).
//!
//! *Idea.* Of each window of segments the marked part is counted and averaged as *alpha*; a
//! window with marks in it is reduced by half of alpha. Growth, and what a loss does, are
//! Reno's. Here every segment is acknowledged by itself, so that marks are echoed exactly.

use crate::tcp::control::{Ack, CongestionControl};
use crate::tcp::reno::Reno;

/// The weight of a new window in alpha (section 4.2).
const G: f64 = 1.0 / 16.0;

/// State of a flow.
pub(crate) struct Dctcp {
    reno: Reno,
    /// The part of segments that is marked, smoothed. Marks are taken seriously at first.
    alpha: f64,
    /// Counted in the present window.
    acked: u32,
    marked: u32,
    /// The window that is counted ends with the transmission before this one.
    window_end: u64,
    /// Marks on transmissions before this one have been answered.
    answered: u64,
}

impl Dctcp {
    /// In slow start.
    pub(crate) fn new() -> Self {
        Self { reno: Reno::new(), alpha: 1.0, acked: 0, marked: 0, window_end: 0, answered: 0 }
    }
}

impl CongestionControl for Dctcp {
    fn window(&self) -> f64 {
        self.reno.window()
    }

    fn threshold(&self) -> f64 {
        self.reno.threshold()
    }

    fn acked(&mut self, ack: &Ack) {
        if ack.transmission >= self.window_end {
            if self.acked > 0 {
                let part = f64::from(self.marked) / f64::from(self.acked);
                self.alpha = self.alpha * (1.0 - G) + part * G;
            }
            (self.acked, self.marked) = (0, 0);
            self.window_end = ack.next;
        }
        self.acked += 1;
        self.marked += u32::from(ack.marked);
        if !ack.marked {
            self.reno.acked(ack);
        } else if ack.transmission >= self.answered {
            self.reno.reduce(1.0 - self.alpha / 2.0);
            self.answered = ack.next;
        }
    }

    fn lost(&mut self) {
        self.reno.lost();
    }

    fn timed_out(&mut self) {
        self.reno.timed_out();
    }

    fn marks(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::control::tests::ack;

    /// Windows of 20 segments, one in `marked` of each marked.
    fn windows(dctcp: &mut Dctcp, windows: u64, marked: u64) {
        let first = dctcp.window_end;
        for transmission in first..first + windows * 20 {
            let next = transmission + 20;
            let marked = transmission % marked == 0;
            dctcp.acked(&Ack { transmission, next, marked, ..ack() });
        }
    }

    #[test]
    fn alpha_becomes_the_part_that_is_marked() {
        let mut dctcp = Dctcp::new();
        windows(&mut dctcp, 300, 4);
        assert!((dctcp.alpha - 0.25).abs() < 0.01, "{}", dctcp.alpha);
        windows(&mut dctcp, 300, 20);
        assert!((dctcp.alpha - 0.05).abs() < 0.01, "{}", dctcp.alpha);
    }

    #[test]
    fn alpha_forgets_a_sixteenth_in_a_window() {
        let mut dctcp = Dctcp::new();
        windows(&mut dctcp, 2, u64::MAX);
        let after_one = dctcp.alpha;
        windows(&mut dctcp, 1, u64::MAX);
        assert!((dctcp.alpha / after_one - 15.0 / 16.0).abs() < 1e-9);
    }

    #[test]
    fn a_window_with_marks_is_reduced_once_by_half_of_alpha() {
        let mut dctcp = Dctcp { alpha: 0.2, ..Dctcp::new() };
        (dctcp.window_end, dctcp.answered) = (100, 0);
        let before = dctcp.window();
        for transmission in 0..10 {
            dctcp.acked(&Ack { transmission, next: 20, marked: true, ..ack() });
        }
        assert!((dctcp.window() - before * 0.9).abs() < 1e-9);
        dctcp.acked(&Ack { transmission: 20, next: 40, marked: true, ..ack() });
        assert!((dctcp.window() - before * 0.81).abs() < 1e-9);
    }

    #[test]
    fn a_loss_halves() {
        let mut dctcp = Dctcp { alpha: 0.1, ..Dctcp::new() };
        dctcp.lost();
        assert_eq!(dctcp.window(), 5.0);
    }
}
