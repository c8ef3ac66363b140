//! `tc --policy FILE`, with real files.

use narrows_tc::{Outcome, offline};
use std::fs;
use std::path::PathBuf;

/// A directory that is gone with the test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("nrw-tc-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn tc(&self, line: &str) -> Outcome {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        offline(&self.0.join("policy"), &args)
    }

    fn text(&self) -> String {
        fs::read_to_string(self.0.join("policy")).unwrap()
    }

    fn write(&self, text: impl AsRef<[u8]>) {
        fs::write(self.0.join("policy"), text).unwrap();
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_policy_file_is_made_changed_and_shown() {
    let here = Directory::new("edit");
    let line = "qdisc replace dev wan0 root tbf rate 1gbit burst 32k latency 5ms coordination lock";
    assert_eq!(here.tc(line), Outcome::default());
    assert_eq!(
        here.text(),
        "qdisc replace dev wan0 root handle 8001: tbf rate 1000000000bit burst 32768 limit 657768 \
         coordination lock\n"
    );
    assert_eq!(
        here.tc("qdisc show").stdout,
        "qdisc tbf 8001: dev wan0 root refcnt 2 rate 1Gbit burst 32750b lat 5ms coordination lock \n"
    );
    assert_eq!(here.tc("qdisc add dev wan0 parent 8001:1 pfifo limit 9").code, 0);
    assert_eq!(here.text().lines().count(), 2);
    assert_eq!(here.tc("qdisc del dev wan0 root").code, 0);
    assert_eq!(here.text(), "");
    assert_eq!(here.names(), ["policy"]);
}

#[test]
fn queues_may_be_as_many_as_there_are_classes() {
    let here = Directory::new("mq");
    assert_eq!(here.tc("qdisc add dev wan0 root handle 1: mq").code, 0);
    assert_eq!(here.tc("qdisc add dev wan0 parent 1:ffff bfifo limit 1m").code, 0);
    assert_eq!(here.tc("qdisc add dev wan0 parent 1:0 bfifo").code, 2);
}

#[test]
fn the_comment_at_the_head_is_kept() {
    let here = Directory::new("heading");
    here.write("# The uplink.\n\nqdisc add dev wan0 root pfifo # all of it\n");
    assert_eq!(here.tc("qdisc change dev wan0 root pfifo limit 5").code, 0);
    assert_eq!(
        here.text(),
        "# The uplink.\n\nqdisc replace dev wan0 root handle 8001: pfifo limit 5\n"
    );
}

#[test]
fn what_fails_or_only_shows_leaves_the_file_alone() {
    let here = Directory::new("alone");
    let text = "qdisc  add dev wan0   root pfifo\n";
    here.write(text);
    assert_eq!(here.tc("qdisc add dev wan0 root pfifo").code, 2);
    assert_eq!(here.tc("qdisc add dev wan0 root pfifo limit x").code, 1);
    assert_eq!(here.tc("qdisc show").code, 0);
    assert_eq!(here.text(), text);
}

#[test]
fn nothing_is_done_to_a_file_with_a_wrong_line() {
    let here = Directory::new("wrong");
    here.write(b"qdisc add dev wan0 root pfifo\n\xff\xfe\0\nqdisc add dev wan0 root tbf\n");
    let outcome = here.tc("qdisc del dev wan0 root");
    assert_eq!(outcome.code, 1);
    assert!(outcome.stderr.contains("policy:2") && outcome.stderr.contains("policy:3"));
}

#[test]
fn a_batch_is_one_rewrite() {
    let here = Directory::new("batch");
    let batch = here.0.join("batch");
    fs::write(&batch, "qdisc add dev a root pfifo limit 1\nqdisc add dev b root pfifo limit 2\n")
        .unwrap();
    assert_eq!(here.tc(&format!("-b {}", batch.display())), Outcome::default());
    assert_eq!(here.text().lines().count(), 2);
    let missing = here.tc("-b missing");
    assert_eq!(missing.code, 1);
    assert!(missing.stderr.contains("\"missing\""), "{}", missing.stderr);
}

#[test]
fn a_name_that_no_device_can_have_is_none() {
    let here = Directory::new("name");
    for name in ["a/b", "a#b", "sixteen-letters-", "\"a\""] {
        let outcome = here.tc(&format!("qdisc add dev {name} root pfifo"));
        assert_eq!(outcome.code, 1, "{name}");
        assert!(outcome.stderr.contains("Cannot find device"), "{name}");
    }
}
