//! All that is known of one subscriber, site or host.

use super::addresses::Network;
use super::heat::{self, Column};
use super::query::Kind;
use super::rows::Row;
use super::subject::{Side, Subject};
use super::{EventList, Model};
use narrows_quality::{Application, Direction, Evidence, Score, score};
use narrows_snapshot::{Class, Figures, Heavy, Port, Qdisc, Tin};
use serde::Serialize;
use serde_json::Value;
use std::net::IpAddr;

/// How many flows, and how many events.
const FLOWS_MAX: usize = 20;
const EVENTS_MAX: usize = 20;
/// How many addresses.
const ADDRESSES_MAX: usize = 50;

/// A site above.
#[derive(Debug, Serialize)]
struct Above<'a> {
    id: &'a str,
    name: &'a str,
}

/// One direction, beyond what a row has. Counters are since the start.
#[derive(Debug, Serialize)]
struct Totals<'a> {
    port: &'a str,
    qdisc: Option<&'a str>,
    #[serde(flatten)]
    figures: Figures,
    /// Packets that left by how long they stayed, since the start; `bounds` has the steps.
    delays: Column,
    /// What it lent and borrowed, in packets.
    lent: Option<Value>,
    borrowed: Option<Value>,
    /// Packets marked instead of dropped.
    marks: Option<Value>,
    tins: Vec<NamedTin>,
}

#[derive(Debug, Serialize)]
struct NamedTin {
    name: String,
    #[serde(flatten)]
    tin: Tin,
}

/// A flow.
#[derive(Debug, Serialize)]
pub(super) struct Flow<'a> {
    port: &'a str,
    name: &'a str,
    rate: u64,
    median: u64,
    delay: u64,
}

impl<'a> Flow<'a> {
    pub(super) fn new(port: &'a Port, flow: &'a Heavy) -> Self {
        Self {
            port: &port.name,
            name: &flow.name,
            rate: flow.bps,
            median: flow.delay_p50_us,
            delay: flow.delay_p99_us,
        }
    }
}

/// The page of one.
#[derive(Debug)]
pub(crate) struct Detail<'a> {
    model: &'a Model,
    subject: &'a Subject,
    kind: Kind,
}

impl<'a> Detail<'a> {
    /// Of the one with this id. None if there is none.
    pub(crate) fn find(model: &'a Model, kind: Kind, id: &str) -> Option<Self> {
        Some(Self { model, subject: model.find(kind, id)?, kind })
    }

    /// Its parts by name.
    pub(crate) fn parts(
        &self,
        events: &EventList,
    ) -> serde_json::Result<Vec<(&'static str, String)>> {
        let Subject { handle, down, up, .. } = self.subject;
        let text = serde_json::to_string::<Value>;
        let value = |totals: Option<Totals<'_>>| serde_json::to_value(totals);
        let path: Vec<Above<'_>> = self
            .model
            .path(self.subject)
            .filter_map(|place| self.model.subjects.get(place as usize))
            .map(|site| Above { id: &site.id, name: site.called() })
            .collect();
        // Both directions have a filter for each.
        let mut addresses: Vec<String> = Vec::new();
        for network in self.model.networks(self.subject) {
            let text = network.to_string();
            if !addresses.contains(&text) && addresses.len() < ADDRESSES_MAX {
                addresses.push(text);
            }
        }
        let about = match self.kind {
            Kind::Hosts => vec![self.subject.called()],
            Kind::Subscribers | Kind::Sites => vec![self.subject.called(), handle],
        };
        let totals = [down, up].map(|side| side.as_ref().and_then(|side| self.totals(side)));
        let [down, up] = totals;
        let evidence =
            Evidence { directions: self.measured().collect(), rate_bps: self.subject.slowest() };
        let scores = Application::ALL.map(|application| {
            let score = score(&application, &evidence);
            Score { percent: score.percent.map(f64::round), ..score }
        });
        Ok(vec![
            ("row", serde_json::to_string(&Row::new(self.model, self.subject))?),
            ("path", serde_json::to_string(&path)?),
            ("scores", serde_json::to_string(&scores)?),
            ("bounds", serde_json::to_string(&heat::BOUNDS_US)?),
            ("down", text(&value(down)?)?),
            ("up", text(&value(up)?)?),
            ("addresses", serde_json::to_string(&addresses)?),
            ("flows", serde_json::to_string(&self.flows())?),
            ("uptime", serde_json::to_string(&self.model.snapshot.uptime_s)?),
            ("events", serde_json::to_string(&events.about(&about, EVENTS_MAX))?),
        ])
    }

    /// What was measured in each direction. Hosts are of no port, so it has the direction's name.
    fn measured(&self) -> impl Iterator<Item = Direction> {
        let Subject { down, up, .. } = self.subject;
        let sides = [(down, "download"), (up, "upload")];
        sides.into_iter().filter_map(|(side, way)| {
            let side = side.as_ref()?;
            let port = side.place.and_then(|(port, _)| {
                self.model.snapshot.ports.get(usize::from(port)).map(|port| port.name.clone())
            });
            let port = port.unwrap_or_else(|| way.to_owned());
            Some(Direction { port, measured: side.measured() })
        })
    }

