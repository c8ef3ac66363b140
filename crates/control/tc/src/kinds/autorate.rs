//! `autorate`: a rate that follows a line. Narrows' own words, for the limit of a port.

use super::coordination::once;
use super::tbf::rate;
use crate::complaint::Complaint;
use crate::render::{Json, Line};
use crate::words::Words;
use narrows_policy::{Autorate, REFLECTORS_MAX};
use std::net::IpAddr;

/// The longest name of a port that is taken: a kernel's is shorter.
const NAME_MAX: usize = 63;

/// Parses the words after `autorate`.
pub(super) fn parse(
    kind: &str,
    words: &mut Words,
    autorate: &mut Option<Box<Autorate>>,
) -> Result<(), Complaint> {
    once(kind, "autorate", autorate.is_some())?;
    let value = words.value("autorate", "5mbit 40mbit")?;
    let least = rate(kind, "autorate", value)?;
    let value = words.value("autorate", "5mbit 40mbit")?;
    let most = rate(kind, "autorate", value)?;
    let mut line = None;
    if words.next_if(|word| word == "line").is_some() {
        let name = words.value("line", "eth0")?;
        if name.len() > NAME_MAX {
            return Err(Complaint::wrong(format!(
                "{kind}: \"line\" takes the name of the port that the line is beyond, as eth0."
            )));
        }
        line = Some(name.to_owned());
    }
    let mut reflectors: Vec<IpAddr> = Vec::new();
    while words.next_if(|word| word == "reflector").is_some() {
        let text = words.value("reflector", "192.0.2.1")?;
        let address = text.parse::<IpAddr>().ok().filter(is_of_a_host).ok_or_else(|| {
            Complaint::wrong(format!(
                "{kind}: \"reflector\" takes the address of a host beyond the line, as 192.0.2.1 \
                 or 2001:db8::1, not \"{text}\"."
            ))
        })?;
        if reflectors.contains(&address) {
            return Err(Complaint::wrong(format!(
                "{kind}: reflector {address} is there twice: give each once."
            )));
        }
        if reflectors.len() == REFLECTORS_MAX {
            return Err(Complaint::wrong(format!(
                "{kind}: give at most {REFLECTORS_MAX} reflectors."
            )));
        }
        reflectors.push(address);
    }
    *autorate = Some(Box::new(Autorate { least, most, line, reflectors }));
    Ok(())
}

/// Whether one host has this address, whichever way it is reached: no group, and none that is
/// another host's on each link.
fn is_of_a_host(address: &IpAddr) -> bool {
    let is_special = match address {
        IpAddr::V4(address) => address.is_broadcast(),
        IpAddr::V6(address) => {
            address.is_unicast_link_local() || address.to_ipv4_mapped().is_some()
        }
    };
    !(is_special || address.is_unspecified() || address.is_multicast())
}

/// Prints what makes a rate follow a line.
pub(super) fn show(autorate: Option<&Autorate>, line: &mut Line) {
    let Some(Autorate { least, most, line: beyond, reflectors }) = autorate else { return };
    let mut json = vec![
        ("least", Json::Number(least.bytes_per_sec())),
        ("most", Json::Number(most.bytes_per_sec())),
    ];
    let mut text = format!("autorate {} {} ", line.rate(*least), line.rate(*most));
    if let Some(beyond) = beyond {
        json.push(("line", Json::Text(beyond.clone())));
        text.push_str(&format!("line {beyond} "));
    }
    if !reflectors.is_empty() {
        let all = reflectors.iter().map(ToString::to_string).collect();
        json.push(("reflectors", Json::Texts(all)));
        text.extend(reflectors.iter().map(|address| format!("reflector {address} ")));
    }
    line.add("follows", Json::Object(json), &text);
}

/// The same as words, each after a space.
pub(super) fn save(autorate: Option<&Autorate>) -> String {
    let Some(Autorate { least, most, line, reflectors }) = autorate else {
        return String::new();
    };
    let line = line.as_ref().map(|line| format!(" line {line}")).unwrap_or_default();
    let reflectors: String =
        reflectors.iter().map(|address| format!(" reflector {address}")).collect();
    format!(" autorate {}bit {}bit{line}{reflectors}", least.bits_per_sec(), most.bits_per_sec())
}
