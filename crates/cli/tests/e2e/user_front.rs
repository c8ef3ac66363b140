//! A user's own XDP program in front of a host's port (`--front`).

use crate::balance::{Farm, PORT, VIP, assert_balanced, assert_stay, servers_of};
use crate::host_port::{BAD, Echo, Sent, flood, run, server, to_server, udp_seen};
use crate::sets::send;
use crate::setup::{
    Scratch, assert_refused, ip, narrows, own_path, set_mtu, show, turn_to_count, wait_for,
    wait_until,
};
use libbpf_cargo::SkeletonBuilder;
use libbpf_rs::query::MapInfoIter;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use narrows_snapshot::Snapshot;
use narrows_testbed::bed::PORT_A;
use narrows_testbed::narrows::Instance;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

const HOOKS: [(&str, &[&str]); 2] = [("native", &[]), ("generic", &["--xdp", "generic"])];
const OPEN: u16 = 9000;
const CLOSED: u16 = 9001;
const PATIENCE: Duration = Duration::from_secs(10);

/// A compiled program, removed with it.
struct Object(PathBuf);

impl Object {
    fn of(source: &Path, arguments: &[&str]) -> Self {
        let object = own_path(&source.file_stem().unwrap().to_string_lossy()).with_extension("o");
        let headers = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
        let mut builder = SkeletonBuilder::new();
        builder
            .source(source)
            .obj(&object)
            .clang_args([&[headers.as_str(), "-Werror"], arguments].concat());
        builder.build().unwrap();
        Self(object)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The example of the documentation, with another name for its map: tests run beside each other.
struct ClosedPorts {
    object: Object,
    map: &'static str,
}

impl ClosedPorts {
    fn of(map: &'static str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let source = root.join("examples/front/closed_ports.bpf.c");
        Self { object: Object::of(&source, &[&format!("-Dclosed_ports={map}")]), map }
    }

    fn path(&self) -> &str {
        self.object.path()
    }

    /// Its map, as `bpftool map` finds it: by the name.
    fn map(&self) -> Option<MapHandle> {
        let mut all = MapInfoIter::default();
        let found = all.find(|info| info.name.to_string_lossy() == self.map)?;
        Some(MapHandle::from_map_id(found.id).unwrap())
    }

    fn close(&self, port: u16) {
        let map = self.map().unwrap();
        map.update(&port.to_ne_bytes(), &0_u64.to_ne_bytes(), MapFlags::ANY).unwrap();
    }

    /// How often it says that it has dropped something to `port`; `None` if that is open.
    fn dropped_to(&self, port: u16) -> Option<u64> {
        let value = self.map()?.lookup(&port.to_ne_bytes(), MapFlags::ANY).unwrap()?;
        Some(u64::from_ne_bytes(value.try_into().unwrap()))
    }
}

/// A UDP frame to a port of the server.
fn to_port(port: u16) -> Vec<u8> {
    let mut frame = to_server(BAD);
    frame[36..38].copy_from_slice(&port.to_be_bytes());
    frame
}

/// Asserts that every frame that was sent was received and is found again, and returns what is
/// known then.
#[track_caller]
fn accounted(sent: &mut Sent, instance: &Instance) -> Snapshot {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let before = sent.packets();
        let shown = instance.show().unwrap();
        let seen = shown.ports[0].total.rx_packets;
        if (seen != before || sent.packets() != before) && Instant::now() < deadline {
            sleep(Duration::from_millis(50));
            continue;
        }
        let sum = &shown.conservation;
        assert_eq!((seen, sum.received), (before, before), "{shown:#?}");
        let dropped: u64 = sum.dropped.values().sum();
        assert_eq!(sum.received, sum.sent + sum.to_box + dropped, "{sum:?}");
        assert_eq!(sum.unaccounted, 0, "{sum:?}");
        let verdicts: u64 = shown.ports[0].front.values().sum();
        assert_eq!(verdicts, sum.received, "{shown:#?}");
        return shown;
    }
}

fn dropped(shown: &Snapshot) -> BTreeMap<&str, u64> {
    let all = &shown.conservation.dropped;
    all.iter().map(|(reason, packets)| (reason.as_str(), *packets)).collect()
}

#[test]
fn a_user_s_program_drops_first_what_its_map_says_and_its_verdicts_are_counted() {
    let Some(_turn) = turn_to_count() else { return };
    let object = ClosedPorts::of("nrw_first");
    for (hook, arguments) in HOOKS {
        let bed = server();
        let instance = run(&bed, &[&["--front", object.path()], arguments].concat());
        assert_eq!(show(&bed)["ports"][0]["xdp"], hook);
        let mut sent = Sent::open(&bed);
        let stray = udp_seen(&bed);
        send(&bed, &to_port(CLOSED), 100);
        assert!(dropped(&accounted(&mut sent, &instance)).is_empty(), "{hook}: all is open");
        object.close(CLOSED);
        send(&bed, &to_port(CLOSED), 50);
        send(&bed, &to_port(OPEN), 20);
        let shown = accounted(&mut sent, &instance);
        assert_eq!(dropped(&shown), BTreeMap::from([("front", 50)]), "{hook}");
        assert_eq!((object.dropped_to(CLOSED), object.dropped_to(OPEN)), (Some(50), None));
        assert_eq!(udp_seen(&bed) - stray, 120, "{hook}");
        // What it passes meets the filters.
        instance.tc("qdisc add dev port-a clsact").unwrap();
        instance
            .tc("filter add dev port-a ingress pref 1 protocol ip flower ip_proto udp action drop")
            .unwrap();
        send(&bed, &to_port(CLOSED), 5);
        send(&bed, &to_port(OPEN), 7);
        let shown = accounted(&mut sent, &instance);
        assert_eq!(dropped(&shown), BTreeMap::from([("filter", 7), ("front", 55)]), "{hook}");
        assert_eq!(shown.ports[0].front["drop"], 55);
        instance.tc("qdisc del dev port-a clsact").unwrap();
        send(&bed, &to_port(OPEN), 3);
        let shown = accounted(&mut sent, &instance);
        assert_eq!(udp_seen(&bed) - stray, 123, "{hook}: without filters");
        let text = String::from_utf8(narrows(&bed, &["show"]).stdout).unwrap();
        let line = format!("  front: drop 55, pass {}", shown.ports[0].front["pass"]);
        assert!(text.contains(&line), "{hook}: {text}");
        instance.stop().unwrap();
        wait_until("gone", PATIENCE, || object.map().is_none());
    }
}

#[test]
fn its_map_is_kept_in_an_upgrade_and_by_a_port_that_comes_back_and_goes_with_a_kill() {
    let Some(_turn) = turn_to_count() else { return };
    let object = ClosedPorts::of("nrw_kept");
    for (hook, arguments) in HOOKS {
        let bed = server();
        let arguments = [&["--front", object.path()], arguments].concat();
        let mut instance = run(&bed, &arguments);
        let mut sent = Sent::open(&bed);
        let mut echo = Echo::start(&bed);
        // The port of the flood.
        let port = u16::from_be_bytes(to_server(BAD)[36..38].try_into().unwrap());
        object.close(port);
        let stray = udp_seen(&bed);
        let load = flood(&bed, 20e6);
        echo.go_on(Duration::from_millis(300));
        for _ in 0..2 {
            let before = object.dropped_to(port).unwrap();
            instance.upgrade().unwrap();
            echo.go_on(Duration::from_millis(200));
            assert!(object.dropped_to(port).unwrap() > before, "{hook}: it goes on counting");
        }
        load.stop().unwrap();
        let shown = accounted(&mut sent, &instance);
        assert_eq!(dropped(&shown)["front"], object.dropped_to(port).unwrap(), "{hook}");
        assert_eq!(udp_seen(&bed), stray, "{hook}: each frame met it");
        // A filter changes what is behind it in the new process.
        instance.tc("qdisc add dev port-a clsact").unwrap();
        instance
            .tc("filter add dev port-a ingress pref 1 protocol ip flower ip_proto udp action drop")
            .unwrap();
        send(&bed, &to_port(OPEN), 9);
        assert_eq!(dropped(&accounted(&mut sent, &instance))["filter"], 9, "{hook}");
        ip(bed.shaper(), "link set dev port-a name away");
        wait_for(&bed, "waiting", |shown| shown["state"] == "waiting");
        send(&bed, &to_port(port), 30);
        assert_eq!(udp_seen(&bed), stray + 30, "{hook}: the kernel receives meanwhile");
        ip(bed.shaper(), "link set dev away name port-a");
        wait_for(&bed, "joined", |shown| shown["state"] == "running");
        let before = object.dropped_to(port).unwrap();
        send(&bed, &to_port(port), 40);
        wait_until("dropped", PATIENCE, || object.dropped_to(port) == Some(before + 40));
        instance.freeze().unwrap();
        send(&bed, &to_port(port), 10);
        wait_until("stopped", PATIENCE, || object.dropped_to(port) == Some(before + 50));
        instance.thaw().unwrap();
        instance.kill().unwrap();
        echo.go_on(Duration::from_millis(100));
        send(&bed, &to_port(port), 50);
        wait_until("received", PATIENCE, || udp_seen(&bed) == stray + 80);
        wait_until("gone", PATIENCE, || object.map().is_none());
        let _instance = run(&bed, &arguments);
        assert_eq!(object.dropped_to(port), None, "{hook}: the new map is empty");
    }
}

/// A program whose verdict is the destination port of UDP, and 6 is none.
const ANY: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#define VERDICT 36
SEC("xdp") int any_verdict(struct xdp_md *ctx)
{
    unsigned char *data = (void *)(long)ctx->data;
    if ((void *)(data + VERDICT + 2) > (void *)(long)ctx->data_end)
        return XDP_PASS;
    if (data[12] != 8 || data[13] || data[23] != 17)
        return XDP_PASS;
    return bpf_ntohs(*(__be16 *)(data + VERDICT));
}
char LICENSE[] SEC("license") = "GPL";
"#;

fn any_verdict() -> Object {
    let source = Scratch::new("any.bpf.c", ANY);
    Object::of(Path::new(source.path()), &[])
}

#[test]
fn each_verdict_of_a_user_s_program_is_counted_and_every_frame_accounted_for() {
    let Some(_turn) = turn_to_count() else { return };
    let object = any_verdict();
    for (hook, arguments) in HOOKS {
        let bed = server();
        let front = format!("{}:any_verdict", object.path());
        let mut instance = run(&bed, &[&["--front", &front], arguments].concat());
        let mut sent = Sent::open(&bed);
        for (verdict, times) in [(0, 1), (1, 2), (3, 4), (4, 5), (6, 3), (2, 7)] {
            send(&bed, &to_port(verdict), times);
        }
        let check = |shown: &Snapshot| {
            let mut verdicts = shown.ports[0].front.clone();
            assert!(verdicts.remove("pass").unwrap() >= 7);
            let expected =
                [("aborted", 1), ("drop", 2), ("invalid", 3), ("redirect", 5), ("tx", 4)];
            assert_eq!(verdicts, expected.map(|(name, count)| (name.to_owned(), count)).into());
            assert_eq!(dropped(shown), [("front", 2), ("front_aborted", 4)].into(), "{hook}");
            assert_eq!(shown.conservation.sent, 9, "{hook}: {:?}", shown.conservation);
        };
        check(&accounted(&mut sent, &instance));
        instance.upgrade().unwrap();
        check(&accounted(&mut sent, &instance));
    }
}

#[test]
fn frames_in_several_buffers_meet_only_a_program_for_them_and_misuse_is_refused() {
    let Some(_turn) = turn_to_count() else { return };
    let (closed, any) = (ClosedPorts::of("nrw_several"), any_verdict());
    let bed = server();
    let start =
        |arguments: &[&str]| narrows(&bed, &[&["run", "--port", PORT_A], arguments].concat());
    assert_refused(&start(&["--front", "/none.o"]), 1, &["/none.o", "cannot be read"]);
    assert_refused(&start(&["--front", "/proc/version"]), 1, &["no BPF object", "-target bpf"]);
    let unknown = format!("{}:unknown", any.path());
    assert_refused(&start(&["--front", &unknown]), 1, &["it has any_verdict"]);
    assert_refused(&start(&["--front", any.path(), "--xdp", "tcx"]), 1, &["native or generic"]);
    let wire = narrows(&bed, &["run", "--ports", "a,b", "--front", any.path()]);
    assert_refused(&wire, 1, &["--front needs --port", "xdp-loader load"]);
    assert_refused(&start(&["--front", ":x"]), 2, &["FILE:PROGRAM"]);

    set_mtu(&bed, 9000);
    assert_refused(&start(&["--front", any.path()]), 1, &["several buffers", "xdp.frags"]);
    let instance = run(&bed, &["--front", closed.path()]);
    let mut sent = Sent::open(&bed);
    closed.close(CLOSED);
    send(&bed, &to_port(CLOSED), 11);
    let shown = accounted(&mut sent, &instance);
    assert_eq!(dropped(&shown), BTreeMap::from([("front", 11)]));
}

#[test]
fn what_a_user_s_program_passes_is_balanced() {
    let Some(_turn) = turn_to_count() else { return };
    let object = ClosedPorts::of("nrw_balanced");
    let farm = Farm::up();
    let mut instance = farm.start(&["--front", object.path()]);
    farm.serve_all("-s mh -b mh-port");
    let sum = |port: &Value, of: &str| -> i64 {
        let counts = port[of].as_object().into_iter().flatten();
        counts.map(|(_, count)| count.as_i64().unwrap()).sum()
    };
    // Those that came before there were services.
    let early = {
        let port = &show(&farm.bed)["ports"][0];
        sum(port, "front") - sum(port, "balance")
    };
    let mut all = farm.connect_many(20);
    assert_eq!(servers_of(&all), [1, 2, 3, 4].into());
    instance.upgrade().unwrap();
    assert_stay(&mut all);
    // Not all is read at the same moment.
    let shown = wait_for(&farm.bed, "seen by both: each frame", |shown| {
        let port = &shown["ports"][0];
        sum(port, "front") == sum(port, "balance") + early
    });
    assert_balanced(&shown);
    assert!(shown["ports"][0]["balance"]["balanced"].as_u64().unwrap() > 100, "{shown:#}");
    object.close(PORT);
    let address = (VIP, PORT).into();
    let connect = || Ok(TcpStream::connect_timeout(&address, Duration::from_millis(500)));
    let refused = farm.bed.client().enter(connect).unwrap().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TimedOut, "it comes first");
    assert!(object.dropped_to(PORT).unwrap() > 0);
}
