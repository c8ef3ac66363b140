//! Prefetching memory.

/// A cache line of x86-64, in bytes.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Starts to load the cache line of `value`, without waiting: it will soon be needed.
#[inline(always)]
#[cfg_attr(target_arch = "x86_64", expect(unsafe_code))]
pub fn prefetch<T: ?Sized>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let address = std::ptr::from_ref(value).cast::<i8>();
        // SAFETY: a prefetch reads nothing and faults at no address; this address is that of a
        // reference.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// The same for all cache lines of `value`.
#[inline(always)]
#[cfg_attr(target_arch = "x86_64", expect(unsafe_code))]
pub fn prefetch_all<T: ?Sized>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start = std::ptr::from_ref(value).cast::<i8>();
        for offset in (0..size_of_val(value)).step_by(LINE) {
            // SAFETY: a prefetch reads nothing and faults at no address; these addresses are inside
            // a value.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(offset)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefetching_changes_nothing() {
        let values = [1_u64, 2, 3];
        prefetch(&values[1]);
        prefetch(&values[3..]);
        prefetch("");
        prefetch_all(&values);
        prefetch_all(&values[3..]);
        assert_eq!(values, [1, 2, 3]);
    }
}
