//! Lists of records, as they were loaded.

use crate::mapping::Where;
use crate::{Faults, SourceError};
use serde_json::Value;
use std::collections::BTreeMap;

/// The most records of a list.
pub(crate) const RECORDS_MAX: usize = 2_000_000;

/// The lists of a source, by the name that the mapping gives them.
#[derive(Debug, Default)]
pub struct Lists {
    lists: BTreeMap<String, List>,
    /// What could not be loaded.
    pub(crate) faults: Faults,
}

impl Lists {
    /// Adds a list under `name`.
    pub fn insert(&mut self, name: &str, list: List) {
        self.lists.insert(name.to_owned(), list);
    }

    /// The list called `name`.
    ///
    /// # Errors
    /// If it was not loaded.
    pub fn get(&self, name: &str) -> Result<&List, SourceError> {
        self.lists.get(name).ok_or_else(|| {
            SourceError::Mapping(format!("there is no list \"{name}\": add [lists.{name}]"))
        })
    }
}

/// Records in their order.
#[derive(Debug)]
pub struct List {
    /// What messages call it: a file's name, or the list's.
    title: String,
    /// Always an array; its elements are objects.
    records: Value,
    /// The line of each record; none where records are counted.
    lines: Option<Vec<u64>>,
    /// All members that a record can have; none where that is not known.
    columns: Option<Vec<String>>,
}

impl List {
    /// A list of `records` that are counted from 1. A record that is no object is a fault.
    ///
    /// # Errors
    /// If there are more than 2,000,000.
    pub(crate) fn counted(
        title: &str,
        records: Vec<Value>,
        faults: &mut Faults,
    ) -> Result<Self, SourceError> {
        check_count(title, records.len())?;
        for (index, record) in records.iter().enumerate() {
            if !record.is_object() {
                let place = format!("{title}, record {}", index + 1);
                faults.add(place, "it is no object: it is left out");
            }
        }
        Ok(Self {
            title: title.to_owned(),
            records: Value::Array(records),
            lines: None,
            columns: None,
        })
    }

    /// A list of objects, each from a line of a table with these `columns`.
    ///
    /// # Errors
    /// If there are more than 2,000,000.
    pub(crate) fn of_lines(
        title: &str,
        columns: Vec<String>,
        records: Vec<Value>,
        lines: Vec<u64>,
    ) -> Result<Self, SourceError> {
        check_count(title, records.len())?;
        Ok(Self {
            title: title.to_owned(),
            records: Value::Array(records),
            lines: Some(lines),
            columns: Some(columns),
        })
    }

    /// How many records there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all().len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    /// What messages call it.
    pub(crate) fn title(&self) -> &str {
        &self.title
    }

    /// The columns of a table.
    pub(crate) fn columns(&self) -> Option<&[String]> {
        self.columns.as_deref()
    }

    /// Whether a record can have the member `name`, and, where that is not known, whether one has.
    /// So does a list without records.
    pub(crate) fn has(&self, name: &str) -> bool {
        match &self.columns {
            Some(columns) => columns.iter().any(|column| column == name),
            None => self.is_empty() || self.all().iter().any(|record| record.get(name).is_some()),
        }
    }

    fn all(&self) -> &[Value] {
        self.records.as_array().map_or(&[], Vec::as_slice)
    }

    /// Where a record is.
    pub(crate) fn place(&self, index: usize) -> String {
        match self.lines.as_ref().and_then(|lines| lines.get(index)) {
            Some(line) => format!("{}, line {line}", self.title),
            None => format!("{}, record {}", self.title, index + 1),
        }
    }

    /// The records that fulfil all `conditions`, with their positions.
    pub(crate) fn select<'a>(
        &'a self,
        conditions: &[Option<&Where>],
    ) -> impl Iterator<Item = (usize, &'a Value)> {
        let mut is_taken = vec![true; self.len()];
        for condition in conditions.iter().copied().flatten() {
            for (taken, holds) in is_taken.iter_mut().zip(condition.holds(&self.records)) {
                *taken &= holds;
            }
        }
        let records = self.all().iter().enumerate().zip(is_taken);
        records
            .filter(|((_, record), is_taken)| *is_taken && record.is_object())
            .map(|(record, _)| record)
    }
}

fn check_count(title: &str, count: usize) -> Result<(), SourceError> {
    if count > RECORDS_MAX {
        return Err(SourceError::TooMuch(format!(
            "{title} has {count} records, and {RECORDS_MAX} are the most: ask the other system \
             for fewer, with a filter in the request"
        )));
    }
    Ok(())
}
