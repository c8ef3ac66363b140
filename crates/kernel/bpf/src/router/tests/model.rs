//! The router, said once more in Rust.

/// The frame as it leaves from `from` to `to`: it is of IP, and has more than one hop to live.
pub(super) fn leaving(frame: &[u8], from: [u8; 6], to: [u8; 6]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&from);
    if frame[12..14] == [0x86, 0xdd] {
        frame[21] -= 1;
        return frame;
    }
    // RFC 1624, equation 3: an error of the checksum stays.
    let word = |at: usize, frame: &[u8]| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let (check, was) = (word(24, &frame), word(22, &frame));
    frame[22] -= 1;
    let sum = u32::from(!check) + u32::from(!was) + u32::from(word(22, &frame));
    let sum = (sum & 0xffff) + (sum >> 16);
    let check = !(((sum & 0xffff) + (sum >> 16)) as u16);
    frame[24..26].copy_from_slice(&check.to_be_bytes());
    frame
}
