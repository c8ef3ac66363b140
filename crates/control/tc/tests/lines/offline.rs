//! `tc --policy FILE`, with real files.

use narrows_tc::{Outcome, offline};
use std::fs;
use std::path::PathBuf;

/// A temporary directory, deleted with the test.
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
fn failing_and_read_only_commands_leave_the_file_alone() {
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
fn of_commands_at_once_none_is_lost() {
    let here = Directory::new("at-once");
    let (writers, each) = (8, 12);
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let here = &here;
            scope.spawn(move || {
                for number in 0..each {
                    let line = format!("qdisc add dev w{writer}n{number} root pfifo limit 9");
                    assert_eq!(here.tc(&line), Outcome::default());
                }
            });
        }
        // Readers never see half of a file.
        while here.tc("qdisc show").stdout.lines().count() < writers * each {
            std::thread::yield_now();
        }
    });
    assert_eq!(here.text().lines().count(), writers * each);
    assert_eq!(here.names(), ["policy"]);
}

#[test]
fn links_lead_to_the_file_and_its_mode_and_owner_stay() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
    let here = Directory::new("links");
    fs::create_dir(here.0.join("behind")).unwrap();
    let real = here.0.join("behind/real");
    symlink("behind/real", here.0.join("policy")).unwrap();
    // Through a link to a file that does not exist yet.
    assert_eq!(here.tc("qdisc add dev wan0 root pfifo limit 5"), Outcome::default());
    fs::set_permissions(&real, PermissionsExt::from_mode(0o640)).unwrap();
    let is_root = chown(&real, Some(65_534), Some(65_534)).is_ok();
    let before = fs::metadata(&real).unwrap();
    assert_eq!(here.tc("qdisc change dev wan0 root pfifo limit 6"), Outcome::default());
    let after = fs::metadata(&real).unwrap();
    assert!(fs::symlink_metadata(here.0.join("policy")).unwrap().is_symlink());
    assert_eq!(after.mode() & 0o777, 0o640);
    assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()), "root: {is_root}");
    assert!(fs::read_to_string(&real).unwrap().contains("limit 6"));
    assert_eq!(fs::read_dir(here.0.join("behind")).unwrap().count(), 1);
}

#[test]
fn remains_of_a_killed_command_do_not_block_others() {
    let here = Directory::new("left");
    fs::write(here.0.join(".policy.new"), "half a li").unwrap();
    assert_eq!(here.tc("qdisc add dev wan0 root pfifo limit 5"), Outcome::default());
    assert_eq!(here.names(), ["policy"]);
}

#[test]
fn a_folder_that_is_not_there_is_an_error_and_stays_away() {
    let outcome = offline(
        &std::env::temp_dir().join("nrw-nowhere/policy"),
        &["qdisc", "add", "dev", "a", "root", "pfifo"].map(str::to_owned),
    );
    assert_eq!(outcome.code, 1);
    assert!(outcome.stderr.contains("Cannot write"), "{}", outcome.stderr);
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
