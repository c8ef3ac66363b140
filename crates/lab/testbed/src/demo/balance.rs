//! `narrows demo balance`: a website whose servers drain, die and come back, under requests.
//!
//! Four nginx behind the balancer ([`crate::web`]), `narrows health`, which checks them, and `wrk`,
//! which counts the requests that fail. A connection has a hundred requests. Each phase has one
//! event. Only while a server is killed without a word, until its checks have failed, may requests
//! fail.
//!
//! Requests are counted by `wrk`; only the packets that are not accounted for, and how connections
//! spread over servers, are Narrows's own figures.
//!
//! Non-goals: how fast it is. Clients, servers and the balancer share the machine's cores.

mod report;

pub use report::{Report, Row};

use crate::flood::{Flood, Pace, Running};
use crate::frames;
use crate::namespace::Namespace;
use crate::narrows::Instance;
use crate::process::{self, Process};
use crate::progress::Progress;
use crate::web::{self, BALANCER_MAC, PORT, SERVERS, SERVICE, SWITCH, UPLINK, Web, server_ip};
use crate::wrk::{Requests, Wrk};
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Connections of clients at once.
const CONNECTIONS: u32 = 32;
/// Connections that show that each server answers: that one of four gets none of them has a
/// probability of 10^-8.
const FIRST: usize = 64;
/// How long one of them may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The server that drains, and the one that is killed.
const DRAINED: usize = 1;
const KILLED: usize = 2;
/// How `narrows health` checks the servers: a dead one is taken out after one second at most. An
/// answer has as long as a machine of few cores under this load may need.
const CHECKS: &str = "--http / --interval 500ms --timeout 500ms --fall 2 --rise 1";
/// How often it is looked whether a server has drained, or is taken out.
const LOOK: Duration = Duration::from_millis(10);
/// Packets of the flood, a second, and their sources.
const FLOOD: f64 = 20_000.0;
const SOURCES: u16 = 1000;
const FLOOD_BYTES: usize = 64;

/// How to run it.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `narrows` program.
    pub program: PathBuf,
    /// How long each phase takes: whole seconds.
    pub phase: Duration,
}

/// What happens in a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Nothing,
    Drain,
    Return(usize),
    Kill,
    Flood,
    Upgrade,
}

const PHASES: [(&str, Event); 8] = [
    ("all servers", Event::Nothing),
    ("web2 drains, is stopped", Event::Drain),
    ("web2 comes back", Event::Return(DRAINED)),
    ("web3 is killed", Event::Kill),
    ("web3 stays down", Event::Nothing),
    ("web3 comes back", Event::Return(KILLED)),
    ("a flood begins", Event::Flood),
    ("narrows upgrade in the flood", Event::Upgrade),
];

/// Refuses if the demo cannot run.
pub fn check() -> Result<(), crate::requirements::Refusal> {
    web::check()
}

/// Runs it, with its progress on standard error.
pub fn run(options: &Options) -> Result<Report> {
    check()?;
    let mut progress = Progress::over(PHASES.len() as u64);
    let mut site = Site::up(options)?;
    let mut rows = Vec::new();
    for (name, event) in PHASES {
        if !rows.is_empty() && progress.is_over() {
            break;
        }
        progress.begin(name);
        let row = site.phase(name, event, options.phase).with_context(|| {
            let log = site.instance.log();
            format!("{name}; narrows says:\n{log}")
        })?;
        progress.end(&format!("{} of {} requests failed", row.failed, row.sent));
        rows.push(row);
    }
    drop(progress);
    let commands = std::mem::take(&mut site.commands);
    Ok(Report::new(rows, commands, site.unaccounted()?))
}

/// What `narrows balance list -j` says.
#[derive(Deserialize)]
struct Service {
    servers: Vec<Server>,
}

#[derive(Deserialize)]
struct Server {
    address: Ipv4Addr,
    health: String,
    stats: Counts,
}

#[derive(Deserialize)]
struct Counts {
    connections: u64,
}

/// The website with a balancer.
struct Site {
    flood: Option<Running>,
    _checks: Process,
    instance: Instance,
    /// At the other end of the balancer's cable.
    _receiver: Instance,
    web: Web,
    /// What changed something, in a shell's words.
    commands: Vec<String>,
}

impl Site {
    fn up(options: &Options) -> Result<Self> {
        let web = Web::up()?;
        let start = |namespace: &Namespace, port: &str| {
            let words = ["run", "--port", port, "--xdp", "native"];
            Instance::start_in(namespace, &options.program, &words)
        };
        let receiver = start(web.client(), UPLINK)?;
        let instance = start(web.balancer(), PORT)?;
        let file = web.folder().join("checks");
        fs::write(&file, format!("-t {SERVICE} {CHECKS}\n"))
            .with_context(|| format!("cannot write {}", file.display()))?;
        let mut command = instance.command("health");
        let checks =
            Process::start(command.arg(&file).stdout(Stdio::null()).stderr(Stdio::null()))?;
        let commands = vec![format!("health checks    (checks: -t {SERVICE} {CHECKS})")];
        let mut site =
            Self { flood: None, _checks: checks, instance, _receiver: receiver, web, commands };
        site.balance(&format!("add -t {SERVICE} -s mh -b mh-port"))?;
        for number in 0..SERVERS {
            site.balance(&format!("add -t {SERVICE} -r {}", server_ip(number)))?;
        }
        let connect = || {
            (0..FIRST).try_for_each(|_| {
                TcpStream::connect_timeout(&SERVICE.into(), PATIENCE).map(drop)
            })?;
            Ok(())
        };
        site.web.client().enter(connect).with_context(|| {
            let show = process::run(&mut site.instance.command("show")).unwrap_or_default();
            let neighbours = site.web.balancer().run("ip", &["neigh"]).unwrap_or_default();
            format!("a server does not answer; narrows says:\n{show}{neighbours}")
        })?;
        Ok(site)
    }

