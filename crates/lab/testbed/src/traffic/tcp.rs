//! TCP flows, each with a mark, on a chosen queue, and counted separately.
//!
//! The kernel draws a hash for each connection, and the hash selects the queue, regardless of
//! ports. So each connection is opened, the queue of its first packets is looked up
//! ([`QueueCounters`]), and it is kept or closed depending on whether a flow is wanted there. It
//! stays on its queue as long as the kernel draws no new hash, which is disabled. If ports select
//! the queue ([`crate::steering::by_port`]), connections go [to those](Flows::to).
//!
//! Payload is counted once, when the receiver has read it.

use crate::bed::{End, Testbed};
use crate::namespace::Namespace;
use crate::steering::QueueCounters;
use anyhow::{Context, Result, bail, ensure};
use nix::sys::socket::{setsockopt, sockopt};
use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Connections opened at most to find one for every flow.
const TRIES: usize = 200;
/// How the flows slow down: by losses and marks, so that a queue without either is filled.
const CONGESTION_CONTROL: &str = "cubic";
/// The bytes per write or read.
const CHUNK: usize = 128 << 10;
/// How often a waiting thread checks whether to end.
const LOOK: Duration = Duration::from_millis(100);

/// A flow that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The differentiated services code point of its packets, in both directions.
    pub dscp: u8,
    /// The queue of the sender's device that its packets take.
    pub queue: usize,
}

/// Connections that are open and idle.
#[derive(Debug)]
pub struct Flows {
    /// Sender's side and receiver's.
    pairs: Vec<[TcpStream; 2]>,
}

impl Flows {
    /// Opens `wanted` from one end to the other, through any forwarder on an otherwise idle
    /// testbed.
    pub fn open(bed: &Testbed, from: End<'_>, to: End<'_>, wanted: &[Flow]) -> Result<Self> {
        for end in [from, to] {
            // No new hash after a loss.
            end.namespace.set("core.txrehash", "0")?;
        }
        let counters = QueueCounters::over(from, bed.queues())?;
        let listener = to.namespace.enter(|| Ok(TcpListener::bind((to.ip, 0))?))?;
        let address = SocketAddrV4::new(to.ip, listener.local_addr()?.port());
        let mut found: Vec<Option<[TcpStream; 2]>> = wanted.iter().map(|_| None).collect();
        // Closed at the end, so that their FINs are not taken for a new flow's first packets.
        let mut not_wanted = Vec::new();
        for _ in 0..TRIES {
            let before = counters.read()?;
            let sender = from.namespace.enter(|| {
                TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))
            })?;
            let pair = [sender, listener.accept()?.0];
            let queue = most_grown(&before, &counters.read()?);
            let place = (0..wanted.len())
                .find(|&flow| found[flow].is_none() && Some(wanted[flow].queue) == queue);
            match place {
                Some(flow) => found[flow] = Some(set_up(pair, wanted[flow].dscp)?),
                None => not_wanted.push(pair),
            }
            if found.iter().all(Option::is_some) {
                return Ok(Self { pairs: found.into_iter().flatten().collect() });
            }
        }
        bail!("of {TRIES} connections, too few took the queues that were wanted; is XPS set?")
    }

    /// Opens one from an end to each of `addresses` in the namespace `far`.
    pub fn to(from: End<'_>, far: &Namespace, addresses: &[SocketAddrV4]) -> Result<Self> {
        let connect = |address: &SocketAddrV4| {
            let listener = far.enter(|| Ok(TcpListener::bind(address)?))?;
            let sender = from.namespace.enter(|| Ok(TcpStream::connect(address)?))?;
            set_up([sender, listener.accept()?.0], 0)
        };
        let pairs = addresses.iter().map(|address| {
            connect(address).with_context(|| format!("cannot connect to {address}"))
        });
        Ok(Self { pairs: pairs.collect::<Result<_>>()? })
    }

    /// Begins to send on all of them, as fast as each may.
    pub fn start(self) -> Result<Running> {
        let end = Arc::new(AtomicBool::new(false));
        let mut running = Running { end, received: Vec::new(), threads: Vec::new() };
        for [sender, receiver] in self.pairs {
            let received = Arc::new(AtomicU64::new(0));
            let (end, count) = (Arc::clone(&running.end), Arc::clone(&received));
            running.received.push(received);
            running.spawn("tcp-reader", move || read(receiver, &end, &count))?;
            let end = Arc::clone(&running.end);
            running.spawn("tcp-writer", move || write(sender, &end))?;
        }
        Ok(running)
    }
}

