//! Serves the page of a provider that does not exist, to look at it and to measure it.
//!
//! `cargo run --release -p narrows-serve --example provider -- 2000 127.0.0.1:9466 [FILE]`
//!
//! To measure the server alone, the instance is a process of its own:
//!
//! `… --example provider -- 2000 SOCKET` and `… --example provider -- SOCKET 127.0.0.1:9466`
//!
//! To look at the page of an instance that runs here, as `narrows serve` shows it, without building
//! that: `… --example provider -- here 127.0.0.1:9466 [FILE WITH NAMES]`
//!
//! Each second every active subscriber sends and receives something else, and a few have long
//! delays, drops or losses. It is the same in each run. While FILE exists, no instance answers.

use compact_str::{CompactString, format_compact};
use narrows_control::fleet_agent::AgentSocket;
use narrows_control::{Client, ControlError, NamesFile};
use narrows_serve::Options;
use narrows_snapshot::fleet_agent::{BoxView, FleetView, LimitView, SharerView, Shown};
use narrows_snapshot::{
    Class, ClassStats, Delays, Figures, FleetStanding, Heaviest, Heavy, Losses, Port, Qdisc, Queue,
    RoundTrip, RoundTrips, Snapshot, Worker,
};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Subscribers of a site.
const SITE: usize = 48;
/// Plans: download and upload, in Mbit/s.
const PLANS: [(u64, u64); 4] = [(50, 10), (100, 40), (250, 50), (1000, 500)];
const NAMES: [&str; 8] = ["Ann", "Ben", "Cleo", "Dora", "Emil", "Finn", "Greta", "Hugo"];
const PLACES: [&str; 6] = ["Hillside", "Old Mill", "Harbour", "Station", "North Gate", "Orchard"];
/// Delays in microseconds that packets have.
const STEPS_US: [f64; 8] = [80.0, 300.0, 900.0, 2_500.0, 7_000.0, 16_000.0, 45_000.0, 180_000.0];

/// A subscriber's counters in one direction.
#[derive(Clone, Default)]
struct Counters {
    figures: Figures,
    delays: [u64; STEPS_US.len()],
}

struct Provider {
    seconds: u64,
    /// Download and upload.
    all: [Vec<Counters>; 2],
}

/// A number between 0 and 1 that is always the same for the same `of`.
fn noise(of: u64) -> f64 {
    let mut x = of.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ (x >> 31)) as f64 / u64::MAX as f64
}

fn plan(subscriber: usize, way: usize) -> u64 {
    let (down, up) = PLANS[(noise(subscriber as u64) * 4.0) as usize % PLANS.len()];
    1_000_000 * if way == 0 { down } else { up }
}

impl Provider {
    fn step(&mut self) {
        self.seconds += 1;
        for way in 0..2 {
            for (number, counters) in self.all[way].iter_mut().enumerate() {
                let of = (number * 2 + way) as u64;
                // A third is idle; who is active, changes every 30 s.
                if noise(of ^ (self.seconds / 30) << 32) < 0.33 {
                    counters.figures.backlog = 0;
                    counters.figures.qlen = 0;
                    continue;
                }
                let pace = noise(of ^ self.seconds << 24);
                let load = noise(of + 77).powi(6) * 0.7 + 0.3 * pace * noise(of + 5).powi(3);
                let bytes = (plan(number, way) as f64 / 8.0 * load.min(1.0)) as u64;
                let packets = bytes / 1_000 + 1;
                let suffers = noise(of + 3) > 0.992;
                counters.figures.bytes += bytes;
                counters.figures.packets += packets;
                counters.figures.drops += if suffers { packets / 12 } else { packets / 900 };
                counters.figures.qlen = if suffers { packets / 20 } else { packets / 2_000 };
                counters.figures.backlog = counters.figures.qlen * 1_200;
                let middle = if suffers { 5.4 } else { 1.0 + 3.2 * load };
                for (step, count) in counters.delays.iter_mut().enumerate() {
                    let distance = (step as f64 - middle - pace).abs();
                    *count += (packets as f64 * (-1.9 * distance).exp() * 0.6) as u64;
                }
            }
        }
    }

