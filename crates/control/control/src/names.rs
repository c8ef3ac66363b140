//! The operator's names of classes, put into snapshots by the client that asks for them.
//!
//! The instance does not know them: it may be confined to its own files, and names do not affect
//! it. The file is read again when it changes, so a running view follows.

use narrows_snapshot::Snapshot;
use narrows_tc::{ClassNames, NAMES_FILE};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A file of names, as `tc -nm` reads it, and its last contents.
#[derive(Clone, Debug)]
pub struct NamesFile {
    path: PathBuf,
    /// The modification time of the last read contents.
    written: Option<SystemTime>,
    names: ClassNames,
}

impl NamesFile {
    /// The file at `path`; by default that of `tc`, which may be missing.
    ///
    /// # Errors
    /// Where `path` cannot be read.
    pub fn open(path: Option<&Path>) -> io::Result<Self> {
        let own = path.unwrap_or(Path::new(NAMES_FILE)).to_owned();
        let mut file = Self { path: own, written: None, names: ClassNames::default() };
        match file.refresh() {
            Err(error) if path.is_some() => Err(error),
            _ => Ok(file),
        }
    }

    /// Names the classes of `snapshot`. If the file has become unreadable, the last names apply.
    pub fn name(&mut self, snapshot: &mut Snapshot) {
        if let Err(error) = self.refresh()
            && self.written.take().is_some()
        {
            log::warn!("the names of classes stay as they were, {}: {error}", self.path.display());
        }
        if self.names.is_empty() {
            return;
        }
        for class in snapshot.ports.iter_mut().flat_map(|port| &mut port.classes) {
            class.name = self.names.of(&class.handle).map(Into::into);
        }
    }

    fn refresh(&mut self) -> io::Result<()> {
        let written = std::fs::metadata(&self.path)?.modified()?;
        if self.written != Some(written) {
            let text = narrows_tc::read_input(&self.path)?;
            self.names = ClassNames::parse(&String::from_utf8_lossy(&text));
            self.written = Some(written);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_snapshot::{Class, Port};
    use std::time::Duration;

    fn snapshot() -> Snapshot {
        let class = Class { handle: "1:10".into(), ..Class::default() };
        let port = Port { classes: vec![class], ..Port::default() };
        Snapshot { ports: vec![port], ..Snapshot::default() }
    }

    #[test]
    fn classes_have_the_names_that_the_file_has_now() {
        let path = std::env::temp_dir().join(format!("nrw-names-{}", std::process::id()));
        assert!(NamesFile::open(Some(&path)).is_err(), "a file that was asked for is missing");
        std::fs::write(&path, "1:10 north\n").unwrap();
        let mut file = NamesFile::open(Some(&path)).unwrap();
        let mut now = snapshot();
        file.name(&mut now);
        assert_eq!(now.ports[0].classes[0].name.as_deref(), Some("north"));
        std::fs::write(&path, "1:10 south\n").unwrap();
        let later = SystemTime::now() + Duration::from_secs(2);
        std::fs::File::open(&path).unwrap().set_modified(later).unwrap();
        file.name(&mut now);
        assert_eq!(now.ports[0].classes[0].name.as_deref(), Some("south"));
        std::fs::remove_file(&path).unwrap();
        let mut now = snapshot();
        file.name(&mut now);
        assert_eq!(now.ports[0].classes[0].name.as_deref(), Some("south"));
    }
}
