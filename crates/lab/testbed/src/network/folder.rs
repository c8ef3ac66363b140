//! Folders of daemons; removed when dropped, or by the next process that makes one.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::{env, fs};

/// A folder, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Makes one whose name is `prefix` and `tag`, after removing those with this prefix of
    /// processes that have ended. A tag begins with the number of this process and a dash.
    pub(crate) fn make(prefix: &str, tag: &str) -> Result<Self> {
        let all = env::temp_dir();
        for entry in fs::read_dir(&all).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let owner = name.to_str().and_then(|name| name.strip_prefix(prefix)?.split('-').next());
            let owner = owner.and_then(|pid| pid.parse::<u32>().ok());
            if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let folder = all.join(format!("{prefix}{tag}"));
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self(folder))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