    fn port(&self, name: &str, way: usize) -> Port {
        let all = &self.all[way];
        let sum = |of: fn(&Figures) -> u64| all.iter().map(|one| of(&one.figures)).sum::<u64>();
        let classes = self.classes(way);
        let total = Queue {
            tx_packets: sum(|it| it.packets),
            tx_bytes: sum(|it| it.bytes),
            rx_bytes: self.all[1 - way].iter().map(|one| one.figures.bytes).sum(),
            backlog_packets: sum(|it| it.qlen),
            backlog_bytes: sum(|it| it.backlog),
            drops: sum(|it| it.drops),
            drops_by_reason: BTreeMap::from([("codel".to_owned(), sum(|it| it.drops))]),
            ..Queue::default()
        };
        let mut counts = [0; STEPS_US.len()];
        all.iter().for_each(|one| counts.iter_mut().zip(one.delays).for_each(|(a, b)| *a += b));
        let delays = delays(&counts);
        let trips = [12_000.0, 24_000.0, 41_000.0, 95_000.0];
        let trips = trips.iter().zip([5, 60, 30, 4]).map(|(us, of)| (*us, of * self.seconds * 90));
        let losses = Losses {
            segments: self.seconds * 10_000,
            before: self.seconds * 9,
            beyond: self.seconds * 23,
        };
        let heavy = |number: usize, name: String| Heavy {
            name,
            bps: (plan(number, way) as f64 * noise(number as u64 + self.seconds)) as u64,
            delay_p50_us: 1_200,
            delay_p99_us: 9_000 + number as u64 * 700,
            delay_p999_us: 20_000,
            delay_max_us: 31_000,
            ..Heavy::default()
        };
        let home = |number: usize| format!("198.51.100.{number}");
        let host = |number: usize| heavy(number, home(number));
        let hosts: Vec<Heavy> = (1..=12).map(host).collect();
        let flows = (1..=12).map(|number| {
            heavy(number, format!("tcp 203.0.113.9:443 > {}:{}", home(number), 40_000 + number))
        });
        let heaviest = Heaviest {
            window_s: 2.0,
            sources: if way == 1 { hosts.clone() } else { Vec::new() },
            destinations: if way == 0 { hosts } else { Vec::new() },
            flows: flows.collect(),
        };
        Port {
            name: name.into(),
            xdp: "native".into(),
            copy: "zero-copy".into(),
            mtu: 1500,
            queues: 4,
            qdisc: "htb".into(),
            per_queue: vec![total.clone()],
            total,
            delays,
            round_trips: Some(RoundTrips { times: Delays::new(trips.collect()), losses }),
            heaviest,
            qdiscs: self.qdiscs(way),
            classes,
            ..Port::default()
        }
    }

    fn classes(&self, way: usize) -> Vec<Class> {
        let all = &self.all[way];
        let class = |minor: usize, name: CompactString, parent: Option<CompactString>| Class {
            kind: "htb".into(),
            handle: format_compact!("1:{minor:x}"),
            name: Some(name),
            root: parent.is_none(),
            parent,
            prio: Some(0),
            ..Class::default()
        };
        let sum = |members: &[Counters]| {
            let mut sum = Counters::default();
            for one in members {
                sum.figures.bytes += one.figures.bytes;
                sum.figures.packets += one.figures.packets;
                sum.figures.drops += one.figures.drops;
                sum.figures.backlog += one.figures.backlog;
                sum.figures.qlen += one.figures.qlen;
                sum.delays.iter_mut().zip(one.delays).for_each(|(all, one)| *all += one);
            }
            sum
        };
        let finish = |mut class: Class, bits: u64, counters: &Counters| {
            class.rate = Some(bits / 16);
            class.ceil = Some(bits / 8);
            class.stats = ClassStats {
                figures: counters.figures,
                delays: delays(&counters.delays),
                ..ClassStats::default()
            };
            class
        };
        let most = (all.len() as u64 * 40_000_000).max(1_000_000_000) >> way;
        let mut classes = vec![finish(class(1, "uplink".into(), None), most, &sum(all))];
        for (site, members) in all.chunks(SITE).enumerate() {
            let place = PLACES[site % PLACES.len()];
            let name = format_compact!("{place} {}", site / PLACES.len() + 1);
            let minor = 2 + site * (SITE + 1);
            let above = class(minor, name, Some("1:1".into()));
            let handle = above.handle.clone();
            classes.push(finish(above, most / 4, &sum(members)));
            for (number, counters) in members.iter().enumerate() {
                let subscriber = site * SITE + number;
                let name = NAMES[subscriber % NAMES.len()];
                let name = format_compact!("{name} {}", 1_000 + subscriber);
                let one = class(minor + 1 + number, name, Some(handle.clone()));
                let mut one = finish(one, plan(subscriber, way), counters);
                let far = noise(subscriber as u64 + 9);
                one.stats.round_trip = Some(RoundTrip {
                    min_us: 8_000 + (20_000.0 * far) as u64,
                    p50_us: 11_000 + (50_000.0 * far) as u64,
                    p99_us: 40_000 + (90_000.0 * far) as u64,
                });
                let beyond = (60.0 * noise(subscriber as u64 + 31).powi(9)) as u64;
                one.stats.losses = Some(Losses { segments: 1_000, before: beyond / 5, beyond });
                classes.push(one);
            }
        }
        classes
    }

