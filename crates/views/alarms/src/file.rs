//! The file: a rule or an action a line.

use crate::Rule;
use crate::courier::SENDMAIL;
use narrows_units::without_mark;
use std::fmt;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// The most bytes of a file.
const FILE_MAX: u64 = 1 << 20;
/// The most rules.
const RULES_MAX: usize = 1000;
/// The most actions: each takes up to half a minute.
const ACTIONS_MAX: usize = 10;
/// The most mistakes that are listed.
const MISTAKES_MAX: usize = 20;

/// Who is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// A URL that takes JSON by HTTP POST.
    Webhook(String),
    /// An address for `sendmail`.
    Mail(String),
    /// A program and its arguments.
    Command(Vec<String>),
}

/// The rules and actions of a file.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct File {
    /// The rules.
    pub rules: Vec<Rule>,
    /// The actions.
    pub actions: Vec<Action>,
}

/// What is wrong with a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mistake {
    /// The line, from 1.
    pub line: usize,
    /// Its text.
    pub text: String,
    /// What is wrong, and what to write.
    pub what: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "line {}: {}\n  {}", self.line, self.text, self.what)
    }
}

/// Why there are no alarms.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("cannot read the alarms in {0}: {1}")]
    Unreadable(PathBuf, io::Error),
    /// Lines are wrong.
    #[error("the alarms in {path} are not in force:\n{}", lines(mistakes))]
    Mistakes {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        mistakes: Vec<Mistake>,
    },
}

