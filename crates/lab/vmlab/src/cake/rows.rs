//! Selects the rows of the tables to measure: all, or named ones.

use super::{Load, System};
use anyhow::{Context, Result};
use std::fmt;
use std::str::FromStr;

/// A load at its limits, or at one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    load: Load,
    limit: Option<u64>,
}

impl FromStr for Row {
    type Err = anyhow::Error;

    /// `tcp-ecn`, or `tcp-ecn-20`.
    fn from_str(word: &str) -> Result<Self> {
        let all = Load::ALL.into_iter().flat_map(|load| {
            let one = load.limits().iter().flatten().map(move |limit| Some(*limit));
            [None].into_iter().chain(one).map(move |limit| Self { load, limit })
        });
        let known = || all.clone().map(|row| row.to_string()).collect::<Vec<_>>().join(" ");
        all.clone()
            .find(|row| row.to_string() == word)
            .with_context(|| format!("no row is called {word}; one of {}", known()))
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.load.word())?;
        self.limit.map_or(Ok(()), |limit| write!(f, "-{limit}"))
    }
}

/// The rows to measure; all if none is named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows(pub Vec<Row>);

impl Rows {
    /// Those that are named in `words`, separated by commas.
    pub fn named(words: &str) -> Result<Self> {
        words.split(',').map(str::parse).collect::<Result<_>>().map(Self)
    }

    /// Whether `load` is sent at `limit`.
    pub fn have(&self, load: Load, limit: Option<u64>) -> bool {
        let is_it = |row: &Row| row.load == load && (row.limit.is_none() || row.limit == limit);
        self.0.is_empty() || self.0.iter().any(is_it)
    }

    /// Whether `system` is measured: for named rows, the judged systems and their reference.
    pub fn want(&self, system: System) -> bool {
        self.0.is_empty() || system == System::REFERENCE || System::OURS.contains(&system)
    }
}

impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.0.iter().map(Row::to_string).collect();
        f.write_str(&words.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_a_load_or_a_load_at_a_limit() {
        let rows = Rows::named("tcp-ecn-20,light").unwrap();
        assert!(rows.have(Load::TcpEcn, Some(20)) && !rows.have(Load::TcpEcn, Some(50)));
        assert!(rows.have(Load::Light, Some(20)) && rows.have(Load::Light, Some(50)));
        assert!(!rows.have(Load::Tcp, Some(20)));
        assert_eq!(Rows::named(&rows.to_string()).unwrap(), rows);
    }

    #[test]
    fn without_a_name_all_rows_are_measured_and_with_one_the_judged_ones() {
        let (all, some) = (Rows::default(), Rows::named("tcp").unwrap());
        assert!(Load::ALL.iter().all(|load| all.have(*load, load.limits()[0])));
        assert!(System::ALL.iter().all(|system| all.want(*system)));
        let judged = [System::LinuxCake, System::NarrowsOne, System::NarrowsFour];
        assert!(System::ALL.iter().all(|system| some.want(*system) == judged.contains(system)));
    }

    #[test]
    fn an_unknown_row_is_refused_with_the_known_ones() {
        let error = Rows::named("tcp-ecn-30").unwrap_err().to_string();
        assert!(error.contains("tcp-ecn-30") && error.contains("hosts-tcp-50"), "{error}");
    }
}
