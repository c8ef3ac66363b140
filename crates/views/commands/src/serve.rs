//! `narrows serve`.

use crate::former_name;
use anyhow::Context as _;
use clap::Args;
use narrows_control::NamesFile;
use narrows_control::fleet_agent::AgentSocket;
use narrows_serve::{ApiOptions, Apply, Credentials, Options, Tokens};
use narrows_store::Store;
use narrows_sync::{Applied, Applier, ApplyError, FilesWriter, Settings};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// `127.0.0.1:9466`.
fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "an address and a port from 0 to 65535, as 127.0.0.1:9466 or [::1]:9466".to_owned()
    })
}

/// Serve a running instance over HTTP: metrics for Prometheus and a page for a browser.
///
/// / is a page that works offline, with an hour of history; /api/snapshot and /api/history are its
/// data. /metrics has node_exporter's node_qdisc_* for root qdiscs, and narrows_* for the rest.
///
/// /api/v1 has the directory of sites and subscribers that narrows-sync keeps; its description is
/// /api/v1/openapi.json.
///
/// With --history it keeps a year of ports, sites and subscribers in a file, for
/// /api/history/series, /api/quality and `narrows history`; with --alarms it tells when something
/// is wrong. A class with a name (--names) is a subscriber, and one with classes below it a site.
///
/// It only reads, unless --write-tokens names those who may change the directory. It needs no
/// privileges, but an instance answers only its own user and root: run
/// it as that user (`sudo -u narrows narrows serve` beside narrows@.service), in the same network
/// namespace.
#[derive(Args)]
#[command(after_long_help = "Examples:
  narrows serve
  narrows serve --listen 192.0.2.1:9466 --credentials /etc/narrows/serve.credentials
  narrows serve --write-tokens /etc/narrows/api.tokens
  narrows serve --history /var/lib/narrows/history.sqlite --alarms /etc/narrows/alarms")]
pub struct Serve {
    /// Where to listen. An address that is not loopback needs --credentials.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9466")]
    #[arg(value_parser = socket_address)]
    listen: SocketAddr,

    /// A file whose first line is USER:PASSWORD, for HTTP basic authentication. Others must not be
    /// able to read it. HTTP is not encrypted: put a proxy with TLS in front.
    #[arg(long, value_name = "FILE")]
    credentials: Option<PathBuf>,

    /// A port of the instance; needed if several run here.
    #[arg(long, value_name = "DEV")]
    dev: Option<String>,

    /// The port towards the subscribers: what leaves there is called download, all else upload.
    /// Default: of several ports the one with most classes, or the last one of these.
    #[arg(long, value_name = "DEV")]
    downlink: Option<String>,

    /// Seconds between two queries to the instance, 1 to 3600, however many clients there are.
    #[arg(long, value_name = "SECONDS", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,

    /// Export metrics of at most N classes and N qdiscs of each port: of both directions. A metric
    /// counts those left out.
    #[arg(long, value_name = "N", default_value_t = 500)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    classes_max: u32,

    /// Names of classes, a line `1:10 NAME` each. Default: tc's /etc/iproute2/tc_cls.
    #[arg(long, value_name = "FILE")]
    names: Option<PathBuf>,

    /// The socket of the fleet's agent, where its configuration has it elsewhere. Default:
    /// $NARROWS_FLEET_SOCKET, or the usual one in /run/narrows.
    #[arg(long, value_name = "PATH")]
    fleet_socket: Option<PathBuf>,

    /// The file with the directory of subscribers, as narrows-sync keeps it.
    #[arg(long, value_name = "FILE", default_value = "/var/lib/narrows/directory.sqlite")]
    directory: PathBuf,

    /// Let the API change the directory and the instance. FILE has a line for each who may: read or
    /// write, and a token of at least 32 characters (openssl rand -hex 32). Others must not be able
    /// to read it.
    #[arg(long, value_name = "FILE")]
    write_tokens: Option<PathBuf>,
    /// Keep a year of history in FILE, which is made if it is missing: docs/history.md.
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,

    /// Keep the history of at most N ports and classes. A metric counts those left out.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    history_max: u32,

    /// Watch for what the rules in FILE say, such as `delay p99 > 50ms for 5m`: docs/alarms.md.
    #[arg(long, value_name = "FILE")]
    alarms: Option<PathBuf>,
}

impl Serve {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        if let Some(file) = &self.history {
            former_name::adopt(file)?;
        }
        let credentials = self.credentials.as_deref().map(Credentials::read).transpose()?;
        let apply = apply(&self.directory, self.write_tokens.is_some());
        let options = Options {
            listen: self.listen,
            credentials,
            dev: self.dev,
            downlink: self.downlink,
            interval: Duration::from_secs(self.interval),
            classes_max: self.classes_max as usize,
            names: names(self.names.as_deref())?,
            agent: AgentSocket::new(self.fleet_socket),
            api: Some(ApiOptions {
                store: self.directory,
                tokens: self.write_tokens.as_deref().map(Tokens::read).transpose()?,
                apply,
            }),
            history: self.history,
            history_max: self.history_max as usize,
            alarms: self.alarms,
        };
        narrows_serve::run(options, |address| log::info!("http://{address}/"))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The names of classes in `file`, or in that of `tc`.
///
/// # Errors
/// If a file that is named cannot be read.
pub fn names(file: Option<&Path>) -> anyhow::Result<NamesFile> {
    NamesFile::open(file).with_context(|| {
        format!("cannot read the names of classes in {}", file.unwrap_or(Path::new("")).display())
    })
}

/// Applies the directory at `store` as narrows-sync did the last time. Nobody waits for the files
/// from which an instance starts, unless none runs; those that a server before this one has not
/// come to are written now, if this one `writes`.
fn apply(store: &Path, writes: bool) -> Apply {
    let applier: Mutex<Option<Applier>> = Mutex::default();
    let files = FilesWriter::of(store.to_owned());
    if writes
        && store.exists()
        && let Some(settings) = Store::open(store).ok().and_then(|store| settings(&store).ok())
    {
        files.write_within(Duration::ZERO, &settings);
    }
    Apply::new(move |store| {
        // What a panic leaves is only what was compiled last.
        let mut applier = applier.lock().unwrap_or_else(PoisonError::into_inner);
        let settings = settings(store)?;
        if applier.as_ref().is_none_or(|applier| *applier.settings() != settings) {
            *applier = Some(Applier::new(settings));
        }
        let Some(applier) = applier.as_mut() else { return Ok(()) };
        let said = |error: ApplyError| error.to_string();
        let Applied { commands, warnings, .. } =
            applier.apply_without_files(store).map_err(said)?;
        let settings = applier.settings();
        match (commands, &settings.policy) {
            (Some(_), _) => files.write_within(Duration::ZERO, settings),
            (None, Some(_)) => drop(applier.write_files(store).map_err(said)?),
            (None, None) => {
                let port = &settings.ports.subscribers;
                return Err(format!(
                    "no instance has the port {port}, and no policy file is kept: start the instance"
                ));
            }
        }
        for line in warnings.lines() {
            log::warn!("{line}");
        }
        Ok(())
    })
}

fn settings(store: &Store) -> Result<Settings, String> {
    let last = Settings::last(store).map_err(|error| error.to_string())?;
    last.ok_or_else(|| {
        "nobody has said which ports the directory is for: run narrows-sync apply --ports \
         INTERNET,SUBSCRIBERS once"
            .to_owned()
    })
}
