//! The text of `narrows show`.

use crate::{
    ConnectionIds, CountedBy, DeviceLosses, KernelDrops, OwnTraffic, Port, Queue, RoundTrips,
    Snapshot,
};
use narrows_escape::{indented, line};
use narrows_units::counted;
use std::collections::BTreeMap;
use std::fmt::Write;

/// A rate in a readable unit.
fn rate(bps: u64) -> String {
    narrows_units::Rate::from_bits_per_sec(bps).to_string()
}

fn reasons(drops: &BTreeMap<String, u64>) -> String {
    if drops.is_empty() {
        return String::new();
    }
    let list: Vec<String> =
        drops.iter().map(|(name, count)| format!("{} {count}", line(name))).collect();
    format!(" ({})", list.join(", "))
}

impl Snapshot {
    /// The text of `narrows show`.
    pub fn render(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let state = self.state_with(&format!("{:.0} s", self.uptime_s));
        write!(out, "narrows {state}, fail-{}", line(&self.fail))?;
        if let Some(keeper) = self.kept_by {
            write!(out, ", kept by process {keeper}")?;
        }
        match &self.waiting_for {
            Some(reason) => writeln!(out, ": {}", indented(reason))?,
            None => writeln!(out)?,
        }
        for warning in &self.warnings {
            writeln!(out, "warning: {}", indented(warning))?;
        }
        for port in &self.ports {
            port.write(out, self.fails_closed())?;
        }
        self.write_fleet(out)?;
        for worker in &self.workers {
            write!(out, "worker {}: cpu {}, ", worker.queue, worker.cpu)?;
            if let Some(seconds) = worker.silent_s {
                write!(out, "SILENT for {seconds:.1} s, before that ")?;
            }
            writeln!(
                out,
                "load {:.1} %, idle {:.1} s, {} frames = {} free + {} receiving + {} waiting \
                 + {} sending",
                worker.load * 100.0,
                worker.idle_s,
                worker.frames,
                worker.free_frames,
                worker.receiving_frames,
                worker.waiting_frames,
                worker.sending_frames,
            )?;
            if worker.stray_frames > 0 {
                let times = worker.stray_frames;
                writeln!(out, "  the kernel gave back frames that it did not have: {times}")?;
            }
        }
        let sum = &self.conservation;
        writeln!(
            out,
            "received {}{} = sent {}{} + queued {} + dropped {}{}, {} unaccounted",
            sum.received,
            sum.copies(),
            sum.sent,
            sum.kept(),
            sum.queued,
            sum.dropped.values().sum::<u64>(),
            reasons(&sum.dropped),
            sum.unaccounted
        )?;
        if sum.bypassed > 0 {
            writeln!(out, "bypassed {}: no worker saw them", sum.bypassed)?;
        }
        for event in &self.events {
            writeln!(out, "event: {}", indented(event))?;
        }
        Ok(())
    }
}

impl Snapshot {
    /// The limits that a fleet shares, as many as one reads.
    fn write_fleet(&self, out: &mut String) -> std::fmt::Result {
        for limit in self.fleet.iter().take(FLEET_LINES) {
            let [all, safe, now] = [limit.limit_bps, limit.safe_bps, limit.in_force_bps].map(rate);
            let (name, port, at) = (line(&limit.name), line(&limit.port), line(&limit.at));
            let why = match (limit.because.as_str(), limit.alone_s) {
                ("start", _) => "start: no agent has spoken yet".to_owned(),
                ("alone", Some(seconds)) => format!("alone: no agent for {seconds:.0} s"),
                (because, _) => line(because).into_owned(),
            };
            writeln!(
                out,
                "fleet {name}: {port} {at}, limit {all}, safe {safe}, in force {now} ({why})"
            )?;
        }
        match self.fleet.len().saturating_sub(FLEET_LINES) {
            0 => Ok(()),
            more => writeln!(out, "fleet: {more} more limits, see them with --json --trees"),
        }
    }
}

/// How many shared limits are listed.
const FLEET_LINES: usize = 40;

/// The outcomes of frames that a router and a switch forwarded.
const LEFT: [&str; 3] = ["routed", "by_flow", "switched"];