    /// A `cake` for every subscriber of the first site.
    fn qdiscs(&self, way: usize) -> Vec<Qdisc> {
        let first = self.all[way].iter().take(SITE).enumerate();
        let cake = |(number, counters): (usize, &Counters)| {
            let tin = |share: u64| {
                serde_json::json!({
                    "threshold_rate": plan(number, way) / 8 / share,
                    "sent_bytes": counters.figures.bytes / share,
                    "sent_packets": counters.figures.packets / share,
                    "backlog_bytes": counters.figures.backlog / share,
                    "target_us": 5_000, "peak_delay_us": 3_100, "avg_delay_us": 850,
                    "base_delay_us": 12, "drops": counters.figures.drops / share,
                    "ecn_mark": 3, "ack_drops": 0, "sparse_flows": 4, "bulk_flows": 1,
                    "unresponsive_flows": 0
                })
            };
            let text = serde_json::json!({
                "kind": "cake", "handle": format!("{:x}:", number + 3),
                "parent": format!("1:{:x}", number + 3), "ecn_mark": 6,
                "options": {"diffserv": "diffserv4"}, "tins": [tin(9), tin(1), tin(4), tin(20)]
            });
            serde_json::from_value(text).unwrap_or_default()
        };
        first.map(cake).collect()
    }

    fn snapshot(&self) -> Snapshot {
        let ports = vec![self.port("wan", 1), self.port("lan", 0)];
        let worker = |queue: u32| Worker {
            queue,
            cpu: queue as usize,
            thread: queue,
            load: 0.4,
            cpu_s: self.seconds as f64 * (0.3 + 0.05 * f64::from(queue)),
            frames: 4096,
            free_frames: 2048,
            ..Worker::default()
        };
        let last = self.seconds / 20;
        let events = (last.saturating_sub(15)..last).map(|number| {
            let subscriber = 1_000 + number as usize % self.all[0].len();
            let name = NAMES[number as usize % self.all[0].len() % NAMES.len()];
            format!("class of {name} {subscriber}: rate changed")
        });
        let first = (last < 16).then(|| "joined wan and lan: 4 queues, zero-copy".to_owned());
        Snapshot {
            state: "running".into(),
            uptime_s: self.seconds as f64,
            fail: "open (bridge nrwbr2)".into(),
            ports,
            workers: (0..4).map(worker).collect(),
            events: first.into_iter().chain(events).collect(),
            fleet: vec![FleetStanding { name: "transit".into(), ..FleetStanding::default() }],
            fleet_agent: Some(Box::new(self.fleet())),
            ..Snapshot::default()
        }
    }

