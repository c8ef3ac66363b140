//! Text and JSON in `tc`'s layout. No general JSON writer produces it: `tc -details` prints a key
//! twice, and its pretty form has its own indentation.

use crate::notation::{self, Prefixes};
use narrows_units::Rate;
use std::fmt::Write;

/// The JSON values that `tc` prints.
pub(crate) enum Json {
    Null,
    Bool(bool),
    Number(u64),
    Signed(i64),
    /// With six digits, as C's `%g` prints it.
    Float(f64),
    Text(String),
    Texts(Vec<String>),
    Numbers(Vec<u64>),
    Pairs(Vec<(f64, u64)>),
    Object(Vec<(&'static str, Json)>),
    Objects(Vec<Vec<(&'static str, Json)>>),
}

/// One qdisc or class, as text and as JSON.
#[derive(Default)]
pub(crate) struct Line {
    text: String,
    json: Vec<(&'static str, Json)>,
    prefixes: Prefixes,
}

impl Line {
    /// An empty line whose rates count with `prefixes`.
    pub(crate) fn new(prefixes: Prefixes) -> Self {
        Self { prefixes, ..Self::default() }
    }

    /// A rate in the text; JSON has numbers.
    pub(crate) fn rate(&self, rate: Rate) -> String {
        notation::rate(rate, self.prefixes)
    }

    /// Adds a value to both.
    pub(crate) fn add(&mut self, key: &'static str, json: Json, text: &str) {
        self.json.push((key, json));
        self.text.push_str(text);
    }

    /// Adds text only.
    pub(crate) fn text(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Adds JSON only.
    pub(crate) fn json(&mut self, key: &'static str, json: Json) {
        self.json.push((key, json));
    }

    /// Its text and its JSON fields.
    pub(crate) fn into_parts(self) -> (String, Vec<(&'static str, Json)>) {
        (self.text, self.json)
    }

    /// Adds another line's fields as an object.
    pub(crate) fn nest(&mut self, key: &'static str, inner: Self) {
        self.add(key, Json::Object(inner.json), &inner.text);
    }
}

/// All lines as text.
pub(crate) fn text(lines: &[Line]) -> String {
    lines.iter().map(|line| line.text.as_str()).collect()
}

/// All lines as one JSON array on one line.
pub(crate) fn json(lines: &[Line]) -> String {
    array(lines, None)
}

/// All lines as one indented JSON array.
pub(crate) fn pretty_json(lines: &[Line]) -> String {
    array(lines, Some(1))
}

fn array(lines: &[Line], depth: Option<usize>) -> String {
    let mut out = String::new();
    objects(lines.iter().map(|line| &line.json), depth, &mut out);
    out.push('\n');
    out
}

/// Joins the arrays in `outputs` into one. They were printed by [`json`], or by [`pretty_json`] if
/// `pretty`.
pub(crate) fn join<'a>(outputs: impl IntoIterator<Item = &'a str>, pretty: bool) -> String {
    let (open, close) = if pretty { ("[ ", " ]") } else { ("[", "]") };
    let inner: Vec<&str> = outputs
        .into_iter()
        .filter_map(|output| output.trim_end().strip_prefix(open)?.strip_suffix(close))
        .filter(|inner| !inner.is_empty())
        .collect();
    match inner.is_empty() {
        true => format!("{open}]\n"),
        false => format!("{open}{}{close}\n", inner.join(",")),
    }
}

/// Writes an array of objects; `depth` is the depth of their braces in the pretty form.
fn objects<'a>(
    list: impl IntoIterator<Item = &'a Vec<(&'static str, Json)>>,
    depth: Option<usize>,
    out: &mut String,
) {
    out.push_str(if depth.is_some() { "[ " } else { "[" });
    let mut empty = true;
    for fields in list {
        if !empty {
            out.push(',');
        }
        object(fields, depth, out);
        empty = false;
    }
    out.push_str(if depth.is_some() && !empty { " ]" } else { "]" });
}

/// Writes an array of numbers, which stays on its line.
fn numbers(list: &[u64], pretty: bool, out: &mut String) {
    let blank = if pretty { " " } else { "" };
    let list: Vec<_> = list.iter().map(u64::to_string).collect();
    // Writing to a string cannot fail.
    let _ = write!(out, "[{blank}{}{blank}]", list.join(","));
}

/// Writes an array of pairs, which stays on its line.
fn pairs(list: &[(f64, u64)], out: &mut String) {
    let list: Vec<_> =
        list.iter().map(|(one, other)| format!("[{},{other}]", notation::general(*one))).collect();
    // Writing to a string cannot fail.
    let _ = write!(out, "[{}]", list.join(","));
}

/// Writes an object; `depth` is the depth of its brace in the pretty form.
fn object(fields: &[(&'static str, Json)], depth: Option<usize>, out: &mut String) {
    let newline = |depth: usize, out: &mut String| {
        out.push('\n');
        out.extend(std::iter::repeat_n(' ', depth * 4));
    };
    out.push('{');
    for (index, (key, value)) in fields.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        if let Some(depth) = depth {
            newline(depth + 1, out);
        }
        string(key, out);
        out.push_str(if depth.is_some() { ": " } else { ":" });
        match value {
            Json::Null => out.push_str("null"),
            Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            // Writing to a string cannot fail.
            Json::Number(value) => drop(write!(out, "{value}")),
            Json::Signed(value) => drop(write!(out, "{value}")),
            Json::Float(value) => out.push_str(&notation::general(*value)),
            Json::Text(value) => string(value, out),
            Json::Texts(list) => {
                out.push('[');
                for (index, text) in list.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    string(text, out);
                }
                out.push(']');
            }
            Json::Numbers(list) => numbers(list, depth.is_some(), out),
            Json::Pairs(list) => pairs(list, out),
            Json::Object(fields) => object(fields, depth.map(|depth| depth + 1), out),
            Json::Objects(list) => objects(list, depth.map(|depth| depth + 2), out),
        }
    }
    if let Some(depth) = depth.filter(|_| !fields.is_empty()) {
        newline(depth, out);
    }
    out.push('}');
}

/// Writes a string. Device names may contain anything but a slash, a colon and white space.
fn string(text: &str, out: &mut String) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            letter if letter < ' ' => drop(write!(out, "\\u{:04x}", letter as u32)),
            letter => out.push(letter),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_survives_a_device_with_a_strange_name() {
        let mut line = Line::default();
        line.json("dev", Json::Text("a\"\\\u{1}ü".to_owned()));
        let parsed: serde_json::Value = serde_json::from_str(&json(&[line])).unwrap();
        assert_eq!(parsed[0]["dev"], "a\"\\\u{1}ü");
    }
}
