//! Watches heartbeats and reports, once each, which workers fell silent and which came back.
//!
//! Nothing depends on it: the steering programs bypass a silent worker on their own. It informs
//! people, also about what happened while the whole process was stopped: workers count their own
//! silences.

use crate::heartbeat::SilentWorker;
use narrows_bpf::{Pulse, Stalled};
use narrows_units::Nanos;

/// The observed state of each worker of a session.
pub(crate) struct Watch {
    workers: Vec<Known>,
    stalled: Stalled,
}

#[derive(Clone, Copy, Default)]
struct Known {
    /// How many of its silences have been reported as ended.
    silences: u64,
    /// Its silence has been reported.
    is_reported: bool,
}

impl Watch {
    /// A watch over workers that were never silent; `stalled` is the treatment of their frames when
    /// they are.
    pub(crate) fn new(stalled: Stalled) -> Self {
        Self { workers: Vec::new(), stalled }
    }

    /// The events of the workers of queues 0, 1 and so on, as they are at `now`.
    pub(crate) fn look(
        &mut self,
        pulses: impl IntoIterator<Item = Pulse>,
        now: Nanos,
    ) -> Vec<String> {
        let (mut back, mut silent) = (Vec::new(), Vec::new());
        let mut longest = Nanos::ZERO;
        for (queue, pulse) in pulses.into_iter().enumerate() {
            if self.workers.len() <= queue {
                self.workers.resize(queue + 1, Known::default());
            }
            let known = &mut self.workers[queue];
            if pulse.silences != known.silences {
                *known = Known { silences: pulse.silences, is_reported: false };
                longest = longest.max(pulse.last_silence);
                back.push(queue);
            }
            if SilentWorker::seen(queue as u32, &pulse, now).is_some() && !known.is_reported {
                known.is_reported = true;
                silent.push(queue);
            }
        }
        let mut said = Vec::new();
        if !back.is_empty() {
            let seconds = longest.as_secs_f64();
            said.push(format!("{} back after {seconds:.1} s of silence", names(&back)));
        }
        if !silent.is_empty() {
            let whose = if silent.len() == 1 { "its queue's" } else { "their queues'" };
            let fate = match self.stalled {
                Stalled::Pass => "forwarded by the kernel, unshaped",
                Stalled::Drop => "dropped",
            };
            said.push(format!("{} silent: {whose} frames are {fate}", names(&silent)));
        }
        said
    }
}

/// The events of workers that did not stop on request.
pub(crate) fn left_behind(queues: &[u32]) -> String {
    let queues: Vec<usize> = queues.iter().map(|&queue| queue as usize).collect();
    let names = names(&queues);
    format!("{names} abandoned, hanging: no other can serve the same queue until it ends")
}

/// `worker 3 is`, or `workers 0, 1 and 3 are`.
fn names(queues: &[usize]) -> String {
    let numbers: Vec<String> = queues.iter().map(usize::to_string).collect();
    match &numbers[..] {
        [only] => format!("worker {only} is"),
        [most @ .., last] => format!("workers {} and {last} are", most.join(", ")),
        [] => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heartbeat::SILENT_AFTER;

    const NOW: Nanos = Nanos::from_secs(100);

    fn beating(silences: u64, last_silence: Nanos) -> Pulse {
        Pulse { beat: NOW, silences, last_silence }
    }

    fn silent() -> Pulse {
        Pulse { beat: NOW - SILENT_AFTER - Nanos(1), ..Pulse::default() }
    }

    #[test]
    fn a_worker_s_silence_and_its_return_are_reported_once_each() {
        let mut watch = Watch::new(Stalled::Pass);
        let fine = beating(0, Nanos::ZERO);
        assert_eq!(watch.look([fine, fine], NOW), [""; 0]);
        let reported = watch.look([fine, silent()], NOW);
        assert_eq!(
            reported,
            ["worker 1 is silent: its queue's frames are forwarded by the kernel, unshaped"]
        );
        assert_eq!(watch.look([fine, silent()], NOW), [""; 0]);
        let back = beating(1, Nanos::from_millis(5_240));
        assert_eq!(watch.look([fine, back], NOW), ["worker 1 is back after 5.2 s of silence"]);
        assert_eq!(watch.look([fine, back], NOW), [""; 0]);
        let again = Pulse { beat: silent().beat, ..back };
        assert_eq!(watch.look([fine, again], NOW).len(), 1);
    }

    #[test]
    fn unobserved_silences_are_reported_afterwards_in_one_line() {
        let mut watch = Watch::new(Stalled::Drop);
        let [one, two] = [3, 4].map(|seconds| beating(1, Nanos::from_secs(seconds)));
        let reported = watch.look([one, beating(0, Nanos::ZERO), one, two], NOW);
        assert_eq!(reported, ["workers 0, 2 and 3 are back after 4.0 s of silence"]);
    }

    #[test]
    fn a_beat_just_within_the_bound_is_no_silence() {
        let pulse = Pulse { beat: NOW - SILENT_AFTER, ..Pulse::default() };
        assert_eq!(Watch::new(Stalled::Drop).look([pulse], NOW), [""; 0]);
    }
}
