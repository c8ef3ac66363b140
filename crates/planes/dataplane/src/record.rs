//! What a killed instance leaves to the next one on the same ports: a file under `/run/narrows`.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::path::Path;

/// The content of the file; empty if there is none, or if it makes no sense.
pub(crate) fn read<T: DeserializeOwned + Default>(path: &Path) -> T {
    let text = narrows_tc::read_input(path).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Writes the whole file, or keeps the old one.
pub(crate) fn write(path: &Path, content: &impl Serialize) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let draft = path.with_extension("draft");
    std::fs::write(&draft, serde_json::to_vec(content)?)?;
    std::fs::rename(draft, path)
}
