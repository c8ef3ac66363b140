//! Small UDP requests and their answers at an even pace: the delay of each, and which were lost.
//!
//! A round trip is the time in the network: at both ends the kernel records when a packet arrived,
//! and the answer says how long the far end kept the request. So on a machine whose cores are busy
//! with the load, a packet is read late but its measured time is right. The only unprotected part
//! is the moment between reading the clock and sending.
//!
//! Requests rotate over a number of source ports. One port is a long flow, such as a call; many
//! ports are flows that each start anew, such as DNS look-ups, and they take all queues.

use crate::background::Background;
use crate::bed::End;
use anyhow::{Context, Result};
use nix::cmsg_space;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, sendto, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use std::io::IoSliceMut;
use std::net::{SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Number of the request and how long the far end kept it, in nanoseconds.
const HEADER: usize = 16;
/// The largest datagram.
const DATAGRAM: usize = 1472;
/// How long an answer is waited for after the last request: longer than any queue here holds a
/// packet.
const LINGER: Duration = Duration::from_secs(4);
/// How often a waiting thread checks whether to end.
const LOOK: Duration = Duration::from_millis(50);

/// A kind of probe.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// Its properties.
    pub name: &'static str,
    /// The differentiated services code point of its packets, in both directions.
    pub dscp: u8,
    /// From one request to the next.
    pub interval: Duration,
    /// Payload of a request, in bytes.
    pub request: usize,
    /// Payload of an answer, in bytes.
    pub answer: usize,
    /// Source ports that take turns.
    pub ports: usize,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When it was sent, by the clock of [`now`].
    pub sent: Duration,
    /// How long request and answer were under way together; `None` if there was none.
    pub round_trip: Option<Duration>,
}

/// A probe under way. Ends when dropped.
#[derive(Debug)]
pub struct Running {
    /// The client's thread; the far end's ends with it.
    asking: Background<Vec<Sample>>,
}

/// The time by the clock that the kernel stamps packets with.
pub fn now() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_REALTIME).map(Duration::from)?)
}

impl Probe {
    /// Starts to send from one end to the other.
    pub fn start(self, from: End<'_>, to: End<'_>) -> Result<Running> {
        let far = self.socket(to)?;
        far.set_read_timeout(Some(LOOK))?;
        let address = SocketAddrV4::new(to.ip, far.local_addr()?.port());
        let near = (0..self.ports.max(1)).map(|_| self.socket(from)).collect::<Result<Vec<_>>>()?;
        let asking = Background::start(self.name, move |end| {
            let answered = AtomicBool::new(false);
            thread::scope(|scope| {
                let echo = scope.spawn(|| self.echo(&far, &answered));
                let samples = self.ask(&near, address, end);
                answered.store(true, Ordering::Relaxed);
                match echo.join() {
                    Ok(result) => result.and(samples),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            })
        })?;
        Ok(Running { asking })
    }

    /// A socket at `end` that marks its packets and has time stamps of arrivals.
    fn socket(&self, end: End<'_>) -> Result<UdpSocket> {
        let socket = end.namespace.enter(|| {
            UdpSocket::bind((end.ip, 0)).with_context(|| format!("cannot bind to {}", end.ip))
        })?;
        setsockopt(&socket, sockopt::Ipv4Tos, &i32::from(self.dscp << 2))?;
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        Ok(socket)
    }

    /// Answers until `end` says so.
    fn echo(&self, socket: &UdpSocket, end: &AtomicBool) -> Result<()> {
        let mut datagram = [0; DATAGRAM];
        while !end.load(Ordering::Relaxed) {
            let Some((from, arrived)) = receive(socket, &mut datagram, MsgFlags::empty())? else {
                continue;
            };
            let kept = now()?.saturating_sub(arrived);
            let kept = u64::try_from(kept.as_nanos()).unwrap_or(u64::MAX);
            datagram[8..HEADER].copy_from_slice(&kept.to_le_bytes());
            send(socket, &datagram[..self.answer.clamp(HEADER, DATAGRAM)], from)?;
        }
        Ok(())
    }

    /// Asks until `end` says so, and then waits for the answers.
    fn ask(
        &self,
        sockets: &[UdpSocket],
        to: SocketAddrV4,
        end: &AtomicBool,
    ) -> Result<Vec<Sample>> {
        let mut samples: Vec<Sample> = Vec::new();
        let mut missing = 0_usize;
        let mut due = Instant::now();
        let request = vec![0; self.request.clamp(HEADER, DATAGRAM)];
        while !end.load(Ordering::Relaxed) {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let mut request = request.clone();
                request[..8].copy_from_slice(&(samples.len() as u64).to_le_bytes());
                let socket = &sockets[samples.len() % sockets.len()];
                samples.push(Sample { sent: now()?, round_trip: None });
                missing += 1;
                send(socket, &request, to.into())?;
                // A stall is not made up for.
                due = Instant::max(due + self.interval, Instant::now());
            } else {
                missing -= answers(sockets, left, &mut samples)?;
            }
        }
        let close = Instant::now() + LINGER;
        while missing > 0 && Instant::now() < close {
            missing -= answers(sockets, LOOK, &mut samples)?;
        }
        Ok(samples)
    }
}

