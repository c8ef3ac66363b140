//! Pods whose limits come from a container runtime: `narrows-cni` behind the plugins that CNI's
//! authors write, called as the specification says, and by their own `cnitool`.
//!
//! The testbed's middle is the host, its client the pod. Both have the bed's devices beside that.

mod beside;

use crate::setup::{NARROWS, ip, own_path, paced, tc, turn_to_count, turn_to_measure};
use crate::tools::tool;
use narrows_testbed::Testbed;
use narrows_testbed::bed::PORT_B;
use narrows_testbed::narrows::Instance;
use narrows_testbed::process::run_with;
use serde_json::{Value, json};
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

/// The program under test, and the folder of those before it: Debian's.
const PLUGIN: &str = env!("CARGO_BIN_EXE_narrows-cni");
const PLUGINS: &str = "/usr/lib/cni";
/// The pod's interface.
const INTERFACE: &str = "pod0";
/// The configuration in the documentation.
const EXAMPLE: &str = include_str!("../../../../examples/cni/10-pods.conflist");

/// A host and a pod.
struct Pod {
    bed: Testbed,
    /// Where `host-local` notes which addresses are taken.
    addresses: PathBuf,
}

/// What a plugin has answered.
#[derive(Debug)]
struct Answer {
    succeeded: bool,
    said: Value,
}

impl Answer {
    #[track_caller]
    fn assert_done(&self) {
        assert!(self.succeeded && self.said.is_null(), "{self:?}");
    }

    #[track_caller]
    fn assert_failed(&self, code: u64, what: &str) {
        assert!(!self.succeeded && self.said["code"] == code, "{self:?}");
        assert!(self.said["msg"].as_str().unwrap().contains(what), "{self:?}");
    }
}

impl Pod {
    /// None, with a message, without CNI's plugins.
    fn new() -> Option<Self> {
        if !Path::new(PLUGINS).join("ptp").exists() {
            eprintln!(
                "SKIPPED: not installed: ptp; on Debian: apt-get install containernetworking-plugins"
            );
            return None;
        }
        let bed = Testbed::up(1).unwrap();
        Some(Self { bed, addresses: own_path("addresses") })
    }

    fn namespace(&self) -> String {
        format!("/run/netns/{}", self.bed.client().name())
    }

    /// Starts a host plane for the device on the host.
    fn host_plane(&self, dev: &str) -> Instance {
        let words = ["run", "--plane", "host", "--ports", dev];
        Instance::start_in(self.bed.shaper(), Path::new(NARROWS), &words).unwrap()
    }

    /// A plugin with CNI's variables, on the host.
    fn plugin(&self, plugin: &Path, command: &str) -> Command {
        let mut called = self.bed.shaper().command(plugin);
        called
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", "nrw-pod")
            .env("CNI_NETNS", self.namespace())
            .env("CNI_IFNAME", INTERFACE)
            .env("CNI_PATH", PLUGINS);
        called
    }

    /// `ptp`, which makes the pod's interface, or removes it. Returns the result and the name of
    /// the end on the host.
    fn interface(&self, command: &str) -> (Value, String) {
        let config = json!({
            "cniVersion": "1.0.0", "name": "nrw", "type": "ptp",
            "ipam": {
                "type": "host-local", "subnet": "10.85.0.0/24", "dataDir": self.addresses,
            },
        });
        let mut ptp = self.plugin(&Path::new(PLUGINS).join("ptp"), command);
        let result = run_with(&mut ptp, &config.to_string()).unwrap();
        let result: Value = serde_json::from_str(&result).unwrap_or_default();
        let interfaces = result["interfaces"].as_array().into_iter().flatten();
        let on_host = interfaces.clone().find(|interface| interface["sandbox"].is_null());
        let name = on_host.and_then(|interface| interface["name"].as_str()).unwrap_or_default();
        (result.clone(), name.to_owned())
    }

    /// Calls the plugin under test.
    fn call(&self, command: &str, version: &str, previous: &Value, limits: &Value) -> Answer {
        self.call_at(INTERFACE, command, version, previous, limits)
    }

