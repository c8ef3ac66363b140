//! A website: a client, a balancer, and servers with nginx, all at one switch.
//!
//! ```text
//!                    ┌── balancer   10.7.0.2, and the service's address
//!  users ═ switch ═══╪── web1       10.7.0.11, and the service's address on lo
//!  10.7.0.1          ├── …
//!                    └── web4       10.7.0.14
//! ```
//!
//! The servers answer the client themselves. What runs at the balancer is up to the caller.
//!
//! Principles: as with a [bed](crate::bed), *nothing outlives its owner*.
//!
//! Non-goals: tunnels, IPv6.

use crate::bed::{OFFLOADS, batch, written};
use crate::folder::Folder;
use crate::guard::Guard;
use crate::namespace::Namespace;
use crate::nginx::Nginx;
use crate::requirements::{self, ETHTOOL, IP, NGINX, Refusal, WRK};
use crate::stale;
use anyhow::{Context, Result};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// The device of each namespace but the client's.
pub const PORT: &str = "eth0";
/// The client's device, which is also the switch.
pub const SWITCH: &str = "br0";
/// The switch's end of the balancer's cable. A `veth` gets what a program at the other end sends
/// back only if it has a program, too.
pub const UPLINK: &str = "to1";
/// What the client connects to.
pub const SERVICE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 7, 0, 100), 80);
/// Servers.
pub const SERVERS: usize = 4;
/// The balancer's address.
pub const BALANCER_MAC: [u8; 6] = [0x02, b'n', b'r', b'w', 7, 2];
/// Requests of a connection. A client with many requests soon begins another.
const REQUESTS: u32 = 100;
/// How the folders of daemons are named.
const FOLDER: &str = "nrw-web-";

/// Numbers the websites of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// The address of the server `number`, from 0 on.
pub fn server_ip(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 7, 0, 11 + number as u8)
}

/// The website. Removed when dropped, or when this process ends in any other way.
#[derive(Debug)]
pub struct Web {
    /// The client, the balancer and the servers.
    namespaces: Vec<Namespace>,
    servers: [Option<Nginx>; SERVERS],
    folder: Folder,
    // Last, so that it is dropped after everything above.
    _guard: Guard,
}

/// Refuses if this machine has no such servers.
pub fn check() -> Result<(), Refusal> {
    requirements::check(&[IP, ETHTOOL, NGINX, WRK])
}

impl Web {
    /// Builds it with all servers, after sweeping away [what is stale](crate::stale).
    pub fn up() -> Result<Self> {
        check()?;
        stale::sweep()?;
        let tag = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let names = stale::OF_WEBSITES.map(|prefix| format!("{prefix}{tag}"));
        let guard = Guard::over(&names.each_ref().map(String::as_str))?;
        let namespaces =
            names.iter().map(|name| Namespace::create(name)).collect::<Result<Vec<_>>>()?;
        let folder = Folder::make(FOLDER, &tag)?;
        let servers = [const { None }; SERVERS];
        let mut web = Self { namespaces, servers, folder, _guard: guard };
        web.connect()?;
        (0..SERVERS).try_for_each(|number| web.serve(number))?;
        Ok(web)
    }

    /// Where clients are.
    pub fn client(&self) -> &Namespace {
        &self.namespaces[0]
    }

    /// Where the balancer belongs, at [`PORT`].
    pub fn balancer(&self) -> &Namespace {
        &self.namespaces[1]
    }

    /// Where the server `number` is.
    pub fn server(&self, number: usize) -> &Namespace {
        &self.namespaces[2 + number]
    }

    /// Where daemons have their files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts the server `number`.
    pub fn serve(&mut self, number: usize) -> Result<()> {
        let folder = self.folder.path().join(number.to_string());
        // At the service's address, where clients come, and at its own, where checks do.
        let listens = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, SERVICE.port());
        let nginx = Nginx::start(self.server(number), &folder, listens, REQUESTS)?;
        self.servers[number] = Some(nginx);
        Ok(())
    }

    /// Kills the server `number`.
    pub fn kill(&mut self, number: usize) -> Result<()> {
        self.servers[number].take().context("it runs")?.kill()
    }

    /// Connections of clients that the server `number` has now.
    pub fn connections(&self, number: usize) -> Result<usize> {
        let words = ["-Hnt", "state", "established", "sport", "=", &SERVICE.port().to_string()];
        Ok(self.server(number).run("ss", &words)?.lines().count())
    }

    fn connect(&self) -> Result<()> {
        let client = self.client();
        for (setting, value) in [
            ("ipv4/conf/all/arp_ignore", "1"),
            ("ipv4/conf/all/arp_announce", "2"),
            ("ipv6/conf/all/disable_ipv6", "1"),
            ("ipv6/conf/default/disable_ipv6", "1"),
            // A client opens more connections than there are ports a minute.
            ("ipv4/ip_local_port_range", "1024 65535"),
            ("ipv4/tcp_tw_reuse", "1"),
        ] {
            self.namespaces.iter().try_for_each(|namespace| namespace.set(setting, value))?;
        }
        let mut lines = format!("link add {SWITCH} type bridge\nlink set {SWITCH} up\n");
        let mac = written(BALANCER_MAC);
        for (number, namespace) in self.namespaces.iter().enumerate().skip(1) {
            let address = if number == 1 { format!("address {mac}") } else { String::new() };
            lines += &format!(
                "link add to{number} type veth peer name {PORT} {address} netns {}\n\
                 link set to{number} master {SWITCH}\n\
                 link set to{number} up\n",
                namespace.name()
            );
        }
        lines += &format!("addr add 10.7.0.1/24 dev {SWITCH}\n");
        batch(&["-n", client.name()], &lines)?;
        let without_offloads = |namespace: &Namespace, device: &str| {
            let words: Vec<&str> = ["-K", device].into_iter().chain(OFFLOADS).collect();
            namespace.run("ethtool", &words).map(drop)
        };
        for (number, namespace) in self.namespaces.iter().enumerate().skip(1) {
            without_offloads(client, &format!("to{number}"))?;
            without_offloads(namespace, PORT)?;
            let own = if number == 1 { Ipv4Addr::new(10, 7, 0, 2) } else { server_ip(number - 2) };
            // Who has the address to the outside is the balancer.
            let at = if number == 1 { PORT } else { "lo" };
            batch(
                &["-n", namespace.name()],
                &format!(
                    "link set lo up\n\
                     link set {PORT} up\n\
                     addr add {own}/24 dev {PORT}\n\
                     addr add {}/32 dev {at}\n",
                    SERVICE.ip()
                ),
            )?;
        }
        Ok(())
    }
}
