//! Reads what `steer_translated` writes in front of a frame.
//!
//! The layout is that of `programs/translation.h`: the seal next to the frame, before it the IP
//! version, and before that ports and addresses in network byte order. Any other content, such as
//! the bytes of an earlier packet, lacks the seal, which is random.

use narrows_packet::dissect::Translation;

/// The most bytes in front of a frame that can matter.
pub const TRANSLATION_MAX: u32 = 44;

/// The metadata in `before`, the bytes directly before a frame; `None` if there is none with
/// `seal`.
#[inline]
pub fn translation(before: &[u8], seal: u32) -> Option<Translation> {
    let (before, found) = before.split_last_chunk()?;
    let (before, version) = before.split_last_chunk()?;
    if u32::from_ne_bytes(*found) != seal {
        return None;
    }
    let (before, ports) = before.split_last_chunk()?;
    let ports = u32::from_be_bytes(*ports);
    match u32::from_ne_bytes(*version) {
        4 => before.last_chunk().map(|hosts| Translation::V4 { hosts: *hosts, ports }),
        6 => before.last_chunk().map(|hosts| Translation::V6 { hosts: *hosts, ports }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEAL: u32 = 0x1234_5679;

    /// The program's metadata for `hosts`.
    fn written(hosts: &[u8], version: u32, seal: u32) -> Vec<u8> {
        let ports = [0x13, 0x88, 0x01, 0xbb];
        [hosts, &ports, &version.to_ne_bytes(), &seal.to_ne_bytes()].concat()
    }

    #[test]
    fn written_metadata_is_read() {
        let ports = 5000 << 16 | 443;
        let v4 = Translation::V4 { hosts: [1, 2, 3, 4, 5, 6, 7, 8], ports };
        assert_eq!(translation(&written(&[1, 2, 3, 4, 5, 6, 7, 8], 4, SEAL), SEAL), Some(v4));
        let hosts: [u8; 32] = std::array::from_fn(|index| index as u8);
        let v6 = written(&hosts, 6, SEAL);
        assert_eq!(v6.len(), TRANSLATION_MAX as usize);
        assert_eq!(translation(&v6, SEAL), Some(Translation::V6 { hosts, ports }));
    }

    #[test]
    fn bytes_further_in_front_do_not_matter() {
        let alone = written(&[1; 8], 4, SEAL);
        let behind_others = [&[0xaa; 24], alone.as_slice()].concat();
        assert_eq!(translation(&behind_others, SEAL), translation(&alone, SEAL));
    }

    #[test]
    fn no_other_bytes_say_anything() {
        let good = written(&[1; 8], 4, SEAL);
        let nothing = written(&[], 0, SEAL);
        let foreign = written(&[1; 8], 4, SEAL ^ 1);
        let unknown = written(&[1; 8], 5, SEAL);
        let cases =
            [&good[..0], &good[1..], &good[..19], &good[16..], &nothing, &foreign, &unknown];
        for bytes in cases {
            assert_eq!(translation(bytes, SEAL), None, "{bytes:x?}");
        }
        assert_eq!(translation(&[0; 44], SEAL), None);
    }
}
