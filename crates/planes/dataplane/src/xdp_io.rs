//! A worker's I/O over AF_XDP: one socket on each device, one pool of frames for all.
//!
//! A frame goes free → fill ring of one device → RX ring → queued → TX ring of the device where it
//! leaves → completion ring → free. Nothing is copied here and no other thread touches these
//! frames; [`Owners`](crate::owners::Owners) tracks who has which. If a qdisc asks for it, headers
//! are read on arrival and written before departure, in the packet's first frame: in between the
//! frame belongs to this worker alone. The steering program writes address translations in front of
//! the frame; they are read with the headers.
//!
//! *VLANs as ports.* Where ports are VLANs of one device, the packets in its RX ring are sorted by
//! their tags when its first port receives, a batch at most; the other ports get theirs in the same
//! step. A packet gets the tag of the port where it leaves just before it is sent.
//!
//! *Routes.* In a router and a switch the steering program leaves the number of the port through
//! which a packet leaves in front of the frame, under the same seal; a router's also the route that
//! it takes.
//!
//! Cost per batch: for each device one read of the completion and RX indices, one write of the fill
//! index, and one system call if there is something to send (copy mode, or a sleeping driver). Per
//! packet: two ring entries and one location, about four cache lines; the frame's own lines only
//! for qdiscs that read headers.

use crate::frames::{FRAMES_PER_PACKET_MAX, Frames};
use crate::owners::{FrameCounts, Shares};
use crate::queue::Queue;
use crate::refused::Refused;
use crate::slow_path::Share;
use crate::upgrade::{Frame, Queued, WorkerQueued};
use crate::worker_report::WorkerSockets;
use narrows_bpf::{
    EGRESS_PORT_BYTES, ROUTE_TAKEN_BYTES, TRANSLATION_MAX, egress_port, route_taken, translation,
};
use narrows_forwarding::stick::{PortsByTag, retag};
use narrows_forwarding::{DeviceId, Forwarding, PerDevice, PerPort, PortId, PortSet, Tag};
use narrows_packet::dissect::{Dissector, rewrite};
use narrows_packet::{Batch, DropReason, Headers, PacketId, Packets, Reading, RouteTaken};
use narrows_shaper::{BATCH, Beside, Io};
use narrows_units::{Bytes, Nanos};
use narrows_xsk::{Desc, KernelDrops, Socket, UmemPart};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// The shortest frame that the kernel's drivers send: an Ethernet header.
const FRAME_MIN: u32 = 14;

/// One queue of one device.
struct DeviceQueue<Q> {
    queue: Q,
    /// The kernel has not yet taken all entries of the TX ring.
    unsent: bool,
    /// System calls made to send.
    kicks: u64,
    refused: Refused,
}

/// A packet of which only the first frames have arrived: the kernel may split a jumbo frame's
/// descriptors over two batches.
#[derive(Clone, Copy)]
struct Partial {
    packet: PacketId,
    last: PacketId,
    len: u32,
    frames: usize,
    /// The kernel would not accept a part of it for sending.
    is_broken: bool,
}

impl Partial {
    fn begin(packet: PacketId, desc: &Desc) -> Self {
        Self { packet, last: packet, len: desc.len, frames: 1, is_broken: desc.len == 0 }
    }

    fn is_malformed(&self) -> bool {
        self.is_broken || self.len < FRAME_MIN
    }
}

/// Where the packets of a port arrive and leave.
struct PortIo {
    /// Its device,
    device: DeviceId,
    /// and that where its packets leave.
    leaves: DeviceId,
    /// Whether it is the first port of its device.
    is_first: bool,
    /// The tag of its packets, where it is a VLAN.
    tag: Option<Tag>,
    /// Its packets that were received together with those of other ports.
    sorted: VecDeque<Partial>,
}

/// The sockets of a worker, one on each device, and its frames.
pub(crate) struct XdpIo<Q = Socket> {
    queues: PerDevice<DeviceQueue<Q>>,
    ports: PerPort<PortIo>,
    /// Of a device whose ports are VLANs.
    by_tag: PerDevice<Option<PortsByTag>>,
    /// Whether that follows from where a packet arrives; else the steering programs say it.
    is_paired: bool,
    frames: Frames,
    dissector: Dissector,
    /// That of the steering programs.
    seal: u32,
    /// What the kernel itself sends, where it is charged.
    slow_paths: PerPort<Share>,
    partial: PerDevice<Option<Partial>>,
}

