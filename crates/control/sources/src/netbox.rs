//! The mapping for NetBox, built in.
//!
//! A circuit with the status "active" is a subscriber, with its tenant's name. Rates are those of
//! its termination A: `port_speed` down and `upstream_speed` up, in kbit/s, or the circuit's
//! commit rate. Addresses are the IP addresses and prefixes of its tenant. Sites are NetBox's.
//! Source: NetBox's REST API, `/api/schema/`, versions 3.5 to 4.x.

use crate::SourceError;
use crate::mapping::Mapping;

/// The file, which is also an example to start from.
pub const FILE: &str = include_str!("netbox.toml");

/// The mapping for the NetBox at `url`, as `https://netbox.example.net`.
///
/// # Errors
/// If `url` is no address of a server.
pub fn mapping(url: &str) -> Result<Mapping, SourceError> {
    ask_at(Mapping::parse(FILE)?, url)
}

/// A changed copy of the mapping, for the NetBox at `url`.
///
/// # Errors
/// If `url` is no address of a server, or the mapping has no `[http]`.
pub fn ask_at(mut mapping: Mapping, url: &str) -> Result<Mapping, SourceError> {
    mapping.ask_at(&format!("{}/api/", url.trim_end_matches('/')))?;
    Ok(mapping)
}