    /// The same, for some interface of the pod.
    fn call_at(
        &self,
        interface: &str,
        command: &str,
        version: &str,
        previous: &Value,
        limits: &Value,
    ) -> Answer {
        let mut config = json!({
            "cniVersion": version, "name": "nrw", "type": "narrows-cni", "prevResult": previous,
            "waitSeconds": 5,
        });
        for (key, value) in limits.as_object().into_iter().flatten() {
            config[key] = value.clone();
        }
        let mut called = self.plugin(Path::new(PLUGIN), command);
        called.env("CNI_IFNAME", interface);
        called.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = called.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut input, config.to_string().as_bytes()).unwrap();
        drop(input);
        let output = child.wait_with_output().unwrap();
        assert!(output.stderr.is_empty(), "{output:?}");
        let said = match output.stdout.as_slice() {
            [] => Value::Null,
            text => serde_json::from_slice(text).unwrap(),
        };
        Answer { succeeded: output.status.success(), said }
    }

    fn saved(&self, dev: &str) -> String {
        String::from_utf8(tc(&self.bed, &format!("save dev {dev}")).stdout).unwrap()
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.addresses);
    }
}

/// The bits a second, on the link, of the datagrams that a socket receives while 60 Mbit/s are sent
/// to it for two seconds.
fn received(to: &UdpSocket, from: &UdpSocket) -> f64 {
    const PAYLOAD: usize = 1000;
    const HEADERS: usize = 42;
    let time = Duration::from_secs(2);
    to.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let bytes = scope(|scope| {
        let counted = scope.spawn(|| {
            let mut buffer = [0; 2 * PAYLOAD];
            let mut bytes = 0;
            while let Ok(length) = to.recv(&mut buffer) {
                bytes += length + HEADERS;
            }
            bytes
        });
        // A packet that is dropped at once is an error to some kernels.
        paced(PAYLOAD, 60e6, time, || {
            let _ = from.send_to(&[7; PAYLOAD], to.local_addr().unwrap());
        });
        counted.join().unwrap()
    });
    bytes as f64 * 8.0 / time.as_secs_f64()
}

/// What a runtime says for these annotations of Kubernetes: 20 Mbit/s in, 10 Mbit/s out.
fn bandwidth() -> Value {
    let burst = u32::MAX;
    json!({"runtimeConfig": {"bandwidth": {
        "IngressRate": 20_000_000, "IngressBurst": burst,
        "EgressRate": 10_000_000, "EgressBurst": burst,
    }}})
}

#[test]
fn a_pod_s_rates_hold_in_both_directions_from_add_to_del() {
    let Some(_turn) = turn_to_measure() else { return };
    let Some(pod) = Pod::new() else { return };
    let (result, dev) = pod.interface("ADD");
    let _plane = pod.host_plane(&dev);
    let added = pod.call("ADD", "1.0.0", &result, &bandwidth());
    assert!(added.succeeded && added.said == result, "{added:?}");

    let address = |index: u8| Ipv4Addr::new(10, 85, 0, index);
    let bind = |ip| move || Ok(UdpSocket::bind((ip, 0))?);
    let inside = pod.bed.client().enter(bind(address(2))).unwrap();
    let outside = pod.bed.shaper().enter(bind(address(1))).unwrap();
    let limited = [received(&inside, &outside), received(&outside, &inside)];
    // The burst, and half a second's error of timing of a busy machine.
    for (rate, limit) in limited.into_iter().zip([20e6, 10e6]) {
        assert!((limit * 0.9..limit * 1.3).contains(&rate), "{limited:?} bit/s");
    }

    pod.call("CHECK", "1.0.0", &result, &bandwidth()).assert_done();
    pod.call("DEL", "1.0.0", &result, &bandwidth()).assert_done();
    assert_eq!(pod.saved(&dev), format!("qdisc replace dev {dev} clsact\n"));
    let free = [received(&inside, &outside), received(&outside, &inside)];
    assert!(free.iter().all(|rate| *rate > 40e6), "{free:?} bit/s");
}

