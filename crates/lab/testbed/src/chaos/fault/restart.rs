//! SIGTERM: the backlog may leave, the last counts are printed, a new start takes over.

use super::{Fault, IN_FLIGHT, PROMISED, Trace, millis};
use crate::chaos::books::{Destroyed, Drops};
use crate::chaos::frame::Way;
use crate::chaos::rng::Rng;
use crate::chaos::sender::now;
use crate::chaos::span::Span;
use crate::chaos::world::{World, add};
use anyhow::{Context, Result, ensure};
use std::thread;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Restart {
    /// How long nothing is shaped.
    away: Duration,
}

impl Restart {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        Self { away: rng.millis(0..300) }
    }
}

impl Fault for Restart {
    fn describe(&self) -> String {
        format!("SIGTERM, started again after {}", millis(self.away))
    }

    fn outage(&self) -> Option<Duration> {
        Some(PROMISED)
    }

    fn strike(&self, world: &mut World<'_>) -> Result<Trace> {
        let asked = now()?;
        let (status, log) = world.take()?.stop()?;
        let gone = now()?;
        ensure!(status.success(), "narrows ended with {status}:\n{log}");
        let of_ports = |way| -> Result<Drops> {
            let mut drops = Drops::new();
            for port in world.ports_out(way) {
                add(&mut drops, &dropped(&log, port)?);
            }
            Ok(drops)
        };
        let last = [of_ports(Way::Forth)?, of_ports(Way::Back)?];
        world.life_ended(&last);
        thread::sleep(self.away);
        world.start()?;
        // A veth whose XDP program is detached frees the frames in its rings without counting them.
        let sent = Span::new(asked, gone).widened(IN_FLIGHT, IN_FLIGHT);
        Ok(Trace {
            destroyed: vec![Destroyed { by: "in a veth's ring as XDP was detached", sent }],
            unshaped: Some(Span::new(asked, now()?)),
            bypassed: true,
            ..Trace::default()
        })
    }
}

/// The drops at `port` by reason, from the last output of an instance.
fn dropped(log: &str, port: &str) -> Result<Drops> {
    let begin = format!("{port}: ");
    let mut lines = log.lines().skip_while(|line| !line.starts_with(&begin));
    let total = lines.find(|line| line.trim_start().starts_with("total "));
    let total = total.with_context(|| format!("narrows has not summed up {port}:\n{log}"))?;
    let Some((_, reasons)) = total.rsplit_once('(') else { return Ok(Drops::new()) };
    let reasons = reasons.trim_end_matches(')').split(", ");
    let one = |reason: &str| {
        let (name, count) = reason.split_once(' ')?;
        Some((name.to_owned(), count.parse().ok()?))
    };
    reasons.map(|reason| one(reason).with_context(|| format!("no count: {total}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "ready\n[INFO] port-b: something else\n\
        port-a: native copy, mtu 1500, 4 queues, qdisc tbf\n\
        \x20 total  : rx 1 pkt 60 B, tx 5 pkt 500 B, backlog 0 pkt 0 B, dropped 0\n\
        port-b: native copy, mtu 1500, 4 queues, qdisc tbf\n\
        \x20 total  : rx 1 pkt 60 B, tx 5 pkt 500 B, backlog 0 pkt 0 B, dropped 4 (limit 3, port_gone 1)\n\
        \x20 queue 0: rx 1 pkt 60 B, tx 5 pkt 500 B, backlog 0 pkt 0 B, dropped 4 (limit 9)\n";

    #[test]
    fn the_final_report_counts_drops() {
        let found = dropped(LOG, "port-b").unwrap();
        assert_eq!(found, Drops::from([("limit".to_owned(), 3), ("port_gone".to_owned(), 1)]));
        assert_eq!(dropped(LOG, "port-a").unwrap(), Drops::new());
    }

    #[test]
    fn without_last_words_nothing_is_believed() {
        assert!(dropped("ready\n", "port-a").is_err());
    }
}
