//! A history as lines of comma-separated values (RFC 4180), a line for each point.

use crate::{Key, Point, What};
use std::io;

/// The names of the columns. Rates are bits per second, times milliseconds, losses shares; an empty
/// field is unknown.
const HEAD: [&str; 15] = [
    "time",
    "seconds",
    "kind",
    "name",
    "port",
    "sent_bps",
    "sent_max_bps",
    "drops_pps",
    "delay_p50_ms",
    "delay_p99_ms",
    "round_trip_p50_ms",
    "round_trip_p99_ms",
    "loss",
    "loss_before",
    "loss_beyond",
];

/// Writes points.
pub struct Writer<W: io::Write>(::csv::Writer<W>);

impl<W: io::Write> Writer<W> {
    /// Writes the names of the columns to `to`.
    ///
    /// # Errors
    /// If `to` cannot be written.
    pub fn new(to: W) -> io::Result<Self> {
        let mut writer = ::csv::Writer::from_writer(to);
        writer.write_record(HEAD)?;
        Ok(Self(writer))
    }

    /// Writes the points of a direction, each over `step_s` seconds.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn add(&mut self, key: &Key, step_s: u64, points: &[(u64, Point)]) -> io::Result<()> {
        for (time, point) in points {
            let number = |value: f64| {
                format!("{:.6}", value).trim_end_matches('0').trim_end_matches('.').to_owned()
            };
            let field = |what: What| what.of(point, step_s).map(number).unwrap_or_default();
            self.0.write_record([
                time.to_string(),
                step_s.to_string(),
                key.kind.name().to_owned(),
                harmless(&key.name),
                harmless(&key.port),
                field(What::Sent),
                number(point.peak_bps()),
                field(What::Drops),
                field(What::DelayP50),
                field(What::DelayP99),
                field(What::RoundTripP50),
                field(What::RoundTripP99),
                field(What::Loss),
                field(What::LossBefore),
                field(What::LossBeyond),
            ])?;
        }
        Ok(())
    }

    /// Writes what is held back.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A name that neither a spreadsheet takes for a formula nor a terminal for a command.
fn harmless(name: &str) -> String {
    let name = name.replace(char::is_control, " ");
    if name.starts_with(['=', '+', '-', '@']) { format!("'{name}") } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Summary};

    #[test]
    fn a_point_is_a_line_and_what_is_unknown_is_empty() {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes).unwrap();
        let key = Key { kind: Kind::Subscriber, name: "=a,b".into(), port: "eth1".into() };
        let point = Point::of(&Summary::sent(10.0, 1280.0, 5.0));
        writer.add(&key, 10, &[(1_700_000_000, point)]).unwrap();
        writer.finish().unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let line = text.lines().nth(1).unwrap();
        assert_eq!(line, "1700000000,10,subscriber,\"'=a,b\",eth1,128,128,0.5,,,,,,,");
    }
}
