//! Files of the smaller kinds of scenario: one table of a fixed shape, changed from the command
//! line, without a sweep over paths or words that are put in.

use super::error::{Place, ScenarioError, Wrong};
use super::paths::{self, Override};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use toml::{Table, Value};

/// Whether `text` has a table `name`, which says of which kind it is.
pub(super) fn has_table(text: &str, name: &str) -> bool {
    toml::from_str::<Table>(text).is_ok_and(|table| table.contains_key(name))
}

/// The result of `build` for the file `text`, an `F`, with `overrides`. Keys without a dot are
/// searched in the tables `usual`.
///
/// # Errors
/// The mistake, where it is, and what to write instead.
pub(super) fn read<F: DeserializeOwned, S>(
    name: &str,
    text: &str,
    overrides: &[Override],
    usual: &[&str],
    build: impl FnOnce(F) -> Result<S, Wrong>,
) -> Result<S, ScenarioError> {
    let error =
        |place: Place, message: String| ScenarioError { file: name.to_owned(), place, message };
    if let Err(wrong) = toml::from_str::<F>(text) {
        let line = wrong.span().map(|span| Place::Line(paths::line_at(text, span.start)));
        return Err(error(line.unwrap_or(Place::Whole), wrong.message().to_owned()));
    }
    let mut table: Table =
        toml::from_str(text).map_err(|wrong| error(Place::Whole, wrong.message().to_owned()))?;
    let mut overridden = BTreeSet::new();
    for change in overrides {
        let typed = || Place::Override(format!("{}={}", change.path, change.value));
        let (path, next) =
            changed::<F>(&table, change, usual).map_err(|why| error(typed(), why))?;
        overridden.insert(path);
        table = next;
    }
    let built = file(&table).map_err(|why| Wrong::new("", why)).and_then(build);
    built.map_err(|Wrong { path, message }| {
        let place = if overridden.contains(&path) {
            Place::Override(path.clone())
        } else {
            paths::line(text, &path).map_or(Place::Whole, Place::Line)
        };
        error(place, format!("{path}: {message}"))
    })
}

/// `table` with `change` made, and the path at which it was.
fn changed<F: DeserializeOwned>(
    table: &Table,
    change: &Override,
    usual: &[&str],
) -> Result<(String, Table), String> {
    let mut candidates = vec![change.path.clone()];
    if !change.path.contains('.') && !table.contains_key(&change.path) {
        candidates = usual.iter().map(|usual| format!("{usual}.{}", change.path)).collect();
    }
    let mut complaint = String::new();
    for path in candidates {
        // As the type that it parses as, or as text where text is expected.
        for value in [change.value(), Value::String(change.value.clone())] {
            let mut next = table.clone();
            let read =
                paths::set(&mut next, &path, value).and_then(|()| file::<F>(&next).map(|_| ()));
            match read {
                Ok(()) => return Ok((path, next)),
                Err(why) if complaint.is_empty() => complaint = why,
                Err(_) => {}
            }
        }
    }
    Err(complaint)
}

fn file<F: DeserializeOwned>(table: &Table) -> Result<F, String> {
    let read = F::deserialize(Value::Table(table.clone()));
    read.map_err(|error| error.to_string().trim_end().replace('\n', ", "))
}

/// A complaint about the value at `path`.
pub(super) fn at(path: &str) -> impl Fn(String) -> Wrong + '_ {
    move |message| Wrong::new(path, message)
}
