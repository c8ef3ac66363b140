//! A worker's I/O over AF_XDP: one socket on each port, one pool of frames for both.
//!
//! A frame's way: free → fill ring of one port → RX ring → queued → TX ring of the other port →
//! completion ring → free. Nothing is copied here and nobody else touches these frames. Where a
//! qdisc asks for it, headers are read on arrival and written before departure, in the packet's
//! first frame: in between the frame is this worker's alone. What the steering program knows about
//! address translation stands in front of the frame and is read with the headers.
//!
//! Cost per batch: for each port one read of the completion and RX indices, one write of the
//! fill index, and one system call where something is to be sent (copy mode, or a sleeping
//! driver). Per packet: two ring entries and one location, about four cache lines; the frame's own
//! lines only for qdiscs that read headers.

use crate::frames::{FRAMES_PER_PACKET_MAX, Frames};
use narrows_bpf::{TRANSLATION_MAX, translation};
use narrows_packet::dissect::{Dissector, rewrite};
use narrows_packet::{Batch, DropReason, Headers, PacketId, Packets, Reading};
use narrows_units::{Bytes, Nanos};
use narrows_worker::{BATCH, Io, Side};
use narrows_xsk::{KernelDrops, Socket, UmemPart};
use std::os::fd::{AsFd, BorrowedFd};

/// The shortest frame that the kernel's drivers take for sending: an Ethernet header.
const FRAME_MIN: u32 = 14;

/// Frames kept back from the queues, so that the fill rings can be restocked while these
/// are full: one batch from each port.
const FRAMES_RESERVED: usize = 2 * BATCH;

/// One queue of one port.
struct PortQueue {
    socket: Socket,
    /// The kernel has not yet taken everything that stands in the TX ring.
    unsent: bool,
    /// System calls made to have something sent.
    kicks: u64,
}

/// A packet of which only the first frames have come in: the kernel may split a jumbo
/// frame's descriptors over two batches.
#[derive(Clone, Copy)]
struct Partial {
    packet: PacketId,
    last: PacketId,
    len: u32,
    frames: usize,
}

/// The two sockets of a worker, and its frames.
pub(crate) struct XdpIo {
    queues: [PortQueue; 2],
    frames: Frames,
    dissector: Dissector,
    /// That of the steering programs.
    seal: u32,
    partial: [Option<Partial>; 2],
}

impl XdpIo {
    /// A worker's I/O over `sockets` with the frames of `part`, whose headers `dissector` reads;
    /// what bears `seal` is the steering program's word about translation. The fill rings are
    /// stocked at once: a program that is attached later finds frames.
    pub(crate) fn new(
        sockets: [Socket; 2],
        part: UmemPart,
        dissector: Dissector,
        seal: u32,
    ) -> Self {
        let mut io = Self {
            queues: sockets.map(|socket| PortQueue { socket, unsent: false, kicks: 0 }),
            frames: Frames::new(part),
            dissector,
            seal,
            partial: [None; 2],
        };
        for side in Side::BOTH {
            io.restock(side);
        }
        io
    }

