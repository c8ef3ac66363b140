//! Imports beside a running instance.

use crate::setup::{Scratch, complaint, flood, narrows, run, show, turn_to_count, wait_for};
use narrows_testbed::bed::SERVER_IP;
use narrows_testbed::narrows::Instance;
use narrows_testbed::{Testbed, frames};
use serde_json::Value;
use std::fs;
use std::process::Command;

const COLUMNS: &str = "Circuit ID,Circuit Name,Parent Node,IPv4,Download Min Mbps,Upload Min Mbps,Download Max Mbps,Upload Max Mbps,sqm\n";

/// The rows of these circuits; number 7 has the flood's address.
fn devices(circuits: &[u32]) -> String {
    let row = |id: &u32| {
        let address = if *id == 7 { SERVER_IP.to_string() } else { format!("10.0.0.{id}") };
        format!("{id},Name {id},,{address},2,2,5,5,none\n")
    };
    COLUMNS.to_owned() + &circuits.iter().map(row).collect::<String>()
}

/// The policy of these circuits.
fn import(bed: &Testbed, folder: &str, circuits: &[u32]) -> String {
    fs::write(format!("{folder}/ShapedDevices.csv"), devices(circuits)).unwrap();
    let words = ["import", "libreqos", folder, "--ports", "port-a,port-b", "--down", "50mbit"];
    let output = narrows(bed, &[&words[..], &["--up", "50mbit"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", complaint(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// The packets that the class `number` at port-b has sent, and its backlog in packets.
pub fn figures(instance: &Instance, number: &str) -> (u64, u64) {
    let shown =
        instance.command("tc").args(["-j", "-s", "class", "show", "dev", "port-b"]).output();
    let classes: Value = serde_json::from_slice(&shown.unwrap().stdout).unwrap();
    let mut classes = classes.as_array().unwrap().iter();
    let class = classes.find(|class| class["handle"] == number).unwrap();
    let stats = class.get("stats").unwrap_or(class);
    (stats["packets"].as_u64().unwrap(), stats["qlen"].as_u64().unwrap())
}

#[test]
fn a_circuit_keeps_its_counters_and_its_queue_when_others_come_and_go() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let policy = Scratch::new("provider.tc", "");
    let folder = format!("{}.d", policy.path());
    fs::create_dir_all(&folder).unwrap();
    let first = import(&bed, &folder, &[5, 6, 7, 8]);
    fs::write(policy.path(), &first).unwrap();
    let line = first.lines().skip_while(|line| *line != "# circuit 7 Name 7").nth(1).unwrap();
    let number = line.split_once("classid ").unwrap().1.split(' ').next().unwrap();

    let instance = run(&bed, &["-b", policy.path()]);
    let ports: Vec<u16> = (0..8).map(frames::port).collect();
    // Twice its ceiling: there is a backlog all the time.
    let load = flood(&bed, &ports, 500, 10e6);
    wait_for(&bed, "a backlog", |_| {
        let (sent, queued) = figures(&instance, number);
        sent > 1000 && queued > 100
    });

    // Rows before it, behind it, in another order, and one that is gone.
    fs::write(policy.path(), import(&bed, &folder, &[1, 2, 8, 7, 9, 5])).unwrap();
    let before = figures(&instance, number);
    let id = instance.id().to_string();
    assert!(Command::new("kill").args(["-s", "HUP", &id]).status().unwrap().success());
    wait_for(&bed, "reloaded", |show| {
        let events = show["events"].as_array().unwrap();
        events.iter().any(|event| event.as_str().unwrap().contains("reloaded"))
    });
    let after = figures(&instance, number);
    assert!(after.0 >= before.0 && after.1 > 100, "{before:?} {after:?}");
    let now = show(&bed);
    let reasons = now["ports"][1]["total"]["drops_by_reason"].as_object().unwrap();
    assert!(
        reasons.keys().all(|reason| ["limit", "no_frame"].contains(&reason.as_str())),
        "{reasons:?}"
    );
    assert_eq!(now["conservation"]["unaccounted"], 0, "{now:#}");
    load.stop().unwrap();
    fs::remove_dir_all(folder).unwrap();
}
