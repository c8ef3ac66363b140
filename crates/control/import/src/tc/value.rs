//! Values of `tc`'s JSON.

use super::Object;
use serde_json::Value;

/// The text of a key.
pub(super) fn text<'a>(object: &'a Object, key: &str) -> Option<&'a str> {
    object.get(key).and_then(Value::as_str)
}

/// The value as one word of a command line; none if it is not one.
pub(super) fn word(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) => is_word(text).then(|| text.clone()),
        _ => None,
    }
}

/// Whether `text` stays one word in a policy file.
pub(super) fn is_word(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 64
        && text.chars().all(|letter| letter.is_ascii_graphic() && !"#'\"\\".contains(letter))
}
