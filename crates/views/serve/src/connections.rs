//! Which connections are open, and which one has to go when another comes.
//!
//! There are places for a fixed number. Where all are taken, a new connection gets one, and another
//! is closed: nobody who only holds connections can keep others out. It is one without valid
//! credentials, if there is any; of these, one of the address that has most; of these, the one
//! whose last request is longest ago. A client that keeps a connection open between requests opens
//! another when it needs to.
//!
//! A connection over which somebody with a token is writing is not closed: the write would be done
//! and its client would not hear of it. Where all places are taken by these, a new connection
//! waits; each write ends after a bounded time.
//!
//! Cost: a look at each place for a new connection while all are taken; none for a request.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::Notify;

/// The open connections.
#[derive(Debug)]
pub(crate) struct Connections {
    most: usize,
    open: Mutex<Vec<Arc<Connection>>>,
    /// A place may be free.
    freed: Arc<Notify>,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Where it comes from.
    pub(crate) address: IpAddr,
    state: Mutex<State>,
    close: Notify,
    freed: Arc<Notify>,
}

/// A write over a connection, until it is answered.
#[derive(Debug)]
pub(crate) struct Writing<'a>(&'a Connection);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).writes = false;
        self.0.freed.notify_one();
    }
}

#[derive(Clone, Copy, Debug)]
struct State {
    /// Somebody with a token is writing.
    writes: bool,
    /// Its last request had valid credentials.
    admitted: bool,
    /// When that was, or when it was opened.
    last: Instant,
}

impl Connection {
    /// A request came at `now`, with valid credentials or not.
    pub(crate) fn asked(&self, admitted: bool, now: Instant) {
        *lock(&self.state) = State { writes: false, admitted, last: now };
    }

    /// Begins a write with a valid token at `now`: the connection stays open until its end.
    pub(crate) fn writes(&self, now: Instant) -> Writing<'_> {
        *lock(&self.state) = State { writes: true, admitted: true, last: now };
        Writing(self)
    }

    /// Whether its last request had valid credentials.
    pub(crate) fn is_admitted(&self) -> bool {
        lock(&self.state).admitted
    }

    /// Ends when it has to go.
    pub(crate) async fn has_to_go(&self) {
        self.close.notified().await;
    }
}

impl Connections {
    /// None, with places for `most`.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, open: Mutex::default(), freed: Arc::default() }
    }

    /// Adds one from `address`, and tells another to go if there is no place. Waits while all
    /// others write.
    pub(crate) async fn open(&self, address: IpAddr) -> Arc<Connection> {
        loop {
            if lock(&self.open).len() >= self.most {
                // Many that come at once have asked already: who writes is known once all
                // requests that are here have been read.
                tokio::task::yield_now().await;
            }
            if let Some(new) = self.try_open(address, Instant::now()) {
                return new;
            }
            self.freed.notified().await;
        }
    }

    /// The same at `now`; none while all others write.
    pub(crate) fn try_open(&self, address: IpAddr, now: Instant) -> Option<Arc<Connection>> {
        let state = Mutex::new(State { writes: false, admitted: false, last: now });
        let freed = Arc::clone(&self.freed);
        let new = Arc::new(Connection { address, state, close: Notify::new(), freed });
        let mut open = lock(&self.open);
        if open.len() >= self.most {
            let place = least(&open)?;
            open.swap_remove(place).close.notify_one();
        }
        open.push(Arc::clone(&new));
        Some(new)
    }

    /// Returns when nobody writes any more.
    pub(crate) async fn written(&self) {
        while lock(&self.open).iter().any(|connection| lock(&connection.state).writes) {
            self.freed.notified().await;
        }
    }

    /// Removes one that has ended.
    pub(crate) fn end(&self, ended: &Arc<Connection>) {
        lock(&self.open).retain(|one| !Arc::ptr_eq(one, ended));
        self.freed.notify_one();
    }
}

/// The place of the one that goes first; none if all write.
fn least(open: &[Arc<Connection>]) -> Option<usize> {
    let of_address = |address| open.iter().filter(|one| one.address == address).count();
    let rank = |one: &Arc<Connection>| {
        let State { admitted, last, .. } = *lock(&one.state);
        (admitted, std::cmp::Reverse(of_address(one.address)), last)
    };
    let places = (0..open.len()).filter(|&place| !lock(&open[place].state).writes);
    places.min_by_key(|&place| rank(&open[place]))
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const GUEST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    fn is_served(connection: &Connection) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let served =
            async { tokio::time::timeout(Duration::from_millis(1), connection.has_to_go()).await };
        runtime.block_on(served).is_ok()
    }

    #[test]
    fn a_new_connection_always_finds_a_place() {
        let connections = Connections::new(3);
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let all: Vec<_> =
            (0..5).map(|second| connections.try_open(GUEST, at(second)).unwrap()).collect();
        let served: Vec<bool> = all.iter().map(|one| is_served(one)).collect();
        assert_eq!(served, [true, true, false, false, false]);
        connections.end(&all[3]);
        let more = connections.try_open(GUEST, at(9)).unwrap();
        assert!(![&all[2], &all[4], &more].into_iter().any(|one| is_served(one)));
    }

    #[test]
    fn those_with_credentials_stay_and_an_address_with_many_pays() {
        let connections = Connections::new(4);
        let now = Instant::now();
        let admitted = connections.try_open(OTHER, now).unwrap();
        admitted.asked(true, now);
        let many: Vec<_> = (0..2).map(|_| connections.try_open(GUEST, now).unwrap()).collect();
        let single = connections.try_open(OTHER, now - Duration::from_secs(5)).unwrap();
        // Two of each address; of the two without credentials the guest's requests count later.
        many.iter().for_each(|one| one.asked(false, now + Duration::from_secs(1)));
        let more: Vec<_> = (0..3).map(|_| connections.try_open(GUEST, now).unwrap()).collect();
        assert!(!is_served(&admitted));
        assert!(is_served(&single) || many.iter().any(|one| is_served(one)));
        assert!(!is_served(&more[2]), "the newest has its place");
    }

    #[test]
    fn a_write_is_answered_before_its_connection_goes() {
        let connections = Connections::new(2);
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let first = connections.try_open(GUEST, now).unwrap();
        let second = connections.try_open(GUEST, now).unwrap();
        let (write, other) = (first.writes(at(1)), second.writes(at(2)));
        assert!(connections.try_open(GUEST, at(3)).is_none(), "both are writing");
        drop(other);
        let third = connections.try_open(GUEST, at(3)).unwrap();
        assert!(is_served(&second) && !is_served(&first), "the one whose write has ended goes");
        let other = third.writes(at(4));
        connections.end(&first);
        drop(write);
        assert!(connections.try_open(GUEST, at(5)).is_some(), "an end makes room");
        drop(other);
    }

    #[test]
    fn a_new_connection_waits_for_the_end_of_a_write() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let connections = Connections::new(1);
            let first = connections.open(GUEST).await;
            let write = first.writes(Instant::now());
            let end = async {
                tokio::task::yield_now().await;
                drop(write);
            };
            tokio::join!(connections.open(GUEST), end);
        });
        // Both have ended: nobody waits for ever.
    }
}
