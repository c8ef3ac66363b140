//! A worker's view of a queue of a device: four rings, and the calls that go with them.
//!
//! In the data plane that is an AF_XDP socket; under test the other ends of the rings are a model
//! of the kernel.

use narrows_xsk::{Consumer, Desc, KernelDrops, Producer, Socket};
use std::io;

/// One queue of one device.
pub(crate) trait Queue {
    /// Frames received.
    fn rx(&mut self) -> &mut Consumer<Desc>;
    /// Frames to send.
    fn tx(&mut self) -> &mut Producer<Desc>;
    /// Empty frames for the kernel to fill.
    fn fill(&mut self) -> &mut Producer<u64>;
    /// Frames sent.
    fn completion(&mut self) -> &mut Consumer<u64>;
    /// As [`Socket::kick_tx`].
    fn kick_tx(&self) -> io::Result<()>;
    /// As [`Socket::kick_rx`].
    fn kick_rx(&self) -> io::Result<()>;
    /// As [`Socket::kernel_drops`]; zero if the kernel does not report it.
    fn kernel_drops(&self) -> KernelDrops;
}

impl Queue for Socket {
    #[inline]
    fn rx(&mut self) -> &mut Consumer<Desc> {
        &mut self.rx
    }

    #[inline]
    fn tx(&mut self) -> &mut Producer<Desc> {
        &mut self.tx
    }

    #[inline]
    fn fill(&mut self) -> &mut Producer<u64> {
        &mut self.fill
    }

    #[inline]
    fn completion(&mut self) -> &mut Consumer<u64> {
        &mut self.completion
    }

    fn kick_tx(&self) -> io::Result<()> {
        Socket::kick_tx(self)
    }

    fn kick_rx(&self) -> io::Result<()> {
        Socket::kick_rx(self)
    }

    fn kernel_drops(&self) -> KernelDrops {
        Socket::kernel_drops(self).unwrap_or_default()
    }
}
