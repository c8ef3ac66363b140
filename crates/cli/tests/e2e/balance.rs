//! The balancer: a host's port with services, and servers beside it that answer clients themselves.

use crate::setup::{
    NARROWS, Scratch, assert_refused, complaint, ip, narrows, own_path, show, turn_to_count,
    wait_for, wait_until,
};
use narrows_testbed::bed::{CLIENT, CLIENT_IP, CLIENT_MAC, PORT_A, SERVER, written};
use narrows_testbed::capture::Capture;
use narrows_testbed::narrows::Instance;
use narrows_testbed::{Testbed, serve};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

pub const VIP: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 100);
pub const VIP6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x100);
/// The first server's, after [`Farm::add_ipv6`].
pub const SERVER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x11);
pub const PORT: u16 = 80;
pub const SERVERS: u8 = 4;
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The client's box is also a switch, to which the balancer and all servers are connected. Each
/// server is a device with an address of its own, and all of them have the service's.
pub struct Farm {
    /// What a program sends back, a veth gets only if it has a program, too.
    _receiver: Instance,
    pub bed: Testbed,
}

pub fn server_ip(number: u8) -> String {
    format!("198.18.0.{}", 10 + number)
}

impl Farm {
    pub fn up() -> Self {
        let bed = Testbed::up(1).unwrap();
        bed.serve_at_the_port().unwrap();
        let (client, servers) = (bed.client(), bed.server());
        ip(client, &format!("link add br0 address {} type bridge", written(CLIENT_MAC)));
        ip(client, &format!("addr flush dev {CLIENT}"));
        ip(client, &format!("link set {CLIENT} master br0"));
        ip(client, "link set br0 up");
        ip(client, &format!("addr add {CLIENT_IP}/24 dev br0"));
        ip(bed.shaper(), &format!("addr add {VIP}/32 dev {PORT_A}"));
        // The balancer has this address here.
        ip(servers, &format!("addr flush dev {SERVER}"));
        for (setting, value) in [("arp_ignore", "1"), ("arp_announce", "2"), ("rp_filter", "0")] {
            servers.set(&format!("ipv4/conf/all/{setting}"), value).unwrap();
        }
        ip(servers, &format!("addr add {VIP}/32 dev lo"));
        for number in 1..=SERVERS {
            let name = servers.name();
            ip(client, &format!("link add s{number} type veth peer name s{number} netns {name}"));
            for end in [client, servers] {
                let off = ["-K", &format!("s{number}"), "tx", "off", "tso", "off", "gso", "off"];
                end.run("ethtool", &off).unwrap();
                ip(end, &format!("link set s{number} up"));
            }
            ip(client, &format!("link set s{number} master br0"));
            ip(servers, &format!("addr add {}/24 dev s{number}", server_ip(number)));
            servers.set(&format!("ipv4/conf/s{number}/rp_filter"), "0").unwrap();
        }
        let words = ["run", "--port", CLIENT, "--xdp", "native"];
        let receiver = Instance::start_in(client, Path::new(NARROWS), &words).unwrap();
        let farm = Self { _receiver: receiver, bed };
        (1..=SERVERS).for_each(|number| farm.serve(&format!("s{number}"), number));
        farm
    }

    /// Has IPv6, too, with a service's address at the first server.
    pub fn add_ipv6(&self) {
        let (client, servers) = (self.bed.client(), self.bed.server());
        for (namespace, device, address) in [
            (client, "br0", "fd00::1/64".to_owned()),
            (self.bed.shaper(), PORT_A, "fd00::9/64".to_owned()),
            (servers, "s1", format!("{SERVER6}/64")),
            (servers, "lo", format!("{VIP6}/128")),
        ] {
            namespace.set(&format!("ipv6/conf/{device}/disable_ipv6"), "0").unwrap();
            ip(namespace, &format!("addr add {address} dev {device} nodad"));
        }
        ip(self.bed.shaper(), &format!("addr add {VIP6}/128 dev {PORT_A} nodad"));
        servers.set("ipv6/conf/default/disable_ipv6", "0").unwrap();
    }

    /// The server `number` at `device` answers each byte with its number.
    pub fn serve(&self, device: &str, number: u8) {
        let address = SocketAddrV4::new(VIP, PORT);
        answer(serve::at_device(self.bed.server(), device, address).unwrap(), number);
    }

