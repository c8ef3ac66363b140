//! A worker's I/O over AF_XDP: one socket on each port, one pool of frames for both.
//!
//! A frame goes free → fill ring of one port → RX ring → queued → TX ring of the other port →
//! completion ring → free. Nothing is copied here and no other thread touches these frames;
//! [`Owners`](crate::owners::Owners) tracks who has which. If a qdisc asks for it, headers are read
//! on arrival and written before departure, in the packet's first frame: in between the frame
//! belongs to this worker alone. The steering program writes address translations in front of the
//! frame; they are read with the headers.
//!
//! Cost per batch: for each port one read of the completion and RX indices, one write of the fill
//! index, and one system call if there is something to send (copy mode, or a sleeping driver). Per
//! packet: two ring entries and one location, about four cache lines; the frame's own lines only
//! for qdiscs that read headers.

use crate::frames::{FRAMES_PER_PACKET_MAX, Frames};
use crate::owners::{FrameCounts, Share};
use crate::queue::Queue;
use crate::refused::Refused;
use crate::upgrade::{Frame, WorkerQueued};
use narrows_bpf::{TRANSLATION_MAX, translation};
use narrows_packet::dissect::{Dissector, rewrite};
use narrows_packet::{Batch, DropReason, Headers, PacketId, Packets, Reading};
use narrows_shaper::{BATCH, Io, Side};
use narrows_units::{Bytes, Nanos};
use narrows_xsk::{Desc, KernelDrops, RingSizes, Socket, UmemPart};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The shortest frame that the kernel's drivers send: an Ethernet header.
const FRAME_MIN: u32 = 14;

/// One queue of one port.
struct PortQueue<Q> {
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

/// The two sockets of a worker, and its frames.
pub(crate) struct XdpIo<Q = Socket> {
    queues: [PortQueue<Q>; 2],
    frames: Frames,
    dissector: Dissector,
    /// That of the steering programs.
    seal: u32,
    partial: [Option<Partial>; 2],
}

impl XdpIo<Socket> {
    pub(crate) fn fd(&self, side: Side) -> BorrowedFd<'_> {
        self.queues[side.index()].queue.as_fd()
    }

    /// The sockets with which another process serves the queues, and the sizes of their rings.
    pub(crate) fn sockets(&self) -> io::Result<[(OwnedFd, RingSizes); 2]> {
        let [a, b] = &self.queues;
        let pass_on = |PortQueue { queue, .. }: &PortQueue<Socket>| {
            Ok::<_, io::Error>((queue.as_fd().try_clone_to_owned()?, queue.sizes()))
        };
        Ok([pass_on(a)?, pass_on(b)?])
    }

    /// Continues where another process stopped, which left `at_rest`. Its packets must still be
    /// [adopted](XdpIo::adopt).
    pub(crate) fn go_on(&mut self, at_rest: &WorkerQueued) {
        self.frames.restore(&at_rest.free, &at_rest.sending);
        for PortQueue { queue, unsent, .. } in &mut self.queues {
            queue.catch_up();
            *unsent = queue.tx.outstanding() > 0;
        }
        for (side, partial) in Side::BOTH.into_iter().zip(&at_rest.partial) {
            let begun = partial.iter().next();
            self.partial[side.index()] = begun.and_then(|(_, frames)| self.piece(side, frames));
        }
    }
}

impl<Q: Queue> XdpIo<Q> {
    /// A worker's I/O over `queues` with the frames of `part`, divided into `shares` by the port of
    /// arrival; `dissector` reads headers, and `seal` marks the steering program's metadata about
    /// translation. Nothing is touched before it is [stocked](XdpIo::stocked), or
    /// [continues](XdpIo::go_on) where another process stopped.
    pub(crate) fn new(
        queues: [Q; 2],
        part: UmemPart,
        shares: [Share; 2],
        dissector: Dissector,
        seal: u32,
    ) -> Self {
        let queue =
            |queue| PortQueue { queue, unsent: false, kicks: 0, refused: Refused::default() };
        Self {
            queues: queues.map(queue),
            frames: Frames::new(part, shares),
            dissector,
            seal,
            partial: [None; 2],
        }
    }

    /// This I/O with its fill rings stocked: a program that is attached later finds frames.
    pub(crate) fn stocked(mut self) -> Self {
        for side in Side::BOTH {
            self.restock(side);
        }
        self
    }

    /// The state with which another process continues: the owner of each frame, and partly received
    /// packets.
    pub(crate) fn at_rest(&self) -> WorkerQueued {
        let (free, sending) = self.frames.free_and_sending();
        let mut at_rest = WorkerQueued { free, sending, ..Default::default() };
        for (partial, into) in self.partial.iter().zip(&mut at_rest.partial) {
            if let Some(partial) = partial {
                into.push(Nanos::ZERO, self.frames_of(partial.packet));
            }
        }
        at_rest
    }

    /// The frames of `packet`.
    pub(crate) fn frames_of(&self, packet: PacketId) -> impl Iterator<Item = Frame> {
        self.frames.data(packet).map(|(addr, len)| Frame { addr, len })
    }

