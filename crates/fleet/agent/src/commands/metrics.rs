//! `narrows-fleet metrics`.

use clap::Args;
use narrows_fleet::view::{Subject, ask};
use narrows_program::output;

/// Print metrics of the running agent as Prometheus' text, for node_exporter's textfile collector.
#[derive(Args)]
#[command(after_long_help = "Example, from a timer:
  narrows-fleet metrics >/var/lib/prometheus/node-exporter/fleet.prom.new &&
  mv /var/lib/prometheus/node-exporter/fleet.prom{.new,}")]
pub struct Metrics {
    #[command(flatten)]
    asked: super::Asked,
}

impl Metrics {
    pub fn execute(self) -> anyhow::Result<()> {
        let text = ask(&self.asked.view()?, Subject::Metrics)?;
        output::data(&text);
        Ok(())
    }
}
