//! A mistake in a scenario, and where it is.

use std::fmt;

/// Why a scenario cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScenarioError {
    /// The scenario's name or file.
    pub file: String,
    /// Where in it.
    pub place: Place,
    /// The mistake, and what to write instead.
    pub message: String,
}

/// Where something is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// In this line, counted from 1.
    Line(usize),
    /// In this override.
    Override(String),
    /// In the file as a whole.
    Whole,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Line(line) => write!(f, "{}, line {line}: {}", self.file, self.message),
            Place::Override(what) => write!(f, "{}, --set {what}: {}", self.file, self.message),
            Place::Whole => write!(f, "{}: {}", self.file, self.message),
        }
    }
}

impl std::error::Error for ScenarioError {}

/// Something wrong at a dotted path, whose place in the file is still to be found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Wrong {
    pub(super) path: String,
    pub(super) message: String,
}

impl Wrong {
    pub(super) fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}
