//! Cubic: the window is a cubic function of the time since the last loss (RFC 9438).
//!
//! *Idea.* After a loss the window goes back to where the loss was, fast at first and slowly
//! there, then further, ever faster. It is never below what Reno would have (section 4.3).
//!
//! *Non-goals.* HyStart++ (section 4.10 recommends it): slow start ends with a loss.

use crate::tcp::control::{Ack, CongestionControl, INITIAL_WINDOW, LEAST_WINDOW};
use narrows_units::Nanos;

/// How fast the window grows, in segments per second cubed (section 5).
const C: f64 = 0.4;
/// The window's factor after a loss (section 4.6).
const BETA: f64 = 0.7;
/// By how much Reno with this `BETA` would grow in a round trip, in segments (section 4.3).
const RENO_GROWTH: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// State of a flow, named as in the RFC.
pub(crate) struct Cubic {
    cwnd: f64,
    ssthresh: f64,
    /// Just before the last reduction, lowered to leave room for new flows.
    w_max: f64,
    /// Just before the last reduction.
    cwnd_prior: f64,
    /// The present stage of congestion avoidance.
    epoch: Option<Epoch>,
    after_time_out: bool,
}

/// A stage of congestion avoidance: from a reduction to the next.
struct Epoch {
    start: Nanos,
    /// When the window is back at `w_max`, in seconds from `start`.
    k: f64,
    /// The window that Reno would have.
    w_est: f64,
}

impl Cubic {
    /// In slow start.
    pub(crate) fn new() -> Self {
        Self {
            cwnd: INITIAL_WINDOW,
            ssthresh: f64::INFINITY,
            w_max: 0.0,
            cwnd_prior: INITIAL_WINDOW,
            epoch: None,
            after_time_out: false,
        }
    }

    fn reduce(&mut self) {
        // Fast convergence (section 4.7): a flow with a smaller window than before makes room for
        // new flows.
        let shrinks = self.cwnd < self.w_max;
        self.w_max = if shrinks { self.cwnd * (1.0 + BETA) / 2.0 } else { self.cwnd };
        self.cwnd_prior = self.cwnd;
        self.cwnd = (self.cwnd * BETA).max(LEAST_WINDOW);
        self.ssthresh = self.cwnd;
        self.epoch = None;
    }

    fn begin(&mut self, now: Nanos) -> Epoch {
        if self.after_time_out || self.w_max < self.cwnd {
            self.w_max = self.cwnd;
            self.after_time_out = false;
        }
        Epoch { start: now, k: k(self.w_max, self.cwnd), w_est: self.cwnd }
    }

    fn avoid_congestion(&mut self, now: Nanos, round_trip: Nanos) {
        let mut epoch = match self.epoch.take() {
            Some(epoch) => epoch,
            None => self.begin(now),
        };
        let growth = if epoch.w_est < self.cwnd_prior { RENO_GROWTH } else { 1.0 };
        epoch.w_est += growth / self.cwnd;
        let t = now.since(epoch.start).as_secs_f64();
        if w_cubic(t, epoch.k, self.w_max) < epoch.w_est {
            self.cwnd = self.cwnd.max(epoch.w_est);
        } else {
            let target = w_cubic(t + round_trip.as_secs_f64(), epoch.k, self.w_max);
            self.cwnd += (target.clamp(self.cwnd, 1.5 * self.cwnd) - self.cwnd) / self.cwnd;
        }
        self.epoch = Some(epoch);
    }
}

/// The window `t` seconds after a reduction (section 4.2, figure 1).
fn w_cubic(t: f64, k: f64, w_max: f64) -> f64 {
    let d = t - k;
    C * (d * d * d) + w_max
}

/// When it is `w_max` again, in seconds (figure 2).
fn k(w_max: f64, cwnd_epoch: f64) -> f64 {
    cube_root((w_max - cwnd_epoch) / C)
}

/// The cube root of a number that is not negative. Newton's method: with the four basic operations
/// only, which are the same on every machine.
fn cube_root(x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let mut root = x.max(1.0);
    loop {
        let next = (2.0 * root + x / (root * root)) / 3.0;
        // From above it only ever falls, until rounding is all that is left.
        if next >= root {
            return root;
        }
        root = next;
    }
}

