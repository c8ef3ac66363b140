//! `narrows run`.

use super::cpu_list::Cpus;
use super::joined::{Joined, Own};
use crate::output;
use anyhow::bail;
use clap::{Args, ValueEnum};
use narrows_bpf::{Hook, XdpMode};
use narrows_dataplane::run::{FrontFile, Pid, RunOptions, run};
use narrows_dataplane::supervisor::{SupervisorOptions, supervise};
use narrows_dataplane::{FailMode, PlaneKind, SessionOptions};
use narrows_forwarding::Forwarding;
use narrows_xsk::CopyMode;
use std::path::PathBuf;
use std::process::ExitCode;

/// Join ports and shape what passes between them.
///
/// Every frame that arrives at one port leaves through the other one: another interface, or
/// another VLAN of the same interface (--stick). This box is not reached through the ports. A box
/// without a third interface needs an IP address on a bridge of both ports, which stays in force
/// while Narrows runs (docs/guide.md, "Who reaches the box"); `narrows doctor` says whether it has
/// one. One worker thread serves each queue pair, pinned to a core. Without a policy nothing is
/// limited; `narrows tc` sets limits at run time:
///
///   narrows run --ports eth1,eth2
///   narrows tc qdisc replace dev eth2 root tbf rate 1gbit burst 1mb latency 5ms
///
/// Both ports need the same number of queues (`ethtool -L`); `narrows doctor A B` checks the
/// rest. Stop it with Ctrl-C or SIGTERM.
///
/// With --port it joins nothing: it filters what arrives at some interfaces for this host itself.
/// With --plane host it joins nothing either: it shapes what this host itself sends through them.
/// Patterns among its --ports are for interfaces that come and go, those of containers and virtual
/// machines: it keeps an instance for each, with what --batch says of the pattern:
///
///   narrows run --plane host --ports "eth0,veth*" --batch /etc/narrows/containers.tc
///
/// It needs root, or CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF, and for all features also
/// CAP_PERFMON (plane `xdp`, cake nat), CAP_IPC_LOCK (frames beyond `ulimit -l`) and CAP_SYS_NICE
/// (priority). It drops all others before it joins the ports. Then it accesses only the directories
/// of its policy and state files and the kernel's interface files (docs/guide.md, "What it may
/// do").
#[derive(Args)]
#[command(after_long_help = "Examples:
  narrows run --ports eth1,eth2
  narrows run --ports eth1,eth2 --batch /etc/narrows/home.tc --state /var/lib/narrows/home.tc
  narrows run --ports eth1,eth2 --cores 2,3 --busy-poll --fail-closed
  narrows run --ports eth1,eth2 --dispatcher
  narrows run --plane host --ports eth0 --batch /etc/narrows/server.tc
  narrows run --plane host --ports 'veth*,tap?' --batch /etc/narrows/containers.tc
  narrows run --port eth1 --batch /etc/narrows/web.tc
  narrows run --port eth1 --front /etc/narrows/closed_ports.o
  narrows run --port eth1,eth2 --xdp native --state /var/lib/narrows/balancer")]
#[command(verbatim_doc_comment)]
#[command(override_usage = "narrows run --ports A,B [OPTIONS]
       narrows run --port A [OPTIONS]")]
pub struct Run {
    #[command(flatten)]
    joined: Joined,

    /// The initial policy: a file of tc commands, as `tc -batch` reads it. SIGHUP reads it again,
    /// all or nothing: a file with an error changes nothing, a good one replaces live edits. Lines
    /// whose dev is a pattern of --ports hold for each interface that it matches.
    #[arg(short, long, value_name = "FILE")]
    batch: Option<PathBuf>,

    /// The initial sets: a file of ipset commands, as `ipset save` prints it (docs/sets.md).
    #[arg(long, value_name = "FILE")]
    sets: Option<PathBuf>,

    /// Keep the policy in FILE: each change is written there, and the next start reads it instead
    /// of --batch. Sets are kept in FILE.sets, and read instead of --sets. Without it live edits
    /// end with the process. With patterns it is a folder, with a file for each interface.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,

