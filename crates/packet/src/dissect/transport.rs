//! What tells the flows between two hosts apart.

use super::bytes::{be16, be32, byte};
use super::network::Packet;
use super::protocol::{Protocol, protocol};

impl Packet {
    /// Both ports, the source's above; or what stands for them in protocols that have none: a
    /// security parameter index, the identifier of an echo. 0 in a fragment, or where the frame
    /// ends before.
    #[inline]
    pub(super) fn ports(&self, frame: &[u8]) -> u32 {
        if self.is_fragment {
            return 0;
        }
        let Some(bytes) = frame.get(..self.end) else { return 0 };
        let ports = match protocol(self.protocol) {
            Protocol::Ports | Protocol::Encrypted => be32(bytes, self.payload),
            Protocol::Echo(one, other) => byte(bytes, self.payload)
                .filter(|sort| *sort == one || *sort == other)
                .and_then(|_| be16(bytes, self.payload + 4))
                .map(u32::from),
            _ => None,
        };
        ports.unwrap_or(self.security)
    }
}