impl Port {
    fn write(&self, out: &mut String, is_closed: bool) -> std::fmt::Result {
        let (mtu, count) = (self.mtu, self.queues);
        let how = match self.counted_by {
            // Of a device that is not joined nothing is known.
            _ if mtu == 0 => "not joined".to_owned(),
            CountedBy::Queue => {
                let (xdp, copy) = (line(&self.xdp), line(&self.copy));
                format!("{xdp} {copy}, mtu {mtu}, {}", counted(count, "queue"))
            }
            CountedBy::Cpu => {
                let xdp = line(&self.xdp);
                let plane = match self.own_traffic {
                    None => format!("XDP plane ({xdp})"),
                    Some(OwnTraffic::Shaped) => format!("host plane ({xdp}, fq)"),
                    Some(OwnTraffic::Policed) => format!("host plane ({xdp}, policing)"),
                };
                format!("{plane}, mtu {mtu}, {}", counted(count, "receive queue"))
            }
        };
        write!(out, "{}: {how}, qdisc {}", line(&self.name), line(&self.qdisc))?;
        if let Some(set) = self.rate_set_bps {
            write!(out, ", rate {}", rate(set))?;
        }
        if let Some(follows) = &self.follows {
            let (least, most) = (rate(follows.least_bps), rate(follows.most_bps));
            write!(out, " (follows a line from {least} to {most}: {})", line(&follows.reason))?;
        }
        if let Some(bytes) = self.instance_bytes {
            write!(out, ", up to {bytes} B an instance")?;
        }
        writeln!(
            out,
            "; sending {}, receiving {}",
            rate(self.tx_rate_bps),
            rate(self.rx_rate_bps)
        )?;
        if self.no_carrier {
            writeln!(out, "  no carrier: packets sent here are lost in the kernel")?;
        }
        if self.delays.packets() > 0 {
            let [p50, p99, p999, max] = self.delays.formatted();
            writeln!(out, "  delay here: median {p50}, p99 {p99}, p99.9 {p999}, longest {max}")?;
        }
        if let Some(round_trips) = &self.round_trips {
            round_trips.write(out)?;
        }
        self.total.write(out, "  total  ")?;
        for (queue, counters) in self.per_queue.iter().enumerate() {
            counters.write(out, &format!("  {:<5} {queue}", self.counted_by.name()))?;
        }
        if !self.routes.is_empty() {
            self.write_routes(out)?;
        } else if self.counted_by == CountedBy::Cpu && self.to_self > 0 {
            writeln!(out, "  to the kernel: {} for this box", self.to_self)?;
        } else if self.to_self + self.unserved > 0 {
            writeln!(
                out,
                "  to the kernel: {} for this box, {} on queues without a worker",
                self.to_self, self.unserved
            )?;
        }
        if !self.front.is_empty() {
            let verdicts = self.front.iter().map(|(verdict, frames)| (verdict.as_str(), *frames));
            writeln!(out, "  front: {}", listed(verdicts))?;
        }
        if !self.balance.is_empty() {
            let outcomes = self.balance.iter().map(|(outcome, frames)| (outcome.as_str(), *frames));
            writeln!(out, "  services: {}", listed(outcomes))?;
        }
        if let Some(ConnectionIds { named, others }) = self.connection_ids {
            writeln!(out, "  QUIC: {named} by connection id, {others} without a server's")?;
        }
        if let Some(slow_path) = &self.slow_path {
            writeln!(
                out,
                "  sent by the kernel itself: {} pkt {} B, dropped {} pkt {} B",
                slow_path.sent_packets,
                slow_path.sent_bytes,
                slow_path.dropped_packets,
                slow_path.dropped_bytes
            )?;
        }
        if self.others > 0 {
            writeln!(out, "  to the kernel: {} in no VLAN that is a port", self.others)?;
        }
        if self.stalled > 0 {
            let fate = if is_closed { "dropped" } else { "to the kernel" };
            writeln!(out, "  {fate} while their worker was silent: {}", self.stalled)?;
        }
        if self.kernel_drops != KernelDrops::default() {
            let lost = &self.kernel_drops;
            writeln!(
                out,
                "  lost in the kernel: {} RX ring full, {} other; {} times no frame, \
                 {} + {} descriptors refused",
                lost.rx_ring_full,
                lost.rx_dropped,
                lost.fill_ring_empty,
                lost.rx_invalid,
                lost.tx_invalid
            )?;
        }
        if self.device_losses != DeviceLosses::default() {
            let lost = &self.device_losses;
            writeln!(
                out,
                "  lost by the device: sending {} dropped, {}, {} of them carrier; receiving {} \
                 dropped, {}, {} missed",
                lost.tx_dropped,
                counted(lost.tx_errors, "error"),
                lost.tx_carrier,
                lost.rx_dropped,
                counted(lost.rx_errors, "error"),
                lost.rx_missed
            )?;
        }
        Ok(())
    }

