//! A router between two hosts that know nothing of it, at each hook, with real traffic.

use super::*;
use crate::attach::{Hook, XdpMode};
use crate::tree::{Port, Tree};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// What a host has to do.
type Work = Box<dyn FnOnce() + Send>;

/// A namespace with one device, `eth0`, that leads to a router. It goes with its thread, which ends
/// when this is dropped.
pub(super) struct Host {
    work: Sender<Work>,
}

impl Host {
    /// One behind `device` of this namespace.
    pub(super) fn behind(
        device: &str,
        [address, address6]: [&str; 2],
        [gateway, gateway6]: [&str; 2],
        hook: Hook,
    ) -> Self {
        let (work, to_do): (Sender<Work>, Receiver<Work>) = channel();
        let (tell, told) = channel();
        thread::spawn(move || {
            // SAFETY: no memory or descriptor is unshared.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
            tell.send(rustix::thread::gettid()).unwrap();
            to_do.into_iter().for_each(|work| work());
        });
        let thread = told.recv().unwrap().as_raw_nonzero();
        ip(&format!("link set {device}-far netns {thread} name eth0"));
        let host = Self { work };
        let set_up = format!(
            "link set lo up
             link set eth0 up
             addr add {address}/24 dev eth0
             addr add {address6}/64 dev eth0 nodad
             route add default via {gateway}
             route add default via {gateway6}"
        );
        host.run(move || {
            ip(&set_up);
            // XDP has no place for what a checksum or a segment still needs. And it sends only to
            // devices that take several packets at once.
            if hook != Hook::Tcx {
                run("ethtool", "-K eth0 tx off tso off gso off");
                run("ethtool", "-K eth0 gro on");
            }
        });
        host
    }

    /// Runs `work` there.
    pub(super) fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = channel();
        let work = move || done.send(work()).unwrap();
        self.work.send(Box::new(work)).unwrap();
        result.recv().expect("the host panicked")
    }
}

/// What a program that must run writes.
fn run(program: &str, words: &str) -> String {
    let output = Command::new(program).args(words.split_whitespace()).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// The router of two devices, which is attached.
pub(super) struct Attached {
    programs: Vec<Chooser>,
    trees: Vec<Tree>,
}

impl Attached {
    /// None if the kernel has no tcx (before Linux 6.6).
    fn at(hook: Hook) -> Option<Self> {
        let source_check = SourceCheck::Strict;
        let check = Ingress { source_check, direct: true, ..Ingress::default() };
        Self::routing(hook, RoutedBy::Routes, check)
    }

    /// The same for a router that routes so.
    pub(super) fn routing(hook: Hook, by: RoutedBy, ingress: Ingress) -> Option<Self> {
        let entry = if hook == Hook::Tcx { Entry::Tcx } else { Entry::Own };
        let ports = [("lan", LAN, LAN_MAC), ("wan", WAN, WAN_MAC)];
        let tables = RouteTables::new().unwrap();
        let router = Router::new(&tables).unwrap().routed_by(by);
        let interfaces = ports.map(|(device, port, mac)| Interface {
            port,
            tag: None,
            ifindex: index(device),
            mac,
            ingress,
        });
        router.set_interfaces(&interfaces).unwrap();
        let tree = |(device, number, mac): (&str, PortId, [u8; 6])| {
            let port = Port::new(mac, false, entry);
            let mut tree = Tree::behind(router.takers(), port, hook, &[]).unwrap();
            tree.connect(index(device)).unwrap();
            tree.take(router.takers(), number).unwrap();
            tree
        };
        let trees = ports.map(tree).into();
        let mut programs = Vec::new();
        for (device, port, _) in ports {
            let mut program = router.program(port, false, entry, None).unwrap();
            match program.attach(index(device), hook) {
                Err(error) if hook == Hook::Tcx => {
                    println!("no tcx here: {error}");
                    return None;
                }
                result => result.unwrap(),
            }
            programs.push(program);
        }
        Some(Self { programs, trees })
    }

    pub(super) fn routed(&self, outcome: Outcome) -> u64 {
        self.programs.iter().map(|program| program.outcomes().unwrap()[outcome]).sum()
    }

    pub(super) fn sent(&self) -> u64 {
        self.trees.iter().map(|tree| tree.totals().unwrap().sent_packets).sum()
    }
}

/// Sends `bytes` from `client` to `server`, which is `address`, and back.
pub(super) fn echo(client: &Host, server: &Host, address: &'static str, bytes: usize) {
    let listener = server.run(move || TcpListener::bind((address, 7)).unwrap());
    let answer = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        stream.write_all(&all).unwrap();
    });
    let sent: Vec<u8> = (0..bytes).map(|at| (at * 7 / 3) as u8).collect();
    let expected = sent.clone();
    let received = client.run(move || {
        let mut stream = TcpStream::connect((address, 7)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(&sent).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        all
    });
    answer.join().unwrap();
    assert!(received == expected, "{} of {bytes} bytes came back, or other ones", received.len());
}

