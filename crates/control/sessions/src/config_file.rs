//! The file of a configuration, read as far as one may be long.

use std::fs::File;
use std::io::{self, Read as _};

/// More bytes than any configuration needs.
pub const LENGTH_MAX: u64 = 1 << 20;

/// The text of `file`: of a file that is longer than [`LENGTH_MAX`], one byte more than that, which
/// [`is_too_long`] sees. So a device or an endless pipe takes no memory.
///
/// # Errors
/// If it cannot be read, or is no UTF-8.
pub fn text(file: File) -> io::Result<String> {
    let mut text = String::new();
    file.take(LENGTH_MAX + 1).read_to_string(&mut text)?;
    Ok(text)
}

/// Whether `text` is longer than a configuration may be.
pub fn is_too_long(text: &str) -> bool {
    text.len() as u64 > LENGTH_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_file_is_read_to_its_bound_and_is_too_long() {
        let text = text(File::open("/dev/zero").unwrap()).unwrap();
        assert_eq!(text.len() as u64, LENGTH_MAX + 1);
        assert!(is_too_long(&text) && !is_too_long(&text[1..]));
    }
}