    /// What became of frames that a router or a switch got.
    fn write_routes(&self, out: &mut String) -> std::fmt::Result {
        let known = LEFT.iter().filter_map(|left| Some((*left, *self.routes.get(*left)?)));
        let mut outcomes: Vec<(&str, u64)> = known.collect();
        if outcomes.is_empty() {
            outcomes.push(("forwarded", 0));
        }
        let others = self.routes.iter().map(|(outcome, frames)| (outcome.as_str(), *frames));
        outcomes.extend(others.filter(|(outcome, _)| !LEFT.contains(outcome)));
        write!(out, "  {}", listed(outcomes))?;
        if self.unserved > 0 {
            write!(out, ", on queues without a worker {}", self.unserved)?;
        }
        writeln!(out)
    }
}

/// Outcomes with how many frames had them.
fn listed<'a>(outcomes: impl IntoIterator<Item = (&'a str, u64)>) -> String {
    let all = outcomes.into_iter();
    let all = all.map(|(outcome, frames)| format!("{} {frames}", line(&outcome.replace('_', " "))));
    all.collect::<Vec<_>>().join(", ")
}

impl Queue {
    fn write(&self, out: &mut String, name: &str) -> std::fmt::Result {
        writeln!(
            out,
            "{name}: rx {} pkt {} B, tx {} pkt {} B, backlog {} pkt {} B, dropped {}{}",
            self.rx_packets,
            self.rx_bytes,
            self.tx_packets,
            self.tx_bytes,
            self.backlog_packets,
            self.backlog_bytes,
            self.drops,
            reasons(&self.drops_by_reason)
        )
    }
}

