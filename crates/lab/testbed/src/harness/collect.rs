//! Reads a child's output while it runs, so that the child never waits for its reader.

use std::io::Read;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often a waiting reader looks.
const POLL: Duration = Duration::from_millis(2);

/// Collects one stream until it ends.
#[derive(Debug)]
pub struct Collector {
    bytes: Arc<Mutex<Vec<u8>>>,
    thread: JoinHandle<()>,
}

impl Collector {
    /// Collects from `stream`.
    pub fn over(mut stream: impl Read + Send + 'static) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&bytes);
        let thread = thread::spawn(move || {
            let mut chunk = vec![0; 65_536];
            while let Ok(length @ 1..) = stream.read(&mut chunk) {
                let mut bytes = shared.lock().unwrap_or_else(PoisonError::into_inner);
                bytes.extend_from_slice(&chunk[..length]);
            }
        });
        Self { bytes, thread }
    }

    /// Collects all output of `command` on both streams, in its order. The stream ends when the
    /// child and everything that it starts have ended, and `command` is dropped.
    pub fn over_both(command: &mut Command) -> std::io::Result<Self> {
        let (reader, writer) = std::io::pipe()?;
        command.stdout(writer.try_clone()?).stderr(writer);
        Ok(Self::over(reader))
    }

    /// Reads the output so far.
    pub fn look<T>(&self, at: impl FnOnce(&[u8]) -> T) -> T {
        at(&self.bytes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The output so far, as text.
    pub fn text(&self) -> String {
        self.look(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// Waits until `enough` came, at most `limit`; whether it did.
    pub fn wait_until(&self, enough: impl Fn(&[u8]) -> bool, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            // In this order, so that the last output is seen.
            let over = self.thread.is_finished() || Instant::now() >= deadline;
            if self.look(&enough) {
                return true;
            }
            if over {
                return false;
            }
            thread::sleep(POLL);
        }
    }

    /// All that came, as text, once the stream has ended.
    pub fn finish(self) -> String {
        // Nothing in the thread panics, and earlier output would still count.
        let _ = self.thread.join();
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_a_pipe_holds_does_not_stop_the_child() {
        let mut command = Command::new("sh");
        command.args(["-c", "yes word | head -c 300000; echo end >&2"]);
        let collector = Collector::over_both(&mut command).unwrap();
        assert!(command.status().unwrap().success());
        drop(command);
        let text = collector.finish();
        assert!(text.len() == 300_004 && text.ends_with("end\n"), "{}", text.len());
    }

    #[test]
    fn waiting_ends_with_the_stream() {
        let collector = Collector::over(&b"short"[..]);
        assert!(!collector.wait_until(|bytes| bytes.len() > 5, Duration::from_secs(60)));
        assert!(collector.wait_until(|bytes| bytes == b"short", Duration::from_secs(60)));
    }
}
