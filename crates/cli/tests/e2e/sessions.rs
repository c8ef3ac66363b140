//! RADIUS sessions and DHCP leases beside a running instance: `narrows sync radius` and
//! `narrows sync leases`.

use crate::setup::{
    NARROWS, Scratch, complaint, flood, narrows, run, show, turn_to_count, wait_until,
};
use narrows_testbed::bed::SERVER_IP;
use narrows_testbed::{Testbed, frames};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const SECRET: &str = "tested secret";
/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

const RADIUS: &str = r#"
listen = ["127.0.0.1:1813", "127.0.0.1:3799"]
default_plan = "basic"

[plans]
basic = { down = "20mbit", up = "5mbit", queueing = "fifo" }

[[client]]
name = "all"
from = ["127.0.0.1"]
secret = "tested secret"
allow = ["accounting", "coa"]
"#;

/// Whether the programs are there.
fn has_programs() -> bool {
    let has_sync = Path::new(NARROWS).with_file_name("narrows-sync").exists();
    let has_client = Command::new("radclient").arg("-v").output().is_ok();
    if !has_sync {
        eprintln!("SKIPPED: narrows-sync is not there: make programs");
    }
    if !has_client {
        eprintln!("SKIPPED: radclient is missing: apt-get install freeradius-utils");
    }
    has_sync && has_client
}

/// A command that runs on, with its folder.
struct Online<'a> {
    bed: &'a Testbed,
    folder: String,
    child: Option<Child>,
}

impl<'a> Online<'a> {
    fn new(bed: &'a Testbed, name: &str) -> Self {
        let folder = format!("{}.d", Scratch::new(name, "").path());
        fs::create_dir_all(&folder).unwrap();
        Self { bed, folder, child: None }
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }

