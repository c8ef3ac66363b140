//! The name of a network device, as data that can be copied.

/// A name of up to 15 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceName([u8; Self::LONGEST + 1]);

impl DeviceName {
    /// `IFNAMSIZ` without the terminating zero.
    pub const LONGEST: usize = 15;

    /// That name; `None` if it is empty, too long, or has a zero in it.
    pub fn new(name: &str) -> Option<Self> {
        let mut bytes = [0; Self::LONGEST + 1];
        let is_name = (1..=Self::LONGEST).contains(&name.len()) && !name.contains('\0');
        bytes.get_mut(..name.len()).filter(|_| is_name)?.copy_from_slice(name.as_bytes());
        Some(Self(bytes))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        std::str::from_utf8(&self.0[..end]).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_comes_back_and_what_is_none_is_refused() {
        for name in ["ifb0", "fifteen-letters", "ü"] {
            assert_eq!(DeviceName::new(name).unwrap().as_str(), name);
        }
        for name in ["", "sixteen-letters-", "a\0b"] {
            assert_eq!(DeviceName::new(name), None, "{name:?}");
        }
    }
}
