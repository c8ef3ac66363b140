//! The progress of a long run, on standard error: a bar at a terminal, a line per step in a file.

use crate::interrupt;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::{Duration, Instant};

/// How often a bar's clock is redrawn.
const TICK: Duration = Duration::from_millis(200);

/// The progress of a run with a known number of steps.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    started: Instant,
    steps: u64,
    step: u64,
}

impl Progress {
    /// Of a run with `steps` steps.
    pub fn over(steps: u64) -> Self {
        let bar = ProgressBar::new(steps);
        if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {elapsed:>4} {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(TICK);
        Self { bar, started: Instant::now(), steps, step: 0 }
    }

    /// Whether the run must end before its next step, because of an [interrupt]. Prints once how
    /// much of it the results cover.
    pub fn is_over(&self) -> bool {
        let is_over = interrupt::requested();
        if is_over {
            let (step, steps) = (self.step, self.steps);
            self.bar.suspend(|| eprintln!("interrupted: results of {step} of {steps} steps"));
        }
        is_over
    }

    /// Begins the next step.
    pub fn begin(&mut self, what: &str) {
        self.step += 1;
        self.bar.set_position(self.step - 1);
        self.bar.set_message(what.to_owned());
        if self.bar.is_hidden() {
            let seconds = self.started.elapsed().as_secs();
            eprintln!("[{}/{}, {seconds} s] {what}", self.step, self.steps);
        }
    }

    /// Says how the current step goes, to a person only.
    pub fn say(&self, how: &str) {
        self.bar.set_message(how.to_owned());
    }

    /// Prints a part of the results, to standard output, while the run goes on.
    pub fn print(&self, results: &str) {
        self.bar.suspend(|| println!("{results}"));
    }

    /// Ends the step with a line that stays.
    pub fn end(&self, outcome: &str) {
        self.bar.set_position(self.step);
        self.bar.suspend(|| eprintln!("  {outcome}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
