//! The name of a set of addresses, as data that can be copied.

/// A name of up to 31 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetName {
    bytes: [u8; Self::LONGEST],
    len: u8,
}

impl SetName {
    /// `IPSET_MAXNAMELEN` without the terminating zero.
    pub const LONGEST: usize = 31;

    /// That name; `None` if no set can have it: it is empty, too long, begins with a dash, or has
    /// letters that words and expressions cannot hold.
    pub fn new(name: &str) -> Option<Self> {
        let is_plain = |letter: char| {
            !letter.is_control() && !letter.is_whitespace() && !"\"'#(),\\".contains(letter)
        };
        let is_name = !name.is_empty() && !name.starts_with('-') && name.chars().all(is_plain);
        let mut bytes = [0; Self::LONGEST];
        bytes.get_mut(..name.len()).filter(|_| is_name)?.copy_from_slice(name.as_bytes());
        Some(Self { bytes, len: name.len() as u8 })
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_comes_back_and_what_is_none_is_refused() {
        for name in ["plans", "thirty-one-letters-of-one-name-", "ü"] {
            assert_eq!(SetName::new(name).unwrap().as_str(), name);
        }
        for name in ["", "thirty-two-letters-of-one-name--", "-exist", "a b", "a,b", "a(b", "a\\"] {
            assert_eq!(SetName::new(name), None, "{name:?}");
        }
    }
}
