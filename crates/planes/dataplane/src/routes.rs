//! The kernel's routes in the tables where a router's programs look them up first.
//!
//! *A thread of its own* follows the kernel's notifications. A full table takes it seconds, and
//! nothing else waits for it: programs ask the kernel for whatever is not in the tables, or is in
//! doubt.
//!
//! *When it lists everything:* at the start; when changes were lost, or may not have been
//! announced; when it cannot tell what several routes for a prefix come to. Between two listings
//! it pauses for a multiple of the time that one takes.
//!
//! Non-goals: whether the tables may be looked into at all ([`crate::routing`]).

use crate::bell::Bell;
use narrows_bpf::{RouteTables, RoutesError};
use narrows_link::LinkError;
use narrows_link::routes::Follower;
use narrows_xsk::wait_readable;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often settings are read that change without a notification.
const REFRESH: Duration = Duration::from_secs(1);
/// The shortest pause between two listings, and the longest share of the time that they take.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_FACTOR: u32 = 4;
/// How often it is looked whether the first listing is there.
const LOOK: Duration = Duration::from_millis(5);
/// The pause before a listing that only makes things clearer.
const UNCLEAR_PAUSE: Duration = Duration::from_secs(10);

/// Follows the kernel's routes until it is dropped.
pub(crate) struct RouteThread {
    state: Arc<Mutex<State>>,
    stop: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

/// What is known of the kernel's routes, and where programs look it up.
pub(crate) struct State {
    pub(crate) follower: Follower,
    pub(crate) tables: RouteTables,
}

/// Why programs ask the kernel for routes.
#[derive(Debug, thiserror::Error)]
enum FollowError {
    #[error("the kernel's routes cannot be followed: {0}")]
    Link(#[from] LinkError),
    #[error(transparent)]
    Tables(#[from] RoutesError),
}

impl RouteThread {
    /// Follows the routes of the calling thread's namespace in `tables`, for these ports.
    ///
    /// # Errors
    /// If there is no socket, or no thread.
    pub(crate) fn start(
        tables: RouteTables,
        ports: impl IntoIterator<Item = (u32, u8)>,
    ) -> io::Result<Self> {
        let follower = Follower::new(ports).map_err(io::Error::other)?;
        let fd = follower.as_fd().try_clone_to_owned()?;
        let state = Arc::new(Mutex::new(State { follower, tables }));
        let stop = Arc::new(Bell::new()?);
        let work = Work { state: Arc::clone(&state), stop: Arc::clone(&stop), fd };
        let thread = std::thread::Builder::new().name("nrw-routes".to_owned());
        let thread = thread.spawn(move || work.run())?;
        Ok(Self { state, stop, thread: Some(thread) })
    }

    /// Waits until all routes were listed once, at most for `time`.
    pub(crate) fn wait_until_listed(&self, time: Duration) {
        let end = Instant::now() + time;
        let is_listed = || {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.follower.mirror().is_listed()
        };
        while !is_listed() && Instant::now() < end {
            std::thread::sleep(LOOK);
        }
    }

    /// What is known. It is locked while all is listed, which may take seconds.
    pub(crate) fn state(&self) -> Arc<Mutex<State>> {
        Arc::clone(&self.state)
    }
}

impl State {
    /// Follows all that the kernel has announced.
    pub(crate) fn catch_up(&mut self) {
        // The thread complains if it fails.
        while self.follow().unwrap_or(false) {}
    }

    /// Follows what the kernel has announced, at most for some 50 ms; returns whether there was
    /// anything.
    fn follow(&mut self) -> Result<bool, RoutesError> {
        let Self { follower, tables } = self;
        let has_followed = follower.follow();
        tables.follow(follower.mirror_mut())?;
        Ok(has_followed)
    }
}

impl Drop for RouteThread {
    fn drop(&mut self) {
        self.stop.ring();
        // It has panicked, and with it the process, or it ends.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// What the thread has.
struct Work {
    state: Arc<Mutex<State>>,
    stop: Arc<Bell>,
    fd: OwnedFd,
}

impl Work {
    fn run(&self) {
        let mut next_listing = Instant::now();
        let mut next_refresh = Instant::now() + REFRESH;
        let mut complaint = String::new();
        while !self.stop.has_rung() {
            let followed = self.follow(&mut next_listing, &mut next_refresh);
            let said = followed.map_or_else(|error| error.to_string(), |()| String::new());
            if said != complaint && !said.is_empty() {
                log::warn!("{said}; packets are routed by the kernel's look-up");
            }
            complaint = said;
            let until = match self.lock().follower.needs_listing() {
                true => next_listing.min(next_refresh),
                false => next_refresh,
            };
            let timeout = until.saturating_duration_since(Instant::now()).as_nanos();
            let fds = [(self.fd.as_fd(), true), (self.stop.wake(), true)];
            // It fails only for want of memory, and then the next second is soon enough.
            let _ = wait_readable(fds, Some(timeout.try_into().unwrap_or(u64::MAX)));
        }
    }

    fn follow(
        &self,
        next_listing: &mut Instant,
        next_refresh: &mut Instant,
    ) -> Result<(), FollowError> {
        // A step at a time, so that others find the state.
        while !self.stop.has_rung() && self.lock().follow()? {}
        let now = Instant::now();
        let State { follower, tables } = &mut *self.lock();
        if now >= *next_refresh {
            *next_refresh = now + REFRESH;
            follower.refresh()?;
        }
        let is_unclear = follower.mirror().is_unclear() && now >= *next_listing + UNCLEAR_PAUSE;
        if follower.needs_listing() && now >= *next_listing || is_unclear {
            let listed = follower.list();
            let took = now.elapsed();
            *next_listing = now + took + (took * PAUSE_FACTOR).max(PAUSE_MIN);
            log::debug!("routes were listed in {took:?}");
            listed?;
        }
        tables.follow(follower.mirror_mut())?;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
