//! Reads the binary parts of the state, piece by piece, and says where it is malformed.

/// The state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It does not fit the format.
    #[error("its state is malformed, at {0}")]
    Malformed(&'static str),
    /// Its part in JSON.
    #[error("its state is malformed: {0}")]
    Json(#[from] serde_json::Error),
}

/// Takes a number of 32 bits off the front of `from`.
pub(super) fn read_u32(from: &mut &[u8]) -> Result<u32, StateError> {
    read(from).map(u32::from_le_bytes)
}

/// Takes `N` bytes off the front of `from`.
pub(super) fn read<const N: usize>(from: &mut &[u8]) -> Result<[u8; N], StateError> {
    let (bytes, rest) = from.split_first_chunk().ok_or(StateError::Malformed("its end"))?;
    *from = rest;
    Ok(*bytes)
}
