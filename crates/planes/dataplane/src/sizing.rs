//! How many frames a worker has, and how large they are.
//!
//! *The idea.* A frame is always somewhere: with the kernel to receive into, with a queued packet,
//! or being sent. The number of the first follows from the rings: the lengths of the fill ring and
//! the RX ring and, in zero copy, of the device's own ring, which the driver fills from the fill
//! ring. The operator configures the number of the second (`--frames`, for two ports). So rings of
//! any length leave the queues their frames, and no port uses another's.
//!
//! Frames that are being sent count as queued: the packets are in one more queue, the device's.

use crate::device::DeviceFacts;
use crate::options::SessionOptions;
use crate::owners::Shares;
use narrows_forwarding::{Forwarding, PerDevice};
use narrows_link::{Buffer, Receiver};
use narrows_xsk::CopyMode;

/// The frames and rings that the workers of a session need.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sizing {
    /// The layout of packets in frames.
    pub(crate) buffer: Buffer,
    /// Frames of each worker.
    pub(crate) shares: Shares,
}

impl Sizing {
    /// For the ports of `forwarding` on `devices` in `mode`.
    pub(crate) fn new(
        forwarding: &Forwarding,
        devices: &PerDevice<DeviceFacts>,
        options: &SessionOptions,
        mode: CopyMode,
    ) -> Self {
        let mtu = devices.iter().map(|device| device.mtu).max().unwrap_or_default();
        let shares = Shares {
            receive: devices
                .iter()
                .map(|device| options.ring + device_ring(device, mode))
                .collect(),
            wait: forwarding.ids().map(|_| options.frames / 2).collect(),
        };
        Self { buffer: receiver(mode).buffer_for(mtu), shares }
    }

    /// Frames of one worker.
    pub(crate) fn frames(&self) -> u32 {
        self.shares.frames()
    }

    /// The memory of the frames of `queues` workers, in bytes.
    pub(crate) fn bytes(&self, queues: u32) -> u64 {
        u64::from(queues) * u64::from(self.frames()) * u64::from(self.buffer.size)
    }
}

impl SessionOptions {
    /// How much memory the kernel locks for the frames of the workers that join the ports of
    /// `forwarding` on `devices`, in bytes, in the most demanding mode that is tried.
    pub(crate) fn locked_bytes(
        &self,
        forwarding: &Forwarding,
        devices: &PerDevice<DeviceFacts>,
    ) -> u64 {
        let mode = match self.copy_mode {
            Some(only) => only,
            None if may_share(devices) => CopyMode::ZeroCopy,
            None => CopyMode::Copy,
        };
        let queues = devices.iter().map(|device| device.queues).min().unwrap_or_default();
        Sizing::new(forwarding, devices, self, mode).bytes(queues)
    }
}

/// Whether zero copy is worth trying: a device without its own rings, such as a veth, cannot do it.
pub(crate) fn may_share(devices: &PerDevice<DeviceFacts>) -> bool {
    devices.iter().all(|device| device.rx_ring > 0)
}

/// How many frames the device's own ring of each queue may take.
fn device_ring(device: &DeviceFacts, mode: CopyMode) -> u32 {
    match mode {
        CopyMode::Copy => 0,
        CopyMode::ZeroCopy => device.rx_ring,
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

    fn device(mtu: u32, rx_ring: u32) -> DeviceFacts {
        DeviceFacts {
            name: "a".into(),
            ifindex: 1,
            mac: [0; 6],
            way_in: Default::default(),
            mtu,
            queues: 1,
            rx_ring,
            counts: narrows_link::QueueCounts::default(),
            driver: "ice".into(),
            headerless: false,
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
            receive_on: Vec::new(),
            round_trips: false,
        }
    }

    #[test]
    fn the_longest_rings_leave_the_queues_their_frames() {
        let devices = [device(1500, 8160), device(1500, 256)].into_iter().collect();
        let wire = Forwarding::wire("a", "b").unwrap();
        let sizing = Sizing::new(&wire, &devices, &options(16_384, 2048), CopyMode::ZeroCopy);
        assert_eq!(sizing.shares.receive.raw, [8160 + 2048, 256 + 2048]);
        assert_eq!(sizing.shares.wait.raw, [8192, 8192]);
        assert_eq!(sizing.frames(), 8160 + 256 + 2 * 2048 + 16_384);
        assert_eq!(sizing.buffer, Buffer { size: 4096, several: false });
        assert_eq!(sizing.bytes(3), 3 * u64::from(sizing.frames()) * 4096);
    }

    #[test]
    fn where_the_kernel_copies_the_devices_rings_take_no_frames() {
        let devices = [device(1500, 8160), device(9000, 4096)].into_iter().collect();
        let wire = Forwarding::wire("a", "b").unwrap();
        let sizing = Sizing::new(&wire, &devices, &options(1024, 128), CopyMode::Copy);
        assert_eq!(sizing.shares.receive.raw, [128, 128]);
        assert_eq!(sizing.shares.wait.raw, [512, 512]);
        assert_eq!(sizing.buffer, Buffer { size: 4096, several: true });
    }
}
