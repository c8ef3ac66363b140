//! One end of a connection: a device, an interface and a socket.

use crate::setup::Control;
use narrows_units::Nanos;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{self, ChecksumCapabilities, Device, DeviceCapabilities, Medium};
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer, State};
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr, Ipv4Address};
use std::collections::VecDeque;

const CLIENT: Ipv4Address = Ipv4Address::new(192, 0, 2, 1);
const SERVER: Ipv4Address = Ipv4Address::new(192, 0, 2, 2);
const CLIENT_PORT: u16 = 49152;
const SERVER_PORT: u16 = 5001;
/// The send buffer, and the receiver's first window, in bytes: the default maximum of Linux's
/// `tcp_wmem`.
const LARGE_BUFFER: usize = 4 << 20;
/// In the direction in which nothing is sent, in bytes.
const SMALL_BUFFER: usize = 1 << 10;
/// The stack's clock counts microseconds.
const TICK: Nanos = Nanos(1_000);

/// Client or server.
pub(super) struct End {
    wire: Wire,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    connects: bool,
}

impl End {
    /// An end that always has data to send, from its first poll on.
    pub(super) fn client(mtu: usize, control: Control) -> Self {
        Self::new(mtu, control, true)
    }

    /// An end that accepts all data.
    pub(super) fn server(mtu: usize, control: Control) -> Self {
        Self::new(mtu, control, false)
    }

    fn new(mtu: usize, control: Control, connects: bool) -> Self {
        let mut wire = Wire { mtu, heard: VecDeque::new(), said: VecDeque::new() };
        let config = Config::new(HardwareAddress::Ip);
        let mut interface = Interface::new(config, &mut wire, Instant::ZERO);
        let address = IpAddress::Ipv4(if connects { CLIENT } else { SERVER });
        interface.update_ip_addrs(|addresses| {
            // A new interface has no address and room for one.
            let _ = addresses.push(IpCidr::new(address, 24));
        });
        let (receive, send) = match connects {
            true => (SMALL_BUFFER, LARGE_BUFFER),
            false => (LARGE_BUFFER, SMALL_BUFFER),
        };
        let buffer = |len| SocketBuffer::new(vec![0; len]);
        let mut socket = Socket::new(buffer(receive), buffer(send));
        socket.set_congestion_control(match control {
            Control::Cubic => CongestionControl::Cubic,
            // The stack has no other; validation refuses DCTCP.
            Control::Reno | Control::Dctcp => CongestionControl::Reno,
        });
        socket.set_ack_delay(None);
        let mut sockets = SocketSet::new(Vec::with_capacity(1));
        let socket = sockets.add(socket);
        Self { wire, interface, sockets, socket, connects }
    }

    /// A packet has arrived.
    pub(super) fn hear(&mut self, packet: Vec<u8>) {
        self.wire.heard.push_back(packet);
    }

    /// Packets that it has sent since the last call.
    pub(super) fn said(&mut self) -> impl Iterator<Item = Vec<u8>> {
        self.wire.said.drain(..)
    }

    /// Does everything that is due.
    pub(super) fn poll(&mut self, now: Nanos) {
        let now = instant(now);
        self.open();
        loop {
            let said = self.wire.said.len();
            self.interface.poll(now, &mut self.wire, &mut self.sockets);
            let moved = self.move_data();
            if self.wire.said.len() == said && !moved {
                return;
            }
        }
    }

    /// When it must be polled, after `now`.
    pub(super) fn next_at(&mut self, now: Nanos) -> Nanos {
        let at = self.interface.poll_at(instant(now), &self.sockets);
        at.map_or(Nanos::MAX, |at| {
            let nanos = u64::try_from(at.total_micros()).unwrap_or(0).saturating_mul(TICK.0);
            Nanos(nanos).max(now + TICK)
        })
    }

    /// A connection that has ended, or has never been, begins.
    fn open(&mut self) {
        let socket = self.sockets.get_mut::<Socket>(self.socket);
        if socket.state() != State::Closed {
            return;
        }
        if self.connects {
            let server = (IpAddress::Ipv4(SERVER), SERVER_PORT);
            let refused = socket.connect(self.interface.context(), server, CLIENT_PORT);
            debug_assert!(refused.is_ok(), "a closed socket can connect: {refused:?}");
        } else {
            let refused = socket.listen(SERVER_PORT);
            debug_assert!(refused.is_ok(), "a closed socket can listen: {refused:?}");
        }
    }

    /// Passes it data to send, or takes received data. Returns whether there was any.
    fn move_data(&mut self) -> bool {
        let socket = self.sockets.get_mut::<Socket>(self.socket);
        let mut moved = false;
        if self.connects {
            // The contents of the buffer do not matter.
            while socket.can_send() && socket.send(|data| (data.len(), data.len())).unwrap_or(0) > 0
            {
                moved = true;
            }
        } else {
            while socket.can_recv() && socket.recv(|data| (data.len(), data.len())).unwrap_or(0) > 0
            {
                moved = true;
            }
        }
        moved
    }
}

fn instant(at: Nanos) -> Instant {
    Instant::from_micros((at.0 / TICK.0) as i64)
}

/// A device without a medium: sent packets stay there until they are taken.
struct Wire {
    mtu: usize,
    heard: VecDeque<Vec<u8>>,
    said: VecDeque<Vec<u8>>,
}

impl Device for Wire {
    type RxToken<'a> = Heard;
    type TxToken<'a> = Say<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Heard, Say<'_>)> {
        let packet = self.heard.pop_front()?;
        Some((Heard(packet), Say(&mut self.said)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Say<'_>> {
        Some(Say(&mut self.said))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.mtu;
        capabilities.checksum = ChecksumCapabilities::ignored();
        capabilities
    }
}

struct Heard(Vec<u8>);

impl phy::RxToken for Heard {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(&self.0)
    }
}

struct Say<'a>(&'a mut VecDeque<Vec<u8>>);

impl phy::TxToken for Say<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let mut packet = vec![0; len];
        let result = write(&mut packet);
        self.0.push_back(packet);
        result
    }
}
