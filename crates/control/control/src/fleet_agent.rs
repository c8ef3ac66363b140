//! The socket of a fleet's agent, and the side of those who ask it.
//!
//! The agent is a process of its own beside the instance, and its socket lies beside the
//! instance's. A connection carries some words, and an answer until its end. Which words there are
//! is the agent's; here is what a view needs to ask for what it shows, without the agent's
//! program.
//!
//! *Where it is.* The agent's configuration may have it elsewhere. Views do not read that file, so
//! an option or the environment says where. Whoever names a socket expects an agent there: that
//! none answers is an error then. At the usual place it means that there is none.

use crate::turn::Turn;
use crate::{place, stream};
use narrows_snapshot::fleet_agent::Shown;
use narrows_snapshot::{Finding, Snapshot};
use std::io::{self, Read as _};
use std::net::Shutdown;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The socket's name beside those of instances, which it must not look like.
const FILE: &str = "fleet.view";
/// The most bytes of an answer that are read.
const ANSWER_MAX: u64 = 256 << 20;
/// The option of programs that names the agent's socket.
pub const SOCKET_OPTION: &str = "--fleet-socket";
/// The variable of the environment that names it, where the option does not.
pub const SOCKET_VARIABLE: &str = "NARROWS_FLEET_SOCKET";
/// The subject of the finding that no agent answers at a socket that was named.
pub const FINDING_SUBJECT: &str = "fleet";
/// The question for the limits of which all boxes together send most; the most rows follow.
pub const BUSIEST: &str = "busiest";
/// The rows of a view: the boxes of all its limits.
const ROWS: usize = 2_000;
/// How long a view waits for its agent.
const VIEW_TIME: Duration = Duration::from_secs(1);

/// Where the socket is in this network namespace, unless the agent's configuration says something
/// else.
///
/// # Errors
/// If `/proc` does not tell which namespace this is.
pub fn path() -> io::Result<PathBuf> {
    Ok(place::folder()?.join(FILE))
}

/// Asks the agent at `path`, and waits for it for `time`.
///
/// # Errors
/// If none answers.
pub fn ask(path: &Path, words: &str, time: Duration) -> io::Result<String> {
    let stream = stream::connect_within(path, time)?;
    let mut turn = Turn::begin(&stream, time);
    turn.send_all(words.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut text = String::new();
    turn.take(ANSWER_MAX).read_to_string(&mut text)?;
    if text.is_empty() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(text) }
}

/// Where a view looks for the agent.
#[derive(Clone, Debug, Default)]
pub struct AgentSocket {
    /// The socket, and what named it; none: the usual one.
    named: Option<(PathBuf, &'static str)>,
}

/// No agent answers at a socket that was named.
#[derive(Debug, thiserror::Error)]
#[error(
    "no agent of a fleet answers at {}, which {by} names: {source}. Give the `view` of its \
     configuration, or see `systemctl status narrows-fleet`", path.display()
)]
pub struct NoAgent {
    path: PathBuf,
    by: &'static str,
    source: io::Error,
}

impl AgentSocket {
    /// What the environment names, unless the option does.
    pub fn new(option: Option<PathBuf>) -> Self {
        let variable = || std::env::var_os(SOCKET_VARIABLE).filter(|path| !path.is_empty());
        let named = match option {
            Some(path) => Some((path, SOCKET_OPTION)),
            None => variable().map(|path| (path.into(), SOCKET_VARIABLE)),
        };
        Self { named }
    }

    /// The path that was named.
    pub fn path(self) -> Option<PathBuf> {
        self.named.map(|(path, _)| path)
    }

    /// Whether an agent answers at the socket that was named, if one was.
    ///
    /// # Errors
    /// If none does.
    pub fn check(&self) -> Result<(), NoAgent> {
        match &self.named {
            Some((path, _)) => busiest(path, 0).map(drop).map_err(|source| self.none(source)),
            None => Ok(()),
        }
    }

