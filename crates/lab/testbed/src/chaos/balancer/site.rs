//! The bed with a balancer in it: the instance, its service, and what was counted.

use super::model::{Server, Servers};
use super::{PORT, WAY};
use crate::accounting::Devices;
use crate::bed::{
    CLIENT, CLIENT_IP, CLIENT_MAC, SERVER_IP, SERVER_MAC, Testbed, batch, ip, written,
};
use crate::chaos::books::{Counted, Drops};
use crate::chaos::frame::Path;
use crate::chaos::sender::{Log, Running, Stream};
use crate::frames::DISCARD;
use crate::narrows::Instance;
use crate::pace::Pace;
use crate::process;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path as File, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The servers are 1 to this.
pub(super) const MOST: u8 = 6;
/// Those at the start.
const FIRST: u8 = 4;
/// Frames a second of each stream.
const RATE: f64 = 3000.0;
const LENGTHS: [usize; 2] = [100, 600];
/// The clients of epochs: 198.18.2.1 and up.
const CLIENTS: u8 = 200;
/// What the kernel counts in a namespace, by protocol.
const SNMP: &str = "/proc/thread-self/net/snmp";
const LOOK: Duration = Duration::from_millis(20);

fn address(server: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 19, 0, server)
}

fn client(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, 2, number)
}

/// The site.
pub(super) struct Site<'a> {
    /// What a program sends back, a veth gets only if it has a program, too.
    _receiver: Instance,
    bed: &'a Testbed,
    program: PathBuf,
    state: PathBuf,
    takes_turns: bool,
    servers: Servers,
    instance: Option<Instance>,
    /// What the present process had dropped when the epoch began, and ended ones since.
    opening: Drops,
    ended: Drops,
    /// Datagrams that the box had got when the epoch began.
    boxed: u64,
    /// The next number of each stream's frames.
    next: [u64; 2],
}

impl<'a> Site<'a> {
    pub(super) fn up(bed: &'a Testbed, program: &File, takes_turns: bool) -> Result<Self> {
        bed.take_redirected(true)?;
        bed.serve_at_the_port()?;
        let state = std::env::temp_dir().join(format!("{}.state", bed.shaper().name()));
        let pass = ["bench", "verdict", CLIENT, "pass"];
        let receiver = Instance::start_in(bed.client(), program, &pass)?;
        let mut site = Self {
            _receiver: receiver,
            bed,
            program: program.to_owned(),
            state,
            takes_turns,
            servers: Servers::new(),
            instance: None,
            opening: Drops::new(),
            ended: Drops::new(),
            boxed: 0,
            next: [0; 2],
        };
        site.restore_ways()?;
        site.start()?;
        let first = (1..=FIRST).map(|number| (number, Server { weight: 1, is_down: false }));
        let first = first.collect();
        site.restore(&first)?;
        site.has(first);
        Ok(site)
    }

