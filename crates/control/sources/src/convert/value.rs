//! JSON values as texts and addresses.

use crate::fault::quoted;
use narrows_directory::Prefix;
use serde_json::Value;
use std::net::IpAddr;

/// Adds the texts of a value and of the elements of arrays. Nothing and empty texts are none.
///
/// # Errors
/// If there is an object.
pub(super) fn scalars(value: &Value, found: &mut Vec<String>) -> Result<(), String> {
    match value {
        Value::Null => {}
        Value::Bool(truth) => found.push(truth.to_string()),
        Value::Number(number) => found.push(number.to_string()),
        Value::String(text) => {
            let text = text.trim();
            if !text.is_empty() {
                found.push(text.to_owned());
            }
        }
        Value::Array(elements) => {
            for element in elements {
                scalars(element, found)?;
            }
        }
        Value::Object(_) => {
            return Err("is an object: write the path to a value in it, as $.site.id".to_owned());
        }
    }
    Ok(())
}

/// `10.0.0.1`, `10.0.0.0/24` or `2001:db8::/56`; of a host also `10.0.0.5/24`.
///
/// # Errors
/// If it is no address, or has bits behind its prefix.
pub(super) fn address(text: &str, is_host: bool) -> Result<Prefix, String> {
    let no = || format!("{} is no address", quoted(text));
    let (ip, bits) = match text.split_once('/') {
        Some((ip, bits)) => (ip, Some(bits.parse::<u8>().map_err(|_| no())?)),
        None => (text, None),
    };
    let ip: IpAddr = ip.parse().map_err(|_| no())?;
    let width = if ip.is_ipv4() { 32 } else { 128 };
    if bits.is_some_and(|bits| bits > width) {
        return Err(no());
    }
    let bits = bits.filter(|_| !is_host).unwrap_or(width);
    let prefix = Prefix::new(ip, bits).ok_or_else(no)?;
    if prefix.ip != ip {
        return Err(format!(
            "{} has bits behind its prefix: host = true takes it as the address of a host",
            quoted(text)
        ));
    }
    if bits == 0 {
        return Err(format!("{} is everything, and belongs to nobody", quoted(text)));
    }
    if ip.is_unspecified() && prefix.is_whole() {
        return Err(no());
    }
    Ok(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_or_a_whole_prefix() {
        let shown = |text, is_host| {
            address(text, is_host).map(|Prefix { ip, bits }| format!("{ip}/{bits}"))
        };
        assert_eq!(shown("10.0.0.5", false).unwrap(), "10.0.0.5/32");
        assert_eq!(shown("10.0.0.0/24", false).unwrap(), "10.0.0.0/24");
        assert_eq!(shown("10.0.0.5/24", true).unwrap(), "10.0.0.5/32");
        assert_eq!(shown("2001:db8::/56", false).unwrap(), "2001:db8::/56");
        assert!(shown("10.0.0.5/24", false).unwrap_err().contains("host = true"));
        for wrong in
            ["", "10.0.0", "0.0.0.0/0", "10.0.0.0/33", "::/129", "10.0.0.0/", "0.0.0.0", "x"]
        {
            assert!(shown(wrong, false).is_err(), "{wrong}");
        }
    }
}
