//! Others' configurations, turned into a policy.
//!
//! *Idea.* What somebody runs today is read, and written as the `tc` commands of a policy file.
//! What has no equivalent here is neither dropped silently nor guessed: it stands in the policy as
//! a comment, in its place, and is counted in a report.
//!
//! | from | what is read |
//! | --- | --- |
//! | [`libreqos`] | `ShapedDevices.csv` and `network.json` |
//! | [`sqm`] | `/etc/config/sqm` of OpenWrt's sqm-scripts |
//! | [`tc`] | what `tc -j qdisc show`, `tc -j class show` and `tc -j filter show` print |
//!
//! *Principles.* Text in, text out: no I/O, no clock. No input panics. The words are `tc`'s, so
//! that whatever reads policies checks the result; the tests load every one.

mod draft;
pub mod libreqos;
mod number;
pub mod sqm;
pub mod tc;

pub use draft::{Imported, Note};

/// Why nothing is imported.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ImportError {
    /// The file is not in the format.
    #[error("{file}: {why}")]
    Format {
        /// Its name, as its format calls it.
        file: &'static str,
        /// What is wrong, and where.
        why: String,
    },
    /// There is nothing to import.
    #[error("{0}")]
    Nothing(String),
    /// It does not fit.
    #[error("{0}")]
    TooMuch(String),
}

impl ImportError {
    fn format(file: &'static str, why: impl Into<String>) -> Self {
        Self::Format { file, why: why.into() }
    }
}

/// The two ports between which the policy is to stand.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ports {
    /// The one towards the Internet: uploads leave there.
    pub internet: String,
    /// The one towards subscribers: downloads leave there.
    pub subscribers: String,
}
