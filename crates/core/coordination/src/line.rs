//! A value on cache lines of its own.

use std::ops::Deref;

/// Keeps its content apart from everything else that another core might write.
///
/// 128 bytes: x86 cores prefetch lines of 64 bytes in pairs, and several ARM cores have lines
/// of 128.
#[repr(align(128))]
pub(crate) struct Line<T>(pub(crate) T);

impl<T> Deref for Line<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}
