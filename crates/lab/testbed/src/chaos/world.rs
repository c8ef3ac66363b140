//! The objects that faults act on: the bed, the instance in it, its policy, and the counts of its
//! lives.

use super::Options;
use super::books::{Counted, Drops};
use super::forwarding::Forwarding;
use super::frame::{Path, Way};
use super::plane::Plane;
use super::planted::Planted;
use super::policy::{Policy, policies};
use super::routes::{Hop, PORT_C, Routes};
use super::sender::{Log, Running, Stream};
use super::traffic::Received;
use crate::accounting::Devices;
use crate::bed::{End, PORT_A, PORT_B, Testbed, ip};
use crate::counters::Counts;
use crate::narrows::Instance;
use anyhow::{Context, Result, bail, ensure};
use narrows_snapshot::Snapshot;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// How long Narrows may take until it forwards again.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How often it is asked.
const POLL: Duration = Duration::from_millis(10);

/// What a router's program dropped because a route says so.
const BLACKHOLE: &str = "blackhole";

/// Counts by way.
type ByWay<T> = [T; 2];

/// What faults act on: the bed, the instance in it, its policy, and the counts of its lives.
pub(super) struct World<'a> {
    pub(super) bed: &'a Testbed,
    pub(super) plane: Plane,
    /// In a router.
    routes: Option<Routes<'a>>,
    /// What was counted beside the bed's own devices when the epoch began: by the third port, and
    /// by the end behind it.
    aside: [Counts; 2],
    hook: Option<String>,
    program: PathBuf,
    policy_file: PathBuf,
    policy: usize,
    instance: Option<Instance>,
    /// The counters of the present process at the start of the epoch.
    opening: ByWay<Drops>,
    /// The counts of processes that ended within the epoch.
    ended: ByWay<Drops>,
    /// The number of the next frame of each stream.
    next: [u64; 256],
    /// Frames sent by faults in this epoch.
    pub(super) logs: Vec<Log>,
    /// The planted error of the harness.
    pub(super) planted: Option<Planted>,
}

impl<'a> World<'a> {
    /// Starts `program` between the ports of `bed` with the first policy.
    pub(super) fn begin(bed: &'a Testbed, options: &Options) -> Result<Self> {
        // Other runs of this process have files, too.
        let file = format!("{}.tc", bed.shaper().name());
        let mut world = Self {
            bed,
            plane: options.plane,
            routes: None,
            aside: Default::default(),
            hook: options.hook.clone(),
            program: options.program.clone(),
            policy_file: std::env::temp_dir().join(file),
            policy: 0,
            instance: None,
            opening: ByWay::default(),
            ended: ByWay::default(),
            next: [0; 256],
            logs: Vec::new(),
            planted: options.planted,
        };
        world.write_policy()?;
        if options.forwarding == Forwarding::Router {
            world.routes = Some(Routes::up(bed)?);
        }
        for end in world.ends() {
            end.take_redirected(options.hook.as_deref() == Some("native"))?;
        }
        world.start()?;
        Ok(world)
    }

