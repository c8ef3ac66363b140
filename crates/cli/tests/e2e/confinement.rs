//! The whole life of a confined process: everything after the start must work with the privileges
//! that the guide lists as kept.

use crate::setup::{
    NARROWS, Scratch, complaint, devices, flood, hang_up, ip, own_path, set_mtu, show, tc,
    turn_to_count, wait_for,
};
use narrows_testbed::bed::{PORT_B, SERVER};
use narrows_testbed::counters::Counters;
use narrows_testbed::narrows::Instance;
use narrows_testbed::{Testbed, frames};
use serde_json::Value;
use std::path::{Path, PathBuf};

const GUIDE: &str = include_str!("../../../../docs/guide.md");
const UNIT: &str = include_str!("../../../../dist/narrows@.service");
/// Numbers of `linux/capability.h`.
const CAPABILITIES: [(&str, u32); 6] = [
    ("CAP_NET_ADMIN", 12),
    ("CAP_NET_RAW", 13),
    ("CAP_IPC_LOCK", 14),
    ("CAP_SYS_NICE", 23),
    ("CAP_PERFMON", 38),
    ("CAP_BPF", 39),
];

/// The set of the capabilities `names`.
fn set<'a>(names: impl IntoIterator<Item = &'a str>) -> u64 {
    let bit = |name: &str| {
        let known = CAPABILITIES.iter().find(|(known, _)| *known == name);
        1 << known.unwrap_or_else(|| panic!("{name} is said to stay")).1
    };
    names.into_iter().map(bit).sum()
}

/// The capabilities that the guide's table lists as kept.
fn said_to_stay() -> u64 {
    let rows = GUIDE.lines().filter_map(|line| line.strip_prefix("| `CAP_"));
    let names: Vec<String> =
        rows.map(|row| format!("CAP_{}", row.split('`').next().unwrap())).collect();
    assert_eq!(names.len(), CAPABILITIES.len(), "{names:?}");
    set(names.iter().map(String::as_str))
}

/// The capabilities of the service.
fn of_the_service() -> Vec<&'static str> {
    let line = UNIT.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    line.unwrap().split(' ').collect()
}

/// The status of each thread of a process, from the kernel.
fn statuses(id: u32) -> Vec<(String, String)> {
    let tasks = std::fs::read_dir(format!("/proc/{id}/task")).unwrap();
    let read = |path: PathBuf| std::fs::read_to_string(path.join("status")).unwrap();
    tasks
        .flat_map(|task| {
            let text = read(task.unwrap().path());
            text.lines()
                .filter_map(|line| line.split_once(":\t"))
                .map(|(key, value)| (key.to_owned(), value.trim().to_owned()))
                .collect::<Vec<_>>()
        })
        .collect()
}

/// CAP_SYS_ADMIN, which root keeps if connection tracking is a module.
fn for_a_module() -> u64 {
    let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap();
    let is_built_in = symbols.lines().any(|line| line.ends_with(" bpf_xdp_ct_lookup"));
    if is_built_in { 0 } else { 1 << 21 }
}

#[track_caller]
fn assert_confined(id: u32, capabilities: u64) {
    let wanted = format!("{capabilities:016x}");
    let mut threads = 0;
    for (key, value) in statuses(id) {
        match key.as_str() {
            "CapPrm" | "CapEff" | "CapBnd" => assert_eq!(value, wanted, "{key}"),
            "NoNewPrivs" => assert_eq!(value, "1"),
            "Seccomp" => assert_eq!(value, "2"),
            "Name" => threads += 1,
            _ => {}
        }
    }
    assert!(threads >= 3, "{threads} threads: the main one and the workers");
}

