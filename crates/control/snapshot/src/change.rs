//! Rates between two snapshots of one instance.
//!
//! A rate is the difference of a counter divided by the difference of the uptimes, so it does not
//! depend on when a client asks. A counter that went back (a class was created again, the instance
//! was restarted) has no rate: `None`, not zero.

use crate::{Class, Delays, Figures, Port, Qdisc, Queue, Snapshot};
use std::cell::OnceCell;
use std::collections::HashMap;

/// Two snapshots of one instance, and the time between them.
#[derive(Clone, Debug)]
pub struct Change<'a> {
    seconds: f64,
    earlier: &'a Snapshot,
    /// The earlier classes, by port and handle: there may be many. Made when one is asked for.
    classes: OnceCell<HashMap<(&'a str, &'a str), &'a Class>>,
}

/// The rates of a queue; `None` if a counter went back.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QueueRates {
    /// Received, in bits per second of frames.
    pub rx_bps: Option<f64>,
    /// Received, in packets per second.
    pub rx_pps: Option<f64>,
    /// Sent, in bits per second of frames.
    pub tx_bps: Option<f64>,
    /// Sent, in packets per second.
    pub tx_pps: Option<f64>,
    /// Dropped, in packets per second.
    pub drops_pps: Option<f64>,
}

/// The rates of a qdisc or class; `None` if a counter went back.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FigureRates {
    /// Sent, in bits per second, with bytes as the kind counts them.
    pub bps: Option<f64>,
    /// Sent, in packets per second.
    pub pps: Option<f64>,
    /// Dropped, in packets per second.
    pub drops_pps: Option<f64>,
}

impl<'a> Change<'a> {
    /// From `earlier` to `later`. `None` if `later` does not continue `earlier`: the instance was
    /// restarted, or no time passed.
    pub fn between(earlier: &'a Snapshot, later: &Snapshot) -> Option<Self> {
        let seconds = later.uptime_s - earlier.uptime_s;
        (seconds > 0.0).then_some(Self { seconds, earlier, classes: OnceCell::new() })
    }

    /// The time between the two, in seconds.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// The growth of a counter per second.
    pub fn per_second(&self, was: u64, is: u64) -> Option<f64> {
        is.checked_sub(was).map(|grown| grown as f64 / self.seconds)
    }

    /// The growth of a counter of seconds, per second; 1 means all the time. `None` if it went
    /// back.
    pub fn share(&self, was_s: f64, is_s: f64) -> Option<f64> {
        let grown = is_s - was_s;
        (grown >= 0.0).then_some(grown / self.seconds)
    }

