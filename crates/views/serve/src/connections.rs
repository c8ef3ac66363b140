//! Which connections are open, and which one has to go when another comes.
//!
//! There are places for a fixed number. Where all are taken, a new connection gets one, and another
//! is closed: nobody who only holds connections can keep others out. It is one without valid
//! credentials, if there is any; of these, one of the address that has most; of these, the one
//! whose last request is longest ago. A client that keeps a connection open between requests opens
//! another when it needs to.
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
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Where it comes from.
    pub(crate) address: IpAddr,
    state: Mutex<State>,
    close: Notify,
}

#[derive(Clone, Copy, Debug)]
struct State {
    /// Its last request had valid credentials.
    admitted: bool,
    /// When that was, or when it was opened.
    last: Instant,
}

impl Connection {
    /// A request came at `now`, with valid credentials or not.
    pub(crate) fn asked(&self, admitted: bool, now: Instant) {
        *lock(&self.state) = State { admitted, last: now };
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
        Self { most, open: Mutex::default() }
    }

    /// Adds one from `address` at `now`, and tells another to go if there is no place.
    pub(crate) fn open(&self, address: IpAddr, now: Instant) -> Arc<Connection> {
        let state = Mutex::new(State { admitted: false, last: now });
        let new = Arc::new(Connection { address, state, close: Notify::new() });
        let mut open = lock(&self.open);
        if open.len() >= self.most
            && let Some(place) = least(&open)
        {
            open.swap_remove(place).close.notify_one();
        }
        open.push(Arc::clone(&new));
        new
    }

    /// Removes one that has ended.
    pub(crate) fn end(&self, ended: &Arc<Connection>) {
        lock(&self.open).retain(|one| !Arc::ptr_eq(one, ended));
    }
}

/// The place of the one that goes first.
fn least(open: &[Arc<Connection>]) -> Option<usize> {
    let of_address = |address| open.iter().filter(|one| one.address == address).count();
    let rank = |one: &Arc<Connection>| {
        let State { admitted, last } = *lock(&one.state);
        (admitted, std::cmp::Reverse(of_address(one.address)), last)
    };
    (0..open.len()).min_by_key(|&place| rank(&open[place]))
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
        let all: Vec<_> = (0..5).map(|second| connections.open(GUEST, at(second))).collect();
        let served: Vec<bool> = all.iter().map(|one| is_served(one)).collect();
        assert_eq!(served, [true, true, false, false, false]);
        connections.end(&all[3]);
        let more = connections.open(GUEST, at(9));
        assert!(![&all[2], &all[4], &more].into_iter().any(|one| is_served(one)));
    }

    #[test]
    fn those_with_credentials_stay_and_an_address_with_many_pays() {
        let connections = Connections::new(4);
        let now = Instant::now();
        let admitted = connections.open(OTHER, now);
        admitted.asked(true, now);
        let many: Vec<_> = (0..2).map(|_| connections.open(GUEST, now)).collect();
        let single = connections.open(OTHER, now - Duration::from_secs(5));
        // Two of each address; of the two without credentials the guest's requests count later.
        many.iter().for_each(|one| one.asked(false, now + Duration::from_secs(1)));
        let more: Vec<_> = (0..3).map(|_| connections.open(GUEST, now)).collect();
        assert!(!is_served(&admitted));
        assert!(is_served(&single) || many.iter().any(|one| is_served(one)));
        assert!(!is_served(&more[2]), "the newest has its place");
    }
}
