//! UDP in one direction, each stream at its own rate to its own address: arrivals and delays.
//!
//! Sender and receiver share a clock, and the kernel records when a datagram arrived
//! ([`crate::probe`]), so a delay is that of one direction. Intervals vary randomly by half: at
//! even intervals several streams would keep their initial order, and one of them would always come
//! last.

use crate::background::Background;
use crate::bed::End;
use crate::frames::HEADERS;
use crate::namespace::Namespace;
use crate::probe::{now, receive, send};
use anyhow::{Context, Result, ensure};
use narrows_units::Rate;
use nix::sys::socket::{MsgFlags, setsockopt, sockopt};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng};
use std::net::{SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The first bytes of a datagram say when it was sent, in nanoseconds.
const STAMP: usize = 8;
/// The largest datagram.
const DATAGRAM: usize = 1472;
/// How often a waiting thread checks whether to end.
const LOOK: Duration = Duration::from_millis(50);
/// A longer delay is not made up for.
const STALL: Duration = Duration::from_millis(20);

/// A stream that is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Where it goes.
    pub to: SocketAddrV4,
    /// Its differentiated services code point.
    pub dscp: u8,
    /// Length of its frames, Ethernet header included.
    pub frame: usize,
    /// How much is sent, in whole frames.
    pub rate: Rate,
}

/// A datagram that arrived, by the clock of [`now`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When it was sent.
    pub sent: Duration,
    /// When it arrived.
    pub arrived: Duration,
}

/// A stream under way. Ends when dropped.
#[derive(Debug)]
pub struct Running {
    receiver: Background<Vec<Arrival>>,
    sender: Background<()>,
}

impl Stream {
    /// Begins to send it from one end to a socket in the namespace `to`. `seed` draws the
    /// intervals.
    pub fn start(self, from: End<'_>, to: &Namespace, seed: u64) -> Result<Running> {
        let payload = self.frame.saturating_sub(HEADERS);
        ensure!((STAMP..=DATAGRAM).contains(&payload), "no UDP frame has {} bytes", self.frame);
        let address = self.to;
        let far = to.enter(|| {
            UdpSocket::bind(address).with_context(|| format!("cannot bind to {address}"))
        })?;
        setsockopt(&far, sockopt::ReceiveTimestampns, &true)?;
        far.set_read_timeout(Some(LOOK))?;
        let near = from.namespace.enter(|| Ok(UdpSocket::bind((from.ip, 0))?))?;
        setsockopt(&near, sockopt::Ipv4Tos, &i32::from(self.dscp << 2))?;
        Ok(Running {
            receiver: Background::start("udp-reader", move |end| read(&far, end))?,
            sender: Background::start("udp-writer", move |end| self.write(&near, seed, end))?,
        })
    }

    fn write(&self, socket: &UdpSocket, seed: u64, end: &AtomicBool) -> Result<()> {
        let mut datagram = vec![0; self.frame - HEADERS];
        let mean =
            Duration::from_secs_f64(self.frame as f64 * 8.0 / self.rate.bits_per_sec() as f64);
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut due = Instant::now();
        while !end.load(Ordering::Relaxed) {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            datagram[..STAMP].copy_from_slice(&(now()?.as_nanos() as u64).to_le_bytes());
            send(socket, &datagram, self.to.into())?;
            let share = f64::from(random.next_u32()) / f64::from(u32::MAX);
            due = Instant::max(due + mean.mul_f64(0.5 + share), Instant::now() - STALL);
        }
        Ok(())
    }
}

fn read(socket: &UdpSocket, end: &AtomicBool) -> Result<Vec<Arrival>> {
    let mut arrivals = Vec::new();
    let mut datagram = [0; DATAGRAM];
    while !end.load(Ordering::Relaxed) {
        if let Some((_, arrived)) = receive(socket, &mut datagram, MsgFlags::empty())? {
            let mut stamp = [0; STAMP];
            stamp.copy_from_slice(&datagram[..STAMP]);
            let sent = Duration::from_nanos(u64::from_le_bytes(stamp));
            arrivals.push(Arrival { sent, arrived });
        }
    }
    Ok(arrivals)
}

impl Running {
    /// Ends it, and returns what arrived.
    pub fn stop(self) -> Result<Vec<Arrival>> {
        self.sender.stop()?;
        self.receiver.stop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_over_loopback_carry_their_sending_time() {
        let ip = std::net::Ipv4Addr::LOCALHOST;
        let [near, far] = [(); 2].map(|()| UdpSocket::bind((ip, 0)).unwrap());
        setsockopt(&far, sockopt::ReceiveTimestampns, &true).unwrap();
        far.set_read_timeout(Some(LOOK)).unwrap();
        let to = SocketAddrV4::new(ip, far.local_addr().unwrap().port());
        let rate = Rate::from_bits_per_sec(1_600_000); // a frame every millisecond
        let stream = Stream { to, dscp: 0, frame: 200, rate };
        let (began, end, over) = (now().unwrap(), AtomicBool::new(false), AtomicBool::new(false));
        let arrivals = thread::scope(|scope| {
            let sending = scope.spawn(|| stream.write(&near, 1, &end).unwrap());
            let reading = scope.spawn(|| read(&far, &over).unwrap());
            thread::sleep(Duration::from_millis(100));
            end.store(true, Ordering::Relaxed);
            sending.join().unwrap();
            over.store(true, Ordering::Relaxed);
            reading.join().unwrap()
        });
        assert!((2..=220).contains(&arrivals.len()), "{}", arrivals.len());
        assert!(arrivals.iter().all(|arrival| (began..=arrival.arrived).contains(&arrival.sent)));
    }
}
