//! The networks that Narrows joins do not reach the box, unless its operator gave it an address
//! there.

use crate::policing::XDP;
use crate::setup::{NARROWS, ip, show, turn_to_count, wait_for};
use narrows_testbed::Testbed;
use narrows_testbed::bed::{CLIENT, PORT_A, PORT_B, SERVER, written};
use narrows_testbed::narrows::Instance;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// An address of the box on none of its ports.
const ELSEWHERE: &str = "203.0.113.1";
/// An address that the operator gives a port, or the bridge, in a network of the client's.
const GIVEN: &str = "192.0.2.9";

/// A box that listens on all its addresses, and whose ports have link-local addresses.
struct Host {
    bed: Testbed,
    listener: Child,
    heard: Receiver<String>,
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.listener.kill();
        let _ = self.listener.wait();
    }
}

impl Host {
    fn new() -> Self {
        let bed = Testbed::up(1).unwrap();
        for namespace in [bed.client(), bed.shaper()] {
            for name in ["all.disable_ipv6", "default.disable_ipv6", "all.accept_dad"] {
                namespace.run("sysctl", &["-qw", &format!("net.ipv6.conf.{name}=0")]).unwrap();
            }
        }
        for name in ["all", "default", PORT_A, PORT_B] {
            let loose = format!("net.ipv4.conf.{name}.rp_filter=0");
            bed.shaper().run("sysctl", &["-qw", &loose]).unwrap();
        }
        for (namespace, device) in
            [(bed.client(), CLIENT), (bed.shaper(), PORT_A), (bed.shaper(), PORT_B)]
        {
            for line in ["accept_dad=0", "disable_ipv6=1", "disable_ipv6=0"] {
                let line = format!("net.ipv6.conf.{device}.{line}");
                namespace.run("sysctl", &["-qw", &line]).unwrap();
            }
        }
        ip(bed.shaper(), "link set dev lo up");
        ip(bed.shaper(), &format!("addr add {ELSEWHERE}/32 dev lo"));
        ip(bed.client(), &format!("addr add 192.0.2.1/24 dev {CLIENT}"));
        ip(bed.client(), &format!("route add {ELSEWHERE}/32 dev {CLIENT}"));
        let listen = "import socket\n\
                      s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\n\
                      s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)\n\
                      s.bind(('::', 5555))\n\
                      print('ready', flush=True)\n\
                      while True: print(s.recv(100).decode(), flush=True)\n";
        let mut listener = bed.shaper().command("python3");
        let mut listener = listener.args(["-c", listen]).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(listener.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        let (say, heard) = channel();
        std::thread::spawn(move || {
            lines.map_while(Result::ok).try_for_each(|line| say.send(line)).ok()
        });
        Self { bed, listener, heard }
    }

    fn start(&self, words: &[&str]) -> Instance {
        Instance::start(&self.bed, Path::new(NARROWS), words).unwrap()
    }

    /// The link-local addresses of both ports, and how the kernel makes them.
    fn automatic(&self) -> [(Vec<String>, String); 2] {
        [PORT_A, PORT_B].map(|port| {
            let shown = ip(self.bed.shaper(), &format!("-6 addr show dev {port} scope link"));
            let words: Vec<&str> = shown.split_whitespace().collect();
            let after = words.windows(2).filter(|pair| pair[0] == "inet6");
            let addresses = after.map(|pair| pair[1].to_owned()).collect();
            let shown = ip(self.bed.shaper(), &format!("-d link show dev {port}"));
            let words: Vec<&str> = shown.split_whitespace().collect();
            let mode = words.windows(2).find(|pair| pair[0] == "addrgenmode").unwrap()[1];
            (addresses, mode.to_owned())
        })
    }

    /// Those of `addresses` at which datagrams of the client arrive, sent to the port's MAC
    /// address.
    fn reached<'a>(&self, addresses: &[&'a str]) -> Vec<&'a str> {
        let mac = written(self.bed.shaper().mac_address(PORT_A).unwrap());
        for address in addresses {
            let family = if address.contains(':') { "-6 " } else { "" };
            ip(
                self.bed.client(),
                &format!("{family}neigh replace {address} lladdr {mac} dev {CLIENT} nud permanent"),
            );
        }
        while self.heard.try_recv().is_ok() {}
        let list = addresses.iter().map(|one| format!("'{one}'")).collect::<Vec<_>>().join(", ");
        let send = format!(
            "import socket, time\n\
             for _ in range(5):\n\
             \x20 for to in [{list}]:\n\
             \x20   target = to + '%{CLIENT}' if to.startswith('fe80') else to\n\
             \x20   where = socket.getaddrinfo(target, 5555, type=socket.SOCK_DGRAM)[0]\n\
             \x20   socket.socket(*where[:3]).sendto(to.encode(), where[4])\n\
             \x20 time.sleep(0.05)\n"
        );
        self.bed.client().run("python3", &["-c", &send]).unwrap();
        let (mut arrived, end) = (Vec::new(), Instant::now() + Duration::from_millis(500));
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            arrived.extend(self.heard.recv_timeout(left));
        }
        addresses.iter().copied().filter(|one| arrived.iter().any(|said| said == one)).collect()
    }
}