    /// Three boxes with one limit: one lends, and one has been silent since the start.
    fn fleet(&self) -> Shown {
        let names = ["north", "east", "west"];
        let member = |(number, name): (u64, &&str)| BoxView {
            name: (*name).into(),
            is_heard: number < 2,
            heard_ms_ago: Some([0, 30, self.seconds * 1_000][number as usize]),
            lease_left_ms: (number == 1).then_some(1_970),
            off: None,
        };
        let sharer = |(number, name): (u64, &&str)| SharerView {
            name: (*name).into(),
            is_heard: number < 2,
            demand_bps: (number > 0).then_some(40_000_000),
            share_bps: (number < 2).then_some([560_000_000, 40_000_000][number as usize % 2]),
            in_force_bps: [560_000_000, 40_000_000, 300_000_000][number as usize],
            sent_bps: [540_000_000, 30_000_000, 0][number as usize],
            flows: (number == 0).then_some(310.0),
        };
        let limit = LimitView {
            name: "transit".into(),
            limit_bps: 900_000_000,
            safe_bps: 300_000_000,
            in_force_bps: 560_000_000,
            boxes: (0..).zip(&names).map(sharer).collect(),
            is_by_flow: true,
            sum_bps: 900_000_000,
            ..LimitView::default()
        };
        Shown {
            fleet: "edge".into(),
            connected_through: Some("north".into()),
            view: FleetView {
                me: "north".into(),
                boxes: (0..).zip(&names).map(member).collect(),
                limits: vec![limit],
                limits_left_out: 0,
            },
            ..Shown::default()
        }
    }
}

fn delays(counts: &[u64]) -> Delays {
    let counts = STEPS_US.iter().zip(counts).filter(|(_, count)| **count > 0);
    Delays::new(counts.map(|(us, count)| (*us, *count)).collect())
}

type Failure = Box<dyn std::error::Error>;

/// An instance at `socket`: answers with a snapshot, as often as it is asked.
fn be_instance(mut provider: Provider, socket: &Path) -> Result<(), Failure> {
    let _ = std::fs::remove_file(socket);
    for stream in UnixListener::bind(socket)?.incoming() {
        let mut stream = stream?;
        let mut request = String::new();
        BufReader::new(&stream).read_line(&mut request)?;
        provider.step();
        let answer = serde_json::json!({ "show": provider.snapshot() });
        // A client may have gone.
        let _ = stream.write_all(format!("{answer}\n").as_bytes());
    }
    Ok(())
}

fn options(listen: &str, names: Option<&str>) -> Result<Options, Failure> {
    Ok(Options {
        listen: listen.parse()?,
        credentials: None,
        dev: None,
        downlink: None,
        interval: Duration::from_secs(1),
        classes_max: 500,
        names: NamesFile::open(names.map(Path::new))?,
        agent: AgentSocket::default(),
        api: None,
        history: None,
        history_max: 1,
        alarms: None,
    })
}

fn say(address: SocketAddr) {
    println!("http://{address}/");
}

fn serve(
    listen: &str,
    ask: impl FnMut() -> Result<Snapshot, ControlError> + Send + 'static,
) -> Result<(), Failure> {
    Ok(narrows_serve::run_with(ask, options(listen, None)?, say)?)
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (subscribers, rest) = match words[..] {
        [] => (2_000, &[][..]),
        ["here", listen, ref names @ ..] => {
            let options = options(listen, names.first().copied())?;
            return Ok(narrows_serve::run(options, say)?);
        }
        [socket, listen] if socket.parse::<usize>().is_err() => {
            let client = Client::at(socket.into());
            return serve(listen, move || client.snapshot(true));
        }
        [subscribers, ref rest @ ..] => (subscribers.parse()?, rest),
    };
    let all = vec![Counters::default(); subscribers];
    let mut provider = Provider { seconds: 0, all: [all.clone(), all] };
    match *rest {
        [socket] if socket.contains('/') => be_instance(provider, Path::new(socket)),
        _ => {
            let listen = rest.first().copied().unwrap_or("127.0.0.1:9466");
            let gone: Option<PathBuf> = rest.get(1).map(Into::into);
            serve(listen, move || {
                if gone.as_ref().is_some_and(|file| file.exists()) {
                    return Err(ControlError::NoInstance(String::new()));
                }
                provider.step();
                Ok(provider.snapshot())
            })
        }
    }
}