impl XdpIo<Socket> {
    /// What becomes readable with an arrival at each device, and whether it is at one of `ports`.
    pub(crate) fn arrivals(&self, ports: PortSet) -> impl Iterator<Item = (BorrowedFd<'_>, bool)> {
        self.queues.iter_enumerated().map(move |(device, DeviceQueue { queue, .. })| {
            let mut its = self.ports.iter_enumerated().filter(|(_, port)| port.device == device);
            (queue.as_fd(), its.any(|(port, _)| ports.has(port)))
        })
    }

    /// The sockets with which another process serves the queues, and the sizes of their rings.
    pub(crate) fn sockets(&self) -> io::Result<WorkerSockets> {
        let pass_on = |DeviceQueue { queue, .. }: &DeviceQueue<Socket>| {
            Ok((queue.as_fd().try_clone_to_owned()?, queue.sizes()))
        };
        self.queues.iter().map(pass_on).collect()
    }

    /// Continues where another process stopped, which left `at_rest`. Its packets must still be
    /// [adopted](XdpIo::adopt).
    pub(crate) fn go_on(&mut self, at_rest: &WorkerQueued) {
        self.frames.restore(&at_rest.free, &at_rest.sending);
        for DeviceQueue { queue, unsent, .. } in &mut self.queues {
            queue.catch_up();
            *unsent = queue.tx.outstanding() > 0;
        }
        for (device, partial) in at_rest.partial.iter_enumerated() {
            let begun = partial.iter().next();
            let port = self.first_port(device);
            self.partial[device] = begun.and_then(|(_, frames)| self.piece(port, frames));
        }
    }
}

impl<Q: Queue> XdpIo<Q> {
    /// A worker's I/O over `queues`, one of each device of `forwarding`, with the frames of `part`,
    /// divided into `shares`; `dissector` reads headers, and `seal` marks the steering program's
    /// metadata about translation. Nothing is touched before it is [stocked](XdpIo::stocked), or
    /// [continues](XdpIo::go_on) where another process stopped.
    pub(crate) fn new(
        queues: PerDevice<Q>,
        part: UmemPart,
        forwarding: &Forwarding,
        shares: &Shares,
        dissector: Dissector,
        seal: u32,
    ) -> Self {
        let queue =
            |queue| DeviceQueue { queue, unsent: false, kicks: 0, refused: Refused::default() };
        let port = |port| PortIo {
            device: forwarding.device_of(port),
            // In a router and a switch frames come back through any device: each looks at its own.
            leaves: forwarding.device_of(forwarding.across(port).unwrap_or(port)),
            is_first: forwarding.is_first(port),
            tag: forwarding.ports()[port].tag,
            sorted: VecDeque::new(),
        };
        let by_tag = |device| {
            let mut its = forwarding.ports_on(device).map(|port| forwarding.ports()[port].tag);
            its.any(|tag| tag.is_some()).then(|| PortsByTag::new(forwarding, device))
        };
        Self {
            partial: queues.iter().map(|_| None).collect(),
            queues: queues.into_iter().map(queue).collect(),
            ports: forwarding.ids().map(port).collect(),
            by_tag: forwarding.devices().keys().map(by_tag).collect(),
            is_paired: forwarding.is_paired(),
            frames: Frames::new(part, forwarding, shares),
            dissector,
            seal,
            slow_paths: PerPort::new(),
        }
    }

    /// This I/O, which knows of what the kernel itself sends through each port.
    pub(crate) fn beside(self, slow_paths: PerPort<Share>) -> Self {
        Self { slow_paths, ..self }
    }

    /// This I/O with its fill rings stocked: a program that is attached later finds frames.
    pub(crate) fn stocked(mut self) -> Self {
        for device in self.queues.keys() {
            self.restock(device);
        }
        self
    }

    /// The state with which another process continues: the owner of each frame, and partly received
    /// packets.
    pub(crate) fn at_rest(&self) -> WorkerQueued {
        let partial = |partial: &Option<Partial>| {
            let mut queued = Queued::default();
            if let Some(partial) = partial {
                queued.push(Nanos::ZERO, self.frames_of(partial.packet));
            }
            queued
        };
        WorkerQueued {
            free: self.frames.free(),
            sending: self.frames.sending(),
            partial: self.partial.iter().map(partial).collect(),
            queued: PerPort::new(),
        }
    }

