//! The number of the port through which a frame leaves, and the route that it takes there, which a
//! steering program writes in front of it, for the worker that gets it.

use narrows_packet::RouteTaken;

/// The bytes that say, in front of a frame, through which port it leaves.
pub const EGRESS_PORT_BYTES: u32 = 8;

/// The bytes that say, in front of a frame, which route it takes, too.
pub const ROUTE_TAKEN_BYTES: u32 = 16;

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

/// The route that a frame takes, by `before`, the bytes directly before it; `None` if a program
/// with `seal` has not said so. Only a router's programs do.
#[inline]
pub fn route_taken(before: &[u8], seal: u32) -> Option<RouteTaken> {
    egress_port(before, seal)?;
    let route = before.last_chunk::<{ ROUTE_TAKEN_BYTES as usize }>()?;
    let number = |at: usize| Some(u32::from_ne_bytes(*route[at..].first_chunk()?));
    Some(RouteTaken { realms: number(0)?, metric: number(4)? })
}
