//! The frames.

use crate::mapping::Mapping;
use std::io;
use std::sync::Arc;

/// A UMEM cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum UmemError {
    /// The kernel takes frames of 2048 or 4096 bytes (aligned mode, up to the page size).
    #[error("frames of {0} bytes: AF_XDP takes 2048 or 4096")]
    FrameSize(u32),
    /// There is not that much memory.
    #[error("cannot map {bytes} bytes for packet frames: {source}")]
    Memory {
        /// How much was asked for.
        bytes: u64,
        /// What the kernel said.
        source: io::Error,
    },
}

/// The memory in which packets lie: `frames` frames of `frame_size` bytes each, shared by all
/// sockets of all ports. Cheap to clone; freed with its last clone.
#[derive(Clone)]
pub struct Umem {
    region: Arc<Mapping>,
    frames: u32,
    frame_size: u32,
}

impl Umem {
    /// Maps the memory.
    ///
    /// # Errors
    /// For a frame size that AF_XDP does not take, or where memory is short.
    pub fn new(frames: u32, frame_size: u32) -> Result<Self, UmemError> {
        if frame_size != 2048 && frame_size != 4096 {
            return Err(UmemError::FrameSize(frame_size));
        }
        let bytes = u64::from(frames) * u64::from(frame_size);
        let region = usize::try_from(bytes)
            .map_err(|_| io::ErrorKind::OutOfMemory.into())
            .and_then(Mapping::anonymous)
            .map_err(|source| UmemError::Memory { bytes, source })?;
        Ok(Self { region: Arc::new(region), frames, frame_size })
    }

    /// How many frames there are.
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// The size of each, in bytes.
    pub fn frame_size(&self) -> u32 {
        self.frame_size
    }

    /// The frame in which `addr` lies.
    #[inline]
    pub fn frame_at(&self, addr: u64) -> u64 {
        addr / u64::from(self.frame_size)
    }

    /// Where frame number `frame` begins.
    #[inline]
    pub fn addr_of(&self, frame: u32) -> u64 {
        u64::from(frame) * u64::from(self.frame_size)
    }

    pub(crate) fn start(&self) -> u64 {
        self.region.start().as_ptr() as u64
    }
}
