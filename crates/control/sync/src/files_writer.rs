//! A thread that writes the files from which an instance starts.
//!
//! *Idea.* With 100,000 subscribers the files are tens of megabytes, and a change of one is in
//! force long before they are written. So nobody waits for them: whoever has applied a change asks
//! for the files, and this thread writes what is in force when it comes to it. Requests that come
//! meanwhile are one.
//!
//! *Its end.* When its handle is dropped, it writes first what was asked for. A process that is
//! killed leaves older files, of which the store knows.

use crate::{ApplyError, Settings, files};
use narrows_store::Store;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// When to try again what could not be written.
const AGAIN: Duration = Duration::from_secs(30);
/// By how much the thread is nicer than those that bring changes.
const NICE: i32 = 10;

/// A request: until when, and how.
type Request = (Instant, Settings);

/// Has files written.
#[derive(Debug)]
pub struct FilesWriter {
    requests: Option<Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

impl FilesWriter {
    /// Of the store at `path`.
    pub fn of(path: PathBuf) -> Self {
        let (requests, asked) = mpsc::channel();
        let run = move || {
            // On Linux this thread only. Changes come first; where it is refused, they do not.
            let _ = rustix::process::nice(NICE);
            let write =
                |settings: &Settings| files::write(&mut Store::open(&path)?, settings).map(drop);
            serve(&asked, write);
        };
        let thread = thread::Builder::new().name("files".to_owned()).spawn(run);
        let thread = thread.inspect_err(|error| old_files(&error.to_string())).ok();
        Self { requests: Some(requests), thread }
    }

    /// Has the files of `settings` written that are older than what is in force, within `delay`.
    pub fn write_within(&self, delay: Duration, settings: &Settings) {
        let request = (Instant::now() + delay, settings.clone());
        if self.requests.as_ref().is_none_or(|requests| requests.send(request).is_err()) {
            old_files("the thread that writes them is gone");
        }
    }
}

impl Drop for FilesWriter {
    fn drop(&mut self) {
        self.requests = None;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            old_files("the thread that writes them has panicked");
        }
    }
}

/// Writes whenever it is time for what is `asked`, until nobody can ask any more.
fn serve(asked: &Receiver<Request>, mut write: impl FnMut(&Settings) -> Result<(), ApplyError>) {
    let mut due: Option<Request> = None;
    loop {
        let next = match &due {
            None => asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some((when, _)) => asked.recv_timeout(when.saturating_duration_since(Instant::now())),
        };
        let is_last = match next {
            Ok((when, settings)) => {
                // The earlier time, and the settings that were said last.
                let when = due.map_or(when, |(earlier, _)| earlier.min(when));
                due = Some((when, settings));
                continue;
            }
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => true,
        };
        if let Some((_, settings)) = due.take()
            && let Err(error) = write(&settings)
        {
            old_files(&error.to_string());
            due = Some((Instant::now() + AGAIN, settings));
        }
        if is_last {
            return;
        }
    }
}

/// Files could not be written.
fn old_files(why: &str) {
    log::warn!("the files may be older than what runs: {why}; it is tried again");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For which ports files are written of `requests`, each due in so many milliseconds, if the
    /// first `failures` fail.
    fn written(requests: &[(u64, &str)], failures: usize) -> Vec<String> {
        let (sender, asked) = mpsc::channel();
        for (delay, dev) in requests {
            let mut settings = Settings::default();
            settings.ports.internet = (*dev).to_owned();
            sender.send((Instant::now() + Duration::from_millis(*delay), settings)).expect("open");
        }
        drop(sender);
        let mut written = Vec::new();
        serve(&asked, |settings| {
            written.push(settings.ports.internet.clone());
            match written.len() <= failures {
                true => Err(ApplyError::Busy),
                false => Ok(()),
            }
        });
        written
    }

    #[test]
    fn requests_that_came_meanwhile_are_one_with_the_last_settings() {
        assert_eq!(written(&[(10_000, "a"), (20_000, "b"), (0, "c")], 0), ["c"]);
    }

    #[test]
    fn what_was_asked_for_is_written_at_the_end_and_nothing_else() {
        assert_eq!(written(&[(60_000, "a")], 0), ["a"]);
        assert_eq!(written(&[], 0), [""; 0]);
        // It could not be written, and nobody waits for another try.
        assert_eq!(written(&[(0, "a")], 1), ["a"]);
    }

    #[test]
    fn a_request_is_written_while_others_may_come() {
        let (sender, asked) = mpsc::channel();
        let (done, written) = mpsc::channel();
        let write = move |_: &Settings| {
            // The test may have failed meanwhile.
            let _ = done.send(());
            Ok(())
        };
        let thread = thread::spawn(move || serve(&asked, write));
        for _ in 0..3 {
            sender.send((Instant::now(), Settings::default())).expect("it is open");
            written.recv_timeout(Duration::from_secs(60)).expect("it is written");
        }
        drop(sender);
        thread.join().expect("it ends");
        assert!(written.try_recv().is_err());
    }
}
