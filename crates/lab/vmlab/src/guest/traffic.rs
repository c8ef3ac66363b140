//! Traffic through Narrows, and what arrives.

use super::bed::End;
use anyhow::{Context, Result, bail, ensure};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

/// Requests of one row of pings.
const PINGS: u32 = 10;
/// How long an answer is waited for.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How long a transfer runs before it is measured: slow start, and a full bucket.
const WARM_UP: Duration = Duration::from_secs(1);
/// How long it counts.
const SPAN: Duration = Duration::from_secs(2);

/// Payload of a datagram of a flood, and its frame, in bytes.
const DATAGRAM: usize = 1000;
const FRAME: f64 = DATAGRAM as f64 + 42.0;
/// How often a flood sends.
const FLOOD_TICK: Duration = Duration::from_millis(2);
/// How long a flood runs before it is measured: a full bucket is empty, and a queue full, after a
/// twentieth of a second.
const FLOOD_WARM_UP: Duration = Duration::from_millis(500);
/// How long a flood counts.
pub const FLOOD_SPAN: Duration = Duration::from_secs(2);

/// Headers of an echo request: IPv4 and ICMP.
pub const HEADERS: u32 = 28;
/// The same of IPv6.
pub const HEADERS6: u32 = 48;

/// Sends echo requests with `payload` bytes, and expects all answers.
pub fn ping(from: &End, to: impl Into<IpAddr>, payload: u32) -> Result<()> {
    let answered = answers(from, to, payload, PINGS)?;
    ensure!(answered == PINGS, "{answered} of {PINGS} pings of {payload} B were answered");
    Ok(())
}

/// Waits for the first answer, at most `limit`, and returns the time that it took.
pub fn wait_for_ping(from: &End, to: impl Into<IpAddr>, limit: Duration) -> Result<Duration> {
    let to = to.into();
    let begin = Instant::now();
    while begin.elapsed() < limit {
        if answers(from, to, 56, 1)? > 0 {
            return Ok(begin.elapsed());
        }
    }
    bail!("no ping was answered within {} s", limit.as_secs())
}

/// Sends `count` echo requests with `payload` bytes, ten a second, and returns how many were
/// answered.
pub fn answers(from: &End, to: impl Into<IpAddr>, payload: u32, count: u32) -> Result<u32> {
    // The whole series has a time limit, however slow the machine is.
    let limit = count / 10 + 2 * TIMEOUT.as_secs() as u32;
    let more = ["-q", "-s", &payload.to_string(), "-w", &limit.to_string()];
    let said = pinged(from, to.into(), count, &more)?;
    received(&said).with_context(|| format!("ping did not sum up: {said}"))
}

/// Sends one echo request that may pass `hops` hops, and returns what `ping` says.
pub fn ping_with_hops(from: &End, to: impl Into<IpAddr>, hops: u32) -> Result<String> {
    pinged(from, to.into(), 1, &["-t", &hops.to_string()])
}

fn pinged(from: &End, to: IpAddr, count: u32, more: &[&str]) -> Result<String> {
    let output = from
        .namespace
        .command("ping")
        .args(["-n", "-M", "do", "-i", "0.1", "-W", &TIMEOUT.as_secs().to_string()])
        .args(["-c", &count.to_string()])
        .args(more)
        .arg(to.to_string())
        .env("LC_ALL", "C")
        .output()
        .context("cannot start ping")?;
    let said =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    Ok(said.concat())
}

/// `10 packets transmitted, 9 received, …`
fn received(said: &str) -> Option<u32> {
    let line = said.lines().find(|line| line.contains("packets transmitted"))?;
    let (before, _) = line.split_once(" received")?;
    before.rsplit(' ').next()?.parse().ok()
}

/// One TCP flow: the rate of its payload at the receiver, in Mbit/s.
pub fn transfer(from: &End, to: &End) -> Result<f64> {
    let listener = to.namespace.enter(|| Ok(TcpListener::bind((to.ip, 0))?))?;
    let address = listener.local_addr()?;
    let sending = || from.namespace.enter(|| send(connect(address)?));
    both(sending, || receive(accept(&listener)?))
}

/// The same in the other direction: `to` connects to `from`, which sends.
pub fn transfer_back(to: &End, from: &End) -> Result<f64> {
    let listener = from.namespace.enter(|| Ok(TcpListener::bind((from.ip, 0))?))?;
    let address = listener.local_addr()?;
    both(|| send(accept(&listener)?), || to.namespace.enter(|| receive(connect(address)?)))
}

/// The same from this machine's own stack.
pub fn transfer_from_here(to: &End) -> Result<f64> {
    let listener = to.namespace.enter(|| Ok(TcpListener::bind((to.ip, 0))?))?;
    let address = listener.local_addr()?;
    both(|| send(connect(address)?), || receive(accept(&listener)?))
}

/// The same to this machine's own stack, at its address `to`.
pub fn transfer_to_here(from: &End, to: Ipv4Addr) -> Result<f64> {
    let listener = TcpListener::bind((to, 0))?;
    let address = listener.local_addr()?;
    let sending = || from.namespace.enter(|| send(connect(address)?));
    both(sending, || receive(accept(&listener)?))
}

