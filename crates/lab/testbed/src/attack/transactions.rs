//! Transactions over TCP: one byte there and one byte back, repeatedly.

use crate::background::Background;
use crate::bed::{SERVER_IP, Testbed};
use crate::cpu;
use crate::namespace::Namespace;
use anyhow::{Context, Result};
use nix::sys::socket::{setsockopt, sockopt};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The number of concurrent transactions, each on a connection of its own.
const CONNECTIONS: usize = 4;
/// How often a waiting thread checks whether to end.
const LOOK: Duration = Duration::from_millis(100);

/// Transactions under way. They end when dropped.
pub(super) struct Transactions {
    done: Arc<AtomicU64>,
    // Client and server of each connection.
    threads: Vec<Background<()>>,
}

impl Transactions {
    /// Starts them between the client and a server in the namespace `server`, both on `core`.
    pub(super) fn start(bed: &Testbed, server: &Namespace, core: usize) -> Result<Self> {
        let listener = server.enter(|| Ok(TcpListener::bind((SERVER_IP, 0))?))?;
        let address = SocketAddrV4::new(SERVER_IP, listener.local_addr()?.port());
        let done = Arc::new(AtomicU64::new(0));
        let mut threads = Vec::new();
        for _ in 0..CONNECTIONS {
            let client = bed.client().enter(|| {
                TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))
            })?;
            let server = listener.accept()?.0;
            for stream in [&client, &server] {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(LOOK))?;
                // Closed, it is over at once.
                let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
                setsockopt(stream, sockopt::Linger, &linger)?;
            }
            threads.push(Background::start("answers", move |end| {
                cpu::pin_this_thread(core)?;
                answer(server, end)
            })?);
            let done = Arc::clone(&done);
            threads.push(Background::start("asks", move |end| {
                cpu::pin_this_thread(core)?;
                ask(client, end, &done)
            })?);
        }
        Ok(Self { done, threads })
    }

    /// How many have been completed.
    pub(super) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}

impl Drop for Transactions {
    fn drop(&mut self) {
        // All of them at once, so that none waits for another.
        self.threads.iter().for_each(Background::tell);
    }
}

/// Reads a byte. False at the end.
fn read(stream: &mut TcpStream, end: &AtomicBool) -> Result<bool> {
    while !end.load(Ordering::Relaxed) {
        match stream.read(&mut [0]) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                _ if end.load(Ordering::Relaxed) => return Ok(false),
                _ => return Err(error).context("a connection broke"),
            },
        }
    }
    Ok(false)
}

/// Whether a byte was sent; a peer that has disconnected is no failure.
fn write(stream: &mut TcpStream) -> bool {
    stream.write_all(&[0]).is_ok()
}

fn ask(mut stream: TcpStream, end: &AtomicBool, done: &AtomicU64) -> Result<()> {
    while write(&mut stream) && read(&mut stream, end)? {
        done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn answer(mut stream: TcpStream, end: &AtomicBool) -> Result<()> {
    while read(&mut stream, end)? && write(&mut stream) {}
    Ok(())
}
