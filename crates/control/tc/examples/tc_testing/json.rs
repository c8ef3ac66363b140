//! Whether a JSON text contains what a case expects, by the rules of the kernel's `tdc.py`.

use serde_json::Value;

/// Why `output` does not contain `wanted`: lists may go on, and objects may have other keys.
pub fn difference(output: &Value, wanted: &Value) -> Option<String> {
    match (output, wanted) {
        (Value::Array(output), Value::Array(wanted)) => match output.len() < wanted.len() {
            true => Some(format!("{} elements and not {}", output.len(), wanted.len())),
            false => output.iter().zip(wanted).find_map(|(one, of)| difference(one, of)),
        },
        (Value::Object(output), Value::Object(wanted)) => {
            wanted.iter().find_map(|(key, wanted)| match output.get(key) {
                None => Some(format!("no {key}")),
                // Nothing wanted is nothing there.
                Some(output) if is_empty(wanted) && !is_empty(output) => {
                    Some(format!("{key}: {output} and not {wanted}"))
                }
                Some(output) => difference(output, wanted).map(|why| format!("{key}: {why}")),
            })
        }
        _ => (output != wanted).then(|| format!("{output} and not {wanted}")),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
        _ => false,
    }
}
