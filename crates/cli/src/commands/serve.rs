//! `narrows serve`.

use clap::Args;
use narrows_serve::{Credentials, Options};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Serve a running instance over HTTP: metrics for Prometheus and a page for a browser.
///
/// /metrics has node_exporter's node_qdisc_* for root qdiscs and narrows_* for the rest; / is a
/// page that works offline, with an hour of history; /api/snapshot and /api/history are its data.
///
/// It needs no privileges, but only the user of an instance, and root, may ask it: run it as that
/// user (`sudo -u narrows narrows serve` beside narrows@.service), in the same network namespace.
/// It only reads.
#[derive(Args)]
#[command(after_long_help = "Examples:
  narrows serve
  narrows serve --listen 192.0.2.1:9466 --credentials /etc/narrows/serve.credentials")]
pub struct Serve {
    /// Where to listen. An address that is not loopback needs --credentials.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9466")]
    listen: SocketAddr,

    /// A file whose first line is USER:PASSWORD, asked for by HTTP basic authentication. Others
    /// must not be able to read it. There is no encryption: put a proxy with TLS before it.
    #[arg(long, value_name = "FILE")]
    credentials: Option<PathBuf>,

    /// The instance that has this port, where several run.
    #[arg(long, value_name = "DEV")]
    dev: Option<String>,

    /// Seconds between two looks at the instance, 1 to 3600, however many clients there are.
    #[arg(long, value_name = "SECONDS", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,

    /// Export metrics of at most as many classes and qdiscs. Those left out are counted.
    #[arg(long, value_name = "N", default_value_t = 500)]
    classes_max: usize,

    /// Names of classes, a line `1:10 NAME` each. Default: tc's /etc/iproute2/tc_cls.
    #[arg(long, value_name = "FILE")]
    names: Option<PathBuf>,
}

impl Serve {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let credentials = self.credentials.as_deref().map(Credentials::read).transpose()?;
        let options = Options {
            listen: self.listen,
            credentials,
            dev: self.dev,
            interval: Duration::from_secs(self.interval),
            classes_max: self.classes_max,
            names: super::show::names(self.names.as_deref())?,
        };
        narrows_serve::run(options, |address| log::info!("http://{address}/"))?;
        Ok(ExitCode::SUCCESS)
    }
}