const PLANES: [&[&str]; 3] = [&[], &["--xdp", "generic"], &XDP];

#[test]
fn the_networks_do_not_reach_the_box_while_narrows_runs_and_it_is_as_before_afterwards() {
    let Some(_turn) = turn_to_count() else { return };
    let host = Host::new();
    let before = host.automatic();
    assert!(before.iter().all(|(addresses, mode)| addresses.len() == 1 && mode == "eui64"));
    let own = before[0].0[0].split('/').next().unwrap().to_owned();
    let both = [ELSEWHERE, own.as_str()];
    assert_eq!(host.reached(&both), both, "the test sees what arrives");
    let off = [(); 2].map(|()| (Vec::new(), "none".to_owned()));
    for plane in PLANES {
        let words = [plane, &["--fail-closed"][..]].concat();
        let instance = host.start(&words);
        assert_eq!(host.automatic(), off, "{plane:?}");
        assert_eq!(host.reached(&both), [""; 0], "{plane:?}");
        let now = show(&host.bed);
        assert_eq!(now["ports"][0]["to_self"], 0, "{plane:?}");
        instance.stop().unwrap();
        assert_eq!(host.automatic(), before, "{plane:?}");
        assert_eq!(host.reached(&both), both, "{plane:?}");
        // The next one restores what a killed one took off.
        host.start(&words).kill().unwrap();
        assert_eq!(host.automatic(), off, "{plane:?}");
        host.start(&words).stop().unwrap();
        assert_eq!(host.automatic(), before, "{plane:?}");
    }
}

#[test]
fn a_router_has_the_addresses_that_a_killed_wire_took_off() {
    let Some(_turn) = turn_to_count() else { return };
    let host = Host::new();
    let before = host.automatic();
    host.start(&["--fail-closed"]).kill().unwrap();
    assert_ne!(host.automatic(), before);
    let ports = format!("{PORT_A},{PORT_B}");
    let router = ["run", "--router", &ports, "--skip-netfilter"];
    let _instance = Instance::start_command(&host.bed, Path::new(NARROWS), &router).unwrap();
    assert_eq!(host.automatic(), before);
}

#[test]
fn a_port_whose_link_comes_up_only_while_narrows_runs_has_its_address_afterwards() {
    let Some(_turn) = turn_to_count() else { return };
    let host = Host::new();
    let before = host.automatic();
    for words in [
        format!("link set dev {PORT_B} down"),
        format!("link set dev {PORT_A} down"),
        format!("link set dev {PORT_A} up"),
    ] {
        ip(host.bed.shaper(), &words);
    }
    // As the cable of a port that has just come.
    host.bed.client().run("ip", &["link", "set", "dev", CLIENT, "down"]).unwrap();
    ip(host.bed.shaper(), &format!("link set dev {PORT_B} up"));
    let without = host.automatic();
    assert_eq!(without[0], (Vec::new(), "eui64".to_owned()));
    let instance = host.start(&["--fail-closed"]);
    host.bed.client().run("ip", &["link", "set", "dev", CLIENT, "up"]).unwrap();
    wait_for(&host.bed, "joined with a carrier", |now| now["ports"][0]["no_carrier"] != true);
    instance.stop().unwrap();
    assert_eq!(host.automatic(), before);
}

#[test]
fn an_address_that_comes_back_while_narrows_runs_is_taken_off_again() {
    let Some(_turn) = turn_to_count() else { return };
    let host = Host::new();
    let before = host.automatic();
    let instance = host.start(&["--fail-closed"]);
    ip(host.bed.shaper(), &format!("link set dev {PORT_B} addrgenmode eui64"));
    ip(host.bed.shaper(), &format!("addr add fe80::7/64 dev {PORT_B}"));
    wait_for(&host.bed, "taken off again", |_| {
        host.automatic()[1] == (Vec::new(), "none".to_owned())
    });
    instance.stop().unwrap();
    let after = host.automatic();
    assert_eq!((&after[0], &after[1].1), (&before[0], &before[1].1));
    assert!(after[1].0.contains(&before[1].0[0]) && after[1].0.contains(&"fe80::7/64".to_owned()));
}