    /// Adds to `snapshot` what the agent says of the limits that are shared, if there are some and
    /// the agent answers. Without it the snapshot has what the instance knows of them, and a
    /// finding where the socket was named.
    pub fn add_to(&self, snapshot: &mut Snapshot) {
        if snapshot.fleet.is_empty() {
            return;
        }
        let path = match &self.named {
            Some((path, _)) => Ok(path.clone()),
            None => path(),
        };
        match path.and_then(|path| busiest(&path, ROWS)) {
            Ok(shown) => snapshot.fleet_agent = Some(Box::new(shown)),
            Err(source) if self.named.is_some() => snapshot.findings.push(Finding {
                subject: FINDING_SUBJECT.to_owned(),
                severity: "warning".to_owned(),
                what: self.none(source).to_string(),
                remedy: None,
            }),
            Err(error) => log::debug!("no answer of the fleet's agent: {error}"),
        }
    }

    fn none(&self, source: io::Error) -> NoAgent {
        let (path, by) = self.named.clone().unwrap_or_default();
        NoAgent { path, by, source }
    }
}

fn busiest(path: &Path, rows: usize) -> io::Result<Shown> {
    let text = ask(path, &format!("{BUSIEST} {rows}"), VIEW_TIME)?;
    Ok(serde_json::from_str(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::net::UnixListener;

    /// What is asked of an agent that gives this answer, and what is made of it.
    fn asked(name: &str, answer: &'static str) -> (String, io::Result<Shown>) {
        let path = std::env::temp_dir().join(format!("nrw-agent-{}-{name}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let agent = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut words = String::new();
            stream.read_to_string(&mut words).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            words
        });
        let shown = busiest(&path, ROWS);
        std::fs::remove_file(&path).unwrap();
        (agent.join().unwrap(), shown)
    }

    #[test]
    fn a_view_asks_for_a_bounded_part_of_what_the_agent_knows() {
        let answer = r#"{"fleet":"edge","interval_ms":50,"lease_ms":2000,"connected_through":null,
            "instance_trouble":null,"traffic":{"messages_sent":0,"bytes_sent":0,
            "messages_dropped":0,"messages_received":0,"bytes_received":0,"messages_malformed":0,
            "turns":1,"turns_failed":0},"view":{"me":"a","boxes":[],"limits":[]},"events":[]}"#;
        let (words, shown) = asked("shown", answer);
        assert_eq!((words.as_str(), shown.unwrap().fleet.as_str()), ("busiest 2000", "edge"));
    }

    #[test]
    fn an_agent_that_does_not_know_the_question_is_none() {
        assert!(asked("older", "").1.is_err());
        assert!(asked("other", "{\"fleet\":7}\n").1.is_err());
        assert!(ask(Path::new("/nowhere/fleet.view"), "show", VIEW_TIME).is_err());
    }

    #[test]
    fn nobody_at_a_socket_that_was_named_is_said_and_at_the_usual_one_is_not() {
        let shared = || Snapshot {
            fleet: vec![narrows_snapshot::FleetStanding::default()],
            ..Snapshot::default()
        };
        let named = AgentSocket::new(Some("/nowhere/agent.sock".into()));
        let error = named.check().unwrap_err().to_string();
        assert!(error.contains("/nowhere/agent.sock, which --fleet-socket names"), "{error}");
        let mut snapshot = shared();
        named.add_to(&mut snapshot);
        let [finding] = &snapshot.findings[..] else { panic!("{snapshot:?}") };
        assert_eq!((finding.subject.as_str(), &finding.what), ("fleet", &error));
        let usual = AgentSocket::default();
        usual.check().unwrap();
        let mut snapshot = shared();
        usual.add_to(&mut snapshot);
        assert_eq!(snapshot.findings, []);
        // Without shared limits nobody is asked.
        let mut snapshot = Snapshot::default();
        named.add_to(&mut snapshot);
        assert_eq!(snapshot.findings, []);
    }
}
