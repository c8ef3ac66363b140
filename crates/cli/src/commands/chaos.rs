//! `narrows chaos`.

use super::report::print;
use super::run::{Plane, Xdp};
use crate::output::{self, Format};
use anyhow::bail;
use clap::Args;
use narrows_testbed::chaos::{self, Kind};
use narrows_testbed::interrupt;
use std::process::ExitCode;
use std::time::Duration;

/// Inject faults into a running Narrows under traffic, and check its guarantees.
///
/// Numbered packets pass both ways between network namespaces. Meanwhile, in an order that the seed
/// determines, the process is killed, stopped, restarted and upgraded, a worker hangs, ports go
/// down and change their queues and MTU, the standby bridge breaks, policies and classes change,
/// cores are taken away, and floods arrive. Every packet must be accounted for, no outage of a flow
/// may exceed its bound, no flow may be reordered in normal operation, and the limit must hold.
///
/// With --balancer, servers come, drain, go, are down and are replaced while packets of a service
/// go to them, and the process is killed, restarted and upgraded: no flow may leave a server that
/// stays, and without a process packets go to the box.
///
/// With --fleet, boxes share a limit, and their agents, NATS servers, wires and instances are
/// killed, stand still, are cut and come back: the sum of all may not exceed the limit by more than
/// the boxes' buckets hold, and each box must have its share again. It needs narrows-fleet beside
/// this program, and nats-server.
///
/// Fails if a guarantee is broken, and prints the seed. Needs root.
#[derive(Args)]
#[command(after_long_help = "Examples:
  narrows chaos --seed 1 --duration 60s
  narrows chaos --only kill,upgrade
  narrows chaos --router --duration 60s
  narrows chaos --balancer --duration 60s
  narrows chaos --fleet --boxes 8 --duration 60s
  narrows chaos --plane xdp")]
pub struct Chaos {
    /// The seed; the same seed gives the same sequence of faults.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// The duration, in seconds or with a unit: 45, 90s, 3m.
    #[arg(long, value_name = "TIME", default_value = "3m", value_parser = parse_duration)]
    duration: Duration,

    /// A router of three ports under test, and not a wire. Routes and neighbours change then, too.
    #[arg(long)]
    router: bool,

    /// A balancer under test. Servers take turns with an odd seed.
    #[arg(long, conflicts_with_all = ["router", "plane", "xdp", "only"])]
    balancer: bool,

    /// A fleet of boxes that share a limit.
    #[arg(long, conflicts_with_all = ["router", "balancer", "plane", "xdp", "only"])]
    fleet: bool,

    /// With --fleet: how many boxes, 2 to 16.
    #[arg(long, value_name = "N", requires = "fleet", default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=16))]
    boxes: u8,

    /// The plane under test. In the driver there are no workers to hang.
    #[arg(long, value_enum, default_value_t = Plane::Xsk)]
    plane: Plane,

    /// Where its programs run, as in `narrows run`.
    #[arg(long, value_name = "HOOK")]
    xdp: Option<Xdp>,

    /// Only these kinds of faults, separated by commas.
    #[arg(long, value_name = "KIND,..", value_delimiter = ',', value_parser = parse_kind)]
    only: Vec<Kind>,

    #[command(flatten)]
    format: Format,
}

impl Chaos {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        output::report(format_args!("seed {}\n", self.seed));
        interrupt::watch()?;
        if self.balancer {
            let report = chaos::balancer::run(&chaos::balancer::Options {
                program: std::env::current_exe()?,
                seed: self.seed,
                duration: self.duration,
            })?;
            let end = print(&report, self.format)?;
            return Ok(if report.is_good() { end } else { ExitCode::FAILURE });
        }
        if self.fleet {
            let program = std::env::current_exe()?;
            let report = chaos::fleet::run(&chaos::fleet::Options {
                agent: program.with_file_name("narrows-fleet"),
                program,
                boxes: self.boxes.into(),
                seed: self.seed,
                duration: self.duration,
                kinds: Vec::new(),
                is_greedy: false,
            })?;
            let end = print(&report, self.format)?;
            return Ok(if report.is_good() { end } else { ExitCode::FAILURE });
        }
        let report = chaos::run(&chaos::Options {
            program: std::env::current_exe()?,
            seed: self.seed,
            duration: self.duration,
            forwarding: match self.router {
                true => chaos::Forwarding::Router,
                false => chaos::Forwarding::Wire,
            },
            plane: match self.plane {
                Plane::Xsk => chaos::Plane::Xsk,
                Plane::Xdp => chaos::Plane::Xdp,
                Plane::Host => bail!("chaos joins two ports: use --plane xsk or xdp"),
            },
            hook: self.xdp.map(|hook| hook.hook().name().to_owned()),
            kinds: self.only,
            planted: None,
        })?;
        let end = print(&report, self.format)?;
        Ok(if report.is_good() { end } else { ExitCode::FAILURE })
    }
}

/// Whole seconds or minutes, up to a day.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let (digits, unit) = match text.strip_suffix(['s', 'm']) {
        Some(digits) if text.ends_with('m') => (digits, 60),
        Some(digits) => (digits, 1),
        None => (text, 1),
    };
    let seconds = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    match seconds {
        Some(seconds @ 1..=86_400) => Ok(Duration::from_secs(seconds)),
        _ => Err("give a time from 1s to 1440m, such as 45, 90s or 3m".to_owned()),
    }
}

fn parse_kind(text: &str) -> Result<Kind, String> {
    let names = || Kind::ALL.map(Kind::name).join(", ");
    Kind::named(text).ok_or_else(|| format!("the kinds are {}", names()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_seconds_or_has_a_unit() {
        for (text, seconds) in [("45", 45), ("90s", 90), ("3m", 180), ("1440m", 86_400)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for refused in ["", "0", "m", "s", "3h", "-1", "1.5m", "1441m", "99999999999999999999"] {
            assert!(parse_duration(refused).unwrap_err().contains("3m"), "{refused}");
        }
    }
}
