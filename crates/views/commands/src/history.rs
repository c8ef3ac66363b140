//! `narrows history`.

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use narrows_history::{Archive, Kind, POINTS_MAX, Range, SUBJECTS_MAX, What};
use narrows_history::{csv, remote_write};
use narrows_program::output;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a database may take for a request.
const ANSWER: Duration = Duration::from_secs(30);

/// Read the history that `narrows serve --history FILE` keeps: list, show, rank, export.
///
/// It reads the file, also while it is written. A subject is named as `list` prints it:
/// `subscriber:NAME`, `site:NAME`, `port:eth1`; the name alone will do.
#[derive(Args)]
#[command(after_long_help = "Examples:
  narrows history list north
  narrows history show subscriber:alice delay-p99 --last 7d
  narrows history worst delay-p99 --last 24h --kind subscriber
  narrows history export --csv --last 30d > history.csv
  narrows history export --remote-write http://127.0.0.1:9090/api/v1/write --last 1h")]
pub struct History {
    /// The file.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        default_value = "/var/lib/narrows/history.sqlite"
    )]
    file: PathBuf,

    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    List(List),
    Show(Show),
    Worst(Worst),
    Export(Export),
}

/// List who has a history.
#[derive(Args)]
struct List {
    /// Only those whose kind or name contains it.
    #[arg(default_value = "")]
    search: String,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Print a series as a table.
#[derive(Args)]
struct Show {
    /// Whose.
    subject: String,

    /// What: sent, drops, delay-p50, delay-p99, round-trip-p50, round-trip-p99, loss, loss-before
    /// or loss-beyond.
    what: What,

    /// What leaves through this port; by default the first.
    #[arg(long, value_name = "DEV")]
    port: Option<String>,

    #[command(flatten)]
    time: Time,

    /// At most so many lines; the finest resolution that has no more is chosen.
    #[arg(long, value_name = "N", default_value_t = 60)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=POINTS_MAX as i64))]
    points: u32,

    /// Print JSON.
    #[arg(long, conflicts_with = "csv")]
    json: bool,

    /// Print comma-separated values.
    #[arg(long)]
    csv: bool,
}

/// Rank subjects by what they had over a time, the highest first.
#[derive(Args)]
struct Worst {
    /// What, as for `show`.
    what: What,

    /// Only this kind: port, site, subscriber or class.
    #[arg(long, value_parser = kind)]
    kind: Option<Kind>,

    #[command(flatten)]
    time: Time,

    /// At most so many.
    #[arg(long, value_name = "N", default_value_t = 20)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=SUBJECTS_MAX as i64))]
    most: u32,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Export points, as CSV or to a database that takes Prometheus's remote-write.
#[derive(Args)]
#[group(id = "target", required = true, multiple = false, args = ["csv", "remote_write"])]
struct Export {
    /// Only those whose kind or name contains it.
    #[arg(default_value = "")]
    search: String,

    /// Print comma-separated values: a line for each point.
    #[arg(long)]
    csv: bool,

    /// Send them to this URL.
    #[arg(long, value_name = "URL")]
    remote_write: Option<String>,

    #[command(flatten)]
    time: Time,

    /// At most so many points of each series; the finest resolution that has no more is chosen.
    #[arg(long, value_name = "N", default_value_t = POINTS_MAX as u32)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=POINTS_MAX as i64))]
    points: u32,
}

/// The time that is asked for.
#[derive(Args)]
struct Time {
    /// The time until now, or until --to: 90s, 15m, 24h or 7d.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = span)]
    last: u64,

