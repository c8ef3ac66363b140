//! The sockets: datagrams in, answers out. Nothing here knows what is in them.

use narrows_units::Nanos;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// How many datagrams wait in the process, beside those in the kernel.
const WAITING_MAX: usize = 4_096;
/// The kernel's buffer of a socket: when a NAS comes back, it reports all of its sessions at once.
/// The kernel gives less if `net.core.rmem_max` is lower.
const BUFFER: usize = 4 << 20;
/// A packet has at most 4,096 bytes; one that is longer is cut, and then dropped.
const DATAGRAM_MAX: usize = 8_192;
/// How long a socket is left alone that cannot be read, as when memory is short.
const AFTER_ERROR: Duration = Duration::from_millis(100);

/// A datagram, and where it came.
#[derive(Debug)]
pub struct Datagram {
    /// From whom.
    pub from: SocketAddr,
    /// What it says.
    pub bytes: Vec<u8>,
    socket: usize,
}

/// Sockets that are read by a thread each.
#[derive(Debug)]
pub struct Listener {
    sockets: Vec<Arc<UdpSocket>>,
    datagrams: Receiver<Datagram>,
}

impl Listener {
    /// Listens at these addresses. One for all of IPv6 takes IPv4, too.
    ///
    /// # Errors
    /// If one is in use, or is none of this machine's; with the address.
    pub fn bind(addresses: &[SocketAddr]) -> Result<Self, (SocketAddr, io::Error)> {
        let open = |address: &SocketAddr| open(*address).map_err(|error| (*address, error));
        let sockets: Vec<Arc<UdpSocket>> = addresses.iter().map(open).collect::<Result<_, _>>()?;
        let (sender, datagrams) = sync_channel(WAITING_MAX);
        for (index, socket) in sockets.iter().enumerate() {
            let (socket, sender) = (Arc::clone(socket), sender.clone());
            std::thread::spawn(move || read(&socket, index, &sender));
        }
        Ok(Self { sockets, datagrams })
    }

    /// Where it listens.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.sockets.iter().filter_map(|socket| socket.local_addr().ok())
    }

    /// The next datagram, if one comes within `patience`.
    ///
    /// # Errors
    /// If no socket is read any more.
    pub fn receive(&self, patience: Nanos) -> io::Result<Option<Datagram>> {
        match self.datagrams.recv_timeout(Duration::from_nanos(patience.0)) {
            Ok(datagram) => Ok(Some(datagram)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("no socket is left")),
        }
    }

    /// Sends the answer to a datagram, from where it came. One that is lost is asked for again.
    pub fn answer(&self, datagram: &Datagram, answer: &[u8]) {
        if let Err(error) = self.sockets[datagram.socket].send_to(answer, datagram.from) {
            log::debug!("cannot answer {}: {error}", datagram.from);
        }
    }
}

fn open(address: SocketAddr) -> io::Result<Arc<UdpSocket>> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_recv_buffer_size(BUFFER)?;
    socket.bind(&address.into())?;
    Ok(Arc::new(socket.into()))
}

/// Until nobody takes them.
fn read(socket: &UdpSocket, index: usize, sender: &SyncSender<Datagram>) {
    let mut buffer = vec![0; DATAGRAM_MAX];
    loop {
        match socket.recv_from(&mut buffer) {
            Ok((length, from)) => {
                let bytes = buffer[..length].to_vec();
                if sender.send(Datagram { from, bytes, socket: index }).is_err() {
                    return;
                }
            }
            Err(error) => {
                log::warn!("a socket of RADIUS cannot be read: {error}");
                std::thread::sleep(AFTER_ERROR);
            }
        }
    }
}