    pub fn start(&self, arguments: &[&str]) -> Instance {
        let words = [&["run", "--port", PORT_A, "--xdp", "native"], arguments].concat();
        Instance::start_command(&self.bed, Path::new(NARROWS), &words).unwrap()
    }

    /// Runs `narrows balance`, which must succeed.
    #[track_caller]
    pub fn balance(&self, words: &str) -> String {
        let words: Vec<&str> = ["balance"].into_iter().chain(words.split_whitespace()).collect();
        let output = narrows(&self.bed, &words);
        assert!(output.status.success(), "{words:?}: {}", complaint(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// A service with all servers.
    pub fn serve_all(&self, options: &str) {
        self.balance(&format!("add -t {VIP}:{PORT} {options}"));
        for number in 1..=SERVERS {
            self.balance(&format!("add -t {VIP}:{PORT} -r {}", server_ip(number)));
        }
        self.wait_for_ways();
    }

    /// Waits until the balancer knows the way to each server.
    pub fn wait_for_ways(&self) {
        wait_until("known: the ways to all servers", PATIENCE, || {
            let said = show(&self.bed);
            let warnings = said["events"].to_string();
            match (warnings.rfind("servers without a way"), warnings.rfind("can be reached")) {
                (Some(lost), Some(found)) => found > lost,
                (Some(_), None) => false,
                (None, _) => true,
            }
        });
    }

    pub fn connect(&self) -> Connection {
        let address = SocketAddr::from((VIP, PORT));
        let stream =
            self.bed.client().enter(|| Ok(TcpStream::connect_timeout(&address, PATIENCE)?));
        let stream = stream.unwrap_or_else(|error| {
            let shown = narrows(&self.bed, &["show"]).stdout;
            panic!("{error}\n{}{}", String::from_utf8_lossy(&shown), self.balance("list --stats"))
        });
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut connection = Connection { stream, server: 0 };
        connection.server = connection.ask();
        connection
    }

    pub fn connect_many(&self, count: usize) -> Vec<Connection> {
        (0..count).map(|_| self.connect()).collect()
    }
}

/// Answers each byte with `number`.
pub fn answer(listener: TcpListener, number: u8) {
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut byte = [0];
                while stream.read_exact(&mut byte).is_ok() {
                    if stream.write_all(&[number]).is_err() {
                        return;
                    }
                }
            });
        }
    });
}

pub struct Connection {
    stream: TcpStream,
    pub server: u8,
}

impl Connection {
    /// Which server answers now.
    pub fn ask(&mut self) -> u8 {
        self.try_ask().unwrap()
    }

    /// Which server answers now, or how the connection has ended.
    pub fn try_ask(&mut self) -> io::Result<u8> {
        self.say()?;
        self.hear()
    }

    /// Asks, and does not wait for the answer.
    pub fn say(&mut self) -> io::Result<()> {
        self.stream.write_all(&[0])
    }

    /// Which server answers what was asked.
    pub fn hear(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        self.stream.read_exact(&mut byte)?;
        Ok(byte[0])
    }
}

pub fn servers_of(connections: &[Connection]) -> BTreeSet<u8> {
    connections.iter().map(|connection| connection.server).collect()
}

#[track_caller]
pub fn assert_stay(connections: &mut [Connection]) {
    for connection in connections {
        assert_eq!(connection.ask(), connection.server);
    }
}

#[track_caller]
pub fn assert_balanced(show: &Value) {
    let sum = &show["conservation"];
    assert_eq!(sum["unaccounted"], 0, "{sum:#}");
    assert!(sum["sent"].as_u64().unwrap() > 0, "{sum:#}");
}

