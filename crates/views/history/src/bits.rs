//! Columns of small numbers: the least of them, and of each how much more it is, in as few bits as
//! the largest needs.

/// The least, as two bytes, and the number of bits.
const HEAD: usize = 3;

/// Appends `column` to `to`.
pub(crate) fn pack(column: &[u16], to: &mut Vec<u8>) {
    let least = column.iter().copied().min().unwrap_or(0);
    let most = column.iter().copied().max().unwrap_or(0);
    let bits = u16::BITS - (most - least).leading_zeros();
    to.extend_from_slice(&least.to_le_bytes());
    to.push(bits as u8);
    let (mut held, mut count) = (0u32, 0);
    for value in column {
        held |= u32::from(value - least) << count;
        count += bits;
        while count >= 8 {
            to.push(held as u8);
            held >>= 8;
            count -= 8;
        }
    }
    if count > 0 {
        to.push(held as u8);
    }
}

/// Takes a column of `length` numbers from the front of `from`; none if that is not one.
pub(crate) fn unpack(from: &mut &[u8], length: usize) -> Option<Vec<u16>> {
    let (head, rest) = from.split_first_chunk::<HEAD>()?;
    let least = u16::from_le_bytes([head[0], head[1]]);
    let bits = u32::from(head[2]);
    if bits > u16::BITS {
        return None;
    }
    let bytes = (length * bits as usize).div_ceil(8);
    let (packed, rest) = rest.split_at_checked(bytes)?;
    *from = rest;
    let mut packed = packed.iter();
    let (mut held, mut count) = (0u32, 0);
    let values = (0..length).map(|_| {
        while count < bits {
            held |= u32::from(*packed.next()?) << count;
            count += 8;
        }
        let value = held & ((1u32 << bits) - 1);
        held >>= bits;
        count -= bits;
        least.checked_add(value as u16)
    });
    values.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn columns_are_read_as_they_were_packed(
            columns in proptest::collection::vec(
                proptest::collection::vec((0u16.., 0u32..16).prop_map(|(it, by)| it >> by), 0..70),
                0..4,
            ),
        ) {
            let mut packed = Vec::new();
            columns.iter().for_each(|column| pack(column, &mut packed));
            let mut rest = &packed[..];
            for column in &columns {
                let read = unpack(&mut rest, column.len());
                prop_assert_eq!(read.as_ref(), Some(column));
            }
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>, length in 0usize..64) {
            let _ = unpack(&mut &bytes[..], length);
        }
    }

    #[test]
    fn equal_numbers_take_three_bytes() {
        let mut packed = Vec::new();
        pack(&[7; 60], &mut packed);
        assert_eq!(packed.len(), HEAD);
    }
}
