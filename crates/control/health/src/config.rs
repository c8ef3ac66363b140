//! A file that says how the servers of each service are checked.
//!
//! A line is a service, as `narrows balance` names it, and how: `-t 192.0.2.1:80 --http /health
//! --interval 5s`. Words are quoted as in a shell; `#` begins a comment. A service without a line
//! has a connection opened at its own port, if it is TCP and has one.
//!
//! A file is accepted whole, or refused with the number of the line and what to write instead.

use crate::check::{Check, DEFAULT, HttpRequest, Probe};
use hyper::Uri;
use hyper::http::uri::Authority;
use narrows_balance::{Protocol, ServiceId};
use narrows_escape::shell;
use narrows_units::without_mark;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

/// The shortest and the longest time between two probes of a server.
const INTERVAL: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);
/// The shortest time that an answer may take.
const TIMEOUT_MIN: Duration = Duration::from_millis(10);
/// The most results in a row.
const IN_A_ROW_MAX: u32 = 100;
/// The most bytes of a datagram that is sent: what fits into any way.
const DATA_MAX: usize = 1200;
/// The status codes that pass: success, and "elsewhere".
const STATUS: RangeInclusive<u16> = 200..=399;

/// How the servers of each service are checked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Config {
    /// None: they are not.
    lines: BTreeMap<ServiceId, Option<Check>>,
}

/// A line that is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct ConfigError {
    /// Its number, from 1.
    pub line: usize,
    /// What is wrong with it, and what to write instead.
    pub why: String,
}

/// Why the servers of a service are not checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unchecked {
    /// The file says so.
    #[error("the file says --none")]
    Excluded,
    /// It is UDP, and no line says what to send.
    #[error(
        "no server answers to just any datagram: give a file with \"{} --udp --send TEXT\"",
        .0.option()
    )]
    Udp(ServiceId),
    /// It has all ports.
    #[error("it has all ports: give a file with \"{} --tcp --port PORT\"", .0.option())]
    AllPorts(ServiceId),
}

impl Config {
    /// Reads the lines of a file.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        for (line, text) in (1..).zip(without_mark(text).lines()) {
            let refused = |why| ConfigError { line, why };
            let words = shlex::split(text).ok_or_else(|| refused("a quote is open".into()))?;
            if words.is_empty() {
                continue;
            }
            let (service, check) = Line::read(&words).and_then(Line::meant).map_err(refused)?;
            if config.lines.insert(service, check).is_some() {
                return Err(refused(format!("{} has a line before: remove one", named(service))));
            }
        }
        Ok(config)
    }

    /// The services that lines name.
    pub fn services(&self) -> impl Iterator<Item = ServiceId> {
        self.lines.keys().copied()
    }

    /// How the servers of `service` are checked.
    ///
    /// # Errors
    /// Why they are not.
    pub fn check(&self, service: ServiceId) -> Result<Check, Unchecked> {
        match self.lines.get(&service) {
            Some(Some(check)) => Ok(check.clone()),
            Some(None) => Err(Unchecked::Excluded),
            None if service.protocol == Protocol::Udp => Err(Unchecked::Udp(service)),
            None if service.port == 0 => Err(Unchecked::AllPorts(service)),
            None => Ok(Check { port: service.port, ..DEFAULT }),
        }
    }
}

/// A service in a sentence.
pub(crate) fn named(service: ServiceId) -> String {
    format!("{} {service}", service.protocol.name())
}

/// How servers are asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Tcp,
    Http,
    Udp,
    Nothing,
}

/// The words of a line.
#[derive(Default)]
struct Line {
    service: Option<ServiceId>,
    kind: Option<(Kind, String)>,
    path: Option<Uri>,
    host: Option<Authority>,
    status: Option<RangeInclusive<u16>>,
    data: Option<Vec<u8>>,
    port: Option<u16>,
    direct: Option<()>,
    interval: Option<Duration>,
    timeout: Option<Duration>,
    rise: Option<u32>,
    fall: Option<u32>,
}