#[test]
fn commands_may_come_again_and_in_any_state_of_the_pod() {
    let Some(_turn) = turn_to_count() else { return };
    let Some(pod) = Pod::new() else { return };
    let (result, dev) = pod.interface("ADD");
    let plane = pod.host_plane(&dev);
    let call = |command: &str, limits: &Value| pod.call(command, "1.0.0", &result, limits);
    call("CHECK", &bandwidth()).assert_failed(102, "not those in force");
    for _ in 0..2 {
        assert_eq!(call("ADD", &bandwidth()).said, result);
        call("CHECK", &bandwidth()).assert_done();
    }
    // Others change it, and what others have set stays.
    plane.tc(&format!("filter add dev {dev} ingress pref 1 matchall action drop")).unwrap();
    call("CHECK", &bandwidth()).assert_done();
    call("CHECK", &json!({"ingressRate": 30_000_000})).assert_failed(102, "tc save dev");
    plane.tc(&format!("qdisc del dev {dev} root")).unwrap();
    call("CHECK", &bandwidth()).assert_failed(102, &dev);
    call("DEL", &bandwidth()).assert_done();
    let left = pod.saved(&dev);
    assert!(left.contains("pref 1 ") && left.lines().count() == 2, "{left}");
    call("DEL", &bandwidth()).assert_done();
    // The instance is gone, then the interface, then the namespace.
    drop(plane);
    call("DEL", &bandwidth()).assert_done();
    pod.interface("DEL");
    call("DEL", &bandwidth()).assert_done();
    call("ADD", &bandwidth()).assert_failed(101, INTERFACE);
}

#[test]
fn limits_of_a_pod_outlive_a_killed_host_plane_that_keeps_its_state() {
    let Some(_turn) = turn_to_count() else { return };
    let Some(pod) = Pod::new() else { return };
    let (result, dev) = pod.interface("ADD");
    let state = own_path("state.tc");
    let words = ["run", "--plane", "host", "--ports", &dev, "--state", state.to_str().unwrap()];
    let start = || Instance::start_in(pod.bed.shaper(), Path::new(NARROWS), &words).unwrap();
    let first = start();
    assert_eq!(pod.call("ADD", "1.0.0", &result, &bandwidth()).said, result);
    first.kill().unwrap();
    let _second = start();
    pod.call("CHECK", "1.0.0", &result, &bandwidth()).assert_done();
    fs::remove_file(&state).unwrap();
}

#[test]
fn a_pod_waits_for_the_instance_that_gets_its_device() {
    let Some(_turn) = turn_to_count() else { return };
    let Some(pod) = Pod::new() else { return };
    let (result, dev) = pod.interface("ADD");
    let mut soon = bandwidth();
    soon["waitSeconds"] = json!(0);
    pod.call("ADD", "1.0.0", &result, &soon).assert_failed(11, &format!("the port {dev}"));
    let added = scope(|scope| {
        let added = scope.spawn(|| pod.call("ADD", "1.0.0", &result, &bandwidth()));
        sleep(Duration::from_millis(300));
        let _plane = pod.host_plane(&dev);
        added.join().unwrap()
    });
    assert_eq!(added.said, result);
}

#[test]
fn a_class_of_the_device_s_tree_gets_the_rate_and_is_taken_away_again() {
    let Some(_turn) = turn_to_count() else { return };
    let Some(pod) = Pod::new() else { return };
    let (result, dev) = pod.interface("ADD");
    let plane = pod.host_plane(&dev);
    let annotations = json!({
        "narrows/ingress-parent": "1:1", "narrows/ingress-class": "1:10",
        "narrows/ingress-assured": "5M", "narrows/ingress-priority": "2",
    });
    let limits = json!({"ingressRate": 20_000_000, "runtimeConfig": {
        "io.kubernetes.cri.pod-annotations": annotations,
    }});
    let call = |command: &str| pod.call(command, "0.4.0", &result, &limits);
    call("ADD").assert_failed(100, "refuses");
    plane.tc(&format!("qdisc add dev {dev} root handle 1: htb default 10")).unwrap();
    plane.tc(&format!("class add dev {dev} parent 1: classid 1:1 htb rate 100mbit")).unwrap();
    let tree = pod.saved(&dev);
    // The answer is in the version of the configuration.
    let added = call("ADD");
    assert_eq!(added.said["ips"][0]["version"], "4", "{added:?}");
    let class = "parent 1:1 classid 1:10 htb rate 5000000bit ceil 20000000bit";
    assert!(pod.saved(&dev).contains(class), "{}", pod.saved(&dev));
    call("CHECK").assert_done();
    call("DEL").assert_done();
    assert_eq!(pod.saved(&dev), tree);
}

