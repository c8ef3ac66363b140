//! Responsiveness under working conditions: draft-ietf-ippm-responsiveness.
//!
//! The draft loads the line and times requests over it. Here, those intervals count in which the
//! traffic of the line loads it: it is sent at [`LOADED`] of its rate or more. Round trips are
//! those of its TCP and QUIC connections, to which the delay in Narrows is added. As in the draft,
//! the slowest 5 % are left out, and the responsiveness is 60,000 divided by the mean in
//! milliseconds. The draft's requests also wait for the server and for new connections; these do
//! not, so the figure is higher than that of a test over the same line.

use serde::Serialize;

/// The share of its rate from which a line is under load.
pub const LOADED: f64 = 0.8;
/// The share of the slowest that is left out.
const TRIMMED: f64 = 0.05;
/// Fewer intervals under load say nothing.
const INTERVALS_MIN: usize = 4;

/// A part of an interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LoadedPoint {
    /// The rate sent, in bits per second.
    pub sent_bps: f64,
    /// The rate that it may have, in bits per second.
    pub rate_bps: f64,
    /// The median delay and the median round trip, in milliseconds, together.
    pub round_trip_ms: Option<f64>,
}

/// How responsive a line is while it is used to the full.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Responsiveness {
    /// Round trips per minute; none if the line was not under load for long enough, or no round
    /// trips were seen then.
    pub rpm: Option<f64>,
    /// The intervals that count.
    pub loaded_intervals: usize,
    /// What it means, in a sentence.
    pub meaning: &'static str,
}

/// The responsiveness in the loaded ones of `points`.
pub fn responsiveness(points: impl IntoIterator<Item = LoadedPoint>) -> Responsiveness {
    let loaded = points
        .into_iter()
        .filter(|point| point.rate_bps > 0.0 && point.sent_bps >= point.rate_bps * LOADED);
    let mut times: Vec<f64> = loaded.filter_map(|point| point.round_trip_ms).collect();
    let loaded_intervals = times.len();
    if loaded_intervals < INTERVALS_MIN {
        let meaning = "The line was hardly ever busy, so nothing shows how it responds under load.";
        return Responsiveness { rpm: None, loaded_intervals, meaning };
    }
    times.sort_by(f64::total_cmp);
    let kept = (loaded_intervals as f64 * (1.0 - TRIMMED)).ceil() as usize;
    let mean = times[..kept].iter().sum::<f64>() / kept as f64;
    // A round trip of less than ten microseconds is no network's.
    let rpm = 60_000.0 / mean.max(0.01);
    let meaning = match rpm {
        1000.0.. => "While the line is busy, everything else still responds at once.",
        300.0.. => "While the line is busy, most things respond well; games and calls may not.",
        100.0.. => "While the line is busy, pages open slowly and calls stutter.",
        _ => "While the line is busy, hardly anything else works.",
    };
    Responsiveness { rpm: Some(rpm.round()), loaded_intervals, meaning }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(sent_bps: f64, round_trip_ms: Option<f64>) -> LoadedPoint {
        LoadedPoint { sent_bps, rate_bps: 10e6, round_trip_ms }
    }

    #[test]
    fn round_trips_under_load_count_and_others_do_not() {
        let loaded = [point(9.5e6, Some(60.0)); 10];
        let idle = [point(1e6, Some(10.0)); 100];
        let found = responsiveness(loaded.into_iter().chain(idle));
        assert_eq!((found.rpm, found.loaded_intervals), (Some(1000.0), 10));
    }

    #[test]
    fn the_slowest_of_twenty_is_left_out() {
        let mut points = vec![point(9e6, Some(30.0)); 19];
        points.push(point(9e6, Some(9000.0)));
        assert_eq!(responsiveness(points).rpm, Some(2000.0));
    }

    #[test]
    fn a_line_without_load_or_round_trips_has_no_responsiveness() {
        assert_eq!(responsiveness([point(1e6, Some(10.0)); 100]).rpm, None);
        assert_eq!(responsiveness([point(9e6, None); 100]).rpm, None);
        assert_eq!(responsiveness([]).rpm, None);
        let unlimited = LoadedPoint { rate_bps: 0.0, ..point(9e6, Some(1.0)) };
        assert_eq!(responsiveness([unlimited; 9]).rpm, None);
    }
}
