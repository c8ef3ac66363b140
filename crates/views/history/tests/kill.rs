//! A process that is killed while it writes leaves a file with exactly what it had committed.

use narrows_history::{Archive, History, Options, Range, What};
use narrows_snapshot::{Change, Class, Port, Snapshot};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const FILE: &str = "NARROWS_TEST_HISTORY";
const CLASSES: u64 = 200;
const BEGIN: u64 = 1_700_000_040;

/// Each class has sent a number of bytes that tells class and second.
fn snapshot(second: u64) -> Snapshot {
    let class = |number: u64| {
        let mut class = Class {
            handle: format!("1:{number:x}").as_str().into(),
            name: Some(format!("subscriber {number}").as_str().into()),
            ..Class::default()
        };
        class.stats.figures.bytes = (0..=second).map(|second| bytes(number, second)).sum();
        class
    };
    let port = Port {
        name: "eth1".into(),
        classes: (1..=CLASSES).map(class).collect(),
        ..Port::default()
    };
    Snapshot { uptime_s: second as f64 + 1.0, ports: vec![port], ..Snapshot::default() }
}

/// What class `number` sends in a second: codes of up to 255 are exact.
fn bytes(number: u64, second: u64) -> u64 {
    (number + second) % 31 + 1
}

/// Records a minute for each line that it is sent, and answers it.
fn record(path: &Path) {
    let options = Options { file: Some(path.into()), interval_s: 1, directions_max: 1000 };
    let history = History::start(&options).unwrap();
    let mut was = snapshot(0);
    for second in 1.. {
        let now = snapshot(second);
        let change = Change::between(&was, &now).unwrap();
        history.record(&now, &change, BEGIN + second);
        was = now;
        if second.is_multiple_of(60) {
            println!("\nrecorded {second}");
            if std::io::stdin().read_line(&mut String::new()).unwrap() == 0 {
                return;
            }
        }
    }
}

/// That all points in the file are those that were recorded. When the last one ends.
fn check(path: &Path) -> Option<u64> {
    let archive = Archive::open(path).unwrap();
    let mut last = None;
    for number in 1..=CLASSES {
        let range = Range { from: BEGIN, to: BEGIN + 3500, points: 10_000 };
        let subject = format!("subscriber:subscriber {number}");
        let Ok(series) = archive.series(&subject, None, What::Sent, range) else { continue };
        assert_eq!(series.step_s, 1);
        for (second, value) in (series.from - BEGIN..).zip(&series.values) {
            let Some(value) = value else { continue };
            assert_eq!(*value, bytes(number, second) as f64 * 8.0, "{subject}, {second} s");
            last = last.max(Some(second));
        }
    }
    last
}

#[test]
fn a_file_has_what_was_committed_after_its_writer_was_killed() {
    if let Some(path) = std::env::var_os(FILE) {
        record(Path::new(&path));
        return;
    }
    let path: PathBuf =
        std::env::temp_dir().join(format!("nrw-history-kill-{}", std::process::id()));
    let remove = || {
        for end in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{end}", path.display()));
        }
    };
    for minutes in [2, 11, 21] {
        remove();
        let mut writer = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_file_has_what_was_committed_after_its_writer_was_killed"])
            .arg("--nocapture")
            .env(FILE, &path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut next = writer.stdin.take().unwrap();
        let mut lines = BufReader::new(writer.stdout.take().unwrap()).lines().map_while(Result::ok);
        for _ in 0..minutes {
            assert!(lines.any(|line| line.starts_with("recorded ")));
            writeln!(next).unwrap();
        }
        // What is committed is seen from outside while more is written.
        let end = Instant::now() + Duration::from_secs(60);
        let committed = loop {
            if let Some(last) = check(&path) {
                break last;
            }
            assert!(Instant::now() < end, "nothing is committed");
        };
        assert!(lines.any(|line| line.starts_with("recorded ")));
        writeln!(next).unwrap();
        writer.kill().unwrap();
        writer.wait().unwrap();
        assert!(check(&path) >= Some(committed));
        // Another process goes on with the same file.
        let options = Options { file: Some(path.clone()), interval_s: 1, directions_max: 1000 };
        drop(History::start(&options).unwrap());
        assert!(check(&path) >= Some(committed));
    }
    remove();
}