    /// The end, in seconds since 1970: `date +%s -d yesterday` prints it.
    #[arg(long, value_name = "SECONDS")]
    #[arg(value_parser = clap::value_parser!(u64).range(..=1 << 40))]
    to: Option<u64>,
}

/// A number and `s`, `m`, `h` or `d`, in seconds.
fn span(word: &str) -> Result<u64, String> {
    let wrong = || "write a number and s, m, h or d: 90s, 15m, 24h, 7d".to_owned();
    let unit = word.chars().next_back().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let digits = &word[..word.len() - 1];
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    let number = digits.parse::<u64>().ok().filter(|number| is_number && *number > 0);
    let span = number.and_then(|number| number.checked_mul(seconds)).ok_or_else(wrong)?;
    if span > 1000 * 86_400 { Err("at most 1000d".to_owned()) } else { Ok(span) }
}

fn kind(word: &str) -> Result<Kind, String> {
    let found = Kind::ALL.into_iter().find(|kind| kind.name() == word);
    found.ok_or_else(|| "write port, site, subscriber or class".to_owned())
}

impl Time {
    fn range(&self, points: u32) -> Range {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let to = self.to.unwrap_or(now);
        Range { from: to.saturating_sub(self.last), to, points: points as usize }
    }
}

impl History {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let archive = Archive::open(&self.file).with_context(|| {
            format!(
                "there is no history in {}; `narrows serve --history FILE` keeps one, and --file \
                 names it here",
                self.file.display()
            )
        })?;
        match self.action {
            Action::List(list) => list.execute(&archive)?,
            Action::Show(show) => show.execute(&archive)?,
            Action::Worst(worst) => worst.execute(&archive)?,
            Action::Export(export) => export.execute(&archive)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl List {
    fn execute(&self, archive: &Archive) -> anyhow::Result<()> {
        let found = archive.subjects(&self.search, SUBJECTS_MAX);
        if self.json {
            return output::json(&found);
        }
        for one in &found {
            output::say(format_args!("{} at {}", one.subject.id, one.ports.join(", ")));
        }
        if found.len() == SUBJECTS_MAX {
            output::complain(format_args!("only the first {SUBJECTS_MAX} are listed"));
        }
        Ok(())
    }
}

impl Show {
    fn execute(&self, archive: &Archive) -> anyhow::Result<()> {
        let range = self.time.range(self.points);
        let series = archive.series(&self.subject, self.port.as_deref(), self.what, range)?;
        if self.json {
            return output::json(&series);
        }
        let unit = serde_json::to_value(series.unit)?;
        let unit = unit.as_str().unwrap_or_default();
        let times = (series.from..).step_by(series.step_s.max(1) as usize);
        let value = |value: Option<&Option<f64>>, none: &str| {
            value.copied().flatten().map_or_else(|| none.to_owned(), |value| value.to_string())
        };
        let maxima = !series.max.is_empty();
        if self.csv {
            let max = if maxima { ",max" } else { "" };
            output::say(format_args!("time,value{max}"));
            for (at, time) in (0..series.values.len()).zip(times) {
                let max = if maxima {
                    format!(",{}", value(series.max.get(at), ""))
                } else {
                    String::new()
                };
                output::say(format_args!("{time},{}{max}", value(series.values.get(at), "")));
            }
            return Ok(());
        }
        output::say(format_args!(
            "{} at {}: {} in {unit}, each over {} s",
            series.subject.id, series.port, series.what, series.step_s
        ));
        if series.values.iter().all(Option::is_none) {
            bail!("nothing is known of that time: --last asks for a longer one");
        }
        let max = if maxima { "          max" } else { "" };
        output::say(format_args!("{:<20} {:>12}{max}", "time (UTC)", "value"));
        for (at, time) in (0..series.values.len()).zip(times) {
            let max = if maxima {
                format!(" {:>12}", value(series.max.get(at), "-"))
            } else {
                String::new()
            };
            let value = value(series.values.get(at), "-");
            output::say(format_args!("{:<20} {value:>12}{max}", utc(time)));
        }
        Ok(())
    }
}

impl Worst {
    fn execute(&self, archive: &Archive) -> anyhow::Result<()> {
        let range = self.time.range(1);
        let worst = archive.worst(self.what, self.kind, range, self.most as usize)?;
        if self.json {
            return output::json(&worst);
        }
        let unit = serde_json::to_value(self.what.unit())?;
        output::say(format_args!("{} in {}", self.what, unit.as_str().unwrap_or_default()));
        for one in &worst {
            output::say(format_args!("{:>12}  {} at {}", one.value, one.subject.id, one.port));
        }
        Ok(())
    }
}

impl Export {
    fn execute(&self, archive: &Archive) -> anyhow::Result<()> {
        let range = self.time.range(self.points);
        let Some(url) = &self.remote_write else { return self.as_csv(archive, range) };
        narrows_post::check(url)?;
        let mut writer = remote_write::Writer::default();
        let mut sent = 0;
        let mut send = |writer: &mut remote_write::Writer| -> anyhow::Result<()> {
            let samples = writer.samples();
            if let Some(body) = writer.take() {
                narrows_post::post(url, &remote_write::HEADERS, &body, ANSWER)?;
                sent += samples;
            }
            Ok(())
        };
        archive.export(&self.search, range, |key, step_s, points| -> anyhow::Result<()> {
            writer.add(key, step_s, points);
            if writer.is_full() { send(&mut writer) } else { Ok(()) }
        })?;
        send(&mut writer)?;
        let samples = if sent == 1 { "sample was" } else { "samples were" };
        output::say(format_args!("{sent} {samples} sent"));
        Ok(())
    }

    fn as_csv(&self, archive: &Archive, range: Range) -> anyhow::Result<()> {
        let mut writer = csv::Writer::new(io::BufWriter::new(io::stdout().lock()))?;
        archive.export(&self.search, range, |key, step_s, points| -> anyhow::Result<()> {
            Ok(writer.add(key, step_s, points)?)
        })?;
        Ok(writer.finish()?)
    }
}

/// A time as `2026-01-31 23:59:59`.
fn utc(seconds: u64) -> String {
    let (day, second) = (seconds / 86_400, seconds % 86_400);
    // The civil calendar with years that begin in March, so that a leap day is the last of a year.
    let from_march = day + 719_468;
    let (era, of_era) = (from_march / 146_097, from_march % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01 00:00:00");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(utc(1_709_164_799), "2024-02-28 23:59:59");
        assert_eq!(utc(4_107_542_400), "2100-03-01 00:00:00");
    }

    #[test]
    fn spans_have_a_unit_and_an_end() {
        assert_eq!([span("90s"), span("15m"), span("24h")], [Ok(90), Ok(900), Ok(86_400)]);
        for word in
            ["", "5", "0s", "-1h", "d", "1w", "99999d", "18446744073709551615d", "+5s", "5é"]
        {
            assert!(span(word).is_err(), "{word}");
        }
    }
}