#[test]
fn connections_stay_while_servers_drain_go_and_come_back_and_the_process_is_replaced() {
    let Some(_turn) = turn_to_count() else { return };
    let farm = Farm::up();
    let mut instance = farm.start(&[]);
    farm.serve_all("-s mh -b mh-port");
    let mut all = farm.connect_many(60);
    assert_eq!(servers_of(&all), [1, 2, 3, 4].into(), "all servers get some");
    assert_stay(&mut all);
    let drain = server_ip(2);
    farm.balance(&format!("edit -t {VIP}:{PORT} -r {drain} -w 0"));
    let new = farm.connect_many(40);
    assert!(!servers_of(&new).contains(&2), "it gets no new ones");
    all.extend(new);
    assert_stay(&mut all);
    instance.upgrade().unwrap();
    assert_stay(&mut all);
    all.extend(farm.connect_many(20));
    // Its connections end, those of others do not.
    farm.balance(&format!("del -t {VIP}:{PORT} -r {}", server_ip(3)));
    all.retain(|connection| connection.server != 3);
    assert_stay(&mut all);
    farm.balance(&format!("add -t {VIP}:{PORT} -r {}", server_ip(3)));
    farm.balance(&format!("edit -t {VIP}:{PORT} -r {drain} -w 1"));
    farm.wait_for_ways();
    let new = farm.connect_many(60);
    assert_eq!(servers_of(&new), [1, 2, 3, 4].into());
    all.extend(new);
    assert_stay(&mut all);
    assert_balanced(&show(&farm.bed));
    let stats: Value = serde_json::from_str(&farm.balance("list -j")).unwrap();
    let connections = stats[0]["stats"]["connections"].as_u64().unwrap();
    assert_eq!(connections, 180, "each connection is counted once\n{stats:#}");
}

#[test]
fn a_port_whose_program_is_at_tcx_says_what_to_start_it_with() {
    let Some(_turn) = turn_to_count() else { return };
    let farm = Farm::up();
    let words = ["run", "--port", PORT_A, "--xdp", "tcx"];
    let _instance = Instance::start_command(&farm.bed, Path::new(NARROWS), &words).unwrap();
    let add = format!("balance add -t {VIP}:{PORT}");
    let output = narrows(&farm.bed, &add.split(' ').collect::<Vec<_>>());
    assert_refused(&output, 1, &["--xdp native"]);
}

#[test]
fn a_killed_balancer_leaves_its_port_to_the_kernel() {
    let Some(_turn) = turn_to_count() else { return };
    let farm = Farm::up();
    let instance = farm.start(&[]);
    farm.serve_all("-s mh -b mh-port");
    instance.kill().unwrap();
    // The service's address is this box's own, and nobody listens here.
    let address = SocketAddr::from((VIP, PORT));
    let refused = farm.bed.client().enter(|| Ok(TcpStream::connect(address).unwrap_err().kind()));
    assert_eq!(refused.unwrap(), ErrorKind::ConnectionRefused);
    let _instance = farm.start(&[]);
    farm.serve_all("-s mh -b mh-port");
    farm.connect();
}

#[test]
fn servers_that_take_turns_get_as_many_connections_as_they_weigh() {
    let Some(_turn) = turn_to_count() else { return };
    let farm = Farm::up();
    let _instance = farm.start(&[]);
    farm.serve_all("-s wrr");
    farm.balance(&format!("edit -t {VIP}:{PORT} -r {} -w 3", server_ip(1)));
    let mut all = farm.connect_many(60);
    let of_first = all.iter().filter(|connection| connection.server == 1).count();
    // Turns are of each CPU.
    assert!((26..=34).contains(&of_first), "{of_first} of 60");
    assert_stay(&mut all);
}

#[test]
fn a_packet_to_a_distant_server_goes_in_an_ip_packet() {
    let Some(_turn) = turn_to_count() else { return };
    let farm = Farm::up();
    let _instance = farm.start(&[]);
    farm.balance(&format!("add -t {VIP}:{PORT} -s mh"));
    farm.balance(&format!("add -t {VIP}:{PORT} -r {} -i", server_ip(1)));
    farm.wait_for_ways();
    let capture = Capture::start(farm.bed.server(), "s1", "ip proto 4").unwrap();
    let address = SocketAddr::from((VIP, PORT));
    // Nobody unpacks it here.
    let connect = || Ok(TcpStream::connect_timeout(&address, Duration::from_millis(300)).is_err());
    assert!(farm.bed.client().enter(connect).unwrap());
    let frames = capture.stop().unwrap();
    let frame = frames.first().expect("the packet arrives");
    assert_eq!(frame[26..34], [198, 18, 0, 2, 198, 18, 0, 11], "the tunnel's ends");
    let inner = &frame[34..];
    assert_eq!(inner[12..20], [CLIENT_IP.octets(), VIP.octets()].concat());
}

