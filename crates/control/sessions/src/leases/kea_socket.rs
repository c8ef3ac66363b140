//! Kea's control socket.
//!
//! *Idea.* `lease4-get-page` and `lease6-get-page` list all leases, a thousand at a time. Kea takes
//! one command a connection, and closes it after the answer.
//!
//! *Source.* Kea Administrator Reference Manual, "Control Channel" and "Lease Commands" (the hook
//! library `libdhcp_lease_cmds.so`). Result 0 is success, 3 is an empty page.

use super::{Field, LEASES_MAX, Lease, Table, options, usable};
use crate::{hardware, prefix};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How many leases are asked for at once.
const PAGE: usize = 1_000;
/// The longest answer: a page has about 500 kB.
const ANSWER_MAX: u64 = 16 << 20;
/// How long Kea may take for a page.
const PATIENCE: Duration = Duration::from_secs(5);
/// The lifetime that means for ever.
const FOREVER: u64 = u32::MAX as u64;

/// Why there are no leases.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The socket is not there, or does not answer.
    #[error("it does not answer: {0}")]
    Io(#[from] io::Error),
    /// It answered something that is no page of leases.
    #[error("its answer is no page of leases")]
    NoPage,
    /// It refused. Without the hook library it does not know the command.
    #[error("it refuses: {0}; load libdhcp_lease_cmds.so in hooks-libraries")]
    Refused(String),
}

/// A page of leases.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// Those in force.
    pub leases: Vec<Lease>,
    /// The address of the last lease, from which the next page goes on; none behind the last page.
    pub next: Option<String>,
}

/// The leases that the server at `path` has.
///
/// # Errors
/// If it does not answer, or refuses.
pub fn read(path: &Path, is_v6: bool) -> Result<Table, SocketError> {
    let mut table = Table::new();
    let mut from = "start".to_owned();
    loop {
        let page = page(&exchange(path, &command(is_v6, &from))?)?;
        table.extend(page.leases.into_iter().map(|lease| (lease.address, lease)));
        match page.next {
            // A server that begins again would never end.
            Some(next) if next != from && table.len() <= LEASES_MAX => from = next,
            _ => return Ok(table),
        }
    }
}

/// What is sent for the page behind the address `from`, or `start`.
pub fn command(is_v6: bool, from: &str) -> String {
    let command = if is_v6 { "lease6-get-page" } else { "lease4-get-page" };
    json!({ "command": command, "arguments": { "from": from, "limit": PAGE } }).to_string()
}

fn exchange(path: &Path, command: &str) -> Result<Vec<u8>, SocketError> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(command.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut answer)?;
    Ok(answer)
}

/// The page in an answer.
///
/// # Errors
/// If it is none.
pub fn page(answer: &[u8]) -> Result<Page, SocketError> {
    let answer: Value = serde_json::from_slice(answer).map_err(|_| SocketError::NoPage)?;
    match answer["result"].as_u64() {
        Some(0 | 3) => {}
        Some(_) => {
            let text = answer["text"].as_str().unwrap_or("no reason");
            return Err(SocketError::Refused(narrows_escape::line(text).into_owned()));
        }
        None => return Err(SocketError::NoPage),
    }
    let leases = answer["arguments"]["leases"].as_array();
    let leases = leases.map(Vec::as_slice).unwrap_or_default();
    let last = leases.last().and_then(|lease| lease["ip-address"].as_str());
    let next = last.filter(|_| leases.len() >= PAGE).map(str::to_owned);
    Ok(Page { leases: leases.iter().filter_map(lease).collect(), next })
}

fn lease(value: &Value) -> Option<Lease> {
    let ip = value["ip-address"].as_str()?.parse().ok()?;
    let is_prefix = value["type"] == "IA_PD";
    let bits = value["prefix-len"].as_u64().filter(|_| is_prefix);
    let address = usable(match bits {
        Some(bits) => prefix::network(ip, u8::try_from(bits).ok()?),
        None => Some(prefix::host(ip)),
    })?;
    if !matches!(value["state"].as_u64(), None | Some(0 | 4)) {
        return None;
    }
    let lifetime = value["valid-lft"].as_u64().filter(|lifetime| *lifetime > 0)?;
    let since = value["cltt"].as_u64()?;
    let mut fields = BTreeMap::new();
    let mut insert = |field, value: Option<String>| {
        fields.extend(value.filter(|value| !value.is_empty()).map(|value| (field, value)));
    };
    let text = |key: &str| value[key].as_str().map(str::to_owned);
    insert(Field::HwAddress, value["hw-address"].as_str().and_then(hardware::address));
    insert(Field::ClientId, text("client-id"));
    insert(Field::Duid, text("duid"));
    insert(Field::Hostname, text("hostname"));
    let context = context_of(&value["user-context"], &mut fields);
    let expires = (lifetime != FOREVER).then(|| since.saturating_add(lifetime));
    Some(Lease { address, expires, fields, context })
}

/// The texts in a user context, which is JSON in a lease file; what relays said goes into `fields`.
pub fn context(text: &str, fields: &mut BTreeMap<Field, String>) -> BTreeMap<String, String> {
    serde_json::from_str(text).map(|value| context_of(&value, fields)).unwrap_or_default()
}

fn context_of(value: &Value, fields: &mut BTreeMap<Field, String>) -> BTreeMap<String, String> {
    // "relay-agent-info" is the option in hexadecimal, or an object with it since Kea 2.3.2.
    let relay = &value["ISC"]["relay-agent-info"];
    let relay = relay.as_str().or_else(|| relay["sub-options"].as_str());
    if let Some(bytes) = relay.and_then(hardware::bytes) {
        options::relay4(&bytes, fields);
    }
    // "relay-info" since Kea 2.3, "relays" before. The first one is next to the server.
    let relays = [&value["ISC"]["relay-info"], &value["ISC"]["relays"]];
    let relays = relays.into_iter().filter_map(Value::as_array).flatten();
    for bytes in relays.rev().filter_map(|relay| hardware::bytes(relay["options"].as_str()?)) {
        options::relay6(&bytes, fields);
    }
    let texts = value.as_object().into_iter().flatten();
    let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    texts.filter_map(text).collect()
}
