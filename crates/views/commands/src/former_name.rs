//! The former name of the history's file: `history.db`, when that of the directory of subscribers
//! was `directory.sqlite` already.

use anyhow::Context as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const NAME: &str = "history.sqlite";
const FORMER: &str = "history.db";
/// What SQLite keeps beside a file, and the file: last, so that a second attempt goes on where the
/// first has ended.
const PARTS: [&str; 3] = ["-wal", "-shm", ""];

/// Gives `file` what is kept under the former name in its folder, if it has the present one and
/// does not exist. Call it before the file is opened, by the only process that writes it.
///
/// # Errors
/// If a file is there that cannot be renamed.
pub fn adopt(file: &Path) -> anyhow::Result<()> {
    let former = file.with_file_name(FORMER);
    if file.file_name().is_none_or(|name| name != NAME) || file.exists() || !former.exists() {
        return Ok(());
    }
    for part in PARTS {
        let [from, to] = [&former, file].map(|path| with(path, part));
        match fs::rename(&from, &to) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed
                .with_context(|| format!("cannot rename {} to {}", from.display(), to.display()))?,
        }
    }
    log::info!("{} is now {}", former.display(), file.display());
    Ok(())
}

fn with(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("nrw-former-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_history_with_the_former_name_goes_on_with_what_is_beside_it() {
        let folder = folder("goes-on");
        for (name, content) in [("history.db", "kept"), ("history.db-wal", "not yet in it")] {
            fs::write(folder.join(name), content).unwrap();
        }
        adopt(&folder.join(NAME)).unwrap();
        assert_eq!(names(&folder), ["history.sqlite", "history.sqlite-wal"]);
        assert_eq!(fs::read_to_string(folder.join(NAME)).unwrap(), "kept");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_history_that_is_there_and_one_with_another_name_stay_as_they_are() {
        let folder = folder("stays");
        fs::write(folder.join(NAME), "new").unwrap();
        fs::write(folder.join(FORMER), "old").unwrap();
        adopt(&folder.join(NAME)).unwrap();
        adopt(&folder.join("other.sqlite")).unwrap();
        assert_eq!(names(&folder), [FORMER, NAME]);
        assert_eq!(fs::read_to_string(folder.join(NAME)).unwrap(), "new");
        fs::remove_dir_all(folder).unwrap();
    }
}
