//! The dashboard for Grafana asks only for metrics that there are.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The sources that name metrics.
const SOURCES: [&str; 2] = ["src/metrics", "../history/src"];

fn at(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Words in `text` that are names of our metrics.
fn names(text: &str) -> BTreeSet<String> {
    let is_part = |letter: char| letter.is_ascii_lowercase() || "_0123456789".contains(letter);
    let words = text.split(|letter| !is_part(letter));
    words.filter(|word| word.starts_with("narrows_")).map(str::to_owned).collect()
}

fn known() -> BTreeSet<String> {
    let files = SOURCES.iter().flat_map(|folder| fs::read_dir(at(folder)).unwrap());
    let paths = files.map(|file| file.unwrap().path()).chain([at("src/metrics.rs")]);
    let texts = paths.map(|path| fs::read_to_string(path).unwrap());
    texts.flat_map(|text| names(&text)).collect()
}

#[test]
fn each_panel_asks_for_a_metric_that_there_is() {
    let text = fs::read_to_string(at("../../../dist/grafana/narrows.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    let known = known();
    let mut asked = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let names = names(target["expr"].as_str().unwrap());
            assert!(!names.is_empty(), "{} asks for nothing of ours", panel["title"]);
            asked.extend(names);
        }
    }
    let of_histogram = |name: &str| {
        ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|end| name.strip_suffix(end))
            .map(str::to_owned)
    };
    let is_known = |name: &&String| {
        known.contains(*name) || of_histogram(name).is_some_and(|name| known.contains(&name))
    };
    let unknown: Vec<_> = asked.iter().filter(|name| !is_known(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    let ids: BTreeSet<_> =
        dashboard["panels"].as_array().unwrap().iter().map(|one| one["id"].as_u64()).collect();
    assert_eq!(ids.len(), dashboard["panels"].as_array().unwrap().len(), "ids are different");
}