    fn totals(&self, side: &Side) -> Option<Totals<'a>> {
        let (port, place) = side.place?;
        let port = self.model.snapshot.ports.get(usize::from(port))?;
        let class: &Class = port.classes.get(place as usize)?;
        let is_below = |qdisc: &&Qdisc| qdisc.parent.as_ref() == Some(&class.handle);
        let qdisc = port.qdiscs.iter().find(is_below);
        let tins = qdisc.map(Qdisc::tins).unwrap_or_default();
        Some(Totals {
            port: &port.name,
            qdisc: qdisc.map(|qdisc| qdisc.kind.as_str()),
            figures: class.stats.figures,
            delays: heat::column(&class.stats.delays),
            lent: class.stats.detail.get("lended"),
            borrowed: class.stats.detail.get("borrowed"),
            marks: qdisc.and_then(|qdisc| qdisc.detail.get("ecn_mark")),
            tins: tins.into_iter().map(|(name, tin)| NamedTin { name, tin }).collect(),
        })
    }

    /// Those of the heaviest flows that are from or to an address of it.
    fn flows(&self) -> Vec<Flow<'a>> {
        let networks: Vec<Network> = self.model.networks(self.subject).collect();
        let is_own = |end: &str| match self.kind {
            Kind::Hosts => end == self.subject.id,
            Kind::Subscribers | Kind::Sites => {
                let address: Option<IpAddr> = end.parse().ok();
                address.is_some_and(|address| networks.iter().any(|it| it.contains(address)))
            }
        };
        let flows = self
            .model
            .snapshot
            .ports
            .iter()
            .flat_map(|port| port.heaviest.flows.iter().map(move |flow| (port, flow)));
        let is_of = |flow: &Heavy| ends(&flow.name).any(is_own);
        flows
            .filter(|(_, flow)| is_of(flow))
            .take(FLOWS_MAX)
            .map(|(port, flow)| Flow::new(port, flow))
            .collect()
    }
}

/// The addresses in the name of a flow: `udp 192.0.2.1:53 > [2001:db8::1]:4711`.
fn ends(name: &str) -> impl Iterator<Item = &str> {
    let ends = name.split_whitespace().filter(|word| word.contains([':', '.']));
    ends.map(|end| match end.strip_prefix('[').and_then(|end| end.split_once(']')) {
        Some((address, _)) => address,
        None if end.matches(':').count() == 1 => end.split(':').next().unwrap_or(end),
        None => end,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn the_addresses_of_a_flow_are_found() {
        let of = |name| ends(name).collect::<Vec<_>>();
        assert_eq!(of("udp 192.0.2.1:53 > 192.0.2.2:4711"), ["192.0.2.1", "192.0.2.2"]);
        assert_eq!(of("tcp [2001:db8::1]:80 > [2001:db8::2]:9"), ["2001:db8::1", "2001:db8::2"]);
        assert_eq!(of("icmp 192.0.2.1 > 2001:db8::2"), ["192.0.2.1", "2001:db8::2"]);
    }

    #[test]
    fn a_subscriber_has_the_tins_of_its_qdisc_and_the_counters_of_its_class() {
        let text = r#"{"state":"running","uptime_s":2.0,"ports":[{"name":"lan","per_queue":[],
            "to_self":0,"unserved":0,
            "total":{"tx_packets":0,"tx_bytes":0,"backlog_packets":0,"drops":0},
            "heaviest":{"flows":[{"name":"tcp 198.51.100.1:443 > 192.0.2.7:5000","bps":9},
              {"name":"tcp 198.51.100.1:443 > 192.0.3.7:5000","bps":8}]},
            "qdiscs":[{"kind":"cake","handle":"11:","parent":"1:11","ecn_mark":4,
              "tins":[{"sent_bytes":70,"drops":3}]}],
            "classes":[{"class":"htb","handle":"1:1","root":true},
              {"class":"htb","handle":"1:11","name":"Ann","parent":"1:1","ceil":125,
               "stats":{"bytes":123456789012,"packets":7,"lended":5,"borrowed":2}}]}]}"#;
        let now = serde_json::from_str(text).unwrap();
        let policy = "filter add dev lan parent 1: flower dst_ip 192.0.2.0/24 classid 1:11";
        let addresses = Arc::new(super::super::Addresses::parse(policy));
        let model = Model::new(Arc::new(now), None, 1.0, Some("lan"), addresses);
        let detail = Detail::find(&model, Kind::Subscribers, "Ann").unwrap();
        let parts = detail.parts(&EventList::default()).unwrap();
        let part = |name: &str| -> Value {
            let (_, text) = parts.iter().find(|(known, _)| *known == name).unwrap();
            serde_json::from_str(text).unwrap()
        };
        assert_eq!(part("down")["bytes"], 123_456_789_012_u64, "as tc prints it");
        assert_eq!(part("down")["tins"][0]["name"], "Tin 0");
        assert_eq!(part("down")["lent"], 5);
        assert_eq!(part("down")["qdisc"], "cake");
        assert_eq!(part("path")[0]["id"], "1:1");
        assert_eq!(part("addresses")[0], "192.0.2.0/24");
        assert_eq!(part("flows").as_array().unwrap().len(), 1, "those of its addresses");
        assert_eq!(part("flows")[0]["rate"], 9);
        assert!(part("up").is_null());
        assert!(Detail::find(&model, Kind::Subscribers, "Ben").is_none());
    }
}