/// Waits for answers, at most `limit`, and notes those that came. Returns how many were missing
/// until now.
fn answers(sockets: &[UdpSocket], limit: Duration, samples: &mut [Sample]) -> Result<usize> {
    let mut polled: Vec<PollFd<'_>> =
        sockets.iter().map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)).collect();
    match ppoll(&mut polled, Some(TimeSpec::from_duration(limit)), None) {
        Ok(0) | Err(Errno::EINTR) => return Ok(0),
        Ok(_) => {}
        Err(errno) => return Err(errno).context("cannot wait for answers"),
    }
    let mut found = 0;
    let mut datagram = [0; DATAGRAM];
    for (socket, poll) in sockets.iter().zip(&polled) {
        if !poll.any().unwrap_or(false) {
            continue;
        }
        while let Some((_, arrived)) = receive(socket, &mut datagram, MsgFlags::MSG_DONTWAIT)? {
            let [number, kept] = header(&datagram);
            let sample = usize::try_from(number).ok().and_then(|number| samples.get_mut(number));
            let Some(sample) = sample.filter(|sample| sample.round_trip.is_none()) else {
                continue;
            };
            let took = arrived.saturating_sub(sample.sent);
            sample.round_trip = Some(took.saturating_sub(Duration::from_nanos(kept)));
            found += 1;
        }
    }
    Ok(found)
}

fn header(datagram: &[u8; DATAGRAM]) -> [u64; 2] {
    let mut words = datagram.chunks_exact(8).map(|word| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(word);
        u64::from_le_bytes(bytes)
    });
    [(); 2].map(|()| words.next().unwrap_or_default())
}

/// A datagram with its sender and when it arrived; `None` if there is none in time.
pub(crate) fn receive(
    socket: &UdpSocket,
    datagram: &mut [u8],
    flags: MsgFlags,
) -> Result<Option<(SockaddrIn, Duration)>> {
    let mut space = cmsg_space!(TimeSpec);
    let mut slices = [IoSliceMut::new(datagram)];
    let message =
        match recvmsg::<SockaddrIn>(socket.as_raw_fd(), &mut slices, Some(&mut space), flags) {
            Ok(message) => message,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(None),
            Err(errno) => return Err(errno).context("cannot receive a probe"),
        };
    let from = message.address.context("a probe without a sender")?;
    let arrived = message.cmsgs()?.find_map(|part| match part {
        ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
        _ => None,
    });
    Ok(Some((from, arrived.context("the kernel does not say when a packet arrived")?)))
}

/// A probe that the device has no room for is lost, as anywhere on the path.
pub(crate) fn send(socket: &UdpSocket, datagram: &[u8], to: SockaddrIn) -> Result<()> {
    match sendto(socket.as_raw_fd(), datagram, &to, MsgFlags::empty()) {
        Ok(_) | Err(Errno::ENOBUFS | Errno::EAGAIN) => Ok(()),
        Err(errno) => Err(errno).context("cannot send a probe"),
    }
}

impl Running {
    /// Stops sending, waits for probes under way, and returns all requests in their order.
    pub fn stop(self) -> Result<Vec<Sample>> {
        self.asking.stop()
    }

    /// Stops sending; [`stop`](Self::stop) returns the results.
    pub fn pause(&self) {
        self.asking.tell();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_two_numbers() {
        let mut datagram = [0; DATAGRAM];
        datagram[..8].copy_from_slice(&7_u64.to_le_bytes());
        datagram[8..16].copy_from_slice(&300_u64.to_le_bytes());
        assert_eq!(header(&datagram), [7, 300]);
    }

    #[test]
    fn every_request_over_loopback_is_answered() {
        let from = |ip| UdpSocket::bind((ip, 0)).unwrap();
        let probe = Probe {
            name: "loopback",
            dscp: 46,
            interval: Duration::from_millis(2),
            request: 64,
            answer: 200,
            ports: 3,
        };
        let ip = std::net::Ipv4Addr::LOCALHOST;
        let sockets: Vec<UdpSocket> = (0..4).map(|_| from(ip)).collect();
        for socket in &sockets {
            setsockopt(socket, sockopt::ReceiveTimestampns, &true).unwrap();
        }
        let (far, near) = sockets.split_first().unwrap();
        far.set_read_timeout(Some(LOOK)).unwrap();
        let address = SocketAddrV4::new(ip, far.local_addr().unwrap().port());
        let (end, answered) = (AtomicBool::new(false), AtomicBool::new(false));
        let samples = thread::scope(|scope| {
            scope.spawn(|| probe.echo(far, &answered).unwrap());
            let asking = scope.spawn(|| probe.ask(near, address, &end).unwrap());
            thread::sleep(Duration::from_millis(100));
            end.store(true, Ordering::Relaxed);
            let samples = asking.join().unwrap();
            answered.store(true, Ordering::Relaxed);
            samples
        });
        assert!(samples.len() >= 2);
        assert!(samples.iter().all(|sample| sample.round_trip.is_some()), "{samples:?}");
    }
}