    /// The frames of `packet`.
    pub(crate) fn frames_of(&self, packet: PacketId) -> impl Iterator<Item = Frame> {
        self.frames.data(packet).map(|(addr, len)| Frame { addr, len })
    }

    /// Takes in a packet that another process received into `frames`, and that leaves through
    /// `egress`: which it is and how long. `None` if they are not this worker's.
    pub(crate) fn adopt(&mut self, egress: PortId, frames: &[Frame]) -> Option<(PacketId, u32)> {
        let ingress = match self.is_paired {
            true => egress.partner(),
            false => self.first_port(self.frames.device_of(frames.first()?.addr)?),
        };
        let piece = self.piece(ingress, frames)?;
        if !self.is_paired {
            self.frames.leaves(egress, piece.packet);
        }
        Some((piece.packet, piece.len))
    }

    /// The packet, or part of one, in `frames`.
    fn piece(&mut self, ingress: PortId, frames: &[Frame]) -> Option<Partial> {
        frames.iter().fold(None, |begun, frame| {
            let desc = Desc { addr: frame.addr, len: frame.len, options: 0 };
            let frame = self.frames.take_in(ingress, desc);
            self.join(begun, &desc, frame)
        })
    }

    pub(crate) fn frame_count(&self) -> u32 {
        self.frames.count()
    }

    /// Where the frames are.
    pub(crate) fn frame_counts(&self) -> FrameCounts {
        self.frames.counts()
    }

    /// Frames that the kernel returned but did not own.
    pub(crate) fn stray_frames(&self) -> u64 {
        self.frames.strays()
    }

    /// System calls made so far to send at the device of `port`. Counted at its first port.
    pub(crate) fn kicks(&self, port: PortId) -> u64 {
        let PortIo { device, is_first, .. } = self.ports[port];
        if is_first { self.queues[device].kicks } else { 0 }
    }

    /// Packets that the kernel lost on the way to and from this queue of the device of `port`.
    /// Counted at its first port.
    pub(crate) fn kernel_drops(&self, port: PortId) -> KernelDrops {
        let PortIo { device, is_first, .. } = self.ports[port];
        if is_first { self.queues[device].queue.kernel_drops() } else { KernelDrops::default() }
    }

    fn first_port(&self, device: DeviceId) -> PortId {
        let mut ports = self.ports.iter_enumerated();
        ports.find(|(_, port)| port.device == device).map_or(PortId::FIRST, |(port, _)| port)
    }

    /// Recovers frames that the kernel refused to send. Called now and then, not for each batch.
    pub(crate) fn recover(&mut self, now: Nanos) {
        for (device, DeviceQueue { queue, refused, .. }) in self.queues.iter_mut_enumerated() {
            refused.look(device, queue.kernel_drops().tx_invalid, &mut self.frames, now);
        }
    }

    /// Wakes drivers that stopped looking at their fill rings. Only for callers that do not
    /// sleep on the sockets, which would do the same.
    pub(crate) fn wake_drivers(&mut self) {
        for DeviceQueue { queue, .. } in &mut self.queues {
            if queue.fill().needs_wakeup() {
                // A failure shows at the next transmission or at the link monitor.
                let _ = queue.kick_rx();
            }
        }
    }

    /// Puts free frames into the fill ring of `device`, up to reception's share, if there is room
    /// for a batch.
    fn restock(&mut self, device: DeviceId) {
        let queue = &mut self.queues[device].queue;
        let fill = queue.fill();
        let room = fill.free(BATCH as u32) as usize;
        if room < BATCH {
            return;
        }
        let mut any = false;
        for _ in 0..room {
            if !self.frames.lend(device, fill) {
                break;
            }
            any = true;
        }
        if !any {
            return;
        }
        fill.submit();
        // A driver stops when it finds the ring empty, and a worker that is busy with other ports
        // does not sleep on the socket, which would wake the driver.
        if fill.needs_wakeup() {
            let _ = queue.kick_rx();
        }
    }

