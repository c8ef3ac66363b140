//! How large a frame one receive buffer can hold.
//!
//! One rule for all users: the data plane derives the size of its frames from it, and whether a
//! packet may take several; the doctor judges MTUs by it. The rule is about buffers and not about
//! drivers, so it also holds for drivers that have not been tested.
//!
//! *If the kernel copies*, the device receives into buffers of the kernel: a page, minus the
//! headroom and the `skb_shared_info` after it. The copy goes into a frame of the UMEM, after the
//! same headroom.
//!
//! *In zero copy*, the device itself writes into the frame. Many devices support only buffer sizes
//! in units of 1 KiB (Intel's `SRRCTL.BSIZEPKT`: igb, igc, ixgbe). Their drivers round down what
//! remains after the headroom: 2048 bytes become 1024, 4096 become 3072. Longer packets are lost
//! without being counted. So a frame of 2048 bytes is never enough, and one of 4096 holds 3072.
//!
//! Non-goal: knowing which drivers can receive a packet into several buffers.

/// The headroom that the kernel leaves in front of a frame for programs (`XDP_PACKET_HEADROOM`).
const HEADROOM: u32 = 256;
/// An Ethernet header with two VLAN tags.
const ETHERNET: u32 = 14 + 2 * 4;
/// The frame check sequence, which some devices write, too.
const CHECK_SEQUENCE: u32 = 4;
/// Native XDP needs a frame, its headroom and `struct skb_shared_info` (320 bytes) in one page of
/// 4096.
const PAGE_FOR_FRAME: u32 = 4096 - 320;
/// The unit of buffer sizes in devices.
const DEVICE_UNIT: u32 = 1024;
/// The sizes that a frame of the UMEM can have, in bytes.
const SMALL: u32 = 2048;
const LARGE: u32 = 4096;

/// What writes received packets into a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Receiver {
    /// The kernel, which copies it.
    Kernel,
    /// The device (zero copy).
    Device,
}

/// The layout of packets in frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buffer {
    /// The size of a frame, in bytes.
    pub size: u32,
    /// Whether a packet may take several frames.
    pub several: bool,
}

impl Receiver {
    /// The largest MTU whose packets fit into one frame of the UMEM, in bytes: 3498 if the kernel
    /// copies, 3046 in zero copy.
    pub const fn single_buffer_mtu(self) -> u32 {
        self.mtu_of(LARGE)
    }

    /// The frames for an MTU of `mtu` bytes.
    pub const fn buffer_for(self, mtu: u32) -> Buffer {
        let size = if mtu <= self.mtu_of(SMALL) { SMALL } else { LARGE };
        Buffer { size, several: mtu > self.mtu_of(LARGE) }
    }

    /// The largest MTU whose packets fit into `size` bytes.
    const fn mtu_of(self, size: u32) -> u32 {
        match self {
            Self::Kernel => {
                let room = if size < PAGE_FOR_FRAME { size } else { PAGE_FOR_FRAME };
                room - HEADROOM - ETHERNET
            }
            Self::Device => {
                let room = size - HEADROOM;
                room - room % DEVICE_UNIT - ETHERNET - CHECK_SEQUENCE
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_kernel_copies_the_limits_are_those_that_were_measured() {
        // On veth 1700 passes with buffers of 2048 and 1800 does not; 3400 passes with 4096
        // and 3700 cannot be attached to.
        let buffer = |mtu| Receiver::Kernel.buffer_for(mtu);
        assert_eq!(buffer(1770), Buffer { size: 2048, several: false });
        assert_eq!(buffer(1771), Buffer { size: 4096, several: false });
        assert_eq!(buffer(3498), Buffer { size: 4096, several: false });
        assert_eq!(buffer(3499), Buffer { size: 4096, several: true });
        assert_eq!(Receiver::Kernel.single_buffer_mtu(), 3498);
    }

    #[test]
    fn a_device_that_rounds_down_to_whole_kibibytes_loses_nothing() {
        for mtu in 68..=9000 {
            let Buffer { size, several } = Receiver::Device.buffer_for(mtu);
            let known = (size - HEADROOM) / DEVICE_UNIT * DEVICE_UNIT;
            assert!(several || mtu + ETHERNET + CHECK_SEQUENCE <= known, "{mtu} in {size}");
        }
        assert_eq!(Receiver::Device.buffer_for(1500), Buffer { size: 4096, several: false });
        assert_eq!(Receiver::Device.single_buffer_mtu(), 3046);
    }
}