    fn balance(&mut self, words: &str) -> Result<()> {
        process::run(self.instance.command("balance").args(words.split(' ')))?;
        self.commands.push(format!("balance {words}"));
        Ok(())
    }

    fn edit(&mut self, number: usize, what: &str) -> Result<()> {
        self.balance(&format!("edit -t {SERVICE} -r {} {what}", server_ip(number)))
    }

    fn phase(&mut self, name: &'static str, event: Event, time: Duration) -> Result<Row> {
        let before = (self.connections()?, self.filtered()?);
        let wrk = Wrk::start(self.web.client(), SERVICE, CONNECTIONS, time)?;
        sleep(time / 4);
        self.happen(event, time / 2)?;
        let Requests { sent, failed } = wrk.finish()?;
        let after = (self.connections()?, self.filtered()?);
        let began = std::array::from_fn(|server| after.0[server] - before.0[server]);
        let filtered = after.1 - before.1;
        let may_fail = event == Event::Kill;
        Ok(Row { name, may_fail, seconds: time.as_secs(), sent, failed, began, filtered })
    }

    fn happen(&mut self, event: Event, limit: Duration) -> Result<()> {
        match event {
            Event::Nothing => Ok(()),
            Event::Drain => {
                self.edit(DRAINED, "-w 0")?;
                let deadline = Instant::now() + limit;
                while self.web.connections(DRAINED)? > 0 {
                    ensure!(Instant::now() < deadline, "it has connections after {limit:?}");
                    sleep(LOOK);
                }
                self.web.kill(DRAINED)?;
                self.wait_for(DRAINED, "down")
            }
            Event::Return(server) => {
                self.web.serve(server)?;
                self.wait_for(server, "up")?;
                if server == DRAINED {
                    self.edit(server, "-w 1")?;
                }
                Ok(())
            }
            Event::Kill => {
                self.web.kill(KILLED)?;
                self.wait_for(KILLED, "down")
            }
            Event::Flood => {
                let filter = format!(
                    "filter add dev {PORT} ingress pref 1 protocol ip flower dst_ip {} \
                     ip_proto udp action drop",
                    SERVICE.ip()
                );
                for words in [format!("qdisc add dev {PORT} clsact"), filter] {
                    self.instance.tc(&words)?;
                    self.commands.push(format!("tc {words}"));
                }
                self.flood = Some(flood(&self.web)?);
                Ok(())
            }
            Event::Upgrade => {
                self.commands.push("upgrade".to_owned());
                self.instance.upgrade()
            }
        }
    }

    /// Waits until the checks have found that the server `number` is `health`.
    fn wait_for(&self, number: usize, health: &str) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let is_there =
            |server: &Server| server.address == server_ip(number) && server.health == health;
        while !self.servers()?.iter().any(is_there) {
            let server = server_ip(number);
            ensure!(Instant::now() < deadline, "{server} is not {health} after {PATIENCE:?}");
            sleep(LOOK);
        }
        Ok(())
    }

    /// Connections that began at each server.
    fn connections(&self) -> Result<[u64; SERVERS]> {
        let all = self.servers()?;
        Ok(std::array::from_fn(|number| {
            let server = all.iter().find(|server| server.address == server_ip(number));
            server.map_or(0, |server| server.stats.connections)
        }))
    }

    /// The servers as they are listed.
    fn servers(&self) -> Result<Vec<Server>> {
        let text = process::run(self.instance.command("balance").args(["list", "-j"]))?;
        let listed: Vec<Service> = serde_json::from_str(&text).context(text)?;
        Ok(listed.into_iter().flat_map(|service| service.servers).collect())
    }

    /// Packets that filters dropped.
    fn filtered(&self) -> Result<u64> {
        let dropped = self.instance.show()?.conservation.dropped;
        Ok(dropped.get("filter").copied().unwrap_or(0))
    }

    /// Packets that are missing once nothing comes any more.
    fn unaccounted(mut self) -> Result<u64> {
        self.flood.take().map(Running::stop).transpose()?;
        self.instance.wait_for_rest().map(i64::unsigned_abs)
    }
}

/// Datagrams to the service, from addresses that do not exist.
fn flood(web: &Web) -> Result<Running> {
    let macs = [web.client().mac_address(SWITCH)?, BALANCER_MAC];
    let frame = |number: u16| {
        let [high, low] = number.to_be_bytes();
        let source = Ipv4Addr::new(203, 0, high, low);
        frames::udp4(frames::port(number), macs, [source, *SERVICE.ip()], FLOOD_BYTES)
    };
    let frames = (0..SOURCES).map(frame).collect::<Result<_>>()?;
    let limit = Duration::from_secs(600);
    Flood { frames, pace: Pace::Packets(FLOOD), limit, core: None }.start(web.client(), SWITCH)
}