    /// What forwards after this process has ended, for whatever reason. `bridge`: a kernel bridge
    /// between the ports, which is created at the start and stays; traffic passes unshaped.
    #[arg(long, value_name = "HOW", default_value = "bridge", conflicts_with = "fail_closed")]
    fail_open: FailOpen,

    /// Stop traffic when this process ends.
    #[arg(long)]
    fail_closed: bool,

    /// What joins the ports. `xsk`: queues, and a worker thread for each (AF_XDP). `xdp`: a program
    /// in the driver, without queues: it costs less and polices instead of shaping, so it runs htb,
    /// prio, drr, ets and tbf in any order over pfifo, bfifo or codel, and refuses what needs a
    /// queue: cake, hfsc, fq_codel, netem and others (docs/xdp.md). `host`: programs at the egress
    /// of --ports, for what this host sends through them: packets get departure times, and the
    /// kernel's fq holds them, super-packets as they are; it runs what xdp runs, and fq and
    /// fq_codel in classes (docs/host.md). Default: xsk, and xdp with --port, which has no queues.
    #[arg(long, value_name = "PLANE")]
    plane: Option<Plane>,

    /// Workers never sleep: lowest latency, a whole core each.
    #[arg(long)]
    busy_poll: bool,

    /// The cores to pin workers to, in turn. Default: all that this process may use.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    cores: Vec<Cpus>,

    /// With --port: the CPUs whose stack receives what filters let pass, each flow on one of them;
    /// receive packet steering in the driver. So the CPU where frames arrive only filters. Before
    /// Linux 6.14 packets are not merged (GRO) on these CPUs. Default: the CPU where they arrive.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    rps: Vec<Cpus>,

    /// Frames of each worker for queued packets, half of them for each direction; the rings' frames
    /// come on top. A frame is 2 KiB, or 4 KiB in zero copy and with an MTU above 1770.
    /// Default: 16384.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1024..=1_048_576))]
    frames: Option<u32>,

    /// Run programs only there. Default: native if the driver has it, else generic; in the plane
    /// `xdp`, tcx instead of generic, and for a veth.
    #[arg(long, value_name = "MODE")]
    xdp: Option<Xdp>,

    /// Copy frames between driver and user space even if the driver supports zero copy.
    #[arg(long)]
    copy: bool,

    /// Route or switch also where netfilter has hooks for forwarded packets (rules, NAT, connection
    /// tracking), or where there are IPsec policies for routed ones. What is forwarded in the
    /// driver passes by all of that. Only with --router and --switch. A router whose ports are in a
    /// flowtable needs it not: it routes the connections that the firewall has accepted.
    #[arg(long, conflicts_with_all = ["ports", "stick", "port"])]
    skip_netfilter: bool,

    /// Measure round trips beyond both ports and losses, by port and host, from the TCP and QUIC
    /// packets that pass (docs/views.md). Only in the plane `xsk`.
    #[arg(long)]
    round_trips: bool,

    /// Share the ports with other XDP programs, such as xdp-filter: join libxdp's dispatcher there,
    /// or make one. Programs with a lower priority run first, and those with a higher one see
    /// nothing that Narrows forwards; without a number it is 100. A port that has a dispatcher at
    /// the start is joined there without this option, too (docs/attack.md).
    #[arg(long, value_name = "PRIORITY", num_args = 0..=1, require_equals = true, default_missing_value = "100")]
    dispatcher: Option<u32>,

    /// With --port and one interface: run this XDP program of yours first, before all filters: an
    /// object that clang made (-O2 -g -target bpf), and behind a colon the program's name if it has
    /// several. What it passes goes on; XDP_DROP, XDP_TX and XDP_REDIRECT are final. All verdicts
    /// are counted. Its maps are its own, found by `bpftool map`. An upgrade keeps the program and
    /// its maps as they are; for another one, start again (docs/attack.md).
    #[arg(long, value_name = "FILE[:PROGRAM]", value_parser = parse_front)]
    front: Option<FrontFile>,