    /// The earlier state of the port with this name.
    pub fn port(&self, name: &str) -> Option<&'a Port> {
        self.earlier.port(name)
    }

    /// The earlier snapshot.
    pub fn earlier(&self) -> &'a Snapshot {
        self.earlier
    }

    /// The rates of all queues of `port` together.
    pub fn of_port(&self, port: &Port) -> QueueRates {
        self.port(&port.name)
            .map_or_else(QueueRates::default, |was| self.queue(&was.total, &port.total))
    }

    /// The rates of one queue of `port`.
    pub fn of_queue(&self, port: &Port, number: usize) -> QueueRates {
        let was = self.port(&port.name).and_then(|was| was.per_queue.get(number));
        match (was, port.per_queue.get(number)) {
            (Some(was), Some(is)) => self.queue(was, is),
            _ => QueueRates::default(),
        }
    }

    /// The rates of `class` on the port with this name.
    pub fn of_class(&self, port: &str, class: &Class) -> FigureRates {
        match self.class(port, class) {
            Some(was) => self.figures(&was.stats.figures, &class.stats.figures),
            None => FigureRates::default(),
        }
    }

    /// The rates of `qdisc` on the port with this name.
    pub fn of_qdisc(&self, port: &str, qdisc: &Qdisc) -> FigureRates {
        match self.qdisc(port, qdisc) {
            Some(was) => self.figures(&was.figures, &qdisc.figures),
            None => FigureRates::default(),
        }
    }

    /// The earlier state of `class` of the port with this name.
    pub fn class(&self, port: &str, class: &Class) -> Option<&'a Class> {
        let of_port = |port: &'a Port| {
            let key = |class: &'a Class| (port.name.as_str(), class.handle.as_str());
            port.classes.iter().map(move |class| (key(class), class))
        };
        let classes =
            self.classes.get_or_init(|| self.earlier.ports.iter().flat_map(of_port).collect());
        classes.get(&(port, class.handle.as_str())).copied()
    }

    /// The earlier state of `qdisc` on the port with this name: the same kind in the same place.
    pub fn qdisc(&self, port: &str, qdisc: &Qdisc) -> Option<&'a Qdisc> {
        let place = |it: &Qdisc| (it.kind.clone(), it.handle.clone(), it.parent.clone());
        self.port(port)?.qdiscs.iter().find(|was| place(was) == place(qdisc))
    }

    /// The delays of packets that left through `port` between the snapshots.
    pub fn delays_of_port(&self, port: &Port) -> Delays {
        let is = &port.delays;
        self.port(&port.name).map_or_else(|| is.clone(), |was| is.since(&was.delays))
    }

    /// The round trips beyond `port` between the snapshots, if they are measured.
    pub fn round_trips_of_port(&self, port: &Port) -> Option<Delays> {
        let is = &port.round_trips.as_ref()?.times;
        let was = self.port(&port.name).and_then(|was| was.round_trips.as_ref());
        Some(was.map_or_else(|| is.clone(), |was| is.since(&was.times)))
    }

    /// The delays of packets that `class` on the port with this name sent between the snapshots;
    /// all that it has sent if it was created again.
    pub fn delays_of_class(&self, port: &str, class: &Class) -> Delays {
        let is = &class.stats.delays;
        self.class(port, class).map_or_else(|| is.clone(), |was| is.since(&was.stats.delays))
    }

    fn queue(&self, was: &Queue, is: &Queue) -> QueueRates {
        QueueRates {
            rx_bps: self.bits(was.rx_bytes, is.rx_bytes),
            rx_pps: self.per_second(was.rx_packets, is.rx_packets),
            tx_bps: self.bits(was.tx_bytes, is.tx_bytes),
            tx_pps: self.per_second(was.tx_packets, is.tx_packets),
            drops_pps: self.per_second(was.drops, is.drops),
        }
    }

    fn figures(&self, was: &Figures, is: &Figures) -> FigureRates {
        FigureRates {
            bps: self.bits(was.bytes, is.bytes),
            pps: self.per_second(was.packets, is.packets),
            drops_pps: self.per_second(was.drops, is.drops),
        }
    }

    /// The growth of a counter of bytes, in bits per second.
    pub fn bits(&self, was_bytes: u64, is_bytes: u64) -> Option<f64> {
        self.per_second(was_bytes, is_bytes).map(|bytes| bytes * 8.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(uptime_s: f64, tx_bytes: u64, class_bytes: u64) -> Snapshot {
        let mut class = Class { handle: "1:10".into(), ..Class::default() };
        class.stats.figures.bytes = class_bytes;
        let queue = Queue { tx_bytes, ..Queue::default() };
        let port = Port {
            name: "eth1".into(),
            total: queue.clone(),
            per_queue: vec![queue],
            classes: vec![class],
            ..Port::default()
        };
        Snapshot { uptime_s, ports: vec![port], ..Snapshot::default() }
    }

    #[test]
    fn a_rate_is_a_difference_over_uptime() {
        let (was, is) = (at(10.0, 1_000, 0), at(12.0, 3_500, 500));
        let change = Change::between(&was, &is).unwrap();
        assert_eq!(change.seconds(), 2.0);
        assert_eq!(change.of_port(&is.ports[0]).tx_bps, Some(10_000.0));
        assert_eq!(change.of_queue(&is.ports[0], 0).tx_bps, Some(10_000.0));
        assert_eq!(change.of_class("eth1", &is.ports[0].classes[0]).bps, Some(2_000.0));
    }

    #[test]
    fn a_counter_that_went_back_has_no_rate_and_spoils_no_other() {
        let (was, is) = (at(10.0, 1_000, 9_000), at(11.0, 2_000, 500));
        let change = Change::between(&was, &is).unwrap();
        assert_eq!(change.of_class("eth1", &is.ports[0].classes[0]).bps, None);
        assert_eq!(change.of_port(&is.ports[0]).tx_bps, Some(8_000.0));
    }

    #[test]
    fn new_counters_have_no_rate_yet() {
        let (mut was, is) = (at(10.0, 0, 0), at(11.0, 1, 1));
        was.ports[0].classes.clear();
        was.ports[0].per_queue.clear();
        let change = Change::between(&was, &is).unwrap();
        assert_eq!(change.of_class("eth1", &is.ports[0].classes[0]), FigureRates::default());
        assert_eq!(change.of_queue(&is.ports[0], 0), QueueRates::default());
    }

    #[test]
    fn an_instance_that_was_started_again_is_no_continuation() {
        let (was, is) = (at(10.0, 1_000, 0), at(2.0, 5_000, 0));
        assert!(Change::between(&was, &is).is_none());
        assert!(Change::between(&was, &was).is_none());
    }
}