    fn start(&mut self, source: &str, config: &str) {
        let path = self.path("config.toml");
        fs::write(&path, config).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        let store = self.path("store");
        let words = ["sync", source, "--config", &path, "--store", &store];
        let child = self
            .bed
            .shaper()
            .command(NARROWS)
            .args(words)
            .args(["--ports", "port-a,port-b", "--uplink", "100mbit"])
            .spawn();
        self.child = Some(child.unwrap());
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// `radclient`, which repeats what is not answered.
    fn radclient(&self, port: &str, kind: &str, attributes: &str) -> Output {
        let mut command = self.bed.shaper().command("radclient");
        command.args(["-r", "20", "-t", "1", &format!("127.0.0.1:{port}"), kind, SECRET]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(attributes.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// Sends a request that has to be accepted.
    #[track_caller]
    fn accepted(&self, port: &str, kind: &str, attributes: &str) {
        let output = self.radclient(port, kind, attributes);
        assert!(output.status.success(), "{}", complaint(&output));
    }

    /// What runs.
    fn running(&self) -> String {
        let output = narrows(self.bed, &["tc", "save"]);
        String::from_utf8(output.stdout).unwrap()
    }

    /// The lines of what runs that have `words`.
    fn lines(&self, words: &str) -> Vec<String> {
        let running = self.running();
        running.lines().filter(|line| line.contains(words)).map(str::to_owned).collect()
    }
}

impl Drop for Online<'_> {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn a_session_has_a_class_and_a_coa_changes_its_rate() {
    let Some(_turn) = turn_to_count() else { return };
    if !has_programs() {
        return;
    }
    let bed = Testbed::up(2).unwrap();
    let instance = run(&bed, &[]);
    let mut online = Online::new(&bed, "radius");
    online.start("radius", RADIUS);

    let session = |number: u32, who: &str, address: &str| {
        format!(
            "Acct-Session-Id = \"{number}\"\nUser-Name = \"{who}\"\nFramed-IP-Address = {address}\n"
        )
    };
    let ann = session(1, "ann", &SERVER_IP.to_string());
    let ben = session(2, "ben", "10.0.0.77");
    let start = |session: &str| format!("Acct-Status-Type = Start\n{session}");
    online.accepted("1813", "acct", &start(&ben));
    let began = Instant::now();
    online.accepted("1813", "acct", &start(&ann));
    wait_until("a class", PATIENCE, || online.lines("ceil 20000000bit").len() == 2);
    eprintln!("a session had its class {:?} after its Start", began.elapsed());
    let both = online.running();

    // Its traffic passes its class.
    let sources: Vec<u16> = (0..8).map(frames::port).collect();
    let load = flood(&bed, &sources, 500, 10e6);
    let class = online.lines(&format!("dst_ip {SERVER_IP}"))[0].clone();
    let class = class.split("classid ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    let sent = || {
        let shown =
            instance.command("tc").args(["-j", "-s", "class", "show", "dev", "port-b"]).output();
        let classes: serde_json::Value = serde_json::from_slice(&shown.unwrap().stdout).unwrap();
        let mut classes = classes.as_array().unwrap().iter();
        let class = classes.find(|shown| shown["handle"] == class.as_str()).unwrap();
        class.get("stats").unwrap_or(class)["packets"].as_u64().unwrap()
    };
    wait_until("packets of the session", PATIENCE, || sent() > 1000);

    // A CoA changes its class at each port, and nothing else.
    let before = sent();
    online.accepted("3799", "coa", "User-Name = \"ann\"\nMikrotik-Rate-Limit = \"1M/8M\"\n");
    wait_until("another rate", PATIENCE, || {
        online.lines("ceil 8000000bit").len() == 1 && online.lines("ceil 1000000bit").len() == 1
    });
    let after = online.running();
    let changed: Vec<&str> = after.lines().filter(|line| !both.contains(line)).collect();
    assert_eq!(changed.len(), 2, "{changed:?}");
    assert!(changed.iter().all(|line| line.contains(&format!("classid {class} "))), "{changed:?}");
    assert!(sent() >= before);

    // Who is not there is refused.
    let refused =
        online.radclient("3799", "coa", "User-Name = \"cid\"\nMikrotik-Rate-Limit = \"1M\"\n");
    assert!(!refused.status.success());

    // A server that dies and starts again knows its sessions, and changes nothing.
    online.kill();
    online.start("radius", RADIUS);
    let interim = format!("Acct-Status-Type = Interim-Update\n{ben}");
    online.accepted("1813", "acct", &interim);
    assert_eq!(online.running(), after);

    // A Stop takes the address, and leaves the class.
    online.accepted("1813", "acct", &format!("Acct-Status-Type = Stop\n{ann}"));
    wait_until("no filter", PATIENCE, || online.lines(&format!("dst_ip {SERVER_IP}")).is_empty());
    assert_eq!(online.lines("ceil 8000000bit").len(), 1);
    assert!(sent() >= before);
    assert_eq!(show(&bed)["conservation"]["unaccounted"], 0);
    load.stop().unwrap();
}

#[test]
fn a_lease_gives_an_address_to_its_subscriber() {
    let Some(_turn) = turn_to_count() else { return };
    if !has_programs() {
        return;
    }
    let bed = Testbed::up(2).unwrap();
    let _instance = run(&bed, &[]);
    let mut online = Online::new(&bed, "leases");
    // A subscriber whose identity is a circuit's number; a lease says it as its circuit ID.
    let devices = "Circuit ID,Circuit Name,Device ID,Device Name,Parent Node,MAC,IPv4,IPv6,\
                   Download Min Mbps,Upload Min Mbps,Download Max Mbps,Upload Max Mbps,Comment\n\
                   port-7,Ann,d7,d7,,,10.0.0.70,,2,2,30,5,\n";
    fs::write(online.path("devices.csv"), devices).unwrap();
    let sync = |online: &Online<'_>| {
        let (devices, store) = (online.path("devices.csv"), online.path("store"));
        let words = ["sync", "libreqos", "--devices", &devices, "--store", &store];
        let ports = ["--ports", "port-a,port-b", "--uplink", "100mbit"];
        let output = narrows(&bed, &[&words[..], &ports].concat());
        assert!(output.status.success(), "{}", complaint(&output));
    };
    sync(&online);
    let leases = online.path("leases4.csv");
    let header = "address,hwaddr,client_id,valid_lifetime,expire,subnet_id,fqdn_fwd,fqdn_rev,\
                  hostname,state,user_context\n";
    // Option 82 with the sub-option 1, "port-7".
    let line = |lifetime: u32| {
        let context = "{ \"ISC\": { \"relay-agent-info\": \"0x0106706F72742D37\" } }";
        format!("10.0.9.9,00:0c:29:00:00:01,,{lifetime},9000000000,1,0,0,,0,{context}\n")
    };
    let append = |text: &str| {
        let file = fs::File::options().create(true).append(true).open(&leases);
        file.unwrap().write_all(text.as_bytes()).unwrap();
    };
    append(header);
    let config = format!("[[server]]\nkea_file = {leases:?}\n[[match]]\nlease = \"circuit-id\"\n");
    online.start("leases", &config);
    append(&line(3600));
    wait_until("a filter", PATIENCE, || online.lines("10.0.9.9").len() == 2);
    // The next sync of its own source leaves it.
    sync(&online);
    assert_eq!(online.lines("10.0.9.9").len(), 2);
    append(&line(0));
    wait_until("no filter", PATIENCE, || online.lines("10.0.9.9").is_empty());
    assert_eq!(online.lines("10.0.0.70").len(), 2);
}
