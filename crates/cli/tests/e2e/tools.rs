//! Other people's programs that call `tc`, with `narrows tc` in its place: those that `make tools`
//! unpacks. Without them each test says that it is skipped.

use crate::setup::{Scratch, run, tc, turn_to_count};
use narrows_testbed::Testbed;
use narrows_testbed::bed::PORT_B;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;

/// `target/tools/NAME`, if it was unpacked.
pub fn tool(name: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools").join(name);
    let found = fs::canonicalize(root).ok();
    if found.is_none() {
        eprintln!("SKIPPED: {name} is not there: make tools");
    }
    found
}

/// Runs `words` in the shaper's namespace with a `tc` that is `narrows tc`.
fn with_our_tc(bed: &Testbed, words: &[&str]) -> Output {
    // One for each network: tests run beside each other.
    let folder = std::env::temp_dir().join(format!("nrw-shim-{}", bed.shaper().name()));
    fs::create_dir_all(&folder).unwrap();
    let tc = format!("exec {} tc \"$@\"", crate::setup::NARROWS);
    // tcconfig looks for the kernel's netem, which has no part in this.
    for (name, text) in [("tc", tc.as_str()), ("lsmod", "echo sch_netem")] {
        let shim = folder.join(name);
        fs::write(&shim, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&shim, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = bed.shaper().command(words[0]);
    command.args(&words[1..]).env("PATH", format!("{}:{path}", folder.display()));
    let output = command.output().unwrap();
    let _ = fs::remove_dir_all(&folder);
    output
}

fn shown(bed: &Testbed, what: &str) -> String {
    String::from_utf8_lossy(&tc(bed, &format!("{what} show dev {PORT_B}")).stdout).into_owned()
}

#[test]
fn fireqos_starts_with_nested_classes() {
    let Some(fireqos) = tool("fireqos/fireqos") else { return };
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(1).unwrap();
    let _narrows = run(&bed, &[]);
    let conf = Scratch::new(
        "fireqos",
        &format!(
            "interface {PORT_B} world output rate 10mbit\n\
             class voip commit 1mbit\n  match udp ports 5060\n\
             class group office commit 2mbit ceil 5mbit\n  match dst 10.0.0.0/8\n\
             \x20 class ssh commit 500kbit\n    match tcp ports 22\n\
             \x20 class default\n\
             class group end\n\
             class default commit 10%\n"
        ),
    );
    let output = with_our_tc(&bed, &["bash", fireqos.to_str().unwrap(), conf.path(), "start"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("All Done"), "{said}");
    assert_eq!(shown(&bed, "class").lines().count(), 6, "{said}");
}

#[test]
fn tcconfig_sets_and_deletes_what_leaves() {
    let Some(tcset) = tool("tcconfig/bin/tcset") else { return };
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(1).unwrap();
    let _narrows = run(&bed, &[]);
    let tcdel = tcset.with_file_name("tcdel");
    let (tcset, tcdel) = (tcset.to_str().unwrap(), tcdel.to_str().unwrap());
    for words in [
        &[tcset, PORT_B, "--rate", "10Mbps", "--delay", "100ms"][..],
        &[tcset, PORT_B, "--rate", "5Mbps", "--network", "192.168.0.0/24", "--port", "80", "--add"],
    ] {
        let output = with_our_tc(&bed, words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !said.contains("ERROR"), "{words:?}: {said}");
    }
    let filters = bed.shaper().run(crate::setup::NARROWS, &["tc", "filter", "show", "dev", PORT_B]);
    assert!(filters.unwrap().contains("match 00000050/0000ffff at 20"));
    assert!(with_our_tc(&bed, &[tcdel, PORT_B, "--all"]).status.success());
    assert_eq!(shown(&bed, "class"), "");
}
