//! Servers behind tunnels: what a balancer at the first port sends connections to.
//!
//! ```text
//!                      ┌ nrw-farm-1: tunl0, with the service's address
//!   port-a ══ client ──┤
//!                      └ nrw-farm-2: the same, behind GUE
//! ```
//!
//! The client's box routes to the servers, and they answer the client by the same way.

use super::bed::{Bed, End, PORTS, ip};
use super::trunk::master;
use anyhow::{Context, Result};
use narrows_testbed::{Namespace, process};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// The port of the balancer.
pub const PORT: &str = PORTS[0];
/// What clients connect to.
pub const SERVICE: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(198, 18, 0, 100)), 80);
/// Where GUE is unpacked.
pub const GUE_PORT: u16 = 6080;
/// The balancer's own address.
const OWN: &str = "198.18.0.9";
/// How long an end waits for the other.
const PATIENCE: Duration = Duration::from_secs(10);

/// The address of the server `number`.
pub fn server_ip(number: usize) -> String {
    format!("10.8.{number}.2")
}

/// Two servers.
#[derive(Debug)]
pub struct Farm {
    /// The client.
    pub client: End,
    servers: Vec<Namespace>,
}

impl Farm {
    /// Sets the servers up, and gives the port its addresses. A bridge that joins the ports is
    /// removed.
    pub fn up(bed: &Bed) -> Result<Self> {
        for port in PORTS {
            if let Some(bridge) = master(port) {
                ip(&["link", "del", &bridge])?;
            }
        }
        for module in ["ipip", "fou"] {
            process::run(Command::new("modprobe").arg(module))?;
        }
        let client = bed.ends[0].clone();
        let mut farm = Self { client, servers: Vec::new() };
        let words = |words: &str| words.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let at = |namespace: &Namespace, line: String| {
            let words = words(&line);
            namespace.run("ip", &words.iter().map(String::as_str).collect::<Vec<_>>()).map(drop)
        };
        for setting in ["ipv4/ip_forward=1", "ipv4/conf/all/rp_filter=0"] {
            set(&farm.client.namespace, setting)?;
        }
        let device = format!("ipv4/conf/{}/rp_filter=0", farm.client.device);
        set(&farm.client.namespace, &device)?;
        for number in [1, 2] {
            let server = Namespace::create(&format!("nrw-farm-{number}"))?;
            let near = format!("to-farm-{number}");
            let name = server.name().to_owned();
            let client = &farm.client.namespace;
            at(client, format!("link add {near} type veth peer name farm netns {name}"))?;
            at(client, format!("link set {near} up"))?;
            at(client, format!("addr add 10.8.{number}.1/24 dev {near}"))?;
            set(client, &format!("ipv4/conf/{near}/rp_filter=0"))?;
            for line in [
                "link set lo up".to_owned(),
                "link set farm up".to_owned(),
                format!("addr add {}/24 dev farm", server_ip(number)),
                format!("route add default via 10.8.{number}.1"),
                "link set tunl0 up".to_owned(),
                format!("addr add {}/32 dev tunl0", SERVICE.ip()),
            ] {
                at(&server, line)?;
            }
            for device in ["all", "tunl0", "farm"] {
                set(&server, &format!("ipv4/conf/{device}/rp_filter=0"))?;
            }
            for end in [(client, near.as_str()), (&server, "farm")] {
                end.0.run("ethtool", &["-K", end.1, "tx", "off", "tso", "off", "gso", "off"])?;
            }
            farm.servers.push(server);
        }
        at(&farm.servers[1], format!("fou add port {GUE_PORT} gue"))?;
        ip(&["addr", "add", &format!("{OWN}/24"), "dev", PORT])?;
        ip(&["addr", "add", &format!("{}/32", SERVICE.ip()), "dev", PORT])?;
        let via = farm.client.ip.to_string();
        ip(&["route", "add", "10.8.0.0/16", "via", &via, "dev", PORT])?;
        for (number, server) in (1..).zip(&farm.servers) {
            serve(server, number)?;
        }
        Ok(farm)
    }

    /// Whether the server `number` unpacks packets from now on.
    pub fn unpack(&self, number: usize, does: bool) -> Result<()> {
        let server = &self.servers[number - 1];
        server.run("ip", &["link", "set", "tunl0", if does { "up" } else { "down" }]).map(drop)
    }

    /// A connection to the service, and which server answers it.
    pub fn connect(&self) -> Result<(TcpStream, u8)> {
        let connect = || Ok(TcpStream::connect_timeout(&SERVICE, PATIENCE)?);
        let mut stream = self.client.namespace.enter(connect).context("the service")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let server = ask(&mut stream, 1)?;
        Ok((stream, server))
    }

    /// How long the client's packets to the service may be, as far as it knows.
    pub fn client_mtu(&self) -> Result<u32> {
        let to = SERVICE.ip().to_string();
        let route = self.client.namespace.run("ip", &["route", "get", &to])?;
        let mtu = route.split(" mtu ").nth(1).and_then(|rest| rest.split_whitespace().next());
        mtu.context("the client knows no MTU")?.parse().context("an MTU")
    }

    /// Makes ports and ends as they were.
    pub fn down(self) -> Result<()> {
        ip(&["addr", "flush", "dev", PORT, "scope", "global"])?;
        for server in &self.servers {
            process::run(Command::new("ip").args(["netns", "del", server.name()]))?;
        }
        set(&self.client.namespace, "ipv4/ip_forward=0")
    }
}

/// Sends so many bytes, and returns which server says that it has read them.
pub fn ask(stream: &mut TcpStream, bytes: u32) -> Result<u8> {
    stream.write_all(&bytes.to_be_bytes())?;
    stream.write_all(&vec![0; bytes as usize])?;
    let mut answer = [0];
    stream.read_exact(&mut answer).context("the server does not answer")?;
    Ok(answer[0])
}

/// The server `number` reads as many bytes as it is told, and answers with its number.
fn serve(namespace: &Namespace, number: u8) -> Result<()> {
    // At its own address, too.
    let at = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), SERVICE.port());
    let listener = namespace.enter(|| Ok(TcpListener::bind(at)?))?;
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || -> std::io::Result<()> {
                loop {
                    let mut bytes = [0; 4];
                    stream.read_exact(&mut bytes)?;
                    let mut rest = vec![0; u32::from_be_bytes(bytes) as usize];
                    stream.read_exact(&mut rest)?;
                    stream.write_all(&[number])?;
                }
            });
        }
    });
    Ok(())
}

fn set(namespace: &Namespace, setting: &str) -> Result<()> {
    let (name, value) = setting.split_once('=').context("NAME=VALUE")?;
    namespace.set(name, value)
}
