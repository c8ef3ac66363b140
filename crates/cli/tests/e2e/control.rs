//! Large policies through the control path: who is served meanwhile, and what is in force after.

use crate::setup::{Scratch, complaint, hang_up, narrows, run, show, tc, turn_to_count, wait_for};
use narrows_testbed::narrows::Instance;
use narrows_testbed::{Testbed, control};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

const CIRCUITS: u32 = 5000;

fn saved(bed: &Testbed) -> String {
    String::from_utf8_lossy(&tc(bed, "save").stdout).into_owned()
}

fn has_event(show: &serde_json::Value, words: &str) -> bool {
    show["events"].to_string().contains(words)
}

#[test]
fn everyone_is_served_while_a_file_of_thousands_of_circuits_is_read() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let file = Scratch::new("circuits.tc", &control::policy(1, 5));
    let socket = crate::setup::own_path("circuits");
    let manager = UnixDatagram::bind(&socket).unwrap();
    let notify = format!("NOTIFY_SOCKET={}", socket.display());
    let words = [
        notify.as_str(),
        "WATCHDOG_USEC=200000",
        crate::setup::NARROWS,
        "run",
        "--ports",
        "port-a,port-b",
        "--batch",
        file.path(),
    ];
    let instance = Instance::start_command(&bed, Path::new("env"), &words).unwrap();
    std::fs::write(file.path(), control::policy(CIRCUITS, 5)).unwrap();

    // The messages between the beginning of the reload and its end.
    let (sender, receiver) = channel();
    let listening = thread::spawn(move || {
        let mut beats = None;
        let mut bytes = [0; 8192];
        manager.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        loop {
            let length = manager.recv(&mut bytes).unwrap();
            let message = String::from_utf8_lossy(&bytes[..length]);
            if message.contains("RELOADING=1") {
                beats = Some(0);
                sender.send(Instant::now()).unwrap();
            }
            if message.contains("WATCHDOG=1") {
                beats = beats.map(|beats| beats + 1);
            }
            if let (true, Some(beats)) = (message.contains("READY=1"), beats) {
                return beats;
            }
        }
    });
    hang_up(&instance);
    receiver.recv().unwrap();
    // It is in force at once, and counts as given after the reload.
    let change = "class change dev port-a classid 1:2 htb rate 2gbit ceil 100gbit prio 7";
    let output = tc(&bed, change);
    assert!(output.status.success(), "{}", complaint(&output));
    assert!(!listening.is_finished(), "the command waited for the reload");
    let mut shows = 0;
    while !listening.is_finished() {
        show(&bed);
        shows += 1;
    }
    let beats = listening.join().unwrap();
    assert!(shows >= 3 && beats >= 3, "{shows} times shown and {beats} beats while it was read");
    wait_for(&bed, "read", |show| has_event(show, "reloaded"));
    let after = saved(&bed);
    let classes = after.lines().filter(|line| line.starts_with("class ")).count();
    assert_eq!(classes, 2 * (CIRCUITS as usize + 2 + 5));
    assert!(after.contains("classid 1:2 htb rate 2000000000bit"), "the command is lost");

    // The file wins over the command; after that nothing changes.
    for wanted in
        [("circuits.tc", "rate 1000000000bit"), ("which changes nothing", "rate 1000000000bit")]
    {
        hang_up(&instance);
        wait_for(&bed, "read again", |show| has_event(show, wanted.0));
        wait_for(&bed, "in force", |_| {
            saved(&bed).contains(&format!("classid 1:2 htb {}", wanted.1))
        });
    }
    let _ = std::fs::remove_file(&socket);
}

#[test]
fn a_batch_is_in_force_up_to_the_line_that_fails_and_no_further() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let _instance = run(&bed, &[]);
    let mut lines = vec![
        "qdisc add dev port-b root handle 1: htb".to_owned(),
        "qdisc add dev port-a clsact".to_owned(),
    ];
    lines.extend(
        (1..=3000)
            .map(|id| format!("class add dev port-b parent 1: classid 1:{id:x} htb rate 1mbit")),
    );
    // Whether there is such a set is known only when it is put in force.
    let refused = "filter add dev port-a ingress basic match 'ipset(nobody src)' action drop";
    lines.push(refused.to_owned());
    lines.push("class add dev port-b parent 1: classid 1:ffff htb rate 1mbit".to_owned());
    let batch = Scratch::new("many.tc", &(lines.join("\n") + "\n"));
    let classes = || saved(&bed).lines().filter(|line| line.starts_with("class ")).count();

    let output = tc(&bed, &format!("-batch {}", batch.path()));
    assert_eq!(output.status.code(), Some(1), "{}", complaint(&output));
    assert!(complaint(&output).contains("many.tc:3003"), "{}", complaint(&output));
    assert!(complaint(&output).contains("nobody"), "{}", complaint(&output));
    assert_eq!(classes(), 3000);

    // What is removed is gone before its place is taken: the counters begin anew.
    let again = "qdisc del dev port-b root\nqdisc del dev port-a clsact\n";
    let again = Scratch::new("again.tc", &(again.to_owned() + &lines.join("\n") + "\n"));
    let output = tc(&bed, &format!("-force -batch {}", again.path()));
    assert!(complaint(&output).contains("again.tc:3005"), "{}", complaint(&output));
    assert_eq!(classes(), 3001);
}

#[test]
fn a_stopped_instance_is_not_taken_for_none() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(1).unwrap();
    let mut instance = run(&bed, &[]);
    instance.freeze().unwrap();
    let asked: [&[&str]; 3] = [&["tc", "qdisc", "show"], &["show"], &["top", "--once"]];
    let of = &bed;
    let outputs: Vec<_> = thread::scope(|scope| {
        let asking = asked.map(|words| scope.spawn(move || narrows(of, words)));
        asking.into_iter().map(|asking| asking.join().unwrap()).collect()
    });
    instance.thaw().unwrap();
    for output in outputs {
        let said = complaint(&output);
        assert!(!output.status.success());
        assert!(said.contains(&format!("runs here (process {})", instance.id())), "{said}");
        assert!(
            said.contains("has not answered for 10 s") && !said.contains("start one"),
            "{said}"
        );
    }
}
