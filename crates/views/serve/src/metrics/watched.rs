//! Metrics of the alarms, the history and the scores.

use super::text::Exposition;
use crate::watch::Watch;
use narrows_alarms::State;

/// The metrics of `watch`, with at most `most` alarms, and as many subscribers.
pub(crate) fn watched(watch: &Watch, most: usize) -> String {
    let mut text = Exposition::default();
    if let Some((_, alarms, left_out)) = watch.alarms() {
        let mut counts = text.gauge("narrows_alarms", "Alarms of the file, by state.");
        for (state, name) in [(State::Pending, "pending"), (State::Firing, "firing")] {
            let count = alarms.iter().filter(|alarm| alarm.state == state).count();
            counts.add(&[("state", name)], count as u64);
        }
        text.counter("narrows_alarms_left_out_total", "Alarms for which there was no room.")
            .add(&[], left_out);
        let mut firing = text.gauge("narrows_alarm_firing", "An alarm that is firing.");
        for alarm in alarms.iter().filter(|alarm| alarm.state == State::Firing).take(most) {
            let subject = &alarm.subject;
            let labels = [
                ("rule", alarm.rule.as_str()),
                ("kind", subject.kind.name()),
                ("name", &subject.name),
                ("port", &subject.port),
            ];
            firing.add(&labels, 1);
        }
    }
    if watch.history().is_some() {
        let help = "Ports and classes without a history, for which there was no room in an hour.";
        text.gauge("narrows_history_left_out", help).add(&[], watch.left_out() as u64);
    }
    let scores = watch.scores();
    let help = "Quality of Outcome of a subscriber's line in the last five minutes, 0 to 1.";
    let mut quality = text.gauge("narrows_quality_ratio", help);
    for (subject, scores) in scores.iter().take(most) {
        let name = subject.strip_prefix("subscriber:").unwrap_or(subject);
        for score in scores {
            if let Some(percent) = score.percent {
                let labels = [("subscriber", name), ("application", score.application)];
                quality.add(&labels, percent / 100.0);
            }
        }
    }
    let help = "Subscribers whose scores are left out.";
    let left_out = scores.len().saturating_sub(most) as u64;
    text.gauge("narrows_quality_left_out", help).add(&[], left_out);
    text.finish()
}
