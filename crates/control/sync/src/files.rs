//! The files from which an instance starts: its policy, and the names of its classes.
//!
//! *Idea.* They are made of what the store notes to be in force, and the store notes of which
//! revision they are. So any process can write them at any time, also a thread with a connection to
//! the store of its own, and a file that was not written is not forgotten.
//!
//! *Order.* A lock is held from the look at the store until the files are in place, so that an
//! older file never replaces a newer one. It is not the lock of those who apply: they do not wait.

use crate::applier::{ApplyError, Settings, lock};
use narrows_directory::{Compiled, Draft, compile};
use narrows_store::{InForce, Store};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// How long it waits for an application to end: what is in force is not known meanwhile.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Writes the files of `settings` that are older than what is in force. Returns which.
///
/// # Errors
/// If the store or a file cannot be used.
pub(crate) fn write(store: &mut Store, settings: &Settings) -> Result<Vec<PathBuf>, ApplyError> {
    let paths = [&settings.policy, &settings.names];
    if paths.iter().all(|path| path.is_none()) {
        return Ok(Vec::new());
    }
    let _lock = lock(store.path(), ".files.lock")?;
    let noted = store.files()?;
    let end = Instant::now() + PATIENCE;
    let (note, compiled) = loop {
        if let Some(InForce { directory, numbers, revision }) = store.in_force()? {
            let note = format!("{revision} {}", settings.note());
            let are_there = paths.into_iter().flatten().all(|path| path.exists());
            if are_there && noted.as_ref() == Some(&note) {
                return Ok(Vec::new());
            }
            break (note, compile(&directory, &settings.options(numbers)));
        }
        if Instant::now() >= end {
            // The next one writes them: nothing is noted.
            return Ok(Vec::new());
        }
        thread::sleep(LOOK_EVERY);
    };
    let mut files = Vec::new();
    if let Some(path) = &settings.policy {
        replace(path, &policy(&compiled), &mut files)?;
    }
    if let Some(path) = &settings.names {
        replace(path, &compiled.names(), &mut files)?;
    }
    store.note_files(&note)?;
    Ok(files)
}

fn policy(compiled: &Compiled) -> String {
    let mut draft = Draft::default();
    draft.comment("Written by narrows-sync: changes to it are lost with the next sync.");
    compiled.write(&mut draft);
    draft.finish().0
}

/// Makes `text` the contents of the file, if it has others.
fn replace(path: &Path, text: &str, files: &mut Vec<PathBuf>) -> Result<(), ApplyError> {
    if std::fs::read(path).is_ok_and(|present| present == text.as_bytes()) {
        return Ok(());
    }
    let failed = |why: String| ApplyError::File { path: path.to_owned(), why };
    narrows_tc::replace(path, text).map_err(|error| failed(error.to_string()))?;
    files.push(path.to_owned());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_directory::{Plan, Ports, Subscriber};
    use narrows_units::Rate;

    /// A folder that goes with it.
    struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn rate(store: &mut Store, mbit: u64) {
        let ceiling = [Rate::from_bits_per_sec(mbit * 1_000_000); 2];
        let plan = Plan { ceiling, ..Plan::default() };
        let it = Subscriber { plan, name: "Ann".to_owned(), ..Subscriber::default() };
        store.upsert("it", "ann", it).expect("a store");
    }

    #[test]
    fn files_have_what_is_in_force_and_are_written_once() {
        let folder = std::env::temp_dir().join(format!("nrw-files-{}", std::process::id()));
        let folder = Folder(folder);
        let mut store = Store::open(&folder.0.join("store")).expect("a store");
        let ports = Ports { internet: "wan0".to_owned(), subscribers: "lan0".to_owned() };
        let file = |name: &str| Some(folder.0.join(name));
        let (policy, names) = (file("policy"), file("names"));
        let settings = Settings { ports, policy, names, ..Settings::default() };
        let both = || [&settings.policy, &settings.names].map(|it| it.clone().expect("a path"));
        let write = |store: &mut Store| write(store, &settings).expect("it can be written");
        let text = || std::fs::read_to_string(&both()[0]).expect("a policy");

        rate(&mut store, 20);
        store.begin().expect("a store");
        store.finish("it").expect("a store");
        assert_eq!(write(&mut store), both());
        assert!(text().contains("ceil 20mbit") && write(&mut store).is_empty());
        rate(&mut store, 30);
        assert!(write(&mut store).is_empty(), "it is not applied yet");
        store.begin().expect("a store");
        store.finish("it").expect("a store");
        // Another process, and names are as they were.
        let mut other = Store::open(store.path()).expect("a store");
        assert_eq!(write(&mut other), both()[..1]);
        assert!(text().contains("ceil 30mbit") && write(&mut store).is_empty());
        std::fs::remove_file(&both()[0]).expect("a file");
        assert_eq!(write(&mut store), both()[..1], "it is made again");
    }
}
