//! What a source gives.

use narrows_directory::{Directory, Report};

/// All that a source says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Gathered {
    /// Its sites and subscribers.
    pub directory: Directory,
    /// One line: how much was read.
    pub summary: String,
    /// What was left out, and what is worth knowing.
    pub report: Report,
}

/// Something that says who there is: a file, a system with an API.
pub trait Source {
    /// Its name in the store, if the operator gives no other.
    fn name(&self) -> &'static str;

    /// Reads all of it.
    ///
    /// # Errors
    /// If it cannot be read, or is not in its format. Then nothing is changed.
    fn read(&mut self) -> anyhow::Result<Gathered>;
}