#[test]
fn a_start_that_is_refused_leaves_the_addresses() {
    let Some(_turn) = turn_to_count() else { return };
    let host = Host::new();
    let before = host.automatic();
    ip(host.bed.shaper(), &format!("link set dev {PORT_B} down"));
    ip(host.bed.shaper(), &format!("link set dev {PORT_B} up"));
    assert_eq!(host.automatic(), before);
    host.bed.client().run("ethtool", &["-K", CLIENT, "tx", "on", "txvlan", "on"]).unwrap();
    let words = ["run", "--ports", "port-a,port-b", "--plane", "xdp", "--xdp", "native"];
    let refused = crate::setup::narrows(&host.bed, &words);
    // Nothing else than the reason, although offloads and addresses were off for a moment.
    crate::setup::assert_refused(&refused, 1, &["port-b", "leave out --xdp native"]);
    assert_eq!(crate::setup::complaint(&refused).lines().count(), 1);
    assert_eq!(host.automatic(), before);
}

#[test]
fn an_address_that_the_operator_gives_is_reached_until_it_goes() {
    let Some(_turn) = turn_to_count() else { return };
    let host = Host::new();
    for plane in PLANES {
        let _instance = host.start(&[plane, &["--fail-closed"][..]].concat());
        let given = |does: &str| {
            ip(host.bed.shaper(), &format!("addr {does} {GIVEN}/24 dev {PORT_A}"));
        };
        given("add");
        // While the ports are joined anew, frames reach the box that no program counts.
        wait_for(&host.bed, "reached and counted", |now| {
            host.reached(&[GIVEN]) == [GIVEN] && now["ports"][0]["to_self"].as_u64() > Some(0)
        });
        given("del");
        wait_for(&host.bed, "no longer reached", |_| host.reached(&[ELSEWHERE]).is_empty());
    }
}

#[test]
fn the_standby_bridge_does_not_lead_to_the_box_but_to_an_address_of_its_own() {
    let Some(_turn) = turn_to_count() else { return };
    let host = Host::new();
    let before = host.automatic();
    let own = before[0].0[0].split('/').next().unwrap().to_owned();
    let all = [ELSEWHERE, GIVEN, own.as_str()];
    for plane in PLANES {
        let instance = host.start(plane);
        assert_eq!(host.reached(&all), [""; 0], "{plane:?}");
        instance.kill().unwrap();
        assert_eq!(host.reached(&all), [""; 0], "{plane:?}: the bridge forwards");
    }
    let instance = host.start(&[]);
    let fail = show(&host.bed)["fail"].as_str().unwrap().to_owned();
    let bridge = fail.strip_prefix("open (bridge ").unwrap().trim_end_matches(')').to_owned();
    ip(host.bed.shaper(), &format!("addr add {GIVEN}/24 dev {bridge}"));
    wait_for(&host.bed, "reached", |_| host.reached(&[GIVEN]) == [GIVEN]);
    instance.stop().unwrap();
    assert_eq!(host.reached(&[GIVEN]), [GIVEN], "the bridge's own address");
    assert_eq!(host.automatic(), before);
}

/// The box has an address on the bridge, which stays there: hosts on both sides find it by
/// themselves and keep it, before, while and after Narrows runs.
#[test]
fn a_box_with_two_ports_is_managed_through_them_by_an_address_on_their_bridge() {
    let Some(_turn) = turn_to_count() else { return };
    let host = Host::new();
    let (bed, v6) = (&host.bed, "2001:db8::9");
    for (namespace, device, last) in [(bed.client(), CLIENT, 1), (bed.server(), SERVER, 2)] {
        for line in ["accept_dad=0", "disable_ipv6=0"] {
            namespace.run("sysctl", &["-qw", &format!("net.ipv6.conf.{device}.{line}")]).unwrap();
        }
        ip(namespace, &format!("addr replace 192.0.2.{last}/24 dev {device}"));
        ip(namespace, &format!("addr replace 2001:db8::{last}/64 dev {device} nodad"));
    }
    let shaper = bed.shaper();
    // The operator's own, which Narrows takes as its standby.
    ip(shaper, "link add br0 type bridge forward_delay 0");
    for port in [PORT_A, PORT_B] {
        ip(shaper, &format!("link set dev {port} master br0"));
    }
    ip(shaper, "link set dev br0 up");
    ip(shaper, &format!("addr add {GIVEN}/24 dev br0"));
    ip(shaper, &format!("addr add {v6}/64 dev br0 nodad"));
    let answered = || {
        for (namespace, device) in [(bed.client(), CLIENT), (bed.server(), SERVER)] {
            ip(namespace, &format!("neigh flush dev {device}"));
            for address in [GIVEN, v6] {
                if namespace.run("ping", &["-c", "1", "-W", "1", address]).is_err() {
                    return false;
                }
            }
        }
        true
    };
    for plane in PLANES {
        // A ping that is not answered takes a second.
        assert!((0..20).any(|_| answered()), "{plane:?}: the bridge answers");
        let instance = host.start(plane);
        wait_for(bed, "the box answers", |_| answered());
        ip(shaper, "neigh flush dev br0");
        shaper.run("ping", &["-c", "1", "-W", "1", "192.0.2.2"]).unwrap();
        assert!(show(bed)["ports"][0]["to_self"].as_u64() > Some(0), "{plane:?}");
        instance.stop().unwrap();
    }
}
