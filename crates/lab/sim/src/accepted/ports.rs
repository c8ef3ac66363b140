//! A worker's I/O: frames of a few flows arrive at port A, and all that leaves at B is recorded.

use narrows_forwarding::PortId;
use narrows_packet::dissect::Dissector;
use narrows_packet::{Batch, PacketId, Packets, Reading};
use narrows_shaper::{BATCH, Io};
use narrows_units::{Bytes, Nanos};
use std::collections::VecDeque;

/// The frames of a worker.
pub(super) const FRAMES: u32 = 1024;
/// Kept back from the qdiscs.
const RESERVED: usize = 2 * BATCH;
/// Bytes of a frame that are there: its headers.
const HEADERS: usize = 60;

/// A packet that has left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) class: u32,
    pub(super) len: Bytes,
}

/// A worker's I/O that makes the arrivals at port A and records what leaves at port B.
pub(super) struct Ports {
    dissector: Dissector,
    coming: VecDeque<(u8, u32)>,
    frames: Vec<[u8; HEADERS]>,
    free: Vec<u32>,
    sent: Vec<Sent>,
}

impl Ports {
    pub(super) fn new() -> Self {
        Self {
            dissector: Dissector::new(1),
            coming: VecDeque::new(),
            frames: vec![[0; HEADERS]; FRAMES as usize],
            free: (0..FRAMES).rev().collect(),
            sent: Vec::new(),
        }
    }

    /// A packet of `flow` arrives, `len` bytes long.
    pub(super) fn offer(&mut self, flow: u8, len: u32) {
        self.coming.push_back((flow, len));
    }

    /// What has left since the last call.
    pub(super) fn take_sent(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.sent)
    }
}

/// The headers of a UDP packet of `flow`: from 10.0.0.`flow`, with the flow's own DSCP.
fn headers(flow: u8, len: u32) -> [u8; HEADERS] {
    let mut frame = [0; HEADERS];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    frame[12..16].copy_from_slice(&[8, 0, 0x45, flow.wrapping_mul(0x25) & 0xfc]);
    let length = u16::try_from(len - 14).unwrap_or(u16::MAX);
    frame[16..18].copy_from_slice(&length.to_be_bytes());
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[26..34].copy_from_slice(&[10, 0, 0, flow, 10, 0, 1, 1]);
    frame[34..38].copy_from_slice(&[0, flow, 0, 80]);
    frame[38..40].copy_from_slice(&(length - 20).to_be_bytes());
    frame
}

impl Io for Ports {
    fn frame(&self) -> Bytes {
        Bytes(2048)
    }

    fn receive(&mut self, port: PortId, packets: &mut Packets, now: Nanos, out: &mut Batch) {
        while port == PortId::FIRST && out.has_room() && !self.coming.is_empty() {
            let Some(frame) = self.free.pop() else { break };
            let Some((flow, len)) = self.coming.pop_front() else { break };
            self.frames[frame as usize] = headers(flow, len);
            packets.arrive(PacketId(frame), len, now);
            out.push(PacketId(frame));
        }
    }

    fn read(&self, packet: PacketId, reading: Reading, packets: &mut Packets) {
        let bytes = self.bytes(packet);
        if reading.headers {
            self.dissector.read(bytes, reading.inner, packets.headers_mut(packet));
        }
        if reading.acknowledgements {
            packets.set_acknowledgement(packet, self.dissector.acknowledgement(bytes));
        }
    }

    fn bytes(&self, packet: PacketId) -> &[u8] {
        &self.frames[packet.0 as usize]
    }

    fn places(&self) -> u32 {
        FRAMES
    }

    fn spare_frames(&self, _: PortId, _: PortId) -> Option<u32> {
        self.free.len().checked_sub(RESERVED).map(|spare| spare as u32)
    }

    fn room(&mut self, _: PortId) -> usize {
        BATCH
    }

    fn transmit(&mut self, _: PortId, packets: &Packets, batch: &Batch) {
        for &id in batch.as_slice() {
            self.sent.push(Sent { class: packets.meta(id).class, len: packets.len(id) });
            self.free.push(id.0);
        }
    }

    fn release(&mut self, dropped: &Batch) {
        self.free.extend(dropped.as_slice().iter().map(|id| id.0));
    }

    fn is_unsent(&self) -> bool {
        false
    }
}