fn events(show: &Value) -> String {
    let events = show["events"].as_array().unwrap().iter();
    events.map(|event| event.as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

fn sent(show: &Value) -> u64 {
    show["ports"][1]["total"]["tx_packets"].as_u64().unwrap()
}

/// Waits until frames arrive at the server again.
#[track_caller]
fn assert_forwarding(bed: &Testbed) {
    let before = show(bed);
    wait_for(bed, "forwarding", |show| sent(show) > sent(&before) + 300);
    let mut server = Counters::of(bed.server(), SERVER).unwrap();
    let arrived = server.read().unwrap().rx_packets;
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(server.read().unwrap().rx_packets > arrived, "nothing arrives");
}

/// Runs through everything that happens to an instance that starts with the file `policy` and keeps
/// its policy in `state`.
fn whole_life(bed: &Testbed, instance: Instance, stays: u64, policy: &Scratch, state: &Path) {
    assert_confined(instance.id(), stays);
    let ports: Vec<u16> = (0..32).map(frames::port).collect();
    let _load = flood(bed, &ports, 500, 10e6);
    assert_forwarding(bed);

    // Commands, including a change of the XDP program.
    for words in [
        "qdisc replace dev port-b root cake bandwidth 50mbit nat",
        "qdisc replace dev port-a root handle 1: tbf rate 50mbit burst 100k latency 20ms",
        "qdisc add dev port-a parent 1:1 flowbundler maxrate 5mbit",
    ] {
        let output = tc(bed, words);
        assert!(output.status.success(), "{words}: {}", complaint(&output));
        assert!(!complaint(&output).contains("not kept"), "{}", complaint(&output));
    }
    assert!(std::fs::read_to_string(state).unwrap().contains("flowbundler"));
    assert_forwarding(bed);
    let lacks = "offers no conntrack look-up";
    assert!(!events(&show(bed)).contains(lacks), "the program for nat was not loaded");

    // New sockets, frames, programs and threads.
    set_mtu(bed, 1400);
    wait_for(bed, "joined at another MTU", |show| {
        show["state"] == "running" && (0..2).all(|port| show["ports"][port]["mtu"] == 1400)
    });
    assert_forwarding(bed);

    // An interface is deleted and replaced by another; its bridge, too.
    ip(bed.shaper(), &format!("link del {PORT_B}"));
    wait_for(bed, "waiting", |show| show["state"] == "waiting");
    let bridges = ip(bed.shaper(), "-o link show type bridge");
    for bridge in bridges.lines().filter_map(|line| line.split(": ").nth(1)) {
        ip(bed.shaper(), &format!("link del {bridge}"));
    }
    let ends = format!("netns {} address 02:6e:72:77:00:02", bed.server().name());
    let queues = "numtxqueues 2 numrxqueues 2";
    ip(
        bed.shaper(),
        &format!(
            "link add name {PORT_B} mtu 1400 {queues} type veth peer name {SERVER} mtu 1400 {ends} {queues}"
        ),
    );
    for (namespace, device) in &devices(bed)[2..] {
        let offloads =
            ["-K", device, "tx", "off", "tso", "off", "gso", "off", "gro", "off", "sg", "off"];
        namespace.run("ethtool", &offloads).unwrap();
        ip(namespace, &format!("link set dev {device} up"));
    }
    wait_for(bed, "joined again", |show| show["state"] == "running");
    assert_forwarding(bed);
    let logged = events(&show(bed));
    assert!(!logged.contains(lacks) && !logged.contains("normal priority"), "{logged}");

    // The file, replaced in the way of editors, and then by a link to a foreign file.
    let beside = format!("{}.new", policy.path());
    std::fs::write(&beside, "qdisc add dev port-b root pfifo limit 77\n").unwrap();
    std::fs::rename(&beside, policy.path()).unwrap();
    hang_up(&instance);
    wait_for(bed, "reloaded", |show| show["ports"][1]["qdisc"] == "pfifo");
    std::os::unix::fs::symlink("/etc/passwd", &beside).unwrap();
    std::fs::rename(&beside, policy.path()).unwrap();
    hang_up(&instance);
    wait_for(bed, "refused", |show| events(show).contains("Permission denied"));
    assert!(std::fs::read_to_string(state).unwrap().contains("pfifo limit 77"));

    assert_confined(instance.id(), stays);
    assert_forwarding(bed);
    let (status, log) = instance.stop().unwrap();
    assert!(status.success() && log.contains(", 0 unaccounted"), "{log}");
    for words in ["restricted:", "not dropped", "may gain", "normal priority", "not kept"] {
        assert!(!log.contains(words), "{words}: {log}");
    }
}

/// A folder for a policy file and a state file.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = own_path("confined");
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn state(&self) -> PathBuf {
        self.0.join("state")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_whole_life_cycle_works_with_the_documented_privileges() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let (folder, policy) = (Folder::new(), Scratch::new("confined.tc", ""));
    let state = folder.state();
    let instance =
        crate::setup::run(&bed, &["-b", policy.path(), "--state", state.to_str().unwrap()]);
    whole_life(&bed, instance, said_to_stay() | for_a_module(), &policy, &state);
}

#[test]
fn a_whole_life_is_possible_for_the_user_of_the_service() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let (folder, policy) = (Folder::new(), Scratch::new("service.tc", ""));
    let state = folder.state();
    assert_eq!(set(of_the_service()), said_to_stay());
    // As systemd does for RuntimeDirectory= and StateDirectory=.
    let namespace = bed.shaper().run("stat", &["-Lc", "%i", "/proc/self/ns/net"]).unwrap();
    let control = format!("/run/narrows/net-{}", namespace.trim());
    std::fs::create_dir_all(&control).unwrap();
    let ours = folder.0.to_str().unwrap();
    let run = |program: &str, words: &[&str]| bed.shaper().run(program, words).unwrap();
    run("chmod", &["711", "/run/narrows"]);
    run("chown", &["nobody", &control, ours]);
    let changes = |sign: &str| {
        let names = of_the_service();
        let changes = names.iter().map(|name| format!(",+{}", name[4..].to_lowercase()));
        format!("{sign}{}", changes.collect::<String>())
    };
    let (ambient, inheritable) = (changes("-all"), changes("-all"));
    let arguments = [
        &["--reuid", "nobody", "--regid", "nogroup", "--clear-groups", "--no-new-privs"][..],
        &["--bounding-set", &ambient, "--inh-caps", &inheritable, "--ambient-caps", &ambient],
        &[NARROWS, "run", "--ports", "port-a,port-b"],
        &["-b", policy.path(), "--state", state.to_str().unwrap()],
    ]
    .concat();
    let tried =
        bed.shaper().command("setpriv").args(&arguments[..12]).args([NARROWS, "--help"]).output();
    if String::from_utf8_lossy(&tried.unwrap().stderr).contains("setpriv: failed to execute") {
        eprintln!("SKIPPED: others may not run {NARROWS}");
        return;
    }
    let instance = Instance::start_command(&bed, Path::new("setpriv"), &arguments).unwrap();
    whole_life(&bed, instance, set(of_the_service()), &policy, &state);
}

/// The scheduling classes of the workers' threads, from the kernel.
fn classes_of_workers(id: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{id}/task")).unwrap();
    let stat = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap()
    };
    // The class is field 41 of proc(5); the first behind the name is field 3.
    tasks
        .map(stat)
        .filter(|stat| stat.contains("(nrw-q"))
        .map(|stat| stat.rsplit_once(") ").unwrap().1.split(' ').nth(38).unwrap().to_owned())
        .collect()
}

#[test]
fn workers_go_before_ordinary_programs_unless_they_never_sleep() {
    let _turn = turn_to_count();
    let bed = Testbed::up(2).unwrap();
    for (words, class) in
        [(vec!["--fail-closed"], "1"), (vec!["--fail-closed", "--busy-poll"], "0")]
    {
        let instance = Instance::start(&bed, Path::new(NARROWS), &words).unwrap();
        wait_for(&bed, "workers of the right class", |_| {
            classes_of_workers(instance.id()) == [class, class]
        });
    }
}
