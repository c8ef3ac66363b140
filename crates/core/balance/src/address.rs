//! Addresses with ports, as `ipvsadm` writes them: `192.0.2.1:80`, `[2001:db8::1]:80`.

use std::fmt;
use std::net::IpAddr;

/// Writes `address` and `port`.
pub(crate) fn write(f: &mut fmt::Formatter<'_>, address: IpAddr, port: u16) -> fmt::Result {
    match address {
        IpAddr::V4(address) => write!(f, "{address}:{port}"),
        IpAddr::V6(address) => write!(f, "[{address}]:{port}"),
    }
}

/// Reads an address and a port, if there is one.
///
/// # Errors
/// What it is not.
pub(crate) fn read(word: &str) -> Result<(IpAddr, Option<u16>), String> {
    let (address, port) = match word.strip_prefix('[') {
        Some(rest) => {
            let (address, rest) =
                rest.split_once(']').ok_or_else(|| format!("\"{word}\" has no ]"))?;
            let address = address.parse().map(IpAddr::V6);
            match rest.strip_prefix(':') {
                Some(port) => (address, Some(port)),
                None if rest.is_empty() => (address, None),
                None => return Err(format!("\"{word}\" is no address and port: [ADDRESS]:PORT")),
            }
        }
        None => match word.rsplit_once(':') {
            // An IPv6 address without brackets has no port.
            Some((address, _)) if address.contains(':') => (word.parse(), None),
            Some((address, port)) => (address.parse(), Some(port)),
            None => (word.parse(), None),
        },
    };
    let address = address.map_err(|_| {
        format!("\"{word}\" has no numeric address: names are not looked up (ipvsadm-save -n)")
    })?;
    let port = port.map(|port| {
        port.parse().map_err(|_| format!("\"{port}\" is no port: a number from 0 to 65535"))
    });
    Ok((address, port.transpose()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_have_a_port_and_of_ipv6_then_has_brackets() {
        let four: IpAddr = "192.0.2.1".parse().unwrap();
        let six: IpAddr = "2001:db8::1".parse().unwrap();
        assert_eq!(read("192.0.2.1:80"), Ok((four, Some(80))));
        assert_eq!(read("192.0.2.1"), Ok((four, None)));
        assert_eq!(read("[2001:db8::1]:80"), Ok((six, Some(80))));
        assert_eq!(read("[2001:db8::1]"), Ok((six, None)));
        assert_eq!(read("2001:db8::1"), Ok((six, None)));
        for word in ["", ":", "[", "[]", "[::1", "[::1]80", "[1.2.3.4]:1", "a:80", "1.2.3.4:x"] {
            assert!(read(word).is_err(), "{word}");
        }
        assert!(read("web:80").unwrap_err().contains("ipvsadm-save -n"));
    }
}
