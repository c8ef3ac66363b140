//! `narrows setup`.

mod answers;
mod interfaces;
mod policy;
mod steps;

use super::joined::parse_pair;
use crate::output;
use answers::{Answers, Question};
use anyhow::bail;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use narrows_dataplane::run::{examine, wanted};
use narrows_dataplane::{FailMode, PlaneKind};
use narrows_forwarding::Forwarding;
use narrows_forwarding::stick::Pair;
use narrows_link::Link;
use narrows_link::doctor::{self, Wanted};
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Addresses and type.
const ETHERNET_HEADER: u32 = 14;

/// Set up a line: check the host, write a policy, start the service, show the first minute.
///
/// It asks for whatever the options leave open. Put the box between router and switch, as you would
/// a cable; its two ports need no IP addresses. Or join two VLANs of one port with --stick, or let
/// a host that routes already do it with queues, with --router. Each direction gets a cake at your
/// rate: short queues, and a fair share for each device. To change the policy later, edit it and
/// run `systemctl reload narrows@NAME`.
///
/// A router with NAT, a firewall or PPPoE of its own has --wan: it goes on to forward as it does,
/// and its packets get departure times (docs/tutorial-router.md). There flows have fair shares.
///
/// A server that protects itself has --port, and no line: each source gets a rate there, in the
/// driver, before this host's own stack.
///
/// It shows its plan before it does anything, and overwrites files only with --force.
#[derive(Args)]
#[command(after_long_help = "Examples:
  narrows setup
  narrows setup --ports eth1,eth2 --down 237mbit --up 38mbit --link docsis --yes
  narrows setup --ports eth1,eth2 --down 95mbit --up 20mbit --link vdsl --dry-run
  narrows setup --stick eth1 --vlans 100:200 --down 95mbit --up 20mbit --link ethernet
  narrows setup --router eth1,eth2 --down 95mbit --up 20mbit --link ethernet
  narrows setup --wan ppp0 --down 95mbit --up 20mbit --link pppoe-ptm
  narrows setup --wan ppp0,br-lan --down 95mbit --up 20mbit --link pppoe-ptm
  narrows setup --port eth1 --name web --per-source 20000")]
pub struct Setup {
    /// The port towards the Internet and the one towards the home.
    #[arg(
        long, value_name = "A,B", num_args = 1..=2, value_delimiter = ',',
        conflicts_with_all = ["stick", "router", "port"],
    )]
    ports: Vec<String>,

    /// The one port of a box that joins two VLANs.
    #[arg(long, value_name = "A", requires = "vlans", conflicts_with_all = ["router", "port"])]
    stick: Option<String>,

    /// The VLAN towards the Internet and the one towards the home.
    #[arg(long, value_name = "X:Y", value_parser = parse_pair, requires = "stick")]
    vlans: Option<Pair>,

    /// The port of a router towards the Internet, and all towards the home.
    #[arg(long, value_name = "A,B,C", value_delimiter = ',', conflicts_with = "port")]
    router: Vec<String>,

    /// The port of a server that protects itself.
    #[arg(long, value_name = "A", conflicts_with_all = ["down", "up", "link"])]
    port: Option<String>,

    /// The port towards the Internet of a router that shapes in the host plane, such as ppp0:
    /// downloads are limited where they arrive. Or that one and all towards the home: then they are
    /// limited at each of those.
    #[arg(
        long, value_name = "WAN[,LAN]", value_delimiter = ',',
        conflicts_with_all = ["ports", "stick", "router", "port"],
    )]
    wan: Vec<String>,

    /// How many packets a second each source may send to it.
    #[arg(
        long, value_name = "PACKETS", requires = "port", default_value_t = 50_000,
        value_parser = clap::value_parser!(u32).range(1..=100_000_000),
    )]
    per_source: u32,

    /// Route also past netfilter's rules and IPsec policies, as `narrows run` does with it.
    #[arg(long, requires = "router")]
    skip_netfilter: bool,

    /// Download rate, such as 95mbit, so that the queue is here: 95 % of what a speed test measures
    /// while nothing else uses the line. Of DSL, 95 % of the rate at which the modem synchronises,
    /// which its status page shows; its framing is counted.
    #[arg(long, value_name = "RATE")]
    down: Option<String>,

    /// Upload rate, in the same way.
    #[arg(long, value_name = "RATE")]
    up: Option<String>,

    /// The kind of line, so that Narrows counts its framing. Also adsl, vdsl, cable, fibre.
    #[arg(long, value_name = "LINK", value_parser = links(), ignore_case = true)]
    link: Option<String>,

    /// The name of the instance: NAME.conf, NAME.tc, narrows@NAME.
    #[arg(long, value_name = "NAME", default_value = "home", value_parser = instance_name)]
    name: String,

    /// The directory for both files.
    #[arg(long, value_name = "DIR", default_value = "/etc/narrows")]
    directory: PathBuf,

    /// Show the plan and exit.
    #[arg(long)]
    dry_run: bool,

    /// Do not ask for confirmation.
    #[arg(short, long)]
    yes: bool,

    /// Overwrite the files of an earlier setup and restart its service.
    #[arg(long)]
    force: bool,

    /// Show the running instance for this many seconds; 0 for none.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(0..=3600))]
    watch: u64,
}

/// The names of the interfaces that may be ports.
pub fn interfaces() -> Vec<String> {
    interfaces::list().into_iter().map(|interface| interface.name).collect()
}