/// The queue that has sent most since `before`; `None` if none has sent anything.
fn most_grown(before: &[u64], after: &[u64]) -> Option<usize> {
    let grown = before.iter().zip(after).map(|(before, after)| after.saturating_sub(*before));
    grown
        .enumerate()
        .max_by_key(|(_, frames)| *frames)
        .filter(|(_, frames)| *frames > 0)
        .map(|(queue, _)| queue)
}

fn set_up(pair: [TcpStream; 2], dscp: u8) -> Result<[TcpStream; 2]> {
    for stream in &pair {
        setsockopt(stream, sockopt::TcpCongestion, &OsString::from(CONGESTION_CONTROL))
            .with_context(|| format!("this kernel has no TCP {CONGESTION_CONTROL}"))?;
        setsockopt(stream, sockopt::Ipv4Tos, &i32::from(dscp << 2))?;
        // When closed, it ends at once: unsent data is discarded.
        let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
        setsockopt(stream, sockopt::Linger, &linger)?;
        stream.set_read_timeout(Some(LOOK))?;
        stream.set_write_timeout(Some(LOOK))?;
    }
    Ok(pair)
}

/// Whether to repeat a call that failed with `kind`.
fn is_passing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn read(mut stream: TcpStream, end: &AtomicBool, received: &AtomicU64) -> Result<()> {
    let mut chunk = vec![0; CHUNK];
    while !end.load(Ordering::Relaxed) {
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(length) => {
                received.fetch_add(length as u64, Ordering::Relaxed);
            }
            Err(error) if is_passing(error.kind()) => {}
            Err(error) => return unless(end, error),
        }
    }
    Ok(())
}

fn write(mut stream: TcpStream, end: &AtomicBool) -> Result<()> {
    let chunk = vec![0; CHUNK];
    while !end.load(Ordering::Relaxed) {
        match stream.write(&chunk) {
            Ok(_) => {}
            Err(error) if is_passing(error.kind()) => {}
            Err(error) => return unless(end, error),
        }
    }
    Ok(())
}

/// An error counts only if the far end should still be there.
fn unless(end: &AtomicBool, error: std::io::Error) -> Result<()> {
    if end.load(Ordering::Relaxed) { Ok(()) } else { Err(error).context("a TCP flow broke") }
}

/// Flows under way. They end when dropped.
#[derive(Debug)]
pub struct Running {
    end: Arc<AtomicBool>,
    received: Vec<Arc<AtomicU64>>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Running {
    fn spawn(
        &mut self,
        name: &str,
        work: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let thread = thread::Builder::new().name(name.to_owned()).spawn(work);
        self.threads.push(thread.context("cannot start a thread")?);
        Ok(())
    }

    /// Bytes that the receiver of each has read, in the order in which they were wanted.
    pub fn received(&self) -> Vec<u64> {
        self.received.iter().map(|bytes| bytes.load(Ordering::Relaxed)).collect()
    }

    /// Ends them at once.
    pub fn stop(mut self) -> Result<()> {
        self.end.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            match thread.join() {
                Ok(result) => result?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        ensure!(self.received().iter().all(|bytes| *bytes > 0), "a TCP flow carried nothing");
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_flow_is_on_the_queue_that_has_sent() {
        assert_eq!(most_grown(&[5, 7, 9], &[5, 9, 9]), Some(1));
        assert_eq!(most_grown(&[5, 7], &[5, 7]), None);
    }
}
