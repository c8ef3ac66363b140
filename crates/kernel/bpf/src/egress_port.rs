//! The number of the port through which a frame leaves, which a steering program writes in front of
//! it, for the worker that gets it.

/// The bytes that say, in front of a frame, through which port it leaves.
pub const EGRESS_PORT_BYTES: u32 = 8;

/// `PORT_SEAL` of `programs/steer_choose.h`.
pub(crate) const PORT_SEAL: u32 = 0x706f_7274;
/// The number of the port through which a frame leaves, by `before`, the bytes directly before it;
/// `None` if a program with `seal` has not said so. Whether there is such a port it does not say.
#[inline]
pub fn egress_port(before: &[u8], seal: u32) -> Option<u8> {
    let (before, found) = before.split_last_chunk()?;
    let (_, port) = before.split_last_chunk()?;
    if u32::from_ne_bytes(*found) != seal ^ PORT_SEAL {
        return None;
    }
    u32::from_ne_bytes(*port).try_into().ok()
}
