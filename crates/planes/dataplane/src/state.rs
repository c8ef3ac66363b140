//! The state file: the policy in force, kept so that live edits survive a restart.
//!
//! It is an ordinary policy file, written anew after each change: to a temporary file first,
//! synced, and then renamed over it, so that there is a complete one at any moment. At the start it
//! takes precedence over the file of `--batch`; a reload takes precedence over it.
//!
//! A large policy is written beside the loop. Then a failure is known only later, and of several
//! changes meanwhile only the last is written.

use crate::beside::{Beside, Pending};
use crate::instance::Instance;
use crate::policy_file::{self, PolicyFileError};
use narrows_forwarding::Forwarding;
use narrows_policy::Policy;
use std::io;
use std::path::{Path, PathBuf};

/// From how many qdiscs and classes on a policy is large: writing it takes milliseconds.
const LARGE: usize = 2000;

/// The state file, which has the policy in force.
pub(crate) struct StateFile {
    path: PathBuf,
    ports: Forwarding,
    /// The contents of the file, as far as known.
    kept: Option<Policy>,
    /// The last failure, so that it is reported once and not every second.
    failure: Option<String>,
    /// What is being written.
    writing: Option<(Policy, Pending<io::Result<()>>)>,
}

impl StateFile {
    pub(crate) fn new(path: PathBuf, ports: &Forwarding) -> Self {
        Self { path, ports: ports.clone(), kept: None, failure: None, writing: None }
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The saved policy; `None` if there is no file yet.
    ///
    /// # Errors
    /// If the file exists but cannot be read or has mistakes.
    pub(crate) fn load(&self) -> Result<Option<Policy>, PolicyFileError> {
        match policy_file::load(&self.path, &self.ports, &Policy::default()) {
            Ok(policy) => Ok(Some(policy)),
            Err(PolicyFileError::Unreadable { source, .. })
                if source.kind() == io::ErrorKind::NotFound =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Writes `policy` if the file does not have it yet, a large one beside the loop.
    ///
    /// # Errors
    /// Why it, or the last large one, cannot be written; the file is as it was. [`Failed::News`]
    /// the first time.
    pub(crate) fn keep(&mut self, policy: &Policy, beside: &Beside) -> Result<(), Failed> {
        if let Some((written, writing)) = self.writing.take() {
            match writing.take() {
                None => {
                    self.writing = Some((written, writing));
                    return Ok(());
                }
                Some(ended) => {
                    let ended = ended.unwrap_or_else(|lost| Err(io::Error::other(lost)));
                    self.end(&written, ended)?;
                }
            }
        }
        if self.kept.as_ref() == Some(policy) {
            return Ok(());
        }
        if policy.len() < LARGE {
            return self.write(policy);
        }
        let (path, ports, copy) = (self.path.clone(), self.ports.clone(), policy.clone());
        let writing = beside.start("state", move || write(&path, &ports, &copy));
        self.writing = Some((policy.clone(), writing));
        Ok(())
    }

    /// Writes `policy` if the file does not have it yet, and waits for that.
    ///
    /// # Errors
    /// As [`StateFile::keep`].
    pub(crate) fn finish(&mut self, policy: &Policy) -> Result<(), Failed> {
        if let Some((written, writing)) = self.writing.take() {
            let ended = writing.wait().unwrap_or_else(|lost| Err(io::Error::other(lost)));
            self.end(&written, ended)?;
        }
        match self.kept.as_ref() == Some(policy) {
            true => Ok(()),
            false => self.write(policy),
        }
    }

    fn write(&mut self, policy: &Policy) -> Result<(), Failed> {
        let ended = write(&self.path, &self.ports, policy);
        self.end(policy, ended)
    }

    /// Notes how writing `policy` has ended.
    fn end(&mut self, policy: &Policy, ended: io::Result<()>) -> Result<(), Failed> {
        match ended {
            Ok(()) => {
                self.kept = Some(policy.clone());
                self.failure = None;
                Ok(())
            }
            Err(error) => {
                let mut why = format!("cannot keep the policy in {}: {error}", self.path.display());
                let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
                if let Some(folder) = folder.filter(|folder| !folder.exists()) {
                    why.push_str(&format!("; try: mkdir -p {}", folder.display()));
                }
                let is_news = self.failure.replace(why.clone()).as_ref() != Some(&why);
                Err(if is_news { Failed::News(why) } else { Failed::Again(why) })
            }
        }
    }
}

/// Saves the policy in force, if configured. Returns why it could not.
pub(crate) fn keep(
    instance: &mut Instance,
    state: Option<&mut StateFile>,
    beside: &Beside,
) -> Option<String> {
    match state?.keep(instance.policy(), beside).err()? {
        Failed::News(why) => {
            instance.warn(why.clone());
            Some(why)
        }
        Failed::Again(why) => Some(why),
    }
}

fn write(path: &Path, ports: &Forwarding, policy: &Policy) -> io::Result<()> {
    let text = format!(
        "# The policy of {ports}, kept by narrows run --state: it rewrites this file after each \
         change.\n{}",
        narrows_tc::save(policy)
    );
    narrows_tc::replace(path, &text)
}

/// The state file could not be written.
#[derive(Debug)]
pub(crate) enum Failed {
    /// A new failure.
    News(String),
    /// The same failure as reported before.
    Again(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_tc::{OfflineHost, load};

    fn policy(text: &str) -> Policy {
        load(text, "-", &OfflineHost::default()).unwrap()
    }

    fn ports() -> Forwarding {
        Forwarding::wire("nrw-none-a", "nrw-none-b").unwrap()
    }

    #[test]
    fn the_last_saved_state_is_loaded() {
        let path = std::env::temp_dir().join(format!("nrw-state-{}", std::process::id()));
        let mut state = StateFile::new(path.clone(), &ports());
        assert_eq!(state.load().unwrap(), None);
        let one = policy("qdisc add dev nrw-none-a root cake bandwidth 1mbit");
        let two = policy("qdisc add dev nrw-none-b root pfifo limit 3");
        for policy in [&one, &two, &Policy::default(), &one] {
            state.finish(policy).unwrap();
            let again = StateFile::new(path.clone(), &ports());
            assert_eq!(again.load().unwrap().as_ref(), Some(policy));
        }
        // An unchanged policy is not written again.
        std::fs::write(&path, "qdisc add dev\n").unwrap();
        state.finish(&one).unwrap();
        let refused = state.load().unwrap_err().to_string();
        assert!(refused.contains(":1: "), "{refused}");
        state.finish(&two).unwrap();
        assert_eq!(state.load().unwrap(), Some(two));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_large_policy_is_written_beside_the_loop_and_of_several_the_last() {
        let path = std::env::temp_dir().join(format!("nrw-state-large-{}", std::process::id()));
        let large = |limit: u32| {
            let mut text = "qdisc add dev nrw-none-a root handle 1: htb\n".to_owned();
            for minor in 1..LARGE {
                text += &format!(
                    "class add dev nrw-none-a parent 1: classid 1:{minor:x} htb rate {limit}mbit\n"
                );
            }
            policy(&text)
        };
        let beside = Beside::new().unwrap();
        let mut state = StateFile::new(path.clone(), &ports());
        let (first, last) = (large(1), large(2));
        state.keep(&first, &beside).unwrap();
        state.keep(&last, &beside).unwrap();
        while state.kept.as_ref() != Some(&last) {
            std::thread::yield_now();
            state.keep(&last, &beside).unwrap();
        }
        assert_eq!(state.load().unwrap(), Some(last));
        state.keep(&first, &beside).unwrap();
        state.finish(&first).unwrap();
        assert_eq!(state.load().unwrap(), Some(first));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_failure_is_news_once() {
        let mut state = StateFile::new("/proc/nowhere/state".into(), &ports());
        let policy = policy("qdisc add dev nrw-none-a root pfifo");
        assert!(
            matches!(state.finish(&policy), Err(Failed::News(why)) if why.contains("/proc/nowhere"))
        );
        let beside = Beside::new().unwrap();
        assert!(matches!(state.keep(&policy, &beside), Err(Failed::Again(_))));
    }

    #[test]
    fn a_missing_folder_is_named_with_the_command_that_makes_it() {
        let mut state = StateFile::new("/proc/nowhere/state".into(), &ports());
        let refused = state.finish(&Policy::default());
        assert!(
            matches!(refused, Err(Failed::News(why)) if why.ends_with("; try: mkdir -p /proc/nowhere"))
        );
    }
}
