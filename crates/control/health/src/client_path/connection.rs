//! A TCP connection to a service, by the way of clients.
//!
//! The kernel's TCP cannot have it: where the service's address is this host's own, it would
//! connect to itself. So a TCP of this process (`smoltcp`) has it, for the few packets of a check.

use super::answers::Answer;
use super::{ClientPath, Exchange};
use crate::probe::NoAnswer;
use crate::task::Task;
use narrows_balance::Protocol;
use rustix::io::Errno;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{self, Checksum, Device, DeviceCapabilities, Medium};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::Instant as TcpInstant;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};
use std::collections::VecDeque;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split};
use tokio::time::{Instant, sleep};

/// What one end may send before the other reads, in bytes. A request and the head of its answer are
/// shorter, or wait.
const BUFFER: usize = 8 << 10;
/// The shortest packets with which TCP gets on, in bytes: those of a way that takes less are lost.
const PACKET_MIN: usize = 128;
/// The longest time without a look, where nothing is due.
const IDLE: Duration = Duration::from_secs(60);

/// Opens a connection to `port` of the service. It is reset when the task is dropped.
pub(crate) async fn connect(
    path: &ClientPath,
    port: u16,
) -> Result<(DuplexStream, Task), NoAnswer> {
    let mut end = End::new(path.talk(Protocol::Tcp)?, port)?;
    end.open().await?;
    let (ours, theirs) = duplex(BUFFER);
    Ok((ours, Task::spawn(end.carry(theirs))))
}

/// This host's end.
struct End {
    exchange: Exchange,
    wire: Wire,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    began: Instant,
}

impl End {
    /// The end of a connection that begins.
    fn new(exchange: Exchange, port: u16) -> Result<Self, NoAnswer> {
        let failed = |what: &dyn std::fmt::Display| NoAnswer::Here(format!("a connection: {what}"));
        let mtu = exchange.path.packet_max();
        if mtu < PACKET_MIN {
            return Err(failed(&format!("the way takes packets of {mtu} bytes: raise its MTU")));
        }
        let mut wire = Wire { mtu, arrived: VecDeque::new(), sent: VecDeque::new() };
        let mut config = Config::new(HardwareAddress::Ip);
        // Sequence numbers begin anew with each check.
        let mut seed = [0; 8];
        rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| failed(&error))?;
        config.random_seed = u64::from_ne_bytes(seed);
        let mut interface = Interface::new(config, &mut wire, TcpInstant::ZERO);
        interface.update_ip_addrs(|addresses| {
            // A new interface has room for one. With no prefix, everybody is its neighbour.
            let _ = addresses.push(IpCidr::new(IpAddress::from(exchange.path.source), 0));
        });
        let buffer = || SocketBuffer::new(vec![0; BUFFER]);
        let mut socket = Socket::new(buffer(), buffer());
        let (to, from) = ((exchange.path.service, port), exchange.local.port());
        socket.connect(interface.context(), to, from).map_err(|error| failed(&error))?;
        let mut sockets = SocketSet::new(Vec::with_capacity(1));
        let socket = sockets.add(socket);
        Ok(Self { exchange, wire, interface, sockets, socket, began: Instant::now() })
    }

    /// Waits until it is open.
    async fn open(&mut self) -> Result<(), NoAnswer> {
        loop {
            self.work()?;
            match self.tcp().state() {
                State::SynSent | State::SynReceived => {}
                State::Closed => return Err(io::Error::from(Errno::CONNREFUSED).into()),
                _ => return Ok(()),
            }
            self.wait().await?;
        }
    }

    /// Carries bytes between the connection and `stream`, until one of them has ended.
    async fn carry(mut self, stream: DuplexStream) {
        let (mut from, mut to) = split(stream);
        let mut given = [0; BUFFER];
        let mut buffer = [0; BUFFER];
        let mut is_given_all = false;
        loop {
            if self.work().is_err() {
                return;
            }
            let arrived = self.tcp().recv_slice(&mut buffer).unwrap_or(0);
            if arrived > 0 {
                if to.write_all(&buffer[..arrived]).await.is_err() {
                    return;
                }
                continue;
            }
            if !self.tcp().may_recv() {
                // The server has ended it, in whichever way: that is the end for the reader.
                return;
            }
            let room = self.tcp().send_capacity() - self.tcp().send_queue();
            let has_room = room > 0 && !is_given_all;
            let delay = self.delay();
            tokio::select! {
                answer = self.exchange.inbox.next() => match answer {
                    Some(Answer::Packet(packet)) => self.wire.arrived.push_back(packet),
                    Some(Answer::Unreachable(_)) => {}
                    None => return,
                },
                read = from.read(&mut given[..room]), if has_room => match read {
                    Ok(0) | Err(_) => {
                        is_given_all = true;
                        self.tcp().close();
                    }
                    // There is room for all of it.
                    Ok(bytes) => drop(self.tcp().send_slice(&given[..bytes])),
                },
                () = sleep(delay) => {}
            }
        }
    }

    /// Waits for a packet, or for the time when something is due.
    async fn wait(&mut self) -> Result<(), NoAnswer> {
        let delay = self.delay();
        tokio::select! {
            answer = self.exchange.inbox.next() => match answer {
                Some(Answer::Packet(packet)) => self.wire.arrived.push_back(packet),
                Some(Answer::Unreachable(why)) => return Err(NoAnswer::There(why)),
                None => return Err(NoAnswer::Here("no more answers are read".into())),
            },
            () = sleep(delay) => {}
        }
        Ok(())
    }

    /// Does what is due now.
    fn work(&mut self) -> Result<(), NoAnswer> {
        let now = self.now();
        self.interface.poll(now, &mut self.wire, &mut self.sockets);
        self.wire.sent.drain(..).try_for_each(|packet| self.exchange.send(&packet))
    }

    fn delay(&mut self) -> Duration {
        let now = self.now();
        let delay = self.interface.poll_delay(now, &self.sockets);
        delay.map_or(IDLE, |delay| Duration::from_micros(delay.total_micros()))
    }

    fn now(&self) -> TcpInstant {
        TcpInstant::from_micros(i64::try_from(self.began.elapsed().as_micros()).unwrap_or(i64::MAX))
    }

    fn tcp(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.socket)
    }
}

impl Drop for End {
    /// The server keeps nothing of it.
    fn drop(&mut self) {
        self.tcp().abort();
        let _ = self.work();
    }
}

/// Packets between the TCP and the network.
struct Wire {
    mtu: usize,
    arrived: VecDeque<Vec<u8>>,
    sent: VecDeque<Vec<u8>>,
}

struct Arrived(Vec<u8>);
struct Sent<'a>(&'a mut VecDeque<Vec<u8>>);

impl Device for Wire {
    type RxToken<'a> = Arrived;
    type TxToken<'a> = Sent<'a>;

    fn receive(&mut self, _: TcpInstant) -> Option<(Arrived, Sent<'_>)> {
        Some((Arrived(self.arrived.pop_front()?), Sent(&mut self.sent)))
    }

    fn transmit(&mut self, _: TcpInstant) -> Option<Sent<'_>> {
        Some(Sent(&mut self.sent))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.mtu;
        // On this host, or one like a container, the sender may have left the sum to a device.
        capabilities.checksum.tcp = Checksum::Tx;
        capabilities
    }
}

impl phy::RxToken for Arrived {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(&self.0)
    }
}

impl phy::TxToken for Sent<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, bytes: usize, write: F) -> R {
        let mut packet = vec![0; bytes];
        let result = write(&mut packet);
        self.0.push_back(packet);
        result
    }
}
