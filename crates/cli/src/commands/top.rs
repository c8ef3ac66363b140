//! `narrows top`.

use crate::output;
use clap::Args;
use narrows_control::fleet_agent::AgentSocket;
use narrows_top::{App, Excerpt, Feed, Look, Source, View};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Watch a running instance: limit against delivered, queues, workers, classes, tins, drops,
/// the heaviest hosts and flows.
///
/// Run it in the network namespace of the instance, as the instance's user or as root. `?` lists
/// the keys. If the instance ends, top waits for it to return. NO_COLOR turns colours off.
#[derive(Args)]
#[command(after_long_help = "Examples:
  narrows top
  narrows top eth2 --interval 0.5 --view classes
  narrows top --once --view drops
  narrows top --once --view both --flat --sort 'Sent B' --rows 20")]
pub struct Top {
    /// A port of the instance; needed if several run here.
    #[arg(value_name = "DEV")]
    dev: Option<String>,

    /// Seconds between two snapshots, 0.1 to 3600.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,

    /// The first view; with --once, the only one.
    #[arg(long, value_name = "VIEW", value_parser = view)]
    view: Option<View>,

    /// Names of classes, a line `1:10 NAME` each. Default: tc's /etc/iproute2/tc_cls.
    #[arg(long, value_name = "FILE")]
    names: Option<PathBuf>,

    /// The socket of the fleet's agent, where its configuration has it elsewhere. Default:
    /// $NARROWS_FLEET_SOCKET, or the usual one in /run/narrows.
    #[arg(long, value_name = "PATH")]
    fleet_socket: Option<PathBuf>,

    /// Print one frame as text, with rates over one interval, and exit. Needs no terminal.
    #[arg(long)]
    once: bool,

    /// With --once: sort by this column, the largest first.
    #[arg(long, value_name = "COLUMN", requires = "once")]
    sort: Option<String>,

    /// With --once: one list instead of a tree.
    #[arg(long, requires = "once")]
    flat: bool,

    /// With --once: at most this many rows of each view.
    #[arg(
        long, value_name = "N", requires = "once",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000),
    )]
    rows: Option<u32>,
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if !(0.1..=3600.0).contains(&seconds) {
        return Err("between 0.1 and 3600 seconds".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn view(text: &str) -> Result<View, String> {
    let names = View::ALL.map(View::name).join(", ");
    View::from_name(text).ok_or_else(|| format!("one of {names}"))
}

impl Top {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let names = narrows_views::names(self.names.as_deref())?;
        let source = Source::find(self.dev.as_deref(), names)?;
        let mut source = source.with_agent(AgentSocket::new(self.fleet_socket))?;
        if self.once {
            let mut app = App::new(View::Queues);
            app.feed(Feed::Snapshot(Box::new(source.ask()?)));
            std::thread::sleep(self.interval);
            app.feed(Feed::Snapshot(Box::new(source.ask()?)));
            let Self { view: only, sort, flat: is_flat, rows, .. } = self;
            let rows = rows.map(|rows| rows as usize);
            let excerpt = Excerpt { only, sort, is_flat, rows };
            let text = narrows_top::once(&app, &excerpt, Look::from_environment());
            output::text(text.map_err(|why| anyhow::anyhow!("--sort: {why}"))?);
        } else {
            narrows_top::run(source, self.view.unwrap_or(View::Queues), self.interval)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