impl Line {
    fn read(words: &[String]) -> Result<Self, String> {
        let mut line = Self::default();
        let mut words = words.iter().map(String::as_str);
        while let Some(word) = words.next() {
            let mut value = |what: &str| {
                let value = words.next().filter(|value| !value.starts_with("--"));
                value.ok_or_else(|| format!("{} needs {what}", shell(word)))
            };
            match word {
                "-t" => line.serve(Protocol::Tcp, value("ADDRESS:PORT")?)?,
                "-u" => line.serve(Protocol::Udp, value("ADDRESS:PORT")?)?,
                "--tcp" => line.ask(Kind::Tcp, word)?,
                "--udp" => line.ask(Kind::Udp, word)?,
                "--none" => line.ask(Kind::Nothing, word)?,
                "--http" => {
                    line.path = Some(path(value("a path, as /health")?)?);
                    line.ask(Kind::Http, word)?;
                }
                "--host" => once(&mut line.host, word, host(value("a name")?)?)?,
                "--status" => {
                    once(&mut line.status, word, status(value("codes, as 200-399")?)?)?;
                }
                "--send" => {
                    let data = value("a text")?.as_bytes().to_vec();
                    once(&mut line.data, word, sent(data)?)?;
                }
                "--send-binary" => {
                    let data = hexadecimal(value("hexadecimal digits")?)?;
                    once(&mut line.data, word, sent(data)?)?;
                }
                "--port" => {
                    let port = number(word, value("a port")?, 1..=u16::MAX)?;
                    once(&mut line.port, word, port)?;
                }
                "--direct" => once(&mut line.direct, word, ())?,
                "--interval" => {
                    let time = time(value("a time, as 2s")?)?;
                    if !INTERVAL.contains(&time) {
                        return Err("--interval is from 100ms to 3600s".into());
                    }
                    once(&mut line.interval, word, time)?;
                }
                "--timeout" => once(&mut line.timeout, word, time(value("a time, as 1s")?)?)?,
                "--rise" => {
                    let count = number(word, value("a number")?, 1..=IN_A_ROW_MAX)?;
                    once(&mut line.rise, word, count)?;
                }
                "--fall" => {
                    let count = number(word, value("a number")?, 1..=IN_A_ROW_MAX)?;
                    once(&mut line.fall, word, count)?;
                }
                "--https" => {
                    return Err(
                        "TLS is not spoken here: --tcp sees whether the port is open, and \
                                --http PATH --port P asks a plain port"
                            .into(),
                    );
                }
                _ => {
                    return Err(format!(
                        "unknown word \"{}\": a line is -t|-u ADDRESS:PORT --tcp | --http PATH | \
                         --udp | --none, and options",
                        shell(word)
                    ));
                }
            }
        }
        Ok(line)
    }

    fn serve(&mut self, protocol: Protocol, word: &str) -> Result<(), String> {
        if self.service.is_some() {
            return Err("a line is about one service: write a line for each".into());
        }
        self.service = Some(ServiceId::read(protocol, word)?);
        Ok(())
    }

    fn ask(&mut self, kind: Kind, word: &str) -> Result<(), String> {
        if let Some((_, before)) = &self.kind {
            return Err(format!("{before} and {word} on one line: choose one"));
        }
        self.kind = Some((kind, word.to_owned()));
        Ok(())
    }

    /// What it means as a whole.
    fn meant(self) -> Result<(ServiceId, Option<Check>), String> {
        let service =
            self.service.ok_or("a line begins with -t ADDRESS:PORT or -u ADDRESS:PORT")?;
        let kind = match (&self.kind, service.protocol) {
            (Some((kind, _)), _) => *kind,
            (None, Protocol::Tcp) => Kind::Tcp,
            (None, Protocol::Udp) => {
                return Err("a UDP service needs --udp, or --tcp or --http where its servers have that, too".into());
            }
        };
        let is_scheduled = self.port.is_some()
            || self.direct.is_some()
            || self.interval.or(self.timeout).is_some()
            || self.rise.or(self.fall).is_some();
        for (is_said, words, belongs) in [
            (self.host.is_some() || self.status.is_some(), "--host and --status", Kind::Http),
            (self.data.is_some(), "--send and --send-binary", Kind::Udp),
        ] {
            if is_said && kind != belongs {
                let to = if belongs == Kind::Http { "--http PATH" } else { "--udp" };
                return Err(format!("{words} belong to {to}"));
            }
        }
        let probe = match (kind, self.path) {
            (Kind::Nothing, _) if is_scheduled => {
                return Err("--none stands alone: nothing is checked".into());
            }
            (Kind::Nothing, _) => return Ok((service, None)),
            (Kind::Http, Some(path)) => {
                let status = self.status.unwrap_or(STATUS);
                Probe::Http(HttpRequest { path, host: self.host, status })
            }
            (Kind::Udp, _) => {
                let must_answer = self.data.is_some();
                Probe::Udp { data: self.data.unwrap_or_default(), must_answer }
            }
            _ => Probe::Tcp,
        };
        let port = self.port.or(Some(service.port).filter(|port| *port != 0));
        let port = port.ok_or("the service has all ports (port 0): say which one with --port")?;
        let interval = self.interval.unwrap_or(DEFAULT.interval);
        let timeout = self.timeout.unwrap_or(DEFAULT.timeout.min(interval));
        if timeout < TIMEOUT_MIN || timeout > interval {
            return Err(format!("--timeout is from 10ms to the interval, {interval:?}"));
        }
        let mut thresholds = DEFAULT.thresholds;
        thresholds.rise = self.rise.unwrap_or(thresholds.rise);
        thresholds.fall = self.fall.unwrap_or(thresholds.fall);
        let is_direct = self.direct.is_some();
        Ok((service, Some(Check { probe, port, is_direct, interval, timeout, thresholds })))
    }
}

