//! How many frames a worker has, and how large they are.
//!
//! *The idea.* A frame is always somewhere: with the kernel to receive into, with a queued packet,
//! or being sent. The number of the first follows from the rings: the lengths of the fill ring and
//! the RX ring and, in zero copy, of the device's own ring, which the driver fills from the fill
//! ring. The operator configures the number of the second (`--frames`). Each direction gets the
//! sum, so rings of any length leave the queues their frames, and neither direction uses the
//! other's.
//!
//! Frames that are being sent count as queued: the packets are in one more queue, the device's.

use crate::options::SessionOptions;
use crate::owners::Share;
use crate::port::PortFacts;
use narrows_link::{Buffer, Receiver};
use narrows_shaper::Side;
use narrows_xsk::CopyMode;

/// The frames and rings that the workers of a session need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sizing {
    /// The layout of packets in frames.
    pub(crate) buffer: Buffer,
    /// Frames of each worker, by the port of arrival.
    pub(crate) shares: [Share; 2],
}

impl Sizing {
    /// For `ports` in `mode`.
    pub(crate) fn new(ports: &[PortFacts; 2], options: &SessionOptions, mode: CopyMode) -> Self {
        let mtu = ports[0].mtu.max(ports[1].mtu);
        let share = |side: Side| Share {
            receive: options.ring + device_ring(&ports[side.index()], mode),
            wait: options.frames / 2,
        };
        Self { buffer: receiver(mode).buffer_for(mtu), shares: Side::BOTH.map(share) }
    }

    /// Frames of one worker.
    pub(crate) fn frames(&self) -> u32 {
        self.shares.iter().map(|share| share.frames()).sum()
    }

    /// The memory of the frames of `queues` workers, in bytes.
    pub(crate) fn bytes(&self, queues: u32) -> u64 {
        u64::from(queues) * u64::from(self.frames()) * u64::from(self.buffer.size)
    }
}

impl SessionOptions {
    /// How much memory the kernel locks for the frames of the workers that join `ports`, in bytes,
    /// in the most demanding mode that is tried.
    pub(crate) fn locked_bytes(&self, ports: &[PortFacts; 2]) -> u64 {
        let mode = match self.copy_mode {
            Some(only) => only,
            None if may_share(ports) => CopyMode::ZeroCopy,
            None => CopyMode::Copy,
        };
        let queues = ports[0].queues.min(ports[1].queues);
        Sizing::new(ports, self, mode).bytes(queues)
    }
}

/// Whether zero copy is worth trying: a device without its own rings, such as a veth, cannot do it.
pub(crate) fn may_share(ports: &[PortFacts; 2]) -> bool {
    ports.iter().all(|port| port.rx_ring > 0)
}

/// How many frames the device's own ring of each queue may take.
fn device_ring(port: &PortFacts, mode: CopyMode) -> u32 {
    match mode {
        CopyMode::Copy => 0,
        CopyMode::ZeroCopy => port.rx_ring,
    }
}

fn receiver(mode: CopyMode) -> Receiver {
    match mode {
        CopyMode::Copy => Receiver::Kernel,
        CopyMode::ZeroCopy => Receiver::Device,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(mtu: u32, rx_ring: u32) -> PortFacts {
        PortFacts {
            name: "a".into(),
            ifindex: 1,
            mac: [0; 6],
            addressed: false,
            mtu,
            queues: 1,
            rx_ring,
            counts: narrows_link::QueueCounts::default(),
            driver: "ice".into(),
        }
    }

    fn options(frames: u32, ring: u32) -> SessionOptions {
        SessionOptions {
            frames,
            ring,
            cpus: vec![0],
            busy_poll: false,
            hook: None,
            copy_mode: None,
            round_trips: false,
        }
    }

    #[test]
    fn the_longest_rings_leave_the_queues_their_frames() {
        let ports = [port(1500, 8160), port(1500, 256)];
        let sizing = Sizing::new(&ports, &options(16_384, 2048), CopyMode::ZeroCopy);
        let shares =
            [Share { receive: 8160 + 2048, wait: 8192 }, Share { receive: 256 + 2048, wait: 8192 }];
        assert_eq!(sizing.shares, shares);
        assert_eq!(sizing.frames(), 8160 + 256 + 2 * 2048 + 16_384);
        assert_eq!(sizing.buffer, Buffer { size: 4096, several: false });
        assert_eq!(sizing.bytes(3), 3 * u64::from(sizing.frames()) * 4096);
    }

    #[test]
    fn where_the_kernel_copies_the_devices_rings_take_no_frames() {
        let ports = [port(1500, 8160), port(9000, 4096)];
        let sizing = Sizing::new(&ports, &options(1024, 128), CopyMode::Copy);
        assert_eq!(sizing.shares, [Share { receive: 128, wait: 512 }; 2]);
        assert_eq!(sizing.buffer, Buffer { size: 4096, several: true });
    }
}