#[test]
fn hosts_on_both_sides_reach_each_other_and_the_kernel_answers_for_what_it_gets() {
    if ["ping", "ethtool"].iter().any(|tool| Command::new(tool).arg("-V").output().is_err()) {
        return eprintln!("SKIPPED: this needs ping and ethtool");
    }
    let hooks = [Hook::Xdp(XdpMode::Native), Hook::Xdp(XdpMode::Generic), Hook::Tcx];
    for hook in hooks {
        in_a_bed(|_| {
            ip("neigh flush all nud permanent");
            let client = Host::behind("lan", [NEAR, NEAR6], ["10.0.0.1", "2001:db8:a::1"], hook);
            let far = ["10.0.1.7", "2001:db8:b::7"];
            let server = Host::behind("wan", far, ["10.0.1.1", "2001:db8:b::1"], hook);
            // The kernel alone.
            let ping = |words: &'static str| client.run(move || run("ping", words));
            let reply = "-c 1 -W 5 10.0.1.7";
            assert!(ping(reply).contains("ttl=63"), "{}", ping(reply));

            let Some(attached) = Attached::at(hook) else { return };
            for reply in [
                "-c 3 -i 0.05 -W 5 10.0.1.7",
                "-c 3 -i 0.05 -W 5 2001:db8:b::7",
                "-c 3 -i 0.05 -W 5 -s 1472 -M do 10.0.1.7",
            ] {
                let said = ping(reply);
                assert!(said.contains("3 received") && said.contains("ttl=63"), "{hook}: {said}");
            }
            let routed = attached.routed(Outcome::Routed);
            // The first ones only make neighbours known.
            assert!(routed >= 12, "{hook}: {routed}");
            assert_eq!(attached.sent(), routed);

            let said = ping("-c 1 -W 5 -t 1 10.0.1.7");
            assert!(said.contains("Time to live exceeded"), "{hook}: {said}");
            assert_eq!(attached.routed(Outcome::Ttl), 1);
            ip("link set wan mtu 1400");
            let said = ping("-c 1 -W 5 -s 1472 -M do 10.0.1.7");
            assert!(said.contains("mtu = 1400") || said.contains("mtu=1400"), "{hook}: {said}");
            assert_eq!(attached.routed(Outcome::TooLong), 1);
            ip("link set wan mtu 1500");
            assert!(ping("-c 1 -W 5 10.0.0.1").contains("ttl=64"));

            for address in far {
                echo(&client, &server, address, 2_000_000);
            }
            let routed = attached.routed(Outcome::Routed);
            assert_eq!(attached.sent(), routed, "{hook}");
            assert!(routed > 2000, "{hook}: {routed}");
            drop(attached);
            assert!(ping(reply).contains("ttl=63"));
        });
    }
}