/// Sets what a line may say once.
fn once<T>(said: &mut Option<T>, word: &str, value: T) -> Result<(), String> {
    if said.is_some() {
        return Err(format!("{word}, or what it excludes, stands on the line before: say it once"));
    }
    *said = Some(value);
    Ok(())
}

fn path(word: &str) -> Result<Uri, String> {
    let path = Some(word).filter(|word| word.starts_with('/')).and_then(|word| word.parse().ok());
    path.ok_or_else(|| {
        format!("\"{}\" is no path: it begins with /, and blanks are %20", shell(word))
    })
}

fn host(word: &str) -> Result<Authority, String> {
    let host = Some(word).filter(|word| !word.contains('@')).and_then(|word| word.parse().ok());
    host.ok_or_else(|| format!("\"{}\" is no name of a host: www.example.net", shell(word)))
}

fn status(word: &str) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let code = |word: &str| word.parse().ok().filter(|code| (100..=599).contains(code));
    match (code(first), code(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        _ => Err(format!("\"{}\" are no status codes: from 100 to 599, as 200-399", shell(word))),
    }
}

fn hexadecimal(word: &str) -> Result<Vec<u8>, String> {
    let digits: Option<Vec<u32>> = word.chars().map(|digit| digit.to_digit(16)).collect();
    match digits {
        Some(digits) if digits.len().is_multiple_of(2) => {
            Ok(digits.chunks(2).map(|two| (two[0] << 4 | two[1]) as u8).collect())
        }
        _ => Err(format!("\"{}\" are no bytes: two hexadecimal digits for each", shell(word))),
    }
}

fn sent(data: Vec<u8>) -> Result<Vec<u8>, String> {
    if data.len() > DATA_MAX {
        return Err(format!("a datagram of {} bytes: at most {DATA_MAX}", data.len()));
    }
    Ok(data)
}

fn number<T>(word: &str, value: &str, bounds: RangeInclusive<T>) -> Result<T, String>
where
    T: std::str::FromStr + PartialOrd + Display,
{
    let number = value.parse().ok().filter(|number| bounds.contains(number));
    let (least, most) = (bounds.start(), bounds.end());
    number.ok_or_else(|| format!("{word} is a number from {least} to {most}"))
}

