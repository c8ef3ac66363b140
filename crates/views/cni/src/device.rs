//! The end of a pod's veth on the host.

use crate::CniError;
use crate::attachment::Attachment;
use crate::result;
use narrows_link::veth_end;
use serde_json::Value;
use std::fs::File;
use std::path::Path;

/// The name of the device on this host whose other end is the interface of `attachment`. It has to
/// be one that a plugin before this one has made, as `previous` says: otherwise it is not the
/// pod's alone.
pub(crate) fn on_the_host(attachment: &Attachment, previous: &Value) -> Result<String, CniError> {
    let namespace = attachment.namespace.as_deref().unwrap_or(Path::new(""));
    let (interface, path) = (&attachment.interface, namespace.display());
    let file = File::open(namespace).map_err(|error| {
        CniError::NoVeth(format!("the network namespace {path} cannot be opened: {error}"))
    })?;
    let Some(end) = veth_end(&file, interface)? else {
        return Err(CniError::NoVeth(format!(
            "{interface} in {path} is no veth with its other end on this host: limits need a \
             plugin before this one that makes such a pair, as bridge and ptp do"
        )));
    };
    let name = end.name;
    if !result::on_the_host(previous).contains(&name.as_str()) {
        return Err(CniError::NoVeth(format!(
            "the other end of {interface} in {path} is {name}, which prevResult does not have \
             among the interfaces of the host"
        )));
    }
    // It becomes a word of a command.
    if !name.chars().all(|letter| letter.is_ascii_alphanumeric() || "_.-@+".contains(letter)) {
        return Err(CniError::NoVeth(format!(
            "the device \"{name}\" has a letter in its name that is none in a command: rename it"
        )));
    }
    Ok(name)
}
