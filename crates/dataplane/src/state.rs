//! The state file: the policy in force, kept so that live edits survive a restart.
//!
//! It is an ordinary policy file, written anew after each change: to a temporary file first,
//! synced, and then renamed over it, so that there is a complete one at any moment. At the start it
//! takes precedence over the file of `--batch`; a reload takes precedence over it.

use crate::policy_file::{self, PolicyFileError};
use narrows_policy::Policy;
use std::io;
use std::path::{Path, PathBuf};

/// See the module's documentation.
pub(crate) struct StateFile {
    path: PathBuf,
    ports: [String; 2],
    /// The contents of the file, as far as known.
    kept: Option<Policy>,
    /// The last failure, so that it is reported once and not every second.
    failure: Option<String>,
}

impl StateFile {
    pub(crate) fn new(path: PathBuf, ports: &[String; 2]) -> Self {
        Self { path, ports: ports.clone(), kept: None, failure: None }
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

    /// Writes `policy` if the file does not have it yet.
    ///
    /// # Errors
    /// Why it cannot be written; the file is as it was. [`Failed::News`] the first time.
    pub(crate) fn keep(&mut self, policy: &Policy) -> Result<(), Failed> {
        if self.kept.as_ref() == Some(policy) {
            return Ok(());
        }
        let [a, b] = &self.ports;
        let text = format!(
            "# The policy of {a} and {b}, kept by narrows run --state: it rewrites this file \
             after each change.\n{}",
            narrows_tc::save(policy)
        );
        match narrows_tc::replace(&self.path, &text) {
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

    fn ports() -> [String; 2] {
        ["nrw-none-a".to_owned(), "nrw-none-b".to_owned()]
    }

    #[test]
    fn the_last_saved_state_is_loaded() {
        let path = std::env::temp_dir().join(format!("nrw-state-{}", std::process::id()));
        let mut state = StateFile::new(path.clone(), &ports());
        assert_eq!(state.load().unwrap(), None);
        let one = policy("qdisc add dev nrw-none-a root cake bandwidth 1mbit");
        let two = policy("qdisc add dev nrw-none-b root pfifo limit 3");
        for policy in [&one, &two, &Policy::default(), &one] {
            state.keep(policy).unwrap();
            let again = StateFile::new(path.clone(), &ports());
            assert_eq!(again.load().unwrap().as_ref(), Some(policy));
        }
        // An unchanged policy is not written again.
        std::fs::write(&path, "qdisc add dev\n").unwrap();
        state.keep(&one).unwrap();
        let refused = state.load().unwrap_err().to_string();
        assert!(refused.contains(":1: "), "{refused}");
        state.keep(&two).unwrap();
        assert_eq!(state.load().unwrap(), Some(two));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_failure_is_news_once() {
        let mut state = StateFile::new("/proc/nowhere/state".into(), &ports());
        let policy = policy("qdisc add dev nrw-none-a root pfifo");
        assert!(
            matches!(state.keep(&policy), Err(Failed::News(why)) if why.contains("/proc/nowhere"))
        );
        assert!(matches!(state.keep(&policy), Err(Failed::Again(_))));
    }

    #[test]
    fn a_missing_folder_is_named_with_the_command_that_makes_it() {
        let mut state = StateFile::new("/proc/nowhere/state".into(), &ports());
        let refused = state.keep(&Policy::default());
        assert!(
            matches!(refused, Err(Failed::News(why)) if why.ends_with("; try: mkdir -p /proc/nowhere"))
        );
    }
}
