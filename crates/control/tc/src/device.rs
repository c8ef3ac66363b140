//! The network devices that commands name.

use crate::complaint::Complaint;
use crate::{Host, intermediate};
use narrows_classify::DeviceName;
use narrows_policy::PortFacts;

/// The facts about the device `dev`.
pub(crate) fn named(dev: &str, host: &dyn Host) -> Result<PortFacts, Complaint> {
    intermediate::facts(dev, host)
        .ok_or_else(|| Complaint::wrong(format!("Cannot find device \"{dev}\".{}", ports(host))))
}

/// The ports that there are, as a sentence after a space; nothing if there are none.
pub(crate) fn ports(host: &dyn Host) -> String {
    match host.devices().as_slice() {
        [] => String::new(),
        devices => format!(" Ports here are {}.", devices.join(", ")),
    }
}

/// Whether the kernel would accept the name of an interface, and a policy file can hold it.
///
/// # Errors
/// Says what such a name is.
pub fn check_name(name: &str) -> Result<(), String> {
    if is_name(name) {
        return Ok(());
    }
    Err(format!(
        "{name:?} is no name of an interface: it has 1 to {} bytes, and no spaces, slashes, \
         colons, quotes or #",
        DeviceName::LONGEST
    ))
}

/// Whether it would.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=DeviceName::LONGEST).contains(&name.len())
        && !matches!(name, "." | "..")
        && !name.contains(|letter: char| {
            letter.is_whitespace() || letter.is_control() || "/:#'\"\\".contains(letter)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_names_are_valid_for_the_kernel_and_in_files() {
        for name in ["eth0", "wan.100", "a", "fifteen-letters"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", ".", "..", "a/b", "a:b", "a b", "a#b", "a\"b", "sixteen-letters-", "a\0"] {
            assert!(!is_name(name), "{name}");
        }
    }
}
