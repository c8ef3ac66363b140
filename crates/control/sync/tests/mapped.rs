//! Sources with a mapping, from files on the disk.
#![cfg(feature = "mapped")]

use narrows_sources::files::Format;
use narrows_sync::Source;
use narrows_sync::mapped::Records;
use std::path::PathBuf;

const MAPPING: &str = "[subscribers]\nid = \"id\"\ndownload = \"down\"\nupload = \"down\"\n\
                       unit = \"mbit\"\n";

/// A folder of its own, which ends with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("nrw-mapped-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Best effort: it is in the folder for temporary files.
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_table_gives_subscribers_and_names_what_was_left_out() {
    let folder = Folder::new("table");
    let main = Some(folder.write("people.csv", "id,down\n1,50\n2,fast\n"));
    let mapping = folder.write("map.toml", MAPPING);
    let mut source = Records::Files { format: Format::Csv, main, mapping };
    assert_eq!(source.name(), "csv");
    let gathered = source.read().unwrap();
    assert_eq!(gathered.summary, "1 subscriber at 0 sites");
    assert_eq!(gathered.report.faults.len(), 1);
    assert!(gathered.report.faults[0].contains("people.csv, line 3, subscriber 2"));
}

#[test]
fn a_changed_mapping_counts_from_the_next_time_on() {
    let folder = Folder::new("changed");
    let text = format!("{MAPPING}[lists.records]\nfile = \"people.json\"\n");
    let mapping = folder.write("map.toml", &text);
    folder.write("people.json", "[{\"id\": 1, \"down\": 50}]");
    let mut source = Records::Files { format: Format::Json, main: None, mapping };
    let rate = |source: &mut Records| {
        source.read().unwrap().directory.subscribers["1"].plan.ceiling[0].bits_per_sec()
    };
    assert_eq!(rate(&mut source), 50_000_000);
    folder.write("map.toml", &text.replace("mbit", "kbit"));
    assert_eq!(rate(&mut source), 50_000);
}

#[test]
fn what_cannot_be_read_is_named_with_its_file() {
    let folder = Folder::new("wrong");
    let mapping = folder.write("map.toml", "[subscribers]\nid = 5\n");
    let read = |main: Option<PathBuf>, mapping: PathBuf| {
        let mut source = Records::Files { format: Format::Csv, main, mapping };
        source.read().unwrap_err().to_string()
    };
    let why = read(None, mapping);
    assert!(why.contains("map.toml, line 2: "), "{why}");
    let why = read(None, folder.0.join("gone.toml"));
    assert!(why.contains("cannot read") && why.contains("gone.toml"), "{why}");
    let mapping = folder.write("map.toml", MAPPING);
    assert!(read(None, mapping.clone()).contains("has no file"));
    let empty = folder.write("empty.csv", "");
    assert!(read(Some(empty), mapping).contains("empty.csv: line 1: it is empty"));
}
