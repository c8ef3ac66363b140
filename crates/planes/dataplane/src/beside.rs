//! Long work beside the loop: on a thread of its own, with a result that the loop takes when it is
//! there. The loop goes on meanwhile.
//!
//! A thread that cannot be started is done without: the work is done at once, on the loop.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;

/// Runs long work on threads beside the loop. It has a descriptor that is readable when work is
/// done.
pub(crate) struct Beside {
    done: UnixStream,
    wakes: UnixStream,
}

/// A result that is awaited.
pub(crate) struct Pending<T>(Receiver<T>);

impl Beside {
    pub(crate) fn new() -> io::Result<Self> {
        let (done, wakes) = UnixStream::pair()?;
        done.set_nonblocking(true)?;
        wakes.set_nonblocking(true)?;
        Ok(Self { done, wakes })
    }

    /// Readable when some work is done; [`Beside::hear`] ends that.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.done.as_fd()
    }

    /// Notes that the loop is awake.
    pub(crate) fn hear(&mut self) {
        while matches!(self.done.read(&mut [0; 64]), Ok(1..)) {}
    }

    /// Does `work`, called `name`, on another thread.
    pub(crate) fn start<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Pending<T> {
        let (sender, receiver) = channel();
        // The work must still be there if no thread takes it.
        let (hand, takes) = channel::<Box<dyn FnOnce() -> T + Send>>();
        let result = sender.clone();
        let started = self.wakes.try_clone().and_then(|mut wakes| {
            thread::Builder::new().name(name.to_owned()).spawn(move || {
                let Ok(work) = takes.recv() else { return };
                // Nobody may wait any more.
                let _ = result.send(work());
                // If the pipe is full, the loop wakes anyway.
                let _ = wakes.write(&[0]);
            })
        });
        match started {
            Ok(_) => drop(hand.send(Box::new(work))),
            Err(error) => {
                log::warn!("no thread for work beside the loop: {error}");
                let _ = sender.send(work());
                let _ = (&self.wakes).write(&[0]);
            }
        }
        Pending(receiver)
    }
}

impl<T> Pending<T> {
    /// The result, once it is there. `Err` if the thread has ended without one.
    pub(crate) fn take(&self) -> Option<Result<T, Lost>> {
        match self.0.try_recv() {
            Ok(result) => Some(Ok(result)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(Lost)),
        }
    }
}

impl<T> Pending<T> {
    /// Waits for the result.
    ///
    /// # Errors
    /// If the thread has ended without one.
    pub(crate) fn wait(self) -> Result<T, Lost> {
        self.0.recv().map_err(|_| Lost)
    }
}

/// The work ended without a result.
#[derive(Debug, thiserror::Error)]
#[error("the thread that did it has ended")]
pub(crate) struct Lost;

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_xsk::wait_readable;

    #[test]
    fn the_loop_goes_on_until_it_is_woken_by_the_result() {
        let mut beside = Beside::new().unwrap();
        let (go, waits) = channel();
        let pending = beside.start("test", move || waits.recv().unwrap());
        assert!(pending.take().is_none());
        go.send(7).unwrap();
        wait_readable([(beside.fd(), true)], Some(10_000_000_000)).unwrap();
        beside.hear();
        assert_eq!(pending.take().unwrap().unwrap(), 7);
        // Its thread may still be ending.
        let again = std::iter::repeat_with(|| pending.take()).find(Option::is_some);
        assert!(matches!(again, Some(Some(Err(Lost)))), "there is only one");
    }
}