    /// Continue from the process that has started this one (`narrows upgrade`).
    #[arg(long, hide = true)]
    take_over: bool,

    /// End when this process ends, which has started this one for an interface.
    #[arg(long, hide = true, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    kept_by: Option<i32>,
}

#[derive(Clone, Copy, ValueEnum)]
enum FailOpen {
    Bridge,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Plane {
    Xsk,
    Xdp,
    Host,
}

impl From<Plane> for PlaneKind {
    fn from(plane: Plane) -> Self {
        match plane {
            Plane::Xsk => Self::Xsk,
            Plane::Xdp => Self::Xdp,
            Plane::Host => Self::Host,
        }
    }
}

/// The plane for `forwarding`, of which the user has `asked` for one or not.
///
/// # Errors
/// If it has no such plane.
pub fn plane_of(forwarding: &Forwarding, asked: Option<Plane>) -> anyhow::Result<PlaneKind> {
    match asked {
        Some(Plane::Xsk) if forwarding.is_host() => bail!(
            "a host port has no queues: its frames stay in the driver, and go on to this host's own \
             stack. Leave out --plane xsk"
        ),
        Some(Plane::Host) if !forwarding.is_host() => bail!(
            "--plane host is for what this host itself sends, and these ports forward for others: \
             leave out --plane host"
        ),
        Some(plane) => Ok(plane.into()),
        None if forwarding.is_host() => Ok(PlaneKind::Xdp),
        None => Ok(PlaneKind::Xsk),
    }
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Xdp {
    /// In the driver.
    Native,
    /// In the stack, for drivers without XDP.
    Generic,
    /// Not at XDP: behind it, at tcx, where the kernel has built a packet (Linux 6.6). Only in the
    /// plane `xdp`.
    Tcx,
}

impl Xdp {
    pub fn hook(self) -> Hook {
        match self {
            Self::Native => Hook::Xdp(XdpMode::Native),
            Self::Generic => Hook::Xdp(XdpMode::Generic),
            Self::Tcx => Hook::Tcx,
        }
    }
}

/// A file, and behind a colon the name of a program in it.
fn parse_front(word: &str) -> Result<FrontFile, String> {
    let named = word.rsplit_once(':').filter(|(_, name)| !name.contains('/'));
    let (path, program) = match named {
        Some((path, name)) => (path, Some(name)),
        None => (word, None),
    };
    if path.is_empty() || program.is_some_and(str::is_empty) {
        return Err("give FILE, or FILE:PROGRAM".into());
    }
    Ok(FrontFile { path: path.into(), program: program.map(str::to_owned) })
}

/// The default frames per worker: about 8,000 packets in each direction.
const FRAMES: u32 = 16_384;

/// The entries of each ring: 2 ms of the smallest packets at a million a second, so that a worker
/// that waits that long for its core loses nothing.
const RING: u32 = 2048;

/// The ring size for workers with `frames` frames for queued packets. Packets also wait in a TX
/// ring, which may take a quarter of what one direction has.
fn ring_for(frames: u32) -> u32 {
    RING.min(1 << (frames / 8).ilog2())
}

impl Run {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let [FailOpen::Bridge] = [self.fail_open];
        if matches!(self.plane, Some(Plane::Host))
            && let Some(own) = self.joined.patterns()?
        {
            return self.keep_each(own);
        }
        let forwarding = self.joined.forwarding(matches!(self.plane, Some(Plane::Host)))?;
        let plane = plane_of(&forwarding, self.plane)?;
        if self.round_trips && plane != PlaneKind::Xsk {
            bail!(
                "round trips are only measured in the plane `xsk`: leave out one of both options"
            );
        }
        if plane != PlaneKind::Xsk {
            self.without_workers()?;
        }
        if matches!((plane, self.xdp), (PlaneKind::Xsk, Some(Xdp::Tcx))) {
            bail!("there is no AF_XDP at tcx: add --plane xdp, or leave out --xdp tcx");
        }
        if self.dispatcher.is_some() && matches!(self.xdp, Some(Xdp::Tcx)) {
            bail!(
                "--dispatcher joins other XDP programs, and at tcx others run beside Narrows \
                 without it: leave out --dispatcher, or --xdp tcx"
            );
        }
        if forwarding.is_router() && self.fail_closed {
            bail!(
                "a router cannot fail closed: without this process the kernel routes by itself. \
                 Leave out --fail-closed, or stop the kernel, too, with sysctl -w net.ipv4.ip_forward=0"
            );
        }
        if forwarding.is_switch() && self.fail_closed {
            bail!(
                "a switch cannot fail closed: the kernel's bridge, which decides, forwards without \
                 this process. Leave out --fail-closed"
            );
        }
        if forwarding.is_host() && self.fail_closed {
            bail!(
                "a host port cannot fail closed: without this process the kernel receives by itself. \
                 Leave out --fail-closed"
            );
        }
        let needs_xdp = !self.rps.is_empty() || self.front.is_some();
        // At tcx, which a veth prefers, a packet is on its CPU already, and no XDP program sees it.
        let xdp = self.xdp.or_else(|| needs_xdp.then_some(Xdp::Native));
        if self.front.is_some() && !forwarding.is_host() {
            bail!(
                "--front needs --port PORT. In front of other ports libxdp's dispatcher runs your \
                 program: xdp-loader load -p 50 PORT FILE, and then narrows run"
            );
        }
        if self.front.is_some() && forwarding.names().len() > 1 {
            bail!("--front runs in front of one port: give one, or run an instance for each");
        }
        if self.front.is_some() && matches!(xdp, Some(Xdp::Tcx)) {
            bail!("--front needs --xdp native or generic: at tcx no XDP program runs");
        }
        if !self.rps.is_empty() && !forwarding.is_host() {
            bail!("--rps is for what a host receives: it needs --port PORT");
        }
        if !self.rps.is_empty() && matches!(xdp, Some(Xdp::Tcx)) {
            bail!("--rps needs --xdp native or generic: at tcx a packet is on its CPU already");
        }
        let allowed = allowed_cores()?;
        let cores = Cpus::numbers(&self.cores).into_iter().map(|core| core as usize);
        let cores: Vec<usize> = cores.collect();
        if let Some(core) = cores.iter().find(|core| !allowed.contains(core)) {
            let allowed: Vec<String> = allowed.iter().map(usize::to_string).collect();
            bail!(
                "--cores: this process may not run on core {core}, only on {}",
                allowed.join(", ")
            );
        }
        let frames = self.frames.unwrap_or(FRAMES);
        let options = RunOptions {
            forwarding,
            batch: self.batch,
            sets: self.sets,
            state: self.state,
            fail: if self.fail_closed { FailMode::Closed } else { FailMode::Open },
            plane,
            session: SessionOptions {
                frames,
                ring: ring_for(frames),
                cpus: if cores.is_empty() { allowed } else { cores },
                busy_poll: self.busy_poll,
                hook: xdp.map(Xdp::hook),
                copy_mode: self.copy.then_some(CopyMode::Copy),
                receive_on: Cpus::numbers(&self.rps),
                round_trips: self.round_trips,
            },
            skip_netfilter: self.skip_netfilter,
            dispatcher: self.dispatcher,
            front: self.front,
            take_over: self.take_over,
            kept_by: self.kept_by.and_then(Pid::from_raw),
        };
        if let Some(last) = run(options, |_| output::say("ready"))? {
            output::text(last.render());
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Run {
    /// The options about workers and their frames that are given.
    fn of_workers(&self) -> impl Iterator<Item = &'static str> {
        let given = [
            ("--busy-poll", self.busy_poll),
            ("--cores", !self.cores.is_empty()),
            ("--frames", self.frames.is_some()),
            ("--copy", self.copy),
        ];
        given.into_iter().filter(|(_, is_given)| *is_given).map(|(option, _)| option)
    }

    /// Checks the options for a plane without queues.
    ///
    /// # Errors
    /// If one asks for what the plane cannot do. Others only say how much the workers may have.
    fn without_workers(&self) -> anyhow::Result<()> {
        if self.busy_poll {
            bail!(
                "--busy-poll keeps workers awake, and this plane has none: packets are handled in \
                 the driver. Leave it out"
            );
        }
        for option in self.of_workers() {
            output::report(format_args!(
                "note: {option} has no effect: this plane has no workers and no frames of its own\n"
            ));
        }
        Ok(())
    }

    /// Keeps an instance for each interface that a pattern matches.
    fn keep_each(self, own: Own) -> anyhow::Result<ExitCode> {
        let others = [
            ("--fail-closed", self.fail_closed),
            ("--ifb", self.joined.has_ifbs()),
            ("--front", self.front.is_some()),
            ("--rps", !self.rps.is_empty()),
            ("--xdp", self.xdp.is_some()),
            ("--dispatcher", self.dispatcher.is_some()),
            ("--round-trips", self.round_trips),
        ];
        let others = others.iter().filter(|(_, is_given)| *is_given).map(|(option, _)| *option);
        if let Some(option) = others.chain(self.of_workers()).next() {
            bail!(
                "with patterns each interface has an instance of its own, which takes only --batch, \
                 --sets and --state: leave out {option}"
            );
        }
        let Own { names, patterns } = own;
        let Self { batch, sets, state, .. } = self;
        let options = SupervisorOptions { names, patterns, batch, sets, state };
        supervise(options, || output::say("ready"))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The session options that the bare forwarder and ordinary runs share, for a fair comparison.
pub fn default_session() -> anyhow::Result<SessionOptions> {
    Ok(SessionOptions {
        frames: FRAMES,
        ring: ring_for(FRAMES),
        cpus: allowed_cores()?,
        busy_poll: false,
        hook: None,
        copy_mode: None,
        receive_on: Vec::new(),
        round_trips: false,
    })
}

fn allowed_cores() -> anyhow::Result<Vec<usize>> {
    let cpus = rustix::thread::sched_getaffinity(None)?;
    Ok((0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| cpus.is_set(cpu)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use narrows_dataplane::gates::PRIORITY;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        run: Run,
    }

    fn dispatcher(words: &[&str]) -> Option<u32> {
        let line = [&["narrows", "--ports", "a,b"], words].concat();
        Line::parse_from(line).run.dispatcher
    }

    #[test]
    fn a_host_has_one_plane_and_ports_that_are_joined_have_queues_unless_asked() {
        let host = Forwarding::host(&["a".to_owned()]).unwrap();
        let wire = Forwarding::wire("a", "b").unwrap();
        let of = |forwarding, asked| plane_of(forwarding, asked).map_err(|error| error.to_string());
        assert_eq!(of(&host, None), Ok(PlaneKind::Xdp));
        assert_eq!(of(&host, Some(Plane::Xdp)), Ok(PlaneKind::Xdp));
        assert!(of(&host, Some(Plane::Xsk)).unwrap_err().contains("Leave out --plane xsk"));
        assert_eq!(of(&host, Some(Plane::Host)), Ok(PlaneKind::Host));
        assert!(of(&wire, Some(Plane::Host)).unwrap_err().contains("leave out --plane host"));
        assert_eq!(of(&wire, None), Ok(PlaneKind::Xsk));
        assert_eq!(of(&wire, Some(Plane::Xdp)), Ok(PlaneKind::Xdp));
    }

    #[test]
    fn the_dispatcher_has_a_priority_that_may_be_left_out() {
        assert_eq!(dispatcher(&[]), None);
        assert_eq!(dispatcher(&["--dispatcher"]), Some(PRIORITY));
        assert_eq!(dispatcher(&["--dispatcher=7", "--copy"]), Some(7));
    }
}