fn time(word: &str) -> Result<Duration, String> {
    let time = narrows_tc::number::time(word).map(|time| Duration::from_nanos(time.0));
    time.ok_or_else(|| format!("\"{}\" is no time: {}", shell(word), narrows_tc::number::TIME_HINT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn service(option: &str) -> ServiceId {
        match option.split_once(' ') {
            Some(("-u", word)) => ServiceId::read(Protocol::Udp, word).unwrap(),
            Some((_, word)) => ServiceId::read(Protocol::Tcp, word).unwrap(),
            None => panic!("{option}"),
        }
    }

    fn check(line: &str) -> Check {
        let words: Vec<&str> = line.split(' ').collect();
        let config = Config::parse(line).unwrap();
        config.check(service(&words[..2].join(" "))).unwrap()
    }

    #[test]
    fn a_file_may_begin_with_the_mark_of_an_editor_and_end_lines_as_it_does() {
        let config = Config::parse("\u{feff}-t 192.0.2.1:80 --tcp\r\n\r\n# none\r\n").unwrap();
        assert!(config.check(service("-t 192.0.2.1:80")).is_ok());
    }

    #[test]
    fn a_line_says_how_servers_are_asked() {
        let http = check(
            "-t 192.0.2.1:80 --http /health?full --host www.example.net --status 200-299 \
             --port 8080 --direct --interval 5s --timeout 500ms --rise 4 --fall 1  # all of it",
        );
        let probe = Probe::Http(HttpRequest {
            path: "/health?full".parse().unwrap(),
            host: Some("www.example.net".parse().unwrap()),
            status: 200..=299,
        });
        assert_eq!(
            http,
            Check {
                probe,
                port: 8080,
                is_direct: true,
                interval: Duration::from_secs(5),
                timeout: Duration::from_millis(500),
                thresholds: crate::Thresholds { rise: 4, fall: 1 },
            }
        );
        assert_eq!(check("-t [2001:db8::1]:443"), Check { port: 443, ..DEFAULT });
        assert_eq!(check("-t 192.0.2.1:0 --tcp --port 22").port, 22);
        let udp = |data: &[u8], must_answer| Probe::Udp { data: data.to_vec(), must_answer };
        assert_eq!(check("-u 192.0.2.1:53 --udp").probe, udp(b"", false));
        assert_eq!(check("-u 192.0.2.1:53 --udp --send 'a b'").probe, udp(b"a b", true));
        assert_eq!(check("-u 192.0.2.1:53 --udp --send-binary 00fF").probe, udp(&[0, 255], true));
        let short = check("-t 192.0.2.1:80 --interval 200ms");
        assert_eq!(short.timeout, short.interval, "no answer takes longer than the interval");
    }

    #[test]
    fn a_service_without_a_line_has_a_connection_opened_where_that_says_something() {
        let config = Config::parse("\n# nothing\n-t 192.0.2.1:25 --none\n").unwrap();
        let checked = |option| config.check(service(option));
        assert_eq!(checked("-t 192.0.2.1:80"), Ok(Check { port: 80, ..DEFAULT }));
        assert_eq!(checked("-t 192.0.2.1:25"), Err(Unchecked::Excluded));
        let all = checked("-t 192.0.2.1:0").unwrap_err().to_string();
        assert!(all.contains("-t 192.0.2.1:0 --tcp --port"), "{all}");
        let udp = checked("-u 192.0.2.1:53").unwrap_err().to_string();
        assert!(udp.contains("-u 192.0.2.1:53 --udp --send"), "{udp}");
    }

    #[test]
    fn a_wrong_line_is_refused_with_its_number_and_what_to_write() {
        for (line, words) in [
            ("--tcp", "begins with -t"),
            ("-t 192.0.2.1:80 -t 192.0.2.2:80", "a line for each"),
            ("-t www:80", "numeric"),
            ("-t 192.0.2.1:80 --tcp --udp", "choose one"),
            ("-t 192.0.2.1:80 --http", "a path"),
            ("-t 192.0.2.1:80 --http health", "begins with /"),
            ("-t 192.0.2.1:80 --http / --status 399-200", "as 200-399"),
            ("-t 192.0.2.1:80 --http / --host 'a b'", "name of a host"),
            ("-t 192.0.2.1:80 --host a", "belong to --http"),
            ("-t 192.0.2.1:80 --send a", "belong to --udp"),
            ("-u 192.0.2.1:80", "needs --udp"),
            ("-u 192.0.2.1:80 --udp --send-binary 0", "two hexadecimal"),
            ("-u 192.0.2.1:80 --udp --send a --send-binary 00", "say it once"),
            ("-t 192.0.2.1:0 --tcp", "with --port"),
            ("-t 192.0.2.1:80 --port 0", "from 1 to 65535"),
            ("-t 192.0.2.1:80 --interval 2", "from 100ms"),
            ("-t 192.0.2.1:80 --interval soon", "number and a unit"),
            ("-t 192.0.2.1:80 --timeout 3s", "to the interval, 2s"),
            ("-t 192.0.2.1:80 --fall 0", "from 1 to 100"),
            ("-t 192.0.2.1:80 --none --port 3", "stands alone"),
            ("-t 192.0.2.1:80 --none --direct", "stands alone"),
            ("-t 192.0.2.1:80 --direct --direct", "say it once"),
            ("-t 192.0.2.1:80 --https /", "--port P"),
            ("-t 192.0.2.1:80 'a", "quote"),
            ("-t 192.0.2.1:80 --wait", "unknown word"),
        ] {
            let wrong = Config::parse(&format!("# one\n\n{line}\n")).unwrap_err();
            assert_eq!(wrong.line, 3, "{line}");
            assert!(wrong.to_string().contains(words), "{line}: {wrong}");
        }
        let twice = Config::parse("-t 192.0.2.1:80\n-t 192.0.2.1:80 --none").unwrap_err();
        assert!(twice.to_string().starts_with("line 2: TCP 192.0.2.1:80 has a line"), "{twice}");
    }

    proptest! {
        #[test]
        fn no_text_causes_a_panic(text in "[-a-z0-9:./'# \n\u{e9}\\[\\]]{0,80}") {
            let _ = Config::parse(&text);
        }

        #[test]
        fn what_is_accepted_keeps_to_the_bounds(
            interval in 0u64..5_000_000, timeout in 0u64..5_000_000, fall in 0u32..200,
        ) {
            let line = format!(
                "-t 192.0.2.1:80 --interval {interval}us --timeout {timeout}us --fall {fall}"
            );
            let is_good = interval >= 100_000
                && (10_000..=interval).contains(&timeout)
                && (1..=100).contains(&fall);
            prop_assert_eq!(Config::parse(&line).is_ok(), is_good);
        }
    }
}
