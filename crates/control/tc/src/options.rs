//! The options of a command line that say how to print, and how to go on after errors.

use crate::ClassNames;
use crate::complaint::Outcome;
use crate::notation::Prefixes;
use crate::render::{self, Line};
use narrows_policy::ClassId;
use std::sync::Arc;

/// Output format, and behaviour after errors.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// `-s`: with statistics.
    pub statistics: bool,
    /// `-d`: with details.
    pub details: bool,
    /// `-j`: as JSON.
    pub json: bool,
    /// `-p`: JSON with line breaks.
    pub pretty: bool,
    /// `-oneline`: text with backslashes instead of line breaks.
    pub oneline: bool,
    /// `-iec`: the prefixes of rates in text count by 1024.
    pub iec: bool,
    /// `-brief`: filters without what they match.
    pub brief: bool,
    /// `-graph`: classes as a tree.
    pub graph: bool,
    /// `-force`: a batch continues after a failed line.
    pub force: bool,
    /// `-nm`: names are printed with the handles of classes. The caller provides them from the
    /// [file](crate::CommandLine::conf).
    pub names: Option<Arc<ClassNames>>,
}

impl Options {
    /// An empty line of output.
    pub(crate) fn line(&self) -> Line {
        Line::new(if self.iec { Prefixes::Binary } else { Prefixes::Decimal })
    }

    /// A class as it is printed: `1:10`, or `NAME#1:10` if names are requested and it has one.
    pub(crate) fn class(&self, class: ClassId) -> String {
        match self.names.as_ref().and_then(|names| names.get(class)) {
            Some(name) => format!("{name}#{class}"),
            None => class.to_string(),
        }
    }

    /// Prints lines in the requested format.
    pub(crate) fn print(&self, lines: &[Line]) -> Outcome {
        Outcome::printed(match (self.json, self.pretty) {
            (true, true) => render::pretty_json(lines),
            (true, false) => render::json(lines),
            (false, _) if self.oneline => render::text(lines).replace('\n', "\\"),
            (false, _) => render::text(lines),
        })
    }
}
