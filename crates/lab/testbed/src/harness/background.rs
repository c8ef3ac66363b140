//! A thread that its creator can stop.

use anyhow::{Context, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// A thread that runs until it is stopped. Dropping this stops it and waits for it.
#[derive(Debug)]
pub struct Background<T> {
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<T>>>,
}

impl<T: Send + 'static> Background<T> {
    /// Runs `task` in a thread called `name`. The task must check its flag often, and return when
    /// it is set.
    pub fn start(
        name: &str,
        task: impl FnOnce(&AtomicBool) -> Result<T> + Send + 'static,
    ) -> Result<Self> {
        let end = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&end);
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || task(&ended))
            .context("cannot start a thread")?;
        Ok(Self { end, thread: Some(thread) })
    }

    /// Stops it and returns its result.
    pub fn stop(mut self) -> Result<T> {
        self.tell();
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(outcome)) => outcome,
            _ => anyhow::bail!("a thread of the test bed did not end as it should"),
        }
    }
}

impl<T> Background<T> {
    /// Tells it to stop without waiting.
    pub fn tell(&self) {
        self.end.store(true, Ordering::Relaxed);
    }
}

impl<T> Drop for Background<T> {
    fn drop(&mut self) {
        self.tell();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count_until(end: &AtomicBool) -> Result<u64> {
        let mut rounds = 0;
        while !end.load(Ordering::Relaxed) {
            rounds += 1;
            thread::yield_now();
        }
        Ok(rounds)
    }

    #[test]
    fn it_runs_until_it_is_stopped_and_reports() {
        let (say, began) = std::sync::mpsc::channel();
        let task = move |end: &AtomicBool| {
            say.send(())?;
            count_until(end)
        };
        let background = Background::start("count", task).unwrap();
        began.recv().unwrap();
        background.stop().unwrap();
    }

    #[test]
    fn dropped_it_has_ended() {
        let (say, ended) = std::sync::mpsc::channel();
        let task = move |end: &AtomicBool| {
            count_until(end)?;
            Ok(say.send(())?)
        };
        drop(Background::start("count", task).unwrap());
        ended.try_recv().unwrap();
    }

    #[test]
    fn a_panic_is_an_error() {
        let task = |_: &AtomicBool| -> Result<()> { panic!("on purpose") };
        assert!(Background::start("panics", task).unwrap().stop().is_err());
    }
}