    /// Takes back the frames that the kernel has sent through `device`.
    fn complete(&mut self, device: DeviceId) {
        let completion = self.queues[device].queue.completion();
        if self.frames.complete(completion) {
            completion.release();
        }
    }

    /// Receives packets at `device` while `take` wants more, all of them at `port`.
    #[inline]
    fn receive_all(
        &mut self,
        device: DeviceId,
        port: PortId,
        mut take: impl FnMut(&mut Self, Partial) -> bool,
    ) {
        let mut partial = self.partial[device];
        let mut any = false;
        while let Some((desc, frame)) = self.frames.receive(port, self.queues[device].queue.rx()) {
            any = true;
            let Some(packet) = self.join(partial.take(), &desc, frame) else { continue };
            if desc.continues() {
                partial = Some(packet);
            } else if !take(self, packet) {
                break;
            }
        }
        self.partial[device] = partial;
        if any {
            self.queues[device].queue.rx().release();
        }
        self.restock(device);
    }

    /// Receives up to a batch at `device` and sorts it by tags; `first` is its first port. A packet
    /// of no port's tag, which the program does not send here, counts there as malformed.
    fn sort(&mut self, device: DeviceId, first: PortId) {
        let mut left = BATCH;
        self.receive_all(device, first, |io, mut whole| {
            let by_tag = io.by_tag[device].as_ref();
            let port = by_tag.and_then(|ports| ports.port_of(io.frames.bytes(whole.packet)));
            match port {
                Some(port) => io.frames.arrived_at(port, whole.packet),
                None => whole.is_broken = true,
            }
            io.ports[port.unwrap_or(first)].sorted.push_back(whole);
            left -= 1;
            left > 0
        });
    }

    /// What `frame` makes of the frames in `begun`, as `desc` describes it; it is missing if it was
    /// not the kernel's. `None` if there is nothing.
    #[inline]
    fn join(
        &mut self,
        begun: Option<Partial>,
        desc: &Desc,
        frame: Option<PacketId>,
    ) -> Option<Partial> {
        let Some(mut partial) = begun else {
            return frame.map(|frame| Partial::begin(frame, desc));
        };
        partial.len = partial.len.saturating_add(desc.len);
        // The kernel refuses to send a frame without data, or more frames than a packet may have.
        partial.is_broken |= desc.len == 0 || partial.frames == FRAMES_PER_PACKET_MAX;
        match frame {
            None => partial.is_broken = true,
            // Bounds the chain: a packet that will be dropped needs no more frames.
            Some(frame) if partial.is_broken => self.frames.release_one(frame),
            Some(frame) => {
                self.frames.append(partial.last, frame);
                partial.last = frame;
                partial.frames += 1;
            }
        }
        Some(partial)
    }

    /// Records the fields of the headers in `bytes`, those of `packet`.
    #[inline]
    fn read_headers(&self, packet: PacketId, bytes: &[u8], reading: Reading, into: &mut Headers) {
        if reading.nat
            && let Some(known) = translation(self.frames.before(packet, TRANSLATION_MAX), self.seal)
        {
            *into = self.dissector.translated(bytes, reading.inner, &known);
        } else {
            self.dissector.read(bytes, reading.inner, into);
        }
    }

    /// Makes the kernel send the contents of the TX ring of `device`, as far as it accepts them.
    fn flush(&mut self, device: DeviceId) {
        let DeviceQueue { queue, unsent, kicks, .. } = &mut self.queues[device];
        let mut left = queue.tx().outstanding();
        while left > 0 && queue.tx().needs_wakeup() {
            // After any error (no buffer, device busy, link down) the rest stays in the ring, is
            // tried again, and keeps later packets in their queue.
            let refused = queue.kick_tx().is_err();
            *kicks += 1;
            let now_left = queue.tx().outstanding();
            if now_left >= left || (refused && now_left > 0) {
                left = now_left;
                break;
            }
            left = now_left;
        }
        *unsent = left > 0;
    }
}