#[test]
fn services_are_kept_in_a_file_and_restored_whole_or_not_at_all() {
    let Some(_turn) = turn_to_count() else { return };
    let farm = Farm::up();
    let state = own_path("state");
    let services = state.with_extension("services");
    let arguments = ["--state", state.to_str().unwrap()];
    let instance = farm.start(&arguments);
    farm.serve_all("-s mh -b mh-port");
    let saved = farm.balance("save");
    let wrong =
        Scratch::new("wrong", "-A -t 192.0.2.1:80 -s mh\n-a -t 192.0.2.1:80 -r 1.2.3.4 -m\n");
    let output = narrows(&farm.bed, &["balance", "restore", wrong.path()]);
    assert_refused(&output, 1, &["line 2", "masquerading"]);
    assert_eq!(farm.balance("save"), saved);
    instance.stop().unwrap();
    let _instance = farm.start(&arguments);
    assert_eq!(farm.balance("save"), saved);
    farm.wait_for_ways();
    assert_eq!(servers_of(&farm.connect_many(60)), [1, 2, 3, 4].into());
    let other = Scratch::new("other", &format!("-A -t {VIP}:{PORT} -s rr\n"));
    farm.balance(&format!("restore {}", other.path()));
    assert_eq!(farm.balance("save"), format!("-A -t {VIP}:{PORT} -s rr\n"));
    let listed = farm.balance(&format!("list -t {VIP}:{PORT}"));
    assert!(listed.contains(&format!("TCP  {VIP}:{PORT} rr\n")), "{listed}");
    for file in [&state, &services] {
        let _ = std::fs::remove_file(file);
    }
}

#[test]
fn services_that_were_added_while_the_port_was_away_survive_an_upgrade() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(1).unwrap();
    bed.serve_at_the_port().unwrap();
    let words = ["run", "--port", PORT_A, "--xdp", "native"];
    let mut instance = Instance::start_command(&bed, Path::new(NARROWS), &words).unwrap();
    ip(bed.shaper(), &format!("link del {PORT_A}"));
    wait_for(&bed, "waiting", |show| show["state"] == "waiting");
    let added = format!("balance add -t {VIP}:{PORT} -s rr");
    let output = narrows(&bed, &added.split(' ').collect::<Vec<_>>());
    assert!(output.status.success(), "{}", complaint(&output));
    instance.upgrade().unwrap();
    let saved = narrows(&bed, &["balance", "save"]).stdout;
    assert_eq!(String::from_utf8_lossy(&saved), format!("-A -t {VIP}:{PORT} -s rr\n"));
}

#[test]
fn wrong_services_are_refused_with_what_to_do() {
    let Some(_turn) = turn_to_count() else { return };
    let farm = Farm::up();
    let _instance = farm.start(&[]);
    let run = |words: &str| {
        let words: Vec<&str> = ["balance"].into_iter().chain(words.split_whitespace()).collect();
        narrows(&farm.bed, &words)
    };
    let vip = format!("-t {VIP}:{PORT}");
    assert_refused(&run(&format!("add {vip} -s wlc")), 2, &["does not see replies"]);
    assert_refused(&run(&format!("add {vip} -r 198.18.0.11")), 1, &["narrows balance add -t"]);
    farm.balance(&format!("add {vip} -s mh"));
    // A server that no route leads to is there, and said.
    let output = run(&format!("add {vip} -r 203.0.113.1 -i"));
    assert!(complaint(&output).contains("ip route add"), "{}", complaint(&output));
    assert_eq!(output.status.code(), Some(0));
    assert_refused(&run("restore /nowhere"), 1, &["/nowhere"]);
    // Nobody answers: the packet is counted.
    let address = SocketAddr::from((VIP, PORT));
    let connect = || Ok(TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_err());
    assert!(farm.bed.client().enter(connect).unwrap());
    let shown = show(&farm.bed);
    assert!(shown["conservation"]["dropped"]["no_server"].as_u64().unwrap() > 0, "{shown:#}");
}