fn links() -> PossibleValuesParser {
    let link = |(name, what)| {
        let also = policy::ALSO.iter().filter(|(_, of)| *of == name).map(|(also, _)| *also);
        PossibleValue::new(name).help(what).aliases(also)
    };
    let dsl = PossibleValue::new("dsl").help("ADSL up to 24 Mbit/s of downloads, VDSL2 above");
    policy::LINKS.map(link).into_iter().chain([dsl]).collect::<Vec<_>>().into()
}

/// How many bytes the header of Ethernet has at `port`; at an ifb packets are as at its port.
fn header_at(forwarding: &Forwarding, port: &str) -> u32 {
    let device = forwarding.arriving_through(port).unwrap_or(port);
    let is_headerless = Link::by_name(device).is_ok_and(|link| link.status.headerless);
    if is_headerless { 0 } else { ETHERNET_HEADER }
}

/// An instance name that systemd accepts without escapes and that is a file name.
fn instance_name(text: &str) -> Result<String, String> {
    let letters = |letter: char| letter.is_ascii_alphanumeric() || "_.".contains(letter);
    let is_good =
        !text.starts_with('.') && text.chars().all(letters) && (1..=64).contains(&text.len());
    is_good
        .then(|| text.to_owned())
        .ok_or_else(|| "letters, digits, _ and . make a name".to_owned())
}

impl Setup {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        if !self.dry_run {
            // Before any question is asked in vain.
            steps::check(&self.directory, &self.name, self.force)?;
        }
        if let Some(port) = &self.port {
            let forwarding = Forwarding::host(std::slice::from_ref(port))?;
            let text = policy::of_host(port, self.per_source);
            return self.carry_out(&forwarding, PlaneKind::Xdp, &text);
        }
        let stdin = io::stdin();
        let forwarding = match (&self.stick, self.vlans) {
            (Some(device), Some(pair)) => Some(Forwarding::stick(device, &[pair])?),
            _ if !self.router.is_empty() => Some(Forwarding::router(&self.router)?),
            _ if self.wan.len() == 1 => Some(Forwarding::host(&self.wan)?.with_ifbs(&self.wan)?),
            _ if !self.wan.is_empty() => Some(Forwarding::host(&self.wan)?),
            _ => None,
        };
        let mut given = Answers {
            ports: self.ports.clone(),
            forwarding,
            down: self.down.clone(),
            up: self.up.clone(),
            link: self.link.clone(),
        };
        if stdin.is_terminal() {
            given.ask(&interfaces::list(), &mut stdin.lock(), &mut io::stderr())?;
        }
        let line = given.complete()?;
        if line.forwarding.is_host() {
            let text = policy::of_router(&line, |port| header_at(&line.forwarding, port));
            return self.carry_out(&line.forwarding, PlaneKind::Host, &text);
        }
        self.carry_out(&line.forwarding, PlaneKind::Xsk, &policy::text(&line))
    }

    /// Shows the plan for the ports of `forwarding` on `plane` with the policy `text`, and carries
    /// it out.
    fn carry_out(
        &self,
        forwarding: &Forwarding,
        plane: PlaneKind,
        text: &str,
    ) -> anyhow::Result<ExitCode> {
        let stdin = io::stdin();
        let session = super::run::default_session()?;
        let wanted = wanted(forwarding, FailMode::Open, plane, &session);
        let wanted = Wanted { skip_netfilter: self.skip_netfilter, ..wanted };
        let findings = examine(forwarding, &wanted);
        let (good, rest): (Vec<_>, Vec<_>) =
            findings.into_iter().partition(|finding| finding.severity == doctor::Severity::Ok);
        output::say(format_args!("doctor: {} checks are good", good.len()));
        output::text(doctor::render(&rest));

        let more = match plane {
            PlaneKind::Host => &["--plane", "host"][..],
            _ if self.skip_netfilter => &["--skip-netfilter"],
            _ => &[],
        };
        let systemd = steps::has_systemd();
        let plan = steps::Plan::new(&self.directory, &self.name, forwarding, text, more, systemd)?;
        output::text(&plan);
        let blocked = doctor::blockers(&rest).count();
        if self.dry_run {
            output::say("dry run: nothing was done");
            return Ok(if blocked == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        if blocked > 0 {
            bail!("the host is not ready: mend what each BLOCKER says, and run this again");
        }
        if !self.yes {
            if !stdin.is_terminal() {
                bail!(
                    "no terminal to ask at: give --yes to continue, or --dry-run to only show the plan"
                );
            }
            let question = Question { text: "Do this?", hint: "yes or no", preset: Some("yes") };
            if !question.put(&mut stdin.lock(), &mut io::stderr(), answers::yes_or_no)? {
                output::say("nothing was done");
                return Ok(ExitCode::FAILURE);
            }
        }
        plan.write()?;
        if !plan.start(self.force)? {
            return Ok(ExitCode::SUCCESS);
        }
        // What comes from the Internet leaves through the second port, if there is one.
        let [first, others @ ..] = forwarding.names() else { bail!("there are no ports") };
        steps::watch(others.first().unwrap_or(first), Duration::from_secs(self.watch))?;
        output::say(format_args!(
            "the policy is {}; after an edit: systemctl reload narrows@{}",
            plan.policy_file(),
            self.name
        ));
        Ok(ExitCode::SUCCESS)
    }
}