impl<Q: Queue> Io for XdpIo<Q> {
    fn receive(&mut self, port: PortId, packets: &mut Packets, now: Nanos, out: &mut Batch) {
        let PortIo { device, leaves, is_first, tag, .. } = self.ports[port];
        self.complete(leaves);
        let mut take = |whole: Partial| {
            packets.arrive(whole.packet, whole.len, now);
            if whole.is_malformed() {
                packets.discard(whole.packet, DropReason::Malformed);
            } else {
                out.push(whole.packet);
            }
            out.has_room()
        };
        if tag.is_none() {
            self.receive_all(device, port, |_, whole| take(whole));
            return;
        }
        if is_first {
            self.sort(device, port);
        }
        while let Some(whole) = self.ports[port].sorted.pop_front() {
            take(whole);
        }
    }

    fn egress_of(&mut self, _: PortId, packet: PacketId) -> Option<PortId> {
        let before = self.frames.before(packet, EGRESS_PORT_BYTES);
        let egress = egress_port(before, self.seal)?;
        // The program knows the ports of this instance only, and so does the seal.
        let egress = PortId::new(egress).filter(|egress| egress.index() < self.ports.len())?;
        self.frames.leaves(egress, packet);
        Some(egress)
    }

    #[inline]
    fn prefetch_egress(&self, packet: PacketId) {
        if let Some(first) = self.frames.before(packet, EGRESS_PORT_BYTES).first() {
            narrows_cpu::prefetch(first);
        }
    }

    fn route_of(&self, packet: PacketId) -> Option<RouteTaken> {
        route_taken(self.frames.before(packet, ROUTE_TAKEN_BYTES), self.seal)
    }

    fn places(&self) -> u32 {
        self.frames.places()
    }

    fn spare_frames(&self, ingress: PortId, egress: PortId) -> Option<u32> {
        self.frames.spare(ingress, egress)
    }

    fn put_aside(&mut self, ingress: PortId, longest: Bytes, out: &mut Batch) {
        while out.has_room() {
            let Some(packet) = self.frames.put_aside(ingress, longest) else { break };
            out.push(packet);
        }
    }

    fn copy(&mut self, from: PacketId, to: PacketId) {
        self.frames.copy(from, to);
    }

    fn room(&mut self, port: PortId) -> usize {
        let device = self.ports[port].device;
        if self.queues[device].unsent {
            self.flush(device);
            self.complete(device);
        }
        let wanted = (BATCH * FRAMES_PER_PACKET_MAX) as u32;
        let free = self.queues[device].queue.tx().free(wanted);
        if free >= wanted {
            return BATCH;
        }
        // With little room left: every packet might need the maximum number of frames.
        free as usize / FRAMES_PER_PACKET_MAX
    }

    #[inline]
    fn prefetch(&self, packet: PacketId) {
        if let Some(first) = self.frames.bytes(packet).first() {
            narrows_cpu::prefetch(first);
        }
    }

    fn read(&self, packet: PacketId, reading: Reading, packets: &mut Packets) {
        let bytes = self.frames.bytes(packet);
        if reading.headers {
            self.read_headers(packet, bytes, reading, packets.headers_mut(packet));
        }
        if reading.acknowledgements {
            packets.set_acknowledgement(packet, self.dissector.acknowledgement(bytes));
        }
    }

    fn bytes(&self, packet: PacketId) -> &[u8] {
        self.frames.bytes(packet)
    }

    fn frame(&self) -> Bytes {
        self.frames.frame()
    }

    fn transmit(&mut self, port: PortId, packets: &Packets, batch: &Batch) {
        if batch.is_empty() {
            return;
        }
        let PortIo { device, tag, .. } = self.ports[port];
        let tx = self.queues[device].queue.tx();
        for &packet in batch.as_slice() {
            let wanted = packets.meta(packet).rewrite;
            if wanted.is_any() {
                // Where there is no IP header there is nothing to mark or to wash.
                rewrite(self.frames.bytes_mut(packet), wanted);
            }
            if let Some(tag) = tag {
                retag(self.frames.bytes_mut(packet), tag);
            }
            self.frames.hand_over(packet, tx);
        }
        tx.submit();
        self.flush(device);
    }

    fn release(&mut self, dropped: &Batch) {
        for &packet in dropped.as_slice() {
            self.frames.release(packet);
        }
    }

    #[inline]
    fn beside(&self, port: PortId) -> Option<&dyn Beside> {
        self.slow_paths.get(port).map(|share| share as &dyn Beside)
    }

    fn is_unsent(&self) -> bool {
        self.queues.iter().any(|queue| queue.unsent)
    }
}

#[cfg(test)]
mod tests;
