//! Dotted paths into a scenario: `port.rate`, `traffic.0.load`, or `traffic.mice.load` by name.

use super::error::{Place, ScenarioError};
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

/// A change to a file from the command line: `port.rate=1gbit`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Override {
    /// Where in the file; a key without a dot is looked for in the usual tables.
    pub path: String,
    /// The new value, as typed.
    pub value: String,
}

impl Override {
    /// Takes `KEY=VALUE` apart.
    ///
    /// # Errors
    /// What to write instead.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        match text.split_once('=') {
            Some((path, value)) if !path.trim().is_empty() => {
                Ok(Self { path: path.trim().to_owned(), value: value.trim().to_owned() })
            }
            _ => Err(ScenarioError {
                file: "command line".to_owned(),
                place: Place::Override(text.to_owned()),
                message: "write a path into the file and a value, as port.rate=1gbit".to_owned(),
            }),
        }
    }

    /// The value as TOML if it is valid TOML, otherwise as text.
    pub(super) fn value(&self) -> Value {
        parse(&self.value).unwrap_or_else(|| Value::String(self.value.clone()))
    }

    /// The value as what a sweep runs through: `1gbit,2gbit`, `4,8` or `[0.8,0.2],[1]`.
    pub(super) fn values(&self) -> Vec<Value> {
        if let Some(Value::Array(values)) = parse(&format!("[{}]", self.value)) {
            return values;
        }
        let part = |part: &str| {
            let part = part.trim();
            parse(part).unwrap_or_else(|| Value::String(part.to_owned()))
        };
        self.value.split(',').map(part).collect()
    }
}

/// `text` as a single TOML value.
fn parse(text: &str) -> Option<Value> {
    if text.contains('\n') {
        return None;
    }
    let mut table: Table = toml::from_str(&format!("value = {text}")).ok()?;
    if table.len() == 1 { table.remove("value") } else { None }
}

/// The value at `path`.
pub(super) fn get<'a>(table: &'a Table, path: &str) -> Option<&'a Value> {
    let mut segments = path.split('.');
    let mut value = table.get(segments.next()?)?;
    for segment in segments {
        value = match value {
            Value::Table(table) => table.get(segment)?,
            Value::Array(array) => array.get(index(array, segment)?)?,
            _ => return None,
        };
    }
    Some(value)
}

/// Puts `value` at `path`; missing tables on the way are created.
///
/// # Errors
/// If the way ends.
pub(super) fn set(table: &mut Table, path: &str, value: Value) -> Result<(), String> {
    match path.split_once('.') {
        None => {
            table.insert(path.to_owned(), value);
            Ok(())
        }
        Some((first, rest)) => {
            let below = table.entry(first).or_insert_with(|| Value::Table(Table::new()));
            set_below(below, first, rest, value)
        }
    }
}

fn set_below(parent: &mut Value, name: &str, path: &str, value: Value) -> Result<(), String> {
    match parent {
        Value::Table(table) => set(table, path, value),
        Value::Array(array) => {
            let (segment, rest) = match path.split_once('.') {
                Some((segment, rest)) => (segment, Some(rest)),
                None => (path, None),
            };
            let Some(index) = index(array, segment) else {
                return Err(format!("there is no {name}.{segment}: {}", entries(array, name)));
            };
            match rest {
                Some(rest) => set_below(&mut array[index], segment, rest, value),
                None => {
                    array[index] = value;
                    Ok(())
                }
            }
        }
        _ => Err(format!("{name} is a value and has nothing below it")),
    }
}

/// The entry of an array that `segment` means: by number, or by its `name`.
fn index(array: &[Value], segment: &str) -> Option<usize> {
    let named = |value: &Value| value.get("name").and_then(Value::as_str) == Some(segment);
    let number = segment.parse::<usize>().ok().filter(|number| *number < array.len());
    number.or_else(|| array.iter().position(named))
}

fn entries(array: &[Value], name: &str) -> String {
    let entry = |(number, value): (usize, &Value)| match value.get("name").and_then(Value::as_str) {
        Some(label) => format!("{name}.{number} ({label})"),
        None => format!("{name}.{number}"),
    };
    match array {
        [] => "it is empty".to_owned(),
        _ => {
            let entries: Vec<String> = array.iter().enumerate().map(entry).collect();
            format!("there is {}", entries.join(", "))
        }
    }
}