    /// The policy in force.
    pub(super) fn policy(&self) -> &'static Policy {
        &policies(self.plane)[self.policy]
    }

    /// The owner of the policy file, and the policy that it has from now on.
    pub(super) fn choose(&mut self, policy: usize) -> Result<&'static Policy> {
        self.policy = policy;
        self.write_policy()?;
        Ok(self.policy())
    }

    fn write_policy(&self) -> Result<()> {
        std::fs::write(&self.policy_file, self.policy().lines().join("\n") + "\n")
            .with_context(|| format!("cannot write {}", self.policy_file.display()))
    }

    /// Starts an instance with the policy file, and waits until it forwards.
    pub(super) fn start(&mut self) -> Result<()> {
        let file = self.policy_file.to_str().context("a temporary directory that is no text")?;
        let ports = self.ports().join(",");
        let forwarding = if self.routes.is_some() { "--router" } else { "--ports" };
        let mut words = vec!["run", forwarding, &ports, "--plane", self.plane.name(), "-b", file];
        words.extend(self.hook.iter().flat_map(|hook| ["--xdp", hook]));
        let started = Instance::start_command(self.bed, &self.program, &words)?;
        self.instance = Some(started);
        Ok(())
    }

    /// Its ports.
    pub(super) fn ports(&self) -> Vec<&'static str> {
        [PORT_A, PORT_B].into_iter().chain(self.routes.as_ref().map(|_| PORT_C)).collect()
    }

    /// Those where frames leave that go `way`.
    pub(super) fn ports_out(&self, way: Way) -> Vec<&'static str> {
        match way {
            Way::Forth => self.ports().split_off(1),
            Way::Back => vec![PORT_A],
        }
    }

    /// All ends of cables, the client's first.
    pub(super) fn ends(&self) -> Vec<End<'a>> {
        let aside = self.routes.as_ref().map(Routes::aside);
        self.bed.ends().into_iter().chain(aside).collect()
    }

    /// Leads what goes forth through a router to `hop`.
    pub(super) fn lead(&mut self, hop: Hop) -> Result<()> {
        self.routes.as_mut().context("a wire has no routes")?.lead(hop)
    }

    /// Makes a router's routes what they were before a port was down.
    pub(super) fn restore_routes(&self) -> Result<()> {
        self.routes.as_ref().map_or(Ok(()), Routes::restore)
    }

    /// How many frames that went forth had a wrong next hop.
    pub(super) fn misled(&self, received: &[Received]) -> u64 {
        self.routes.as_ref().map_or(0, |routes| routes.misled(received))
    }

    /// The running instance.
    pub(super) fn instance(&mut self) -> Result<&mut Instance> {
        self.instance.as_mut().context("narrows does not run")
    }

    /// Takes the instance out, to end it. [`life_ended`](Self::life_ended) keeps its counts.
    pub(super) fn take(&mut self) -> Result<Instance> {
        self.instance.take().context("narrows does not run")
    }

    /// Keeps the last counts of a life.
    pub(super) fn life_ended(&mut self, last: &ByWay<Drops>) {
        for way in Way::BOTH.map(Way::index) {
            let opening = std::mem::take(&mut self.opening[way]);
            add(&mut self.ended[way], &less(&last[way], &opening));
        }
    }

    /// Asserts that it runs, and shows its output if it does not.
    pub(super) fn check(&mut self) -> Result<()> {
        let instance = self.instance()?;
        ensure!(instance.is_running(), "narrows has ended by itself:\n{}", instance.log());
        Ok(())
    }

    /// The state that the instance reports.
    pub(super) fn show(&mut self) -> Result<Snapshot> {
        self.instance()?.show()
    }

    /// The drops of the present Narrows process.
    pub(super) fn drops(&mut self) -> Result<ByWay<Drops>> {
        let show = self.show()?;
        self.drops_in(&show)
    }

    /// Waits until its reported state satisfies `what`.
    pub(super) fn wait_until(
        &mut self,
        what: &str,
        holds: impl Fn(&Snapshot) -> bool,
    ) -> Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            // It may be unable to answer for a moment, which is part of the wait.
            if self.show().is_ok_and(|show| holds(&show)) {
                return Ok(());
            }
            self.check()?;
            if Instant::now() >= deadline {
                let log = self.instance()?.log();
                bail!("narrows is not {what} after {} s:\n{log}", TIMEOUT.as_secs());
            }
            thread::sleep(POLL);
        }
    }

    /// Runs `narrows tc` with `words`.
    pub(super) fn tc(&mut self, words: &str) -> Result<()> {
        self.instance()?.tc(words).map(drop)
    }

    /// Runs `ip` with `words` in the shaper's namespace.
    pub(super) fn ip(&self, words: &str) -> Result<String> {
        ip(self.bed.shaper(), words)
    }

    /// Starts a stream. Its sequence numbers continue those of the last one with its number.
    pub(super) fn send(&mut self, stream: Stream) -> Result<Running> {
        let first = self.next[usize::from(stream.number)];
        let direct = Path::direct(stream.way);
        let path = self.routes.as_ref().map_or(direct, |routes| routes.path(stream.way));
        Stream { first, ..stream }.start(self.bed, path)
    }

    /// Ends a stream and keeps its log for the books.
    pub(super) fn sent(&mut self, running: Running) -> Result<()> {
        let log = running.stop()?;
        self.next[usize::from(log.stream)] = log.first + log.sent.len() as u64;
        self.logs.push(log);
        Ok(())
    }

    /// Begins an epoch, at rest.
    pub(super) fn open_books(&mut self) -> Result<()> {
        self.opening = self.drops()?;
        self.ended = ByWay::default();
        self.logs.clear();
        if let Some(routes) = &mut self.routes {
            routes.forget();
            self.aside = routes.counts_aside()?;
        }
        Ok(())
    }

    /// Ends an epoch, at rest. Returns its counts. `received` are the frames that each direction's
    /// receiving socket got.
    pub(super) fn counted(
        &mut self,
        devices: &Devices,
        received: ByWay<u64>,
    ) -> Result<ByWay<Counted>> {
        let show = self.show()?;
        let now = self.drops_in(&show)?;
        // In the order of directions: forward frames arrive at port A. What goes to the kernel of a
        // router is routed there.
        let to_box = [PORT_A, PORT_B].map(|port| match (&self.routes, show.port(port)) {
            (None, Some(port)) => port.to_self,
            _ => 0,
        });
        let [mut port_b, mut server] = [devices.port_b, devices.server];
        if let Some(routes) = &mut self.routes {
            let [port_c, aside] = routes.counts_aside()?;
            port_b.tx_dropped += (port_c - self.aside[0]).tx_dropped;
            server.rx_packets += (aside - self.aside[1]).rx_packets;
        }
        let Devices { client, port_a, .. } = devices;
        let ends = [(client, port_a, &port_b, &server), (&server, &port_b, port_a, client)];
        let mut counted = ByWay::<Counted>::default();
        for way in Way::BOTH.map(Way::index) {
            let (from, into, out, to) = ends[way];
            let mut narrows = std::mem::take(&mut self.ended[way]);
            add(&mut narrows, &less(&now[way], &self.opening[way]));
            counted[way] = Counted {
                narrows,
                sender_device: from.tx_dropped,
                into_shaper: into.rx_dropped,
                out_of_shaper: out.tx_dropped,
                to_box: to_box[way],
                receiver_socket: to.rx_packets.saturating_sub(received[way]),
            };
        }
        Ok(counted)
    }

    /// Drops by direction: packets dropped on the way out of port B went forth.
    fn drops_in(&self, show: &Snapshot) -> Result<ByWay<Drops>> {
        let of = |port: &str| {
            show.port(port).with_context(|| format!("narrows show does not list {port}"))
        };
        let mut drops = ByWay::<Drops>::default();
        for way in Way::BOTH {
            let drops = &mut drops[way.index()];
            for port in self.ports_out(way) {
                add(drops, &of(port)?.total.drops_by_reason);
            }
            let arrives_at = [PORT_A, PORT_B][way.index()];
            if let Some(lost) = of(arrives_at)?.routes.get(BLACKHOLE) {
                drops.insert(BLACKHOLE.to_owned(), *lost);
            }
        }
        Ok(drops)
    }
}

impl Drop for World<'_> {
    fn drop(&mut self) {
        // A file in the temporary directory that is left behind does no harm.
        let _ = std::fs::remove_file(&self.policy_file);
    }
}

pub(super) fn add(sum: &mut Drops, other: &Drops) {
    for (reason, n) in other {
        *sum.entry(reason.clone()).or_default() += n;
    }
}

fn less(drops: &Drops, earlier: &Drops) -> Drops {
    let before = |reason: &str| earlier.get(reason).copied().unwrap_or_default();
    drops.iter().map(|(reason, n)| (reason.clone(), n.saturating_sub(before(reason)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(limit: u64) -> Drops {
        Drops::from([("limit".to_owned(), limit)])
    }

    #[test]
    fn an_epoch_counts_its_own_increments() {
        assert_eq!(less(&of(7), &of(5)), of(2));
        assert_eq!(less(&of(7), &Drops::new()), of(7));
        let mut sum = of(2);
        add(&mut sum, &of(3));
        assert_eq!(sum, of(5));
    }
}