    /// Takes in a packet that another process received at `ingress` into `frames`: which it is and
    /// how long. `None` if they are not this worker's.
    pub(crate) fn adopt(&mut self, ingress: Side, frames: &[Frame]) -> Option<(PacketId, u32)> {
        self.piece(ingress, frames).map(|piece| (piece.packet, piece.len))
    }

    /// The packet, or part of one, in `frames`.
    fn piece(&mut self, ingress: Side, frames: &[Frame]) -> Option<Partial> {
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

    /// System calls made so far to send at `side`.
    pub(crate) fn kicks(&self, side: Side) -> u64 {
        self.queues[side.index()].kicks
    }

    /// Packets that the kernel lost on the way to and from this queue of `side`.
    pub(crate) fn kernel_drops(&self, side: Side) -> KernelDrops {
        self.queues[side.index()].queue.kernel_drops()
    }

    /// Recovers frames that the kernel refused to send. Called now and then, not for each batch.
    pub(crate) fn recover(&mut self, now: Nanos) {
        for side in Side::BOTH {
            let refused = self.kernel_drops(side).tx_invalid;
            self.queues[side.index()].refused.look(side, refused, &mut self.frames, now);
        }
    }

    /// Wakes drivers that stopped looking at their fill rings. Only for callers that do not
    /// sleep on the sockets, which would do the same.
    pub(crate) fn wake_drivers(&mut self) {
        for PortQueue { queue, .. } in &mut self.queues {
            if queue.fill().needs_wakeup() {
                // A failure shows at the next transmission or at the link monitor.
                let _ = queue.kick_rx();
            }
        }
    }

    /// Puts free frames into the fill ring of `side`, up to reception's share, if there is room for
    /// a batch.
    fn restock(&mut self, side: Side) {
        let queue = &mut self.queues[side.index()].queue;
        let fill = queue.fill();
        let room = fill.free(BATCH as u32) as usize;
        if room < BATCH {
            return;
        }
        let mut any = false;
        for _ in 0..room {
            if !self.frames.lend(side, fill) {
                break;
            }
            any = true;
        }
        if !any {
            return;
        }
        fill.submit();
        // A driver stops when it finds the ring empty, and a worker that is busy with its other
        // direction does not sleep on the socket, which would wake the driver.
        if fill.needs_wakeup() {
            let _ = queue.kick_rx();
        }
    }

    /// Takes back the frames that the kernel has sent out of `side`.
    fn complete(&mut self, side: Side) {
        let completion = self.queues[side.index()].queue.completion();
        if self.frames.complete(completion) {
            completion.release();
        }
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

    /// Makes the kernel send the contents of the TX ring of `side`, as far as it accepts them.
    fn flush(&mut self, side: Side) {
        let PortQueue { queue, unsent, kicks, .. } = &mut self.queues[side.index()];
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
    fn receive(&mut self, side: Side, packets: &mut Packets, now: Nanos, out: &mut Batch) {
        self.complete(side.other());
        let mut partial = self.partial[side.index()];
        let mut any = false;
        while out.has_room() {
            let rx = self.queues[side.index()].queue.rx();
            let Some((desc, frame)) = self.frames.receive(side, rx) else { break };
            any = true;
            let Some(packet) = self.join(partial.take(), &desc, frame) else { continue };
            if desc.continues() {
                partial = Some(packet);
                continue;
            }
            packets.arrive(packet.packet, packet.len, now);
            if packet.is_malformed() {
                packets.discard(packet.packet, DropReason::Malformed);
            } else {
                out.push(packet.packet);
            }
        }
        self.partial[side.index()] = partial;
        if any {
            self.queues[side.index()].queue.rx().release();
        }
        self.restock(side);
    }

    fn places(&self) -> u32 {
        self.frames.places()
    }

    fn spare_frames(&self, ingress: Side) -> Option<u32> {
        self.frames.spare(ingress)
    }

    fn put_aside(&mut self, ingress: Side, longest: Bytes, out: &mut Batch) {
        while out.has_room() {
            let Some(packet) = self.frames.put_aside(ingress, longest) else { break };
            out.push(packet);
        }
    }

    fn copy(&mut self, from: PacketId, to: PacketId) {
        self.frames.copy(from, to);
    }

    fn room(&mut self, side: Side) -> usize {
        if self.queues[side.index()].unsent {
            self.flush(side);
            self.complete(side);
        }
        let wanted = (BATCH * FRAMES_PER_PACKET_MAX) as u32;
        let free = self.queues[side.index()].queue.tx().free(wanted);
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

    fn transmit(&mut self, side: Side, packets: &Packets, batch: &Batch) {
        if batch.is_empty() {
            return;
        }
        let tx = self.queues[side.index()].queue.tx();
        for &packet in batch.as_slice() {
            let wanted = packets.meta(packet).rewrite;
            if wanted.is_any() {
                // Where there is no IP header there is nothing to mark or to wash.
                rewrite(self.frames.bytes_mut(packet), wanted);
            }
            self.frames.hand_over(packet, tx);
        }
        tx.submit();
        self.flush(side);
    }

    fn release(&mut self, dropped: &Batch) {
        for &packet in dropped.as_slice() {
            self.frames.release(packet);
        }
    }

    fn is_unsent(&self) -> bool {
        self.queues.iter().any(|queue| queue.unsent)
    }
}

#[cfg(test)]
mod tests;