#[test]
fn what_is_no_pod_of_a_host_plane_is_refused_with_a_code() {
    let Some(_turn) = turn_to_count() else { return };
    let Some(pod) = Pod::new() else { return };
    let (result, dev) = pod.interface("ADD");
    let status = || pod.call("STATUS", "1.1.0", &Value::Null, &json!({}));
    status().assert_failed(50, "narrows run --plane host");
    pod.call("GC", "1.1.0", &Value::Null, &json!({"cni.dev/valid-attachments": []})).assert_done();
    let add = |previous: &Value| pod.call("ADD", "1.0.0", previous, &bandwidth());
    let only = |name: &str| json!({"interfaces": [{"name": name}]});
    add(&only(PORT_B)).assert_failed(101, &format!("is {dev}, which prevResult does not have"));
    // Of another pair, whose end in a third namespace has the number that the pod's has here.
    let shown = ip(pod.bed.shaper(), &format!("-j link show {dev}"));
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let number = &shown[0]["ifindex"];
    let third = pod.bed.server().name();
    ip(
        pod.bed.client(),
        &format!("link add name third0 type veth peer name third1 index {number} netns {third}"),
    );
    let elsewhere = pod.call_at("third0", "ADD", "1.0.0", &result, &bandwidth());
    elsewhere.assert_failed(101, "no veth with its other end on this host");
    {
        let words = ["run", "--port", &dev, "--xdp", "tcx"];
        let _filters = Instance::start_in(pod.bed.shaper(), Path::new(NARROWS), &words).unwrap();
        add(&result).assert_failed(100, "--plane host");
        status().assert_failed(50, "the instances here are none");
    }
    let _plane = pod.host_plane(&dev);
    status().assert_done();
    assert_eq!(add(&result).said, result);
}

#[test]
fn cnitool_runs_the_list_of_the_documentation() {
    let Some(cnitool) = tool("cnitool/cnitool") else { return };
    let Some(_turn) = turn_to_count() else { return };
    let Some(pod) = Pod::new() else { return };
    // Nothing of the test is noted elsewhere on this machine, but for cnitool's own results.
    let noted = format!("\"dataDir\": {:?}, \"subnet\"", pod.addresses);
    let folder = own_path("cni");
    fs::create_dir(&folder).unwrap();
    let list = EXAMPLE.replace("\"subnet\"", &noted).replace("\"pods\"", "\"nrw-pods\"");
    fs::write(folder.join("10-pods.conflist"), list).unwrap();
    let ours = Path::new(PLUGIN).parent().unwrap().display();
    let call = |command: &str| {
        let mut called = pod.bed.shaper().command(&cnitool);
        called.args([command, "nrw-pods", &pod.namespace()]);
        called.env("CNI_PATH", format!("{PLUGINS}:{ours}")).env("CNI_IFNAME", INTERFACE);
        called.env("NETCONFPATH", &folder);
        called.env("CAP_ARGS", bandwidth()["runtimeConfig"].to_string());
        run_with(&mut called, "")
    };
    let (plane, added) = scope(|scope| {
        let added = scope.spawn(|| call("add"));
        // What the service does for new devices: it starts a host plane.
        let find = || {
            let links = pod.bed.shaper().run("ip", &["-j", "link", "show"]).unwrap();
            let links: Value = serde_json::from_str(&links).unwrap();
            let mut names =
                links.as_array().unwrap().iter().filter_map(|link| link["ifname"].as_str());
            names.find(|name| name.starts_with("veth")).map(str::to_owned)
        };
        let deadline = Instant::now() + Duration::from_secs(5);
        let dev = loop {
            match find() {
                Some(dev) => break dev,
                None => assert!(Instant::now() < deadline, "no device"),
            }
            sleep(Duration::from_millis(50));
        };
        ((pod.host_plane(&dev), dev), added.join().unwrap())
    });
    let (_plane, dev) = plane;
    let added: Value = serde_json::from_str(&added.unwrap()).unwrap();
    assert_eq!(added["interfaces"][0]["name"], dev, "{added}");
    let saved = pod.saved(&dev);
    assert!(saved.contains("tbf rate 20000000bit") && saved.contains("police rate 1250000bps"));
    call("check").unwrap();
    call("del").unwrap();
    call("del").unwrap();
    let _ = fs::remove_dir_all(&folder);
}
