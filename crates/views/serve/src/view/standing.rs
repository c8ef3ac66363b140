//! Whether traffic is shaped, in a line that nobody can overlook.

use narrows_control::ControlError;
use narrows_snapshot::Snapshot;
use serde::Serialize;

/// Why there is no new snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    /// What the user reads.
    pub(crate) reason: String,
    /// No instance runs, as opposed to one that does not answer.
    pub(crate) has_ended: bool,
}

impl From<ControlError> for Gone {
    fn from(error: ControlError) -> Self {
        let has_ended = matches!(error, ControlError::NoInstance(_));
        Self { reason: error.to_string(), has_ended }
    }
}

impl From<String> for Gone {
    fn from(reason: String) -> Self {
        Self { reason, has_ended: false }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Good,
    Warning,
    Bad,
}

/// The state of the instance.
#[derive(Debug, Serialize)]
pub(crate) struct Standing<'a> {
    level: Level,
    /// One or two words.
    title: &'static str,
    /// What it means for traffic.
    detail: String,
    /// How long the instance has run, in whole seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    uptime_s: Option<u64>,
    /// When the figures are from, in seconds since 1970, where they are no longer present ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    stale_since: Option<f64>,
    warnings: &'a [String],
}

impl<'a> Standing<'a> {
    /// Of the instance that was last seen as `latest` at `time`, and why it is gone if it is.
    pub(crate) fn new(latest: Option<(&'a Snapshot, f64)>, gone: Option<&Gone>) -> Self {
        let stale_since = latest.map(|(_, time)| time).filter(|_| gone.is_some());
        let base = Standing {
            level: Level::Bad,
            title: "No answer",
            detail: String::new(),
            uptime_s: None,
            stale_since,
            warnings: &[],
        };
        match (latest.map(|(latest, _)| latest), gone) {
            (None, None) => {
                Standing { level: Level::Warning, title: "Asking the instance", ..base }
            }
            (None, Some(gone)) => {
                let title = if gone.has_ended { "Not running" } else { "No answer" };
                Standing { title, detail: sentence(&gone.reason), ..base }
            }
            (Some(latest), Some(gone)) if gone.has_ended => {
                let detail = format!("{}. No instance runs.", without(latest));
                Standing { title: "Stopped", detail, ..base }
            }
            (Some(_), Some(gone)) => {
                let reason = sentence(&gone.reason);
                let detail = format!("{reason} Whether traffic is shaped is not known.");
                Standing { detail, ..base }
            }
            (Some(now), None) if now.is_running() => Standing {
                level: if now.warnings.is_empty() { Level::Good } else { Level::Warning },
                title: "Running",
                detail: if_it_stops(now),
                uptime_s: Some(now.uptime_s as u64),
                warnings: &now.warnings,
                ..base
            },
            (Some(now), None) => {
                let wait = now
                    .waiting_for
                    .as_deref()
                    .map_or_else(String::new, |what| format!(" It waits for this: {what}."));
                Standing {
                    title: "Waiting",
                    detail: format!("{}.{wait}", without(now)),
                    uptime_s: Some(now.uptime_s as u64),
                    warnings: &now.warnings,
                    ..base
                }
            }
        }
    }
}

/// What traffic does without this instance.
fn without(latest: &Snapshot) -> String {
    if latest.fails_closed() {
        return "No traffic passes (fail-closed)".into();
    }
    match (latest.standby(), not_now(latest)) {
        (_, Some(problem)) => format!("Traffic may not pass: {problem}"),
        (Some(bridge), _) => format!("Traffic passes UNSHAPED over the bridge {bridge}"),
        _ => "Traffic passes UNSHAPED".into(),
    }
}

fn if_it_stops(now: &Snapshot) -> String {
    if now.fails_closed() {
        return "If it stops, no traffic passes (fail-closed).".into();
    }
    match (now.standby(), not_now(now)) {
        (_, Some(problem)) => format!("If it stops now, traffic may not pass: {problem}."),
        (Some(bridge), _) => {
            format!("If it stops, traffic passes unshaped over the bridge {bridge}.")
        }
        _ => "If it stops, traffic passes unshaped.".into(),
    }
}

/// Why fail-open does not work at present, if it does not.
fn not_now(snapshot: &Snapshot) -> Option<&str> {
    snapshot.fail.strip_prefix("open (NOT NOW: ")?.strip_suffix(')')
}

/// With a full stop.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(char::to_uppercase).into_iter().flatten();
    let text: String = first.chain(letters).collect();
    if text.ends_with(['.', '!', '?']) { text } else { format!("{text}.") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(state: &str, fail: &str) -> Snapshot {
        Snapshot { state: state.into(), fail: fail.into(), uptime_s: 7.9, ..Snapshot::default() }
    }

    fn ended() -> Gone {
        Gone { reason: "no narrows runs".into(), has_ended: true }
    }

    #[test]
    fn after_a_stop_it_says_that_traffic_is_not_shaped() {
        let stopped = |fail: &str| {
            let was = snapshot("running", fail);
            let standing = Standing::new(Some((&was, 5.0)), Some(&ended()));
            assert_eq!((standing.level, standing.title), (Level::Bad, "Stopped"));
            assert_eq!(standing.stale_since, Some(5.0), "old figures are not taken for new ones");
            standing.detail
        };
        assert_eq!(
            stopped("open (bridge nrwbr2)"),
            "Traffic passes UNSHAPED over the bridge nrwbr2. No instance runs."
        );
        assert!(stopped("closed").starts_with("No traffic passes"));
        assert!(stopped("open").starts_with("Traffic passes UNSHAPED."));
        assert!(
            stopped("open (NOT NOW: no bridge)").starts_with("Traffic may not pass: no bridge")
        );
    }

    #[test]
    fn an_instance_that_does_not_answer_is_not_said_to_have_stopped() {
        let was = snapshot("running", "open");
        let standing = Standing::new(Some((&was, 5.0)), Some(&"it hangs".to_owned().into()));
        assert_eq!(standing.title, "No answer");
        assert_eq!(standing.detail, "It hangs. Whether traffic is shaped is not known.");
    }

    #[test]
    fn while_it_runs_it_says_what_a_stop_would_mean() {
        let mut now = snapshot("running", "open (bridge nrwbr2)");
        let standing = Standing::new(Some((&now, 5.0)), None);
        assert_eq!((standing.level, standing.uptime_s), (Level::Good, Some(7)));
        assert!(standing.detail.ends_with("unshaped over the bridge nrwbr2."));
        assert_eq!(standing.stale_since, None);
        now.warnings.push("eth1 bypasses the limit".into());
        assert_eq!(Standing::new(Some((&now, 5.0)), None).level, Level::Warning);
    }

    #[test]
    fn one_that_waits_says_for_what() {
        let waiting_for = Some("eth1 has no carrier".into());
        let now = Snapshot { waiting_for, ..snapshot("waiting", "closed") };
        let standing = Standing::new(Some((&now, 5.0)), None);
        assert_eq!(standing.level, Level::Bad);
        let said = "No traffic passes (fail-closed). It waits for this: eth1 has no carrier.";
        assert_eq!(standing.detail, said);
    }

    #[test]
    fn before_the_first_answer_nothing_is_claimed() {
        assert_eq!(Standing::new(None, None).level, Level::Warning);
        let none = Standing::new(None, Some(&ended()));
        assert_eq!((none.title, &none.detail[..]), ("Not running", "No narrows runs."));
    }
}
