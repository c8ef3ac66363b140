//! Wrong passwords: few for each address, and in the log.
//!
//! An address has ten attempts, and another one each six seconds, so a password of eight random
//! letters takes thousands of years. Meanwhile nothing is checked for it, right or wrong: otherwise
//! a right one could still be found. A whole network of IPv6 addresses (/64) counts as one, since a
//! single host has as many as it likes.
//!
//! Behind a reverse proxy all clients have the proxy's address, so it should check credentials
//! itself.
//!
//! Bounded: the addresses of which attempts are remembered. The one that is unused for longest is
//! forgotten, which gives it its ten attempts again.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// How many attempts an address has at once.
const ATTEMPTS: u32 = 10;
/// How long until it has another one.
const ANOTHER: Duration = Duration::from_secs(6);
/// How many addresses are remembered.
const REMEMBERED: usize = 4096;
/// The least time between two lines in the log.
const LOG_EVERY: Duration = Duration::from_secs(1);

/// The wrong attempts so far.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    /// When all attempts of an address are there again.
    full_at: BTreeMap<IpAddr, Instant>,
    logged: Option<Instant>,
    unlogged: u64,
}

impl Attempts {
    /// How long `address` has to wait at `now` until a password of it is checked; none if it may
    /// try.
    pub(crate) fn must_wait(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let full_at = self.full_at.get(&network(address))?;
        let used = full_at.saturating_duration_since(now);
        let room = ANOTHER * (ATTEMPTS - 1);
        (used > room).then(|| used - room)
    }

    /// A wrong password came from `address` at `now`.
    pub(crate) fn wrong(&mut self, address: IpAddr, now: Instant) {
        let network = network(address);
        if self.full_at.len() >= REMEMBERED && !self.full_at.contains_key(&network) {
            let oldest = self.full_at.iter().min_by_key(|(_, full_at)| **full_at);
            if let Some(oldest) = oldest.map(|(address, _)| *address) {
                self.full_at.remove(&oldest);
            }
        }
        let full_at = self.full_at.entry(network).or_insert(now);
        *full_at = (*full_at).max(now) + ANOTHER;
        self.log(address, now);
    }

    fn log(&mut self, address: IpAddr, now: Instant) {
        let is_soon = |last: Instant| now.saturating_duration_since(last) < LOG_EVERY;
        if self.logged.is_some_and(is_soon) {
            self.unlogged += 1;
            return;
        }
        self.logged = Some(now);
        match std::mem::take(&mut self.unlogged) {
            0 => log::warn!("wrong credentials from {address}"),
            more => log::warn!("wrong credentials from {address}, and {more} times before"),
        }
    }
}

/// What counts as one client.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn an_address_has_ten_attempts_and_then_one_each_six_seconds() {
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        for _ in 0..ATTEMPTS {
            assert_eq!(attempts.must_wait(v4(1), now), None);
            attempts.wrong(v4(1), now);
        }
        assert_eq!(attempts.must_wait(v4(1), now), Some(ANOTHER));
        assert_eq!(attempts.must_wait(v4(2), now), None);
        assert_eq!(attempts.must_wait(v4(1), now + ANOTHER), None);
        attempts.wrong(v4(1), now + ANOTHER);
        assert_eq!(attempts.must_wait(v4(1), now + ANOTHER), Some(ANOTHER));
    }

    #[test]
    fn the_addresses_of_one_host_are_one() {
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        for host in 0..ATTEMPTS {
            attempts.wrong(format!("2001:db8::{host:x}").parse().unwrap(), now);
        }
        assert!(attempts.must_wait("2001:db8::ffff".parse().unwrap(), now).is_some());
        assert!(attempts.must_wait("2001:db8:0:1::1".parse().unwrap(), now).is_none());
    }

    #[test]
    fn no_number_of_addresses_takes_more_memory() {
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        for number in 0..2 * REMEMBERED as u32 {
            attempts.wrong(IpAddr::from(number.to_be_bytes()), now + Duration::from_millis(1));
        }
        assert_eq!(attempts.full_at.len(), REMEMBERED);
    }
}
