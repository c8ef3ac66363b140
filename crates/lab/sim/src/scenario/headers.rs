//! The packet headers of a traffic group.

use super::error::Wrong;
use super::file::{StackWord, TrafficTable};
use super::quantity::Quantity;
use crate::setup::HeaderFields;

/// Code points by name, in addition to `CS0` to `CS7` and `AF11` to `AF43`: RFC 3246, 5865 and
/// 8622.
const NAMED: [(&str, u8); 3] = [("EF", 46), ("VA", 44), ("LE", 1)];

/// The headers in `table`, for a group of `flows` flows.
pub(super) fn fields(
    table: &TrafficTable,
    number: usize,
    flows: u32,
) -> Result<HeaderFields, Wrong> {
    let path = |key: &str| format!("traffic.{number}.{key}");
    let hosts = |hosts: &Option<Quantity>, key: &str| match hosts {
        None => Ok(1),
        // No more than flows, of which there are no more than a `u32` holds.
        Some(hosts) => match hosts.number(1, u64::from(flows)) {
            Ok(hosts) => Ok(hosts as u32),
            Err(why) => Err(Wrong::new(path(key), format!("{why}: each has a flow at least"))),
        },
    };
    if table.ecn && matches!(table.stack, Some(StackWord::Smoltcp)) {
        let message = "smoltcp does not answer to marks: leave stack out";
        return Err(Wrong::new(path("ecn"), message));
    }
    let filter_rate = table.filter_rate.as_ref().map(Quantity::rate).transpose();
    let dscp = table.dscp.as_ref().map(|dscp| code_point(&dscp.0)).transpose();
    Ok(HeaderFields {
        source_hosts: hosts(&table.source_hosts, "source_hosts")?,
        destination_hosts: hosts(&table.destination_hosts, "destination_hosts")?,
        common_hosts: table.common_hosts,
        dscp: dscp.map_err(|why| Wrong::new(path("dscp"), why))?.unwrap_or(0),
        ecn: table.ecn,
        filter_rate: filter_rate.map_err(|why| Wrong::new(path("filter_rate"), why))?,
    })
}

/// The code point that is called `text`, or written as a number.
fn code_point(text: &str) -> Result<u8, String> {
    let upper = text.trim().to_ascii_uppercase();
    let digits = |from: usize| {
        let mut digits = upper[from..].bytes().map(|digit| digit.wrapping_sub(b'0'));
        (digits.next(), digits.next(), digits.next())
    };
    let named = NAMED.iter().find(|(name, _)| *name == upper).map(|(_, code_point)| *code_point);
    let code_point = match upper.get(..2) {
        Some("CS") => match digits(2) {
            // RFC 2474: the class in the upper three bits.
            (Some(class @ 0..=7), None, _) => Some(class << 3),
            _ => None,
        },
        Some("AF") => match digits(2) {
            // RFC 2597: class and precedence to drop.
            (Some(class @ 1..=4), Some(drop @ 1..=3), None) => Some((class << 3) | (drop << 1)),
            _ => None,
        },
        _ => named.or_else(|| upper.parse().ok().filter(|number| *number < 64)),
    };
    code_point.ok_or_else(|| {
        format!(
            "\"{text}\" is no code point: write EF, VA, LE, CS0 to CS7, AF11 to AF43, or 0 to 63"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_points_are_read_by_name_and_number() {
        let known = [
            ("EF", 46),
            ("cs1", 8),
            ("CS7", 56),
            ("AF11", 10),
            ("AF43", 38),
            ("AF41", 34),
            ("le", 1),
            ("va", 44),
            ("0", 0),
            ("63", 63),
        ];
        for (text, code_point_of) in known {
            assert_eq!(code_point(text), Ok(code_point_of), "{text}");
        }
        for text in
            ["", "C", "CS8", "CS", "CS00", "AF14", "AF51", "AF1", "AF111", "64", "-1", "Ä", "CSÄ"]
        {
            assert!(code_point(text).is_err(), "{text}");
        }
    }
}
