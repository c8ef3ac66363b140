//! A directory of subscribers beside a running instance: `narrows sync`.

use crate::importing::figures;
use crate::setup::{
    NARROWS, Scratch, complaint, flood, narrows, run, show, turn_to_count, wait_for,
};
use narrows_testbed::bed::SERVER_IP;
use narrows_testbed::{Testbed, frames};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Output;

const COLUMNS: &str = "Circuit ID,Circuit Name,Parent Node,IPv4,Download Min Mbps,Upload Min Mbps,Download Max Mbps,Upload Max Mbps,sqm\n";

/// The rows of circuits with their downloads in Mbit/s; number 7 has the flood's address.
fn devices(circuits: &[(u32, u32)]) -> String {
    let row = |(id, down): &(u32, u32)| {
        let address = if *id == 7 { SERVER_IP.to_string() } else { format!("10.0.0.{id}") };
        format!("{id},Name {id},,{address},2,2,{down},5,none\n")
    };
    COLUMNS.to_owned() + &circuits.iter().map(row).collect::<String>()
}

/// Whether the program is there, which is built beside `narrows`.
fn has_program() -> bool {
    let is_there = Path::new(NARROWS).with_file_name("narrows-sync").exists();
    if !is_there {
        eprintln!("SKIPPED: narrows-sync is not there: make programs");
    }
    is_there
}

/// A directory in files.
struct Provider<'a> {
    bed: &'a Testbed,
    folder: String,
}

impl Provider<'_> {
    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }

    /// Runs `narrows sync libreqos` with these circuits.
    fn sync(&self, circuits: &[(u32, u32)], more: &[&str]) -> Output {
        fs::write(self.path("devices.csv"), devices(circuits)).unwrap();
        let (devices, store) = (self.path("devices.csv"), self.path("store"));
        let words = ["sync", "libreqos", "--devices", &devices, "--store", &store];
        narrows(self.bed, &[&words[..], more].concat())
    }

    /// The same; it must take all of them.
    #[track_caller]
    fn taken(&self, circuits: &[(u32, u32)], more: &[&str]) -> String {
        let output = self.sync(circuits, more);
        let said = complaint(&output);
        assert_eq!(output.status.code(), Some(0), "{said}");
        said + &String::from_utf8_lossy(&output.stdout)
    }

    /// What runs.
    fn running(&self) -> String {
        let output = narrows(self.bed, &["tc", "save"]);
        String::from_utf8(output.stdout).unwrap()
    }

    /// What the policy file says.
    fn filed(&self) -> String {
        let output = narrows(self.bed, &["tc", "--policy", &self.path("policy.tc"), "save"]);
        String::from_utf8(output.stdout).unwrap()
    }

    /// The number of a circuit's class.
    fn class(&self, circuit: u32) -> String {
        let shown = narrows(self.bed, &["sync", "show", "--json", "--store", &self.path("store")]);
        let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
        shown["subscribers"][circuit.to_string()]["class"].as_str().unwrap().to_owned()
    }
}

impl Drop for Provider<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The lines that are in one of both.
fn difference<'a>(one: &'a str, other: &'a str) -> Vec<&'a str> {
    let only = |one: &'a str, other: &'a str| {
        let others: Vec<&str> = other.lines().collect();
        one.lines().filter(move |line| !others.contains(line)).collect::<Vec<_>>()
    };
    [only(one, other), only(other, one)].concat()
}

