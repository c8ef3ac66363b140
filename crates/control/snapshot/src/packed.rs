//! Numbers and texts in few bytes, one after another.
//!
//! A snapshot of 60,000 classes has millions of numbers, most of them small. As in many wire
//! formats, an integer takes a byte for each seven bits, the lowest first (LEB128).

/// Appends `number`.
pub(crate) fn put_number(to: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

/// Appends the length of `text`, and `text`.
pub(crate) fn put_text(to: &mut Vec<u8>, text: &str) {
    put_number(to, text.len() as u64);
    to.extend_from_slice(text.as_bytes());
}

/// The whole number of thousandths that is exactly `real`: times in microseconds are counted in
/// nanoseconds.
pub(crate) fn thousandths(real: f64) -> Option<u64> {
    let number = (real * 1e3).round() as u64;
    (from_thousandths(number).to_bits() == real.to_bits()).then_some(number)
}

/// The number of so many thousandths.
pub(crate) fn from_thousandths(number: u64) -> f64 {
    number as f64 / 1e3
}

/// What was appended, from the front. Beyond the end there are zeros and empty texts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unpack<'a>(pub(crate) &'a [u8]);

impl<'a> Unpack<'a> {
    pub(crate) fn is_over(self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    pub(crate) fn bytes(&mut self, length: usize) -> &'a [u8] {
        let (front, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        front
    }

    pub(crate) fn number(&mut self) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte();
            number |= u64::from(byte & 0x7f).unbounded_shl(shift);
            shift += 7;
            if byte & 0x80 == 0 {
                return number;
            }
        }
    }

    pub(crate) fn real(&mut self) -> f64 {
        f64::from_le_bytes(self.bytes(8).try_into().unwrap_or_default())
    }

    pub(crate) fn text(&mut self) -> &'a str {
        let length = self.number() as usize;
        str::from_utf8(self.bytes(length)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(number: u64, small in 0u64..300, text: String) {
            let mut bytes = Vec::new();
            for number in [number, small] {
                put_number(&mut bytes, number);
            }
            put_text(&mut bytes, &text);
            let mut from = Unpack(&bytes);
            prop_assert_eq!((from.number(), from.number()), (number, small));
            prop_assert_eq!((from.text(), from.is_over()), (text.as_str(), true));
        }

        #[test]
        fn thousandths_are_exact_or_none(real: f64, ns in 0u64..1 << 50) {
            let known = |real: f64| thousandths(real).map(|it| from_thousandths(it).to_bits());
            prop_assert!(known(real).is_none_or(|bits| bits == real.to_bits()));
            let us = ns as f64 / 1e3;
            prop_assert_eq!(known(us), Some(us.to_bits()));
        }
    }

    #[test]
    fn what_is_no_time_is_none() {
        for real in [-0.0, -1.0, f64::NAN, f64::INFINITY, 0.0001] {
            assert_eq!(thousandths(real), None, "{real}");
        }
        assert_eq!(thousandths(0.0), Some(0));
    }
}
