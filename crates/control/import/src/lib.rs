//! Converts other shapers' configurations into a policy.
//!
//! *Idea.* Reads an existing configuration and writes it as the `tc` commands of a policy file.
//! Settings without an equivalent are neither dropped silently nor guessed: they become comments at
//! their place in the policy, and a report counts them.
//!
//! | from | what is read |
//! | --- | --- |
//! | [`libreqos`] | `ShapedDevices.csv` and `network.json` |
//! | [`sqm`] | `/etc/config/sqm` of OpenWrt's sqm-scripts |
//! | [`tc`] | what `tc -j qdisc show`, `tc -j class show` and `tc -j filter show` print |
//!
//! *Principles.* Text in, text out: no I/O, no clock. No input panics. The output is in `tc`'s
//! syntax, so the ordinary parser checks it; the tests load every result.

mod draft;
mod json;
pub mod libreqos;
mod number;
pub mod sqm;
pub mod tc;

pub use draft::Imported;
pub use narrows_directory::{Note, Ports};

/// Why an import fails.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ImportError {
    /// The file is not in the format.
    #[error("{file}: {why}")]
    Format {
        /// The file's name in its format.
        file: &'static str,
        /// What is wrong, and where.
        why: String,
    },
    /// There is nothing to import.
    #[error("{0}")]
    Nothing(String),
    /// The configuration exceeds a limit.
    #[error("{0}")]
    TooMuch(String),
}

impl ImportError {
    fn format(file: &'static str, why: impl Into<String>) -> Self {
        Self::Format { file, why: why.into() }
    }
}