/// Sends and receives at the same time; what the receiver says.
fn both(
    sending: impl FnOnce() -> Result<()> + Send,
    receiving: impl FnOnce() -> Result<f64> + Send,
) -> Result<f64> {
    thread::scope(|scope| {
        let sending = scope.spawn(sending);
        let received = receiving();
        match sending.join() {
            Ok(sent) => sent.and(received),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn connect(to: SocketAddr) -> Result<TcpStream> {
    TcpStream::connect_timeout(&to, 5 * TIMEOUT).context("cannot connect")
}

fn accept(listener: &TcpListener) -> Result<TcpStream> {
    listener.set_nonblocking(true)?;
    let begin = Instant::now();
    let stream = loop {
        match listener.accept() {
            Ok((stream, _)) => break stream,
            Err(_) if begin.elapsed() < 6 * TIMEOUT => thread::sleep(Duration::from_millis(10)),
            Err(error) => return Err(error).context("nobody connected"),
        }
    };
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn send(mut stream: TcpStream) -> Result<()> {
    stream.set_write_timeout(Some(TIMEOUT))?;
    let chunk = [0; 16 << 10];
    let begin = Instant::now();
    while begin.elapsed() < WARM_UP + SPAN + TIMEOUT {
        match stream.write(&chunk) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // The receiver has seen enough.
            Err(error)
                if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) =>
            {
                break;
            }
            Err(error) => return Err(error).context("cannot send"),
        }
    }
    Ok(())
}

fn receive(mut stream: TcpStream) -> Result<f64> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut chunk = vec![0; 64 << 10];
    let (begin, mut counted, mut bytes) = (Instant::now(), None, 0);
    loop {
        let length = stream.read(&mut chunk).context("nothing more arrived")?;
        let now = begin.elapsed();
        match counted {
            None if now >= WARM_UP => counted = Some(now),
            None => {}
            Some(first) => {
                bytes += length;
                if now - first >= SPAN {
                    return Ok(bytes as f64 * 8e-6 / (now - first).as_secs_f64());
                }
            }
        }
        ensure!(length > 0, "the sender ended early");
    }
}

/// Floods two UDP ports of `to` with `offered` Mbit/s each. Returns the rates of whole frames that
/// arrive, in Mbit/s.
pub fn flood(from: &End, to: &End, ports: [u16; 2], offered: f64) -> Result<[f64; 2]> {
    let flows = ports.map(|port| Flow::new(from, from.ip, to, port));
    let rates = flood_by(&flows, offered, FLOOD_SPAN)?;
    Ok([rates[0], rates[1]])
}

/// A flow of UDP.
pub struct Flow<'a> {
    from: &'a End,
    source: Ipv4Addr,
    to: &'a End,
    port: u16,
}

impl<'a> Flow<'a> {
    /// From `source`, which is an address of `from`, to `port` of `to`.
    pub fn new(from: &'a End, source: Ipv4Addr, to: &'a End, port: u16) -> Self {
        Self { from, source, to, port }
    }

    /// Its ends.
    fn begin(&self) -> Result<[UdpSocket; 2]> {
        let Self { from, source, to, port } = *self;
        let receiver = to.namespace.enter(|| Ok(UdpSocket::bind((to.ip, port))?))?;
        receiver.set_nonblocking(true)?;
        let sender = from.namespace.enter(|| Ok(UdpSocket::bind((source, 0))?))?;
        sender.connect((to.ip, port)).context("cannot reach the server")?;
        Ok([sender, receiver])
    }
}

/// Floods with `offered` Mbit/s of each of `flows` for `span`, after a while that does not count.
/// Returns the rates of whole frames that arrive, in Mbit/s.
pub fn flood_by(flows: &[Flow<'_>], offered: f64, span: Duration) -> Result<Vec<f64>> {
    let flows = flows.iter().map(Flow::begin).collect::<Result<Vec<_>>>()?;
    let mut chunk = [0; DATAGRAM];
    let (begin, mut counted, mut sent) = (Instant::now(), None, 0.0);
    let mut arrived = vec![0u32; flows.len()];
    loop {
        let now = begin.elapsed();
        while sent * FRAME * 8e-6 < offered * now.as_secs_f64() {
            for [sender, _] in &flows {
                // A full socket loses only what exceeds the limit anyway.
                let _ = sender.send(&chunk);
            }
            sent += 1.0;
        }
        for ([_, receiver], arrived) in flows.iter().zip(&mut arrived) {
            while receiver.recv(&mut chunk).is_ok() {
                *arrived += u32::from(counted.is_some());
            }
        }
        match counted {
            None if now >= FLOOD_WARM_UP => counted = Some(now),
            Some(first) if now >= first + span => {
                let megabits = |frames: &u32| f64::from(*frames) * FRAME * 8e-6;
                let seconds = (now - first).as_secs_f64();
                return Ok(arrived.iter().map(|frames| megabits(frames) / seconds).collect());
            }
            _ => thread::sleep(FLOOD_TICK),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_from_the_summary() {
        assert_eq!(received("10 packets transmitted, 9 received, 10% packet loss\n"), Some(9));
        let errors = "3 packets transmitted, 0 received, +3 errors, 100% packet loss\n";
        assert_eq!(received(errors), Some(0));
        assert_eq!(received("ping: unknown host\n"), None);
    }
}
