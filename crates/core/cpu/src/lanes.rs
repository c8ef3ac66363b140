//! Operations on eight numbers at once.

/// Which of `lanes` equal `value`: one bit for each, the lowest bit for the first.
#[inline(always)]
#[cfg_attr(target_arch = "x86_64", expect(unsafe_code))]
pub fn equal_lanes(lanes: &[u16; 8], value: u16) -> u8 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{
            _mm_cmpeq_epi16, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16, _mm_set1_epi16,
        };
        // SAFETY: every x86-64 has SSE2. The load needs no alignment, and its 16 bytes are the
        // array's.
        unsafe {
            let lanes = _mm_loadu_si128(lanes.as_ptr().cast());
            let equal = _mm_cmpeq_epi16(lanes, _mm_set1_epi16(value.cast_signed()));
            // An all-ones lane stays all ones when it is narrowed to a byte.
            _mm_movemask_epi8(_mm_packs_epi16(equal, equal)) as u8
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    one_by_one(lanes, value)
}

#[cfg(any(test, not(target_arch = "x86_64")))]
fn one_by_one(lanes: &[u16; 8], value: u16) -> u8 {
    (0..8).fold(0, |bits, lane| bits | u8::from(lanes[lane] == value) << lane)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The oracle compares one by one.
        #[test]
        fn lanes_are_compared_each_for_itself(
            lanes in any::<[u16; 8]>(),
            other in any::<u16>(),
            at in 0..8_usize,
        ) {
            for value in [lanes[at], other, lanes[at] ^ 0x8000, lanes[at] ^ 1, 0, 0xffff] {
                prop_assert_eq!(equal_lanes(&lanes, value), one_by_one(&lanes, value));
                let mut same = lanes;
                same[7 - at] = value;
                prop_assert_eq!(equal_lanes(&same, value), one_by_one(&same, value));
            }
        }
    }
}