/// The line of `text` with `path`, or with its longest existing prefix.
pub(super) fn line(text: &str, path: &str) -> Option<usize> {
    let root = DeTable::parse(text).ok()?;
    let mut start = None;
    let mut table = Some(root.get_ref());
    let mut value: Option<&Spanned<DeValue<'_>>> = None;
    for segment in path.split('.') {
        let next = match (table, value.map(Spanned::get_ref)) {
            (Some(table), _) => member(table, segment),
            (None, Some(DeValue::Table(table))) => member(table, segment),
            (None, Some(DeValue::Array(array))) => {
                let named = |entry: &&Spanned<DeValue<'_>>| match entry.get_ref() {
                    DeValue::Table(table) => member(table, "name")
                        .is_some_and(|(_, name)| name.get_ref().as_str() == Some(segment)),
                    _ => false,
                };
                let entry = segment.parse::<usize>().ok().and_then(|number| array.get(number));
                entry.or_else(|| array.iter().find(named)).map(|value| (value.span().start, value))
            }
            _ => None,
        };
        let Some((at, below)) = next else { break };
        start = Some(at);
        value = Some(below);
        table = None;
    }
    start.map(|start| line_at(text, start))
}

/// The line of `text` in which the sweep gives `path` its values.
pub(super) fn sweep_line(text: &str, path: &str) -> Option<usize> {
    let root = DeTable::parse(text).ok()?;
    let (_, sweep) = member(root.get_ref(), "sweep")?;
    let within = |value: &Spanned<DeValue<'_>>| match value.get_ref() {
        DeValue::Table(table) => member(table, path).map(|(start, _)| start),
        _ => None,
    };
    let start = match sweep.get_ref() {
        DeValue::Array(array) => array.iter().find_map(within),
        _ => within(sweep),
    };
    start.map(|start| line_at(text, start))
}

fn member<'a, 'de>(
    table: &'a DeTable<'de>,
    name: &str,
) -> Option<(usize, &'a Spanned<DeValue<'de>>)> {
    let found = table.iter().find(|(key, _)| key.get_ref().as_ref() == name);
    found.map(|(key, value)| (key.span().start, value))
}

/// The line, counted from 1, of the byte at `offset`.
pub(super) fn line_at(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().iter().take(offset);
    1 + before.filter(|byte| **byte == b'\n').count()
}

/// `value` as a result shows it: text without quotation marks, parts between slashes.
pub(super) fn label(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(label).collect::<Vec<_>>().join("/"),
        Value::Table(table) => {
            let part = |(key, value): (&String, &Value)| format!("{key} {}", label(value));
            table.iter().map(part).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "a = 1\n[port]\nrate = '1gbit'\n\n[[traffic]]\nname = 'mice'\n[[traffic]]\nload = 2\n[sweep]\n'port.rate' = [1]\n";

    fn change(text: &str) -> Override {
        Override::parse(text).unwrap()
    }

    #[test]
    fn paths_lead_through_tables_and_lists() {
        let mut table: Table = toml::from_str(TEXT).unwrap();
        assert_eq!(get(&table, "traffic.1.load"), Some(&Value::Integer(2)));
        set(&mut table, "traffic.mice.load", Value::Integer(7)).unwrap();
        assert_eq!(get(&table, "traffic.0.load"), Some(&Value::Integer(7)));
        set(&mut table, "cores.costs.step_ns", Value::Integer(7)).unwrap();
        assert_eq!(get(&table, "cores.costs.step_ns"), Some(&Value::Integer(7)));
        let error = set(&mut table, "traffic.2.load", Value::Integer(1)).unwrap_err();
        assert!(error.contains("traffic.0 (mice), traffic.1"), "{error}");
        assert!(set(&mut table, "a.b", Value::Integer(1)).is_err());
    }

    #[test]
    fn a_path_has_a_line() {
        assert_eq!(line(TEXT, "port.rate"), Some(3));
        assert_eq!(line(TEXT, "traffic.1.load"), Some(8));
        assert_eq!(line(TEXT, "port.queues"), Some(2));
        assert_eq!(line(TEXT, "nothing"), None);
        assert_eq!(sweep_line(TEXT, "port.rate"), Some(10));
    }

    #[test]
    fn values_are_toml_or_text() {
        assert_eq!(change("a=5").value(), Value::Integer(5));
        assert_eq!(change("a=1gbit").value(), Value::String("1gbit".into()));
        assert_eq!(change("a=1gbit, 2gbit").values().len(), 2);
        assert_eq!(change("a=[0.8,0.2],[1]").values().len(), 2);
        assert_eq!(change("a=[0.8,0.2]").values().len(), 1);
        assert_eq!(label(&change("a=[0.8,0.2]").value()), "0.8/0.2");
        assert!(Override::parse("rate").is_err());
        assert!(Override::parse("=1").is_err());
    }
}