#[test]
fn a_sync_changes_what_differs_and_nothing_else() {
    let Some(_turn) = turn_to_count() else { return };
    if !has_program() {
        return;
    }
    let bed = Testbed::up(2).unwrap();
    let scratch = Scratch::new("provider", "");
    let folder = format!("{}.d", scratch.path());
    fs::create_dir_all(&folder).unwrap();
    let provider = Provider { bed: &bed, folder };

    // Before an instance runs, the files are written; one that starts from them needs no command.
    let first = [(5, 5), (6, 5), (7, 5), (8, 5)];
    let policy = provider.path("policy.tc");
    let ports = ["--ports", "port-a,port-b", "--uplink", "50mbit", "--policy", &policy];
    let said = provider.taken(&first, &ports);
    assert!(said.contains("4 subscribers added") && said.contains("only files"), "{said}");
    let instance = run(&bed, &["-b", &policy]);
    let said = provider.taken(&first, &[]);
    assert!(said.contains("nothing changes") && said.contains("is as it should be"), "{said}");

    let own = provider.class(7);
    let sources: Vec<u16> = (0..8).map(frames::port).collect();
    // Twice its ceiling: there is a backlog all the time.
    let load = flood(&bed, &sources, 500, 10e6);
    wait_for(&bed, "a backlog", |_| {
        let (sent, queued) = figures(&instance, &own);
        sent > 1000 && queued > 100
    });

    // A dry run says what would be, and changes nothing.
    let before = provider.running();
    let other = [(5, 5), (6, 8), (7, 5), (8, 5)];
    let said = provider.taken(&other, &["--dry-run"]);
    assert!(said.contains("subscriber 6 (Name 6): plan 5/5 → 8/5 Mbit/s\n"), "{said}");
    assert_eq!(provider.running(), before);

    // One that would remove half stops.
    let output = provider.sync(&[(5, 5), (7, 5)], &[]);
    assert_eq!(output.status.code(), Some(1));
    let said = complaint(&output);
    assert!(
        said.contains("2 of the 4 subscribers") && said.contains("--max-removed 50%"),
        "{said}"
    );
    assert_eq!(provider.running(), before);

    // A changed plan touches its class, and its queue and counters go on.
    let (figures_before, class) = (figures(&instance, &own), provider.class(7));
    let said = provider.taken(&[(5, 5), (6, 5), (7, 6), (8, 5)], &[]);
    assert!(said.contains("1 subscriber changed") && said.contains("1 command,"), "{said}");
    let after = provider.running();
    let touched = difference(&before, &after);
    assert_eq!(touched.len(), 2, "{touched:?}");
    assert!(touched.iter().all(|line| line.contains(&format!("classid {class} "))), "{touched:?}");
    let figures_after = figures(&instance, &own);
    assert!(
        figures_after.0 >= figures_before.0 && figures_after.1 > 100,
        "{figures_before:?} {figures_after:?}"
    );
    assert_eq!(after, provider.filed());

    // Somebody who comes, goes and comes back has the same class.
    let five = [(5, 5), (6, 5), (7, 6), (8, 5), (9, 3)];
    provider.taken(&five, &[]);
    let nine = provider.class(9);
    provider.taken(&five[..4], &["--max-removed", "20%"]);
    assert!(!provider.running().contains(&format!("classid {nine} ")));
    provider.taken(&five, &[]);
    assert_eq!(provider.class(9), nine);
    assert_eq!(provider.running(), provider.filed());

    // What somebody has changed by hand is noticed when a command fails, and made good.
    let meddle =
        format!("filter del dev port-b parent 1: protocol ip pref 1 handle 0x{:x} flower", {
            u32::from_be_bytes([10, 0, 0, 8])
        });
    instance.tc(&meddle).unwrap();
    instance.tc(&format!("qdisc del dev port-b parent {}", provider.class(8))).unwrap();
    instance.tc(&format!("class del dev port-b classid {}", provider.class(8))).unwrap();
    provider.taken(&[(5, 5), (6, 5), (7, 6), (8, 4), (9, 3)], &[]);
    assert_eq!(provider.running(), provider.filed());

    assert!(figures(&instance, &own).0 >= figures_after.0);
    assert_eq!(show(&bed)["conservation"]["unaccounted"], 0);
    load.stop().unwrap();
}

#[test]
fn a_sync_that_the_instance_refuses_changes_nothing_that_runs() {
    let Some(_turn) = turn_to_count() else { return };
    if !has_program() {
        return;
    }
    let bed = Testbed::up(2).unwrap();
    let scratch = Scratch::new("refused", "");
    let folder = format!("{}.d", scratch.path());
    fs::create_dir_all(&folder).unwrap();
    let provider = Provider { bed: &bed, folder };
    let instance = run(&bed, &[]);
    let ports = ["--ports", "port-a,port-b", "--uplink", "50mbit"];
    provider.taken(&[(5, 5), (6, 5), (7, 5)], &ports);

    // A class of the operator's below that of a subscriber who goes: the class cannot be deleted.
    let class = provider.class(6);
    let words = format!("class add dev port-b parent {class} classid 1:99 htb rate 1mbit");
    instance.tc(&words).unwrap();
    let before = provider.running();
    let output = provider.sync(&[(5, 4), (7, 5), (8, 5)], &["--max-removed", "50%"]);
    assert_eq!(output.status.code(), Some(1));
    let said = complaint(&output);
    assert!(said.contains("nothing is changed: the instance refuses"), "{said}");
    assert_eq!(provider.running(), before);

    // Without it, the same sync goes through.
    instance.tc("class del dev port-b classid 1:99").unwrap();
    let store = provider.path("store");
    let output = narrows(&bed, &["sync", "apply", "--store", &store]);
    assert_eq!(output.status.code(), Some(0), "{}", complaint(&output));
    assert!(!provider.running().contains(&format!("classid {class} ")));
    assert!(provider.running().contains(&format!("classid {} ", provider.class(8))));

    // Another qdisc at the root is not ours to replace.
    let instance = {
        drop(instance);
        run(&bed, &[])
    };
    instance.tc("qdisc add dev port-b root pfifo").unwrap();
    let output = narrows(&bed, &["sync", "apply", "--store", &store]);
    let said = complaint(&output);
    assert!(said.contains("port-b has the qdisc pfifo") && !output.status.success(), "{said}");
}
