//! A worker's interface to the outside world.
//!
//! A worker serves one queue of each port. [`Io`] hides where the packets really come from (AF_XDP
//! rings, a simulator's links, a test's vectors), so the same worker runs in all of them.

use narrows_forwarding::PortId;
use narrows_packet::{Batch, PacketId, Packets, Reading, RouteTaken};
use narrows_units::{Bytes, Nanos};

/// Packets that leave through a port beside all its queues, and that its limit is for, too.
pub trait Beside {
    /// The bytes that left since any worker asked last, as the limit counts them. The one that asks
    /// charges them.
    fn claim(&self) -> Bytes;

    /// Packets wait in a queue of the port at `now`.
    fn waits(&self, now: Nanos);
}

/// One queue of each port, and the frames of their packets.
///
/// A packet belongs to the I/O until [`Io::receive`] hands it over, and again from
/// [`Io::transmit`] or [`Io::release`] on.
pub trait Io {
    /// The size of the frames.
    fn frame(&self) -> Bytes;

    /// Moves packets that arrived at `port` into `out` until it is full, recording each in
    /// `packets` with `now` as its arrival. Malformed ones are discarded there.
    fn receive(&mut self, port: PortId, packets: &mut Packets, now: Nanos, out: &mut Batch);

    /// Touches the headers of `packet`, which will soon be read. The processor does not wait for
    /// them.
    fn prefetch(&self, _packet: PacketId) {}

    /// Records in `packets` the header fields of `packet`, which was just received, that `reading`
    /// asks for. Unknown fields are left as they are.
    fn read(&self, packet: PacketId, reading: Reading, packets: &mut Packets);

    /// The contiguous bytes of `packet`, from its Ethernet header on, for filters. Empty if there
    /// are no bytes, as in a simulation.
    fn bytes(&self, _packet: PacketId) -> &[u8] {
        &[]
    }

    /// The most frames for queued packets of all ports together.
    fn places(&self) -> u32;

    /// The port through which `packet` leaves, which was just received at `ingress`. Asked only of
    /// ports where that is each packet's own affair ([`Worker::routed`](crate::Worker::routed)).
    /// `None` if it leaves nowhere.
    fn egress_of(&mut self, _ingress: PortId, _packet: PacketId) -> Option<PortId> {
        None
    }

    /// Touches what [`egress_of`](Io::egress_of) reads of `packet`, which will soon be asked. The
    /// processor does not wait for it.
    fn prefetch_egress(&self, _packet: PacketId) {}

    /// The route that `packet` takes, for filters. Asked only where one wants to know. `None` if no
    /// route is known, as on a wire.
    fn route_of(&self, _packet: PacketId) -> Option<RouteTaken> {
        None
    }

    /// The number of frames that packets arriving at `ingress` may still fill at `egress`, without
    /// those that reception or other ports need. Received packets count already; `None` if they
    /// exceed it.
    fn spare_frames(&self, ingress: PortId, egress: PortId) -> Option<u32>;

    /// Takes free frames for copies of packets that arrived at `ingress`: packets with room for
    /// `longest` bytes each, into `out` until it is full or no more may wait. [`Io::release`] takes
    /// back those that are not used.
    fn put_aside(&mut self, _ingress: PortId, _longest: Bytes, _out: &mut Batch) {}

    /// Copies the bytes of `from` to `to`, which was put aside with room for them.
    fn copy(&mut self, _from: PacketId, _to: PacketId) {}

    /// How many packets [`Io::transmit`] takes at `port` now.
    fn room(&mut self, port: PortId) -> usize;

    /// Sends `batch`, which is no longer than [`Io::room`] said, out of `port`, rewritten as
    /// `packets` says.
    fn transmit(&mut self, port: PortId, packets: &Packets, batch: &Batch);

    /// Takes back the frames of packets that were dropped.
    fn release(&mut self, dropped: &Batch);

    /// What is known of packets that leave through `port` beside all workers, if there may be any
    /// that the port's limit is for.
    fn beside(&self, _port: PortId) -> Option<&dyn Beside> {
        None
    }

    /// Whether packets that [`Io::transmit`] took still wait for the device, which may need another
    /// call.
    fn is_unsent(&self) -> bool;
}
