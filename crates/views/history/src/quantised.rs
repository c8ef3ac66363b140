//! Numbers rounded to a few significant bits.
//!
//! *Idea.* A code is the exponent and the first bits of the mantissa, so codes are in the order of
//! the numbers, and small numbers are exact. A code stands for the middle of all numbers that have
//! it. Rates have [`FINE`] bits, so they are within 0.2 %; times and losses have [`COARSE`] bits,
//! so they are within 6.3 %.

/// The bits of rates and counts: within 1/512.
pub const FINE: u32 = 8;
/// The bits of times and shares: within 1/16.
pub const COARSE: u32 = 3;

/// The code of `value` with so many `bits` of mantissa, at most 8.
pub fn code(value: u64, bits: u32) -> u16 {
    let bits = bits.min(FINE);
    let Some(exponent) = value.checked_ilog2().filter(|exponent| *exponent >= bits) else {
        return value as u16;
    };
    let shift = exponent - bits;
    // Without its first bit, the mantissa has `bits` bits, and the exponent at most 6.
    (((shift + 1) << bits) + ((value >> shift) as u32 - (1 << bits))) as u16
}

/// The middle of all values with this `code`.
pub fn middle(code: u16, bits: u32) -> f64 {
    let bits = bits.min(FINE);
    let code = u32::from(code);
    if code < 1 << bits {
        return f64::from(code);
    }
    let shift = ((code >> bits) - 1).min(63);
    let mantissa = f64::from((code & ((1 << bits) - 1)) + (1 << bits));
    let width = 2f64.powi(shift as i32);
    mantissa * width + (width - 1.0) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_value_is_within_its_precision(value: u64, shift in 0u32..64) {
            let value = value >> shift;
            for (bits, part) in [(FINE, 512.0), (COARSE, 16.0)] {
                let read = middle(code(value, bits), bits);
                prop_assert!((read - value as f64).abs() <= value as f64 / part, "{value}: {read}");
            }
        }

        #[test]
        fn codes_are_in_the_order_of_the_values(one: u64, other: u64, shift in 0u32..64) {
            let (one, other) = (one >> shift, other >> shift);
            for bits in [FINE, COARSE] {
                let (less, more) = (code(one.min(other), bits), code(one.max(other), bits));
                prop_assert!(less <= more);
            }
        }

        #[test]
        fn any_code_has_a_value_and_that_value_the_code(any: u16, bits in 0u32..=8) {
            let value = middle(any, bits);
            prop_assert!(value.is_finite());
            if any <= code(1 << 52, bits) {
                prop_assert_eq!(code(value as u64, bits), any);
            }
        }
    }

    #[test]
    fn small_numbers_are_exact() {
        assert!((0..=256).all(|value| middle(code(value, FINE), FINE) == value as f64));
        assert!((0..=8).all(|value| middle(code(value, COARSE), COARSE) == value as f64));
        assert!(code(u64::MAX, COARSE) < 512 && code(u64::MAX, FINE) < 15_000);
    }
}
