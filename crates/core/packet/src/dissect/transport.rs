//! What distinguishes the flows between two hosts.

use super::bytes::{be16, be32, byte};
use super::network::{Carried, Packet};
use super::protocol::{Protocol, protocol};

impl Packet {
    /// Both ports, the source's in the upper half. In protocols without ports, their substitute: a
    /// security parameter index, or the identifier of an echo. 0 in a fragment, or if the frame
    /// ends before.
    #[inline(always)]
    pub(super) fn ports(&self, frame: &[u8]) -> u32 {
        let Carried { protocol: number, at, is_fragment, security } = self.carried;
        if is_fragment {
            return 0;
        }
        let bytes = self.bytes(frame);
        let ports = match protocol(number) {
            Protocol::Ports | Protocol::Encrypted => be32(bytes, at),
            Protocol::Echo(one, other) => byte(bytes, at)
                .filter(|sort| *sort == one || *sort == other)
                .and_then(|_| be16(bytes, at + 4))
                .map(u32::from),
            _ => None,
        };
        ports.unwrap_or(security)
    }
}
