//! MAC addresses and other identifiers of hardware, in one spelling.
//!
//! RADIUS clients, DHCP servers and people write the same MAC address in five ways. Labels and
//! identities are compared as text, so all of them become one: `aa:bb:cc:dd:ee:ff`.

/// The digits of a MAC address.
const DIGITS: usize = 12;

/// The MAC address in `text`: twelve hexadecimal digits, in groups of equal size between `:`, `-`
/// or `.`, or without any.
pub fn address(text: &str) -> Option<String> {
    let separator = text.chars().find(|letter| !letter.is_ascii_hexdigit());
    let groups: Vec<&str> = match separator {
        Some(separator @ (':' | '-' | '.')) => text.split(separator).collect(),
        Some(_) => return None,
        None => vec![text],
    };
    let length = DIGITS / groups.len().max(1);
    let is_even = groups.iter().all(|group| group.len() == length);
    // One group without a letter is rather the number of somebody.
    let is_number = groups.len() == 1 && text.bytes().all(|digit| digit.is_ascii_digit());
    if !is_even || is_number || length * groups.len() != DIGITS || length < 2 {
        return None;
    }
    let digits: String = groups.concat().to_ascii_lowercase();
    if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let pairs: Vec<&str> =
        digits.as_bytes().chunks(2).filter_map(|pair| str::from_utf8(pair).ok()).collect();
    Some(pairs.join(":"))
}

/// The bytes in hexadecimal, with `0x` in front.
pub fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::from("0x"), |mut text, byte| {
        // Writing into a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes behind text in hexadecimal: with or without `0x`, with or without separators.
pub fn bytes(text: &str) -> Option<Vec<u8>> {
    let text = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    let digits: Vec<u8> = text.bytes().filter(|byte| !matches!(byte, b':' | b'-' | b' ')).collect();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let value = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    let is_digits = digits.iter().all(u8::is_ascii_hexdigit);
    if is_digits { digits.chunks(2).map(value).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn five_spellings_are_one_address() {
        let spellings = [
            "00:0c:29:aa:bb:cc",
            "00-0C-29-AA-BB-CC",
            "000c.29aa.bbcc",
            "000c29aabbcc",
            "000c29:aabbcc",
        ];
        for text in spellings {
            assert_eq!(address(text).as_deref(), Some("00:0c:29:aa:bb:cc"), "{text}");
        }
    }

    #[test]
    fn other_text_is_no_address() {
        let others =
            ["", "ann", "00:0c:29:aa:bb", "0:c:29:aa:bb:cc", "493012345678", "00:0c-29:aa-bb:cc"];
        for text in others {
            assert_eq!(address(text), None, "{text}");
        }
        assert_eq!(address("0:0:0:c:2:9:a:a:b:b:c:c"), None);
    }

    #[test]
    fn hexadecimal_is_read_as_it_is_written() {
        assert_eq!(bytes("0x01af"), Some(vec![1, 0xaf]));
        assert_eq!(bytes("01:af"), Some(vec![1, 0xaf]));
        assert_eq!(bytes("1"), None);
        assert_eq!(bytes("+1"), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*") {
            address(&text);
            bytes(&text);
        }

        #[test]
        fn bytes_come_back(value in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(bytes(&hexadecimal(&value)), Some(value));
        }
    }
}