    pub(crate) fn fd(&self, side: Side) -> BorrowedFd<'_> {
        self.queues[side.index()].socket.as_fd()
    }

    pub(crate) fn frame_count(&self) -> u32 {
        self.frames.count()
    }

    pub(crate) fn free_frames(&self) -> u32 {
        self.frames.free() as u32
    }

    /// System calls made so far to have something sent out of `side`.
    pub(crate) fn kicks(&self, side: Side) -> u64 {
        self.queues[side.index()].kicks
    }

    /// What the kernel lost on the way to and from this queue of `side`.
    pub(crate) fn kernel_drops(&self, side: Side) -> KernelDrops {
        self.queues[side.index()].socket.kernel_drops().unwrap_or_default()
    }

    /// Wakes drivers that stopped looking at their fill rings. Only for callers that do not
    /// sleep on the sockets, which would do the same.
    pub(crate) fn wake_drivers(&mut self) {
        for queue in &mut self.queues {
            if queue.socket.fill.needs_wakeup() {
                // A failure shows at the next transmission or at the link monitor.
                let _ = queue.socket.kick_rx();
            }
        }
    }

    /// Puts free frames into the fill ring of `side` until that is full, a batch at a time.
    fn restock(&mut self, side: Side) {
        let fill = &mut self.queues[side.index()].socket.fill;
        let free = fill.free(BATCH as u32) as usize;
        if free < BATCH {
            return;
        }
        for _ in 0..free {
            let Some(addr) = self.frames.take() else { break };
            fill.push(addr);
        }
        fill.submit();
    }

    /// Takes back the frames that the kernel has sent out of `side`.
    fn complete(&mut self, side: Side) {
        let completion = &mut self.queues[side.index()].socket.completion;
        let mut any = false;
        while let Some(addr) = completion.pop() {
            self.frames.put_addr(addr);
            any = true;
        }
        if any {
            completion.release();
        }
    }

    /// Records what the headers in `bytes`, those of `packet`, say.
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

    /// Has the kernel send what stands in the TX ring of `side`, as far as it takes it.
    fn flush(&mut self, side: Side) {
        let queue = &mut self.queues[side.index()];
        let mut left = queue.socket.tx.outstanding();
        while left > 0 && queue.socket.tx.needs_wakeup() {
            // Whatever the error (no buffer, device busy, link down): what was not taken stays
            // in the ring, is tried again, and keeps later packets in their queue.
            let refused = queue.socket.kick_tx().is_err();
            queue.kicks += 1;
            let now_left = queue.socket.tx.outstanding();
            if now_left >= left || (refused && now_left > 0) {
                left = now_left;
                break;
            }
            left = now_left;
        }
        queue.unsent = left > 0;
    }
}

impl Io for XdpIo {
    fn receive(&mut self, side: Side, packets: &mut Packets, now: Nanos, out: &mut Batch) {
        self.complete(side.other());
        let mut partial = self.partial[side.index()];
        let mut any = false;
        while out.has_room() {
            let Some(desc) = self.queues[side.index()].socket.rx.pop() else { break };
            any = true;
            let packet = match partial.take() {
                None => self.frames.receive(desc).map(|packet| Partial {
                    packet,
                    last: packet,
                    len: desc.len,
                    frames: 1,
                }),
                Some(begun) => self.frames.append(begun.last, desc).map(|last| Partial {
                    last,
                    len: begun.len.saturating_add(desc.len),
                    frames: begun.frames + 1,
                    ..begun
                }),
            };
            let Some(packet) = packet else { continue };
            if desc.continues() {
                partial = Some(packet);
                continue;
            }
            packets.arrive(packet.packet, packet.len, now);
            if packet.len < FRAME_MIN || packet.frames > FRAMES_PER_PACKET_MAX {
                packets.discard(packet.packet, DropReason::Malformed);
            } else {
                out.push(packet.packet);
            }
        }
        self.partial[side.index()] = partial;
        if any {
            self.queues[side.index()].socket.rx.release();
        }
        self.restock(side);
    }

    fn has_spare_frame(&self) -> bool {
        self.frames.free() >= FRAMES_RESERVED
    }

    fn room(&mut self, side: Side) -> usize {
        if self.queues[side.index()].unsent {
            self.flush(side);
            self.complete(side);
        }
        let wanted = (BATCH * FRAMES_PER_PACKET_MAX) as u32;
        let free = self.queues[side.index()].socket.tx.free(wanted);
        if free >= wanted {
            return BATCH;
        }
        // With little room left, be safe: every packet might need all the frames it may have.
        free as usize / FRAMES_PER_PACKET_MAX
    }

    #[inline]
    fn approach(&self, packet: PacketId) {
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

    fn frame(&self) -> Bytes {
        self.frames.frame()
    }

    fn transmit(&mut self, side: Side, packets: &Packets, batch: &Batch) {
        if batch.is_empty() {
            return;
        }
        let tx = &mut self.queues[side.index()].socket.tx;
        for &packet in batch.as_slice() {
            let wanted = packets.meta(packet).rewrite;
            if wanted.is_any() {
                // Where there is no IP header there is nothing to mark or to wash.
                rewrite(self.frames.bytes_mut(packet), wanted);
            }
            for desc in self.frames.descriptors(packet) {
                tx.push(desc);
            }
        }
        tx.submit();
        self.flush(side);
    }

    fn release(&mut self, dropped: &Batch) {
        for &packet in dropped.as_slice() {
            self.frames.put_packet(packet);
        }
    }

    fn is_unsent(&self) -> bool {
        self.queues.iter().any(|queue| queue.unsent)
    }
}
