//! What tells the flows between two hosts apart.

use super::bytes::{be16, be32, byte};
use super::network::{Carried, Packet};
use super::protocol::{Protocol, protocol};

impl Packet {
    /// Both ports, the source's above; or what stands for them in protocols that have none: a
    /// security parameter index, the identifier of an echo. 0 in a fragment, or where the frame
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