impl CongestionControl for Cubic {
    fn window(&self) -> f64 {
        self.cwnd
    }

    fn threshold(&self) -> f64 {
        self.ssthresh
    }

    fn acked(&mut self, ack: &Ack) {
        if ack.recovering {
            return;
        }
        if self.cwnd < self.ssthresh {
            self.cwnd += 1.0;
        } else {
            self.avoid_congestion(ack.now, ack.round_trip);
        }
    }

    fn lost(&mut self) {
        self.reduce();
    }

    fn timed_out(&mut self) {
        self.reduce();
        self.cwnd = 1.0;
        self.after_time_out = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::control::tests::ack;

    /// Acknowledges windows of segments over `secs` with a round trip of 100 ms.
    fn run(cubic: &mut Cubic, from: f64, secs: f64) {
        let mut now = from;
        while now < from + secs {
            cubic.acked(&Ack { now: Nanos((now * 1e9) as u64), ..ack() });
            now += 0.1 / cubic.window();
        }
    }

    #[test]
    fn the_window_returns_to_its_size_before_the_loss_after_k() {
        // (100 - 70) / 0.4 = 75, whose cube root is 4.217.
        assert!((k(100.0, 70.0) - 4.2172).abs() < 1e-4);
        let mut cubic = Cubic { cwnd: 100.0, ssthresh: 1.0, ..Cubic::new() };
        cubic.lost();
        assert_eq!(cubic.window(), 70.0);
        run(&mut cubic, 0.0, 4.2172);
        assert!((cubic.window() - 100.0).abs() < 0.5, "{}", cubic.window());
    }

    #[test]
    fn the_window_follows_the_cubic_function() {
        // Windows far above what Reno would have: 700 of 1000, K = 9.086 s.
        let mut cubic = Cubic { cwnd: 1000.0, ssthresh: 1.0, ..Cubic::new() };
        cubic.lost();
        for second in 0..12 {
            run(&mut cubic, f64::from(second), 1.0);
            let t = f64::from(second) + 1.0 - 9.0856;
            let expected = 0.4 * t * t * t + 1000.0;
            assert!((cubic.window() - expected).abs() < 0.015 * expected, "{}", cubic.window());
        }
    }

    #[test]
    fn small_windows_grow_as_in_reno() {
        // Over 10 ms the cubic function is flat; Reno gains 0.53 segments a round trip.
        let mut cubic = Cubic { cwnd: 10.0, ssthresh: 1.0, ..Cubic::new() };
        cubic.lost();
        for round in 0..4 {
            let now = Nanos(round * 1_000_000);
            for _ in 0..cubic.window() as u32 {
                cubic.acked(&Ack { now, round_trip: Nanos(1_000_000), ..ack() });
            }
        }
        assert!((cubic.window() - (7.0 + 4.0 * 0.529)).abs() < 0.2, "{}", cubic.window());
    }

    #[test]
    fn a_flow_with_a_smaller_window_than_before_makes_room() {
        let mut cubic = Cubic { cwnd: 100.0, ssthresh: 1.0, ..Cubic::new() };
        cubic.lost();
        cubic.cwnd = 80.0;
        cubic.lost();
        assert_eq!(cubic.w_max, 80.0 * 0.85);
        assert!((cubic.window() - 56.0).abs() < 1e-9);
    }

    #[test]
    fn after_a_time_out_the_cubic_function_begins_where_slow_start_ends() {
        let mut cubic = Cubic { cwnd: 100.0, ssthresh: 1.0, ..Cubic::new() };
        cubic.timed_out();
        assert_eq!((cubic.window(), cubic.ssthresh), (1.0, 70.0));
        for _ in 0..70 {
            cubic.acked(&ack());
        }
        let epoch = cubic.epoch.expect("congestion avoidance has begun");
        assert_eq!(epoch.k, 0.0);
        assert_eq!(cubic.w_max, 70.0);
    }

    #[test]
    fn cube_roots_are_right() {
        for x in [1e-9, 0.001, 0.5, 1.0, 2.0, 75.0, 1e6, 1e12] {
            let root = cube_root(x);
            assert!((root * root * root / x - 1.0).abs() < 1e-14, "{x}");
        }
        assert_eq!(cube_root(-1.0), 0.0);
    }
}
