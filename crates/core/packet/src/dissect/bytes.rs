//! Bounds-checked reads.

/// The `N` bytes at `at`.
#[inline]
pub(super) fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<&[u8; N]> {
    bytes.get(at..)?.first_chunk()
}

/// The byte at `at`.
#[inline]
pub(super) fn byte(bytes: &[u8], at: usize) -> Option<u8> {
    bytes.get(at).copied()
}

/// Two bytes at `at`, most significant first.
#[inline]
pub(super) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    chunk(bytes, at).copied().map(u16::from_be_bytes)
}

/// Four bytes at `at`, most significant first.
#[inline]
pub(super) fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    chunk(bytes, at).copied().map(u32::from_be_bytes)
}
