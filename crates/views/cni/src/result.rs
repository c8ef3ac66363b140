//! What the plugins before this one have made, and how it is passed on.

use crate::version::Version;
use serde_json::{Value, json};

/// The names of the interfaces in `previous` that are on the host.
pub(crate) fn on_the_host(previous: &Value) -> Vec<&str> {
    let interfaces = previous["interfaces"].as_array().into_iter().flatten();
    interfaces
        .filter(|interface| interface["sandbox"].as_str().unwrap_or_default().is_empty())
        .filter_map(|interface| interface["name"].as_str())
        .collect()
}

/// `previous`, unchanged, in the form of `version`. Runtimes give it in that form; then it is as it
/// was.
pub(crate) fn passed_on(previous: &Value, version: Version) -> Value {
    let mut result = previous.clone();
    let Some(fields) = result.as_object_mut() else { return result };
    let before = fields.insert("cniVersion".to_owned(), json!(version.name()));
    let same = before.as_ref().is_some_and(|before| before == version.name());
    for ip in fields.get_mut("ips").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(ip) = ip.as_object_mut().filter(|_| !same) else { continue };
        if !version.names_families() {
            ip.remove("version");
        } else if let Some(address) = ip.get("address").and_then(Value::as_str) {
            let family = if address.contains(':') { "6" } else { "4" };
            ip.insert("version".to_owned(), json!(family));
        }
    }
    result
}