    pub(super) fn bed(&self) -> &'a Testbed {
        self.bed
    }

    pub(super) fn takes_turns(&self) -> bool {
        self.takes_turns
    }

    pub(super) fn servers(&self) -> &Servers {
        &self.servers
    }

    /// Its servers are these from now on.
    pub(super) fn has(&mut self, servers: Servers) {
        self.servers = servers;
    }

    /// Tells the kernel the ways to servers and clients, which it forgets when the port goes down.
    pub(super) fn restore_ways(&self) -> Result<()> {
        let mac = |server| written([0x02, b'n', b'r', b'w', 1, server]);
        let mut lines = format!("route replace default dev {PORT}\n");
        let servers = (1..=MOST).map(|server| (address(server), mac(server)));
        let clients = (1..=CLIENTS).map(|number| (client(number), written(CLIENT_MAC)));
        for (ip, mac) in servers.chain(clients).chain([(CLIENT_IP, written(CLIENT_MAC))]) {
            lines.push_str(&format!("neigh replace {ip} lladdr {mac} dev {PORT} nud permanent\n"));
        }
        batch(&["-n", self.bed.shaper().name()], &lines)
    }

    /// Starts a process with the state of the one before.
    pub(super) fn start(&mut self) -> Result<()> {
        let state = self.state.to_str().context("a temporary directory that is no text")?;
        let words = ["run", "--port", PORT, "--xdp", "native", "--state", state];
        self.instance = Some(Instance::start_command(self.bed, &self.program, &words)?);
        Ok(())
    }

    fn instance(&mut self) -> Result<&mut Instance> {
        self.instance.as_mut().context("narrows does not run")
    }

    /// What the process has said.
    pub(super) fn log(&self) -> String {
        self.instance.as_ref().map_or(String::new(), Instance::log)
    }

    pub(super) fn upgrade(&mut self) -> Result<()> {
        self.instance()?.upgrade()
    }

    /// Kills the process. What it dropped after this is not known; it should be nothing.
    pub(super) fn kill(&mut self) -> Result<()> {
        self.life_ends()?.kill().map(drop)
    }

    /// Asks the process to end.
    pub(super) fn stop(&mut self) -> Result<()> {
        let (status, log) = self.life_ends()?.stop()?;
        ensure!(status.success(), "narrows ended with {status}:\n{log}");
        Ok(())
    }

    fn life_ends(&mut self) -> Result<Instance> {
        let dropped = self.dropped()?;
        self.opening = Drops::new();
        for (reason, n) in dropped {
            *self.ended.entry(reason).or_default() += n;
        }
        self.instance.take().context("narrows does not run")
    }

    /// Runs `narrows balance`.
    pub(super) fn balance(&mut self, words: &str) -> Result<String> {
        process::run(self.instance()?.command("balance").args(words.split_whitespace()))
    }

    /// Replaces the services by one with `servers`.
    pub(super) fn restore(&mut self, servers: &Servers) -> Result<()> {
        let lines = self.lines_of(servers);
        process::run_with(self.instance()?.command("balance").arg("restore"), &lines).map(drop)
    }

    /// The services as `narrows balance save` should print them.
    pub(super) fn lines(&self) -> String {
        self.lines_of(&self.servers)
    }

    /// What it prints.
    pub(super) fn saved(&mut self) -> Result<String> {
        self.balance("save")
    }

    fn lines_of(&self, servers: &Servers) -> String {
        let service = service();
        let scheduler = if self.takes_turns { "rr" } else { "mh -b mh-port" };
        let mut lines = format!("-A {service} -s {scheduler}\n");
        for (number, Server { weight, .. }) in servers {
            lines.push_str(&format!("-a {} -g -w {weight}\n", self.named(*number)));
        }
        lines
    }

    /// The server in words of a command.
    pub(super) fn named(&self, server: u8) -> String {
        format!("{} -r {}:{DISCARD}", service(), address(server))
    }

    /// Runs `ip` with `words` beside the balancer.
    pub(super) fn ip(&self, words: &str) -> Result<()> {
        ip(self.bed.shaper(), words).map(drop)
    }

    /// Waits until packets leave again and none is dropped.
    pub(super) fn wait_for_ways(&mut self, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        loop {
            let before = self.show()?;
            sleep(2 * LOOK);
            let after = self.show()?;
            if after.0 > before.0 && after.1 == before.1 {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "no packet leaves after {limit:?}: {:?}", after.1);
        }
    }

    /// What has left, and what was dropped.
    fn show(&mut self) -> Result<(u64, Drops)> {
        let sum = self.instance()?.show()?.conservation;
        Ok((sum.sent, sum.dropped.into_iter().collect()))
    }

    /// What was dropped since the epoch or the process began.
    fn dropped(&mut self) -> Result<Drops> {
        let (_, now) = self.show()?;
        let before = |reason: &String| self.opening.get(reason).copied().unwrap_or_default();
        Ok(now.iter().map(|(reason, n)| (reason.clone(), n - before(reason))).collect())
    }

    /// Sends two streams in the epoch with this number: flows of the whole run, and its own.
    pub(super) fn send(&mut self, epoch: usize) -> Result<[Running; 2]> {
        let of_epoch = client(1 + (epoch % usize::from(CLIENTS)) as u8);
        let start = |(number, from): (u8, Ipv4Addr)| {
            let stream = Stream {
                number,
                way: WAY,
                lengths: LENGTHS.to_vec(),
                pace: Pace::Packets(RATE),
                scatter: false,
                first: self.next[usize::from(number)],
            };
            stream.start(self.bed, Path { macs: [CLIENT_MAC, SERVER_MAC], ips: [from, SERVER_IP] })
        };
        Ok([start((0, CLIENT_IP))?, start((1, of_epoch))?])
    }

    /// Ends a stream.
    pub(super) fn sent(&mut self, running: Running) -> Result<Log> {
        let log = running.stop()?;
        self.next[usize::from(log.stream)] = log.first + log.sent.len() as u64;
        Ok(log)
    }

    /// Begins an epoch, at rest.
    pub(super) fn open_books(&mut self) -> Result<()> {
        self.opening = self.show()?.1;
        self.ended = Drops::new();
        self.boxed = self.to_box()?;
        Ok(())
    }

    /// Waits for rest. Returns how many packets are missing in its balance.
    pub(super) fn rest(&mut self) -> Result<i64> {
        self.instance()?.wait_for_rest()
    }

    /// What was counted in the epoch.
    pub(super) fn counted(&mut self, devices: &Devices) -> Result<Counted> {
        let mut narrows = self.dropped()?;
        for (reason, n) in std::mem::take(&mut self.ended) {
            *narrows.entry(reason).or_default() += n;
        }
        Ok(Counted {
            narrows,
            sender_device: devices.client.tx_dropped,
            into_shaper: devices.port_a.rx_dropped,
            // What the box itself sends is dropped there, too, while the port is down.
            out_of_shaper: 0,
            to_box: self.to_box()? - self.boxed,
            // What else comes is no IP, and the socket has room for an epoch.
            receiver_socket: 0,
        })
    }

    /// Datagrams that the box's stack has got, and nobody was there for.
    fn to_box(&self) -> Result<u64> {
        let text = self.bed.shaper().enter(|| Ok(fs::read_to_string(SNMP)?))?;
        without_port(&text).with_context(|| format!("{SNMP} is {text}"))
    }
}

impl Drop for Site<'_> {
    fn drop(&mut self) {
        // Files in the temporary directory that are left behind do no harm.
        for file in [self.state.clone(), self.state.with_extension("services")] {
            let _ = fs::remove_file(file);
        }
    }
}

fn service() -> String {
    format!("-u {SERVER_IP}:{DISCARD}")
}

/// The datagrams that came to a port where nobody listens.
fn without_port(snmp: &str) -> Option<u64> {
    let mut of_udp = snmp.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (of_udp.next()?, of_udp.next()?);
    let place = names.split(' ').position(|name| name == "NoPorts")?;
    values.split(' ').nth(place)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_column_of_the_kernels_counts_is_found_by_its_name() {
        let text = "Icmp: InMsgs\nIcmp: 9\nUdp: InDatagrams NoPorts InErrors\nUdp: 5 7 0\n";
        assert_eq!(without_port(text), Some(7));
        assert_eq!(without_port("Tcp: A\nTcp: 1\n"), None);
    }
}