impl RoundTrips {
    fn write(&self, out: &mut String) -> std::fmt::Result {
        if self.times.packets() > 0 {
            let [p50, p99, p999, _] = self.times.formatted();
            let shortest = self.times.shortest();
            writeln!(
                out,
                "  round trips beyond: shortest {shortest}, median {p50}, p99 {p99}, p99.9 {p999}"
            )?;
        }
        if let Some(shares) = self.losses.shares() {
            let [before, beyond] = shares.map(|share| share * 100.0);
            writeln!(
                out,
                "  TCP segments lost: {before:.2} % before they left, {beyond:.2} % beyond"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Conservation, LineFigures, SlowPath, Worker};

    #[test]
    fn a_port_that_is_not_joined_has_no_mode() {
        let mut show = show();
        let port = Port {
            xdp: "none".into(),
            copy: "none".into(),
            mtu: 0,
            queues: 0,
            ..show.ports[0].clone()
        };
        show.ports = vec![port.clone(), Port { counted_by: CountedBy::Cpu, ..port }];
        let text = show.render();
        assert_eq!(text.matches("eth2: not joined, qdisc ").count(), 2, "{text}");
        assert!(!text.contains("none") && !text.contains("mtu 0"), "{text}");
    }

    fn show() -> Snapshot {
        let queue = |tx_packets, reasons: &[(&str, u64)]| Queue {
            rx_packets: 1,
            rx_bytes: 60,
            tx_packets,
            tx_bytes: tx_packets * 100,
            tx_kicks: 3,
            backlog_packets: 2,
            backlog_bytes: 200,
            drops: reasons.iter().map(|(_, count)| count).sum(),
            drops_by_reason: reasons.iter().map(|&(name, n)| (name.to_owned(), n)).collect(),
        };
        Snapshot {
            state: "running".into(),
            waiting_for: None,
            uptime_s: 61.4,
            fail: "open (bridge nrwbr7)".into(),
            kept_by: Some(4711),
            warnings: Vec::new(),
            findings: Vec::new(),
            ports: vec![Port {
                name: "eth2".into(),
                xdp: "native".into(),
                copy: "copy".into(),
                no_carrier: true,
                mtu: 1500,
                queues: 1,
                qdisc: "cake".into(),
                rate_set_bps: Some(100_000_000),
                instance_bytes: Some(61_440),
                tx_rate_bps: 99_000_000,
                rx_rate_bps: 0,
                total: queue(5, &[("limit", 3), ("too_long", 1)]),
                per_queue: vec![queue(5, &[("limit", 3), ("too_long", 1)])],
                to_self: 9,
                unserved: 0,
                stalled: 0,
                kernel_drops: KernelDrops { rx_ring_full: 4, ..Default::default() },
                device_losses: DeviceLosses { tx_dropped: 6, ..Default::default() },
                ..Port::default()
            }],
            services: Vec::new(),
            fleet: Vec::new(),
            fleet_agent: None,
            workers: vec![Worker {
                load: 0.25,
                idle_s: 3.0,
                frames: 10,
                free_frames: 1,
                receiving_frames: 4,
                waiting_frames: 2,
                sending_frames: 3,
                ..Default::default()
            }],
            conservation: Conservation { received: 11, sent: 5, queued: 2, ..Default::default() },
            events: vec!["joined eth1 and eth2".into()],
        }
    }

    #[test]
    fn the_text_says_everything_in_the_words_of_the_field() {
        let expected = "\
narrows running for 61 s, fail-open (bridge nrwbr7), kept by process 4711
eth2: native copy, mtu 1500, 1 queue, qdisc cake, rate 100 Mbit/s, up to 61440 B an instance; sending 99 Mbit/s, receiving 0 bit/s
  no carrier: packets sent here are lost in the kernel
  total  : rx 1 pkt 60 B, tx 5 pkt 500 B, backlog 2 pkt 200 B, dropped 4 (limit 3, too_long 1)
  queue 0: rx 1 pkt 60 B, tx 5 pkt 500 B, backlog 2 pkt 200 B, dropped 4 (limit 3, too_long 1)
  to the kernel: 9 for this box, 0 on queues without a worker
  lost in the kernel: 4 RX ring full, 0 other; 0 times no frame, 0 + 0 descriptors refused
  lost by the device: sending 6 dropped, 0 errors, 0 of them carrier; receiving 0 dropped, 0 errors, 0 missed
worker 0: cpu 0, load 25.0 %, idle 3.0 s, 10 frames = 1 free + 4 receiving + 2 waiting + 3 sending
received 11 = sent 5 + queued 2 + dropped 0, 0 unaccounted
event: joined eth1 and eth2
";
        assert_eq!(show().render(), expected);
    }

    /// `value` with `hostile` behind every text in it and in the names of its counts.
    fn poisoned(value: &mut serde_json::Value, hostile: &str) {
        match value {
            serde_json::Value::String(text) if !["queue", "cpu"].contains(&text.as_str()) => {
                text.push_str(hostile);
            }
            serde_json::Value::Array(all) => all.iter_mut().for_each(|it| poisoned(it, hostile)),
            serde_json::Value::Object(fields) => {
                if let Some(reasons) = fields.get_mut("drops_by_reason") {
                    *reasons = serde_json::json!({ hostile: 1 });
                }
                fields.values_mut().for_each(|it| poisoned(it, hostile));
            }
            _ => {}
        }
    }

    proptest::proptest! {
        #[test]
        fn no_field_steers_the_terminal_or_looks_like_a_line(text in "(?s).{0,8}") {
            let hostile = format!("\x1b[2J\nevent: forged{text}\u{202e}");
            let mut show = show();
            show.warnings.push("w".into());
            show.waiting_for = Some("w".into());
            let mut value = serde_json::to_value(&show).unwrap();
            poisoned(&mut value, &hostile);
            let text = serde_json::from_value::<Snapshot>(value).unwrap().render();
            let is_wrong = |it: char| narrows_escape::is_hidden(it) && it != '\n';
            proptest::prop_assert!(!text.contains(is_wrong), "{text:?}");
            proptest::prop_assert!(!text.contains("\nevent: forged"), "{text}");
            proptest::prop_assert_eq!(text.matches("\nevent: ").count(), 1);
        }
    }

    #[test]
    fn what_connection_ids_lead_is_said() {
        let mut show = show();
        show.ports[0].connection_ids = Some(ConnectionIds { named: 7, others: 2 });
        let text = show.render();
        assert!(text.contains("  QUIC: 7 by connection id, 2 without a server's\n"), "{text}");
    }

    #[test]
    fn what_a_host_keeps_is_in_the_balance() {
        let mut show = show();
        show.conservation = Conservation { received: 11, to_box: 9, ..Conservation::default() };
        show.conservation.dropped.insert("filter".into(), 2);
        let line = "received 11 = sent 0 + to this box 9 + queued 0 + dropped 2 (filter 2), 0 un";
        assert!(show.render().contains(line), "{}", show.render());
    }

    #[test]
    fn the_xdp_plane_has_cpus_and_no_workers() {
        let mut show = show();
        let port = &mut show.ports[0];
        (port.counted_by, port.copy, port.queues) = (CountedBy::Cpu, "none".into(), 8);
        port.per_queue.push(Queue::default());
        let text = show.render();
        for line in [
            "eth2: XDP plane (native), mtu 1500, 8 receive queues, qdisc cake, rate 100 Mbit/s,",
            "  cpu   0: rx 1 pkt 60 B, tx 5 pkt 500 B,",
            "  cpu   1: rx 0 pkt 0 B, tx 0 pkt 0 B,",
            "  to the kernel: 9 for this box",
        ] {
            let is_there = text.lines().any(|shown| shown.starts_with(line));
            assert!(is_there, "{line}\nis not in\n{text}");
        }
        assert!(!text.contains("without a worker"), "{text}");
        let json = serde_json::to_value(&show.ports[0]).unwrap();
        assert_eq!(json["counted_by"], "cpu");
    }

    #[test]
    fn a_router_and_a_switch_say_what_became_of_frames() {
        let mut show = show();
        show.ports[0].routes = [("routed".into(), 7), ("no_neighbour".into(), 2)].into();
        show.ports[0].to_self = 2;
        let text = show.render();
        assert!(text.contains("\n  routed 7, no neighbour 2\n"), "{text}");
        assert!(!text.contains("for this box"), "{text}");
        show.ports[0].unserved = 5;
        let text = show.render();
        assert!(text.contains("no neighbour 2, on queues without a worker 5\n"), "{text}");
        show.ports[0].unserved = 0;
        show.ports[0].routes = [("by_flow".into(), 3), ("no_flow".into(), 1)].into();
        let text = show.render();
        assert!(text.contains("\n  by flow 3, no flow 1\n"), "{text}");
        // Before and after a firewall came.
        show.ports[0].routes.insert("routed".into(), 2);
        let text = show.render();
        assert!(text.contains("\n  routed 2, by flow 3, no flow 1\n"), "{text}");
        show.ports[0].routes = [("switched".into(), 5), ("group".into(), 2)].into();
        assert!(show.render().contains("\n  switched 5, group 2\n"));
        show.ports[0].routes = [("unknown_source".into(), 2)].into();
        assert!(show.render().contains("\n  forwarded 0, unknown source 2\n"));
    }

    #[test]
    fn what_the_kernel_sends_itself_is_told_apart() {
        let mut show = show();
        assert!(!show.render().contains("by the kernel itself"));
        show.ports[0].slow_path = Some(SlowPath {
            sent_packets: 3,
            sent_bytes: 180,
            dropped_packets: 2,
            dropped_bytes: 120,
        });
        let line = "\n  sent by the kernel itself: 3 pkt 180 B, dropped 2 pkt 120 B\n";
        assert!(show.render().contains(line), "{}", show.render());
    }

    #[test]
    fn a_silent_worker_and_bypassing_frames_are_named() {
        let mut show = show();
        show.workers[0].silent_s = Some(3.21);
        show.ports[0].stalled = 7;
        show.ports[0].others = 3;
        show.conservation.bypassed = 7;
        let text = show.render();
        for line in [
            "worker 0: cpu 0, SILENT for 3.2 s, before that load 25.0 %, idle 3.0 s, 10 frames = 1 free + 4 receiving + 2 waiting + 3 sending",
            "  to the kernel: 3 in no VLAN that is a port",
            "  to the kernel while their worker was silent: 7",
            "bypassed 7: no worker saw them",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line}\nis not in\n{text}");
        }
        show.fail = "closed".into();
        assert!(show.render().contains("  dropped while their worker was silent: 7"));
    }

    #[test]
    fn the_missing_condition_comes_first() {
        let waiting = "eth2 is down: `ip link set dev eth2 up`".to_owned();
        let show = Snapshot { state: "waiting".into(), waiting_for: Some(waiting), ..show() };
        let text = show.render();
        let first = text.lines().next().unwrap_or_default();
        // It has not waited since its start.
        assert!(first.starts_with("narrows waiting, started 61 s ago, fail-"), "{first}");
        assert!(first.ends_with(": eth2 is down: `ip link set dev eth2 up`"), "{first}");
    }

    #[test]
    fn a_limit_that_follows_a_line_says_between_which_rates_and_why() {
        let mut show = show();
        show.ports[0].follows = Some(LineFigures {
            least_bps: 2_000_000,
            most_bps: 40_000_000,
            rate_bps: 100_000_000,
            reason: "drained".into(),
        });
        let text = show.render();
        let expected = "rate 100 Mbit/s (follows a line from 2 Mbit/s to 40 Mbit/s: drained), up";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn json_omits_absent_fields_and_round_trips() {
        let mut show = show();
        show.ports[0].rate_set_bps = None;
        show.ports[0].instance_bytes = None;
        let text = serde_json::to_string(&show).unwrap();
        for absent in ["rate_set_bps", "instance_bytes", "waiting_for"] {
            assert!(!text.contains(absent), "{text}");
        }
        let back: Snapshot = serde_json::from_str(&text).unwrap();
        assert_eq!(back.render(), show.render());
    }
}
