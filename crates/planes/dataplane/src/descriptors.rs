//! Whether the limit of open files (`RLIMIT_NOFILE`, getrlimit(2)) lets an instance run.
//!
//! An instance that lacks a descriptor only after it has joined the ports would release them again,
//! or serve no client. So the limit is checked before anything is changed, for the most that an
//! instance may open: sockets, maps and programs, as many clients as the control socket takes, and
//! a second set of programs while those in force are replaced. Sets that filters look up are not
//! counted: a command that lacks a descriptor for one fails alone.

use crate::control::CLIENTS_MAX;
use rustix::process::{Resource, getrlimit, setrlimit};

/// The descriptors of an instance besides those of its queues and clients: about 45 while it runs,
/// and as many again while programs are replaced, or another process takes over.
const ANY: u64 = 128;
/// Those of a queue pair: two sockets, two events and the worker's statistics, with room for more.
const QUEUE: u64 = 8;

/// The limit is too low.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "this process may open {limit} files and needs {needed}: raise the limit, with ulimit -n \
     {needed} (or LimitNOFILE={needed} in the systemd unit)"
)]
pub struct TooFewDescriptors {
    /// The limit.
    pub limit: u64,
    /// What is needed.
    pub needed: u64,
}

/// Raises the limit to what the process may have, and checks that it is enough for `queues` queue
/// pairs. Shells often allow 1024 files.
///
/// # Errors
/// If the process may not have enough.
pub(crate) fn allow(queues: u32) -> Result<(), TooFewDescriptors> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If it is refused, the limit is what it was.
    let _ = setrlimit(Resource::Nofile, limit);
    let needed = needed(queues, open());
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < needed => Err(TooFewDescriptors { limit, needed }),
        _ => Ok(()),
    }
}

/// What an instance with `queues` queue pairs may open, in a process that has opened `open` files.
fn needed(queues: u32, open: u64) -> u64 {
    open + ANY + CLIENTS_MAX as u64 + QUEUE * u64::from(queues)
}

/// How many files are open; 0 if not even one more can be opened, which is too few anyway.
fn open() -> u64 {
    std::fs::read_dir("/proc/self/fd").map_or(0, |open| open.count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_limit_is_enough_for_a_hundred_queues() {
        assert!(needed(100, 3) <= 1024);
    }

    #[test]
    fn the_sentence_says_what_to_raise_and_to_which_value() {
        let said = TooFewDescriptors { limit: 64, needed: 211 }.to_string();
        assert!(said.contains("may open 64 files") && said.contains("ulimit -n 211"), "{said}");
    }
}