fn lines(mistakes: &[Mistake]) -> String {
    mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

impl File {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// If it cannot be read, is larger than a megabyte, a line is wrong, or a program that it names
    /// cannot be run: else that is known when an alarm is not delivered.
    pub fn read(path: &std::path::Path) -> Result<Self, FileError> {
        let unreadable = |error| FileError::Unreadable(path.to_owned(), error);
        let mut text = Vec::new();
        let file = std::fs::File::open(path).map_err(unreadable)?;
        io::Read::read_to_end(&mut io::Read::take(file, FILE_MAX + 1), &mut text)
            .map_err(unreadable)?;
        if text.len() as u64 > FILE_MAX {
            return Err(unreadable(io::Error::other("it has more than a megabyte")));
        }
        Self::parse_checked(&String::from_utf8_lossy(&text), has_program)
            .map_err(|mistakes| FileError::Mistakes { path: path.to_owned(), mistakes })
    }

    /// The rules and actions in `text`.
    ///
    /// # Errors
    /// Lists the lines that are wrong, at most 20.
    pub fn parse(text: &str) -> Result<Self, Vec<Mistake>> {
        Self::parse_checked(text, |_| Ok(()))
    }

    /// Parses a file whose actions `check` does not refuse.
    fn parse_checked(
        text: &str,
        check: impl Fn(&Action) -> Result<(), String>,
    ) -> Result<Self, Vec<Mistake>> {
        let (mut file, mut mistakes) = (Self::default(), Vec::new());
        for (line, text) in (1..).zip(without_mark(text).lines()) {
            if let Err(what) = file.add(text.trim(), &check) {
                mistakes.push(Mistake {
                    line,
                    text: text.trim().chars().take(200).collect(),
                    what,
                });
                if mistakes.len() == MISTAKES_MAX {
                    break;
                }
            }
        }
        if mistakes.is_empty() { Ok(file) } else { Err(mistakes) }
    }

    fn add(
        &mut self,
        text: &str,
        check: impl Fn(&Action) -> Result<(), String>,
    ) -> Result<(), String> {
        let words = shlex::split(text)
            .ok_or("a quotation mark has no end: close it, or write \\ before it")?;
        let Some((first, rest)) = words.split_first() else { return Ok(()) };
        let one = |what: &str| match rest {
            [one] => Ok(one.clone()),
            _ => Err(format!("{first} takes {what}, and nothing else")),
        };
        let action = match first.as_str() {
            "webhook" => {
                let url = one("a URL")?;
                narrows_post::check(&url).map_err(|error| error.to_string())?;
                Action::Webhook(url)
            }
            "mail" => {
                let address = one("an address")?;
                if !is_address(&address) {
                    return Err(format!("\"{address}\" is no address: write NAME@HOST"));
                }
                Action::Mail(address)
            }
            "command" => match rest.first() {
                Some(program) if program.starts_with('/') => Action::Command(rest.to_vec()),
                _ => return Err("write command /PATH/OF/PROGRAM and its arguments".to_owned()),
            },
            _ => {
                if self.rules.len() >= RULES_MAX {
                    return Err(format!("there are at most {RULES_MAX} rules in a file"));
                }
                self.rules.push(Rule::parse(text, &words)?);
                return Ok(());
            }
        };
        if self.actions.len() >= ACTIONS_MAX {
            return Err(format!("there are at most {ACTIONS_MAX} actions in a file"));
        }
        check(&action)?;
        self.actions.push(action);
        Ok(())
    }
}

/// Whether the program that `action` runs is there and may be run by somebody.
fn has_program(action: &Action) -> Result<(), String> {
    let (program, hint) = match action {
        Action::Webhook(_) => return Ok(()),
        Action::Mail(_) => (SENDMAIL, "install a package that has it, as msmtp-mta"),
        Action::Command(words) => match words.first() {
            Some(program) => (program.as_str(), "write the path of one"),
            None => return Ok(()),
        },
    };
    match std::fs::metadata(program) {
        Ok(facts) if facts.is_file() && facts.permissions().mode() & 0o111 != 0 => Ok(()),
        Ok(_) => Err(format!("{program} is no program that can be run: {hint}")),
        Err(error) => Err(format!("there is no program {program} ({error}): {hint}")),
    }
}

/// Whether `sendmail` can take it for nothing but an address.
fn is_address(address: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_graphic() && !"<>,;:\"\\()[]|`".contains(letter);
    !address.starts_with('-')
        && address.len() <= 254
        && address.chars().all(is_plain)
        && address.split_once('@').is_some_and(|(name, host)| !name.is_empty() && !host.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Condition, Kind, Metric};
    use narrows_units::Nanos;
    use proptest::prelude::*;

    fn rule(text: &str) -> Rule {
        let file = File::parse(text).unwrap_or_else(|mistakes| panic!("{}", lines(&mistakes)));
        file.rules.into_iter().next().unwrap()
    }

    fn mistake(text: &str) -> String {
        File::parse(text).unwrap_err()[0].what.clone()
    }

    #[test]
    fn rules_are_written_as_they_are_said() {
        let delay = rule("delay p99 > 50ms for 5m");
        let limit = Condition::Limit { metric: Metric::DelayP99, above: true, limit: 50.0 };
        assert_eq!((delay.condition, delay.kind), (limit, None));
        assert_eq!(delay.hold, Nanos::from_secs(300));
        assert_eq!(rule("port down").kind, Some(Kind::Port));
        assert_eq!(rule("port down at eth1 for 10s").port.as_deref(), Some("eth1"));
        assert_eq!(rule("worker silent").condition, Condition::WorkerSilent);
        assert_eq!(rule("instance gone for 30s").condition, Condition::Gone);
        let ceiling = rule("subscriber at ceiling for 1h");
        assert_eq!(
            (ceiling.condition, ceiling.kind),
            (Condition::AtCeiling, Some(Kind::Subscriber))
        );
        assert_eq!(rule("bypassed packets > 0").condition, Condition::Bypassed(0));
        let named = rule("site loss > 2% of 'north *' at eth2");
        assert_eq!((named.name.as_deref(), named.port.as_deref()), (Some("north *"), Some("eth2")));
        assert!(
            File::parse("# a comment\n\n  \nport down # and another\n").unwrap().rules.len() == 1
        );
    }

    #[test]
    fn actions_are_checked_when_they_are_read() {
        let file = File::parse(
            "webhook https://example.net/hook\nmail ops@example.net\ncommand /bin/page 'two words'",
        );
        let command = vec!["/bin/page".to_owned(), "two words".to_owned()];
        assert_eq!(
            file.unwrap().actions,
            [
                Action::Webhook("https://example.net/hook".into()),
                Action::Mail("ops@example.net".into()),
                Action::Command(command)
            ]
        );
        assert!(mistake("webhook example.net").contains("write http://HOST/PATH"));
        assert!(mistake("mail -Xfile@x").contains("NAME@HOST"));
        assert!(mistake("command page").contains("/PATH/OF/PROGRAM"));
    }

    #[test]
    fn a_program_that_is_not_there_is_a_mistake_in_its_line() {
        let path = std::env::temp_dir().join(format!("nrw-alarms-{}", std::process::id()));
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            File::read(&path).map_err(|error| error.to_string())
        };
        assert_eq!(read("port down\ncommand /bin/true x").unwrap().actions.len(), 1);
        let missing = read("port down\ncommand /nonexistent/page").unwrap_err();
        assert!(missing.contains("line 2: command /nonexistent/page"), "{missing}");
        assert!(missing.contains("there is no program /nonexistent/page"), "{missing}");
        for wrong in ["command /etc/passwd", "command /bin/"] {
            let error = read(wrong).unwrap_err();
            assert!(error.contains("is no program that can be run: write the path"), "{error}");
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_of_an_editor_that_marks_its_files_is_read() {
        let file = File::parse("\u{feff}port down\r\nwebhook http://127.0.0.1/\r\n").unwrap();
        assert_eq!((file.rules.len(), file.actions.len()), (1, 1));
    }

    #[test]
    fn a_mistake_says_what_to_write() {
        assert!(mistake("dely p99 > 50ms").contains("delay p99 > 50ms"));
        assert!(mistake("delay p95 > 50ms").contains("delay p50 or delay p99"));
        assert!(mistake("delay p99 = 50ms").contains("write > or <"));
        assert!(mistake("delay p99 > 50").contains("write 50ms"));
        assert!(mistake("delay p99 > 50ms during 5m").contains("for TIME"));
        assert!(mistake("delay p99 > 50ms for 5m for 6m").contains("once each"));
        assert!(mistake("worker delay p99 > 50ms").contains("port, site, subscriber or class"));
        assert!(mistake("site down").contains("a condition of a port"));
        assert!(mistake("delay p99 > 50ms of 'x").contains("quotation mark"));
        let all = File::parse("port down\nport up\nx").unwrap_err();
        assert_eq!(all.iter().map(|mistake| mistake.line).collect::<Vec<_>>(), [2, 3]);
        assert!(all[0].to_string().starts_with("line 2: port up\n  "));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text: String) {
            let _ = File::parse(&text);
        }

        #[test]
        fn any_words_are_read_without_a_panic(
            words in proptest::collection::vec(
                proptest::sample::select(vec![
                    "port", "site", "worker", "delay", "p99", ">", "<", "50ms", "for", "at", "of",
                    "ceiling", "down", "loss", "2%", "sent", "1mbit", "bypassed", "packets", "0",
                    "drops", "webhook", "mail", "command", "'", "x*", "round-trip", "silent", "#",
                ]), 0..9),
        ) {
            let text = words.join(" ");
            if let Ok(file) = File::parse(&text) {
                prop_assert!(file.rules.len() + file.actions.len() <= 1);
            }
        }
    }
}
