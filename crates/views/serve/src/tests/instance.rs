//! An instance with many classes, as a control socket shows it.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard};
use std::thread;

/// The qdisc below each class.
#[derive(Clone, Copy, Debug)]
pub(super) enum Leaf {
    FqCodel,
    Cake,
}

/// It ends with the test.
pub(super) struct Instance {
    socket: PathBuf,
    bytes: usize,
    answers: Arc<AtomicUsize>,
    reading: Arc<RwLock<()>>,
}

impl Instance {
    pub(super) fn start(test: &str, classes: usize, leaf: Leaf) -> Self {
        let socket = format!("nrw-serve-{test}-{}.sock", std::process::id());
        let socket = std::env::temp_dir().join(socket);
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).unwrap();
        let trees = trees(classes, leaf);
        let bytes = trees.len();
        let answers = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&answers);
        let reading = Arc::new(RwLock::new(()));
        let none_reads = Arc::clone(&reading);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = String::new();
                BufReader::new(&stream).read_line(&mut request).unwrap();
                assert_eq!(request, "\"show_with_trees\"\n");
                let _none_reads = none_reads.write().unwrap();
                let answer = count.fetch_add(1, Ordering::Relaxed);
                let parts = [&head(answer) as &str, &trees, "}],\"workers\":[{}]}}\n"];
                // A process that ends does not read on.
                let _ = parts.iter().try_for_each(|part| stream.write_all(part.as_bytes()));
            }
        });
        Self { socket, bytes, answers, reading }
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// The length of its trees as JSON.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// While a client reads, there is no new answer: so no client is so slow that it holds a
    /// snapshot besides the two that there are anyway.
    pub(super) fn reading(&self) -> RwLockReadGuard<'_, ()> {
        self.reading.read().unwrap()
    }

    /// How often it was asked.
    pub(super) fn answers(&self) -> usize {
        self.answers.load(Ordering::Relaxed)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// The answer up to the trees of its port.
fn head(answer: usize) -> String {
    format!(
        r#"{{"show":{{"state":"running","uptime_s":{}.5,"ports":[{{"name":"port-b","mtu":1500,
           "qdisc":"htb","total":{QUEUE},"per_queue":[{QUEUE}],"to_self":0,"unserved":0,"#,
        answer + 1
    )
    .replace('\n', "")
}

const QUEUE: &str = r#"{"tx_packets":5,"tx_bytes":500,"backlog_packets":0,"drops":0}"#;

/// An htb with `classes` classes, as `narrows tc -s -j` prints it. Every class has sent packets
/// with 24 different delays and has round trips.
fn trees(classes: usize, leaf: Leaf) -> String {
    let mut qdiscs = String::from(
        r#""qdiscs":[{"kind":"htb","handle":"1:","root":true,"refcnt":2,"options":{"r2q":10,"default":"0x10","direct_packets_stat":0,"direct_qlen":1000},"bytes":0,"packets":0,"drops":0,"overlimits":0,"requeues":0,"backlog":0,"qlen":0}"#,
    );
    let mut all = String::from(r#"],"classes":["#);
    for number in 0..classes {
        let (minor, leaf_major) = (number + 1, number + 2);
        let figures = format!(
            r#""bytes":{},"packets":{},"drops":{number},"overlimits":{},"requeues":0,"backlog":3028,"qlen":2"#,
            number * 1_234_567,
            number * 1_021,
            number * 77,
        );
        let below = match leaf {
            Leaf::FqCodel => {
                let options = r#"{"limit":10240,"flows":1024,"quantum":1514,"target":4999,"interval":99999,"memory_limit":33554432,"ecn":true,"drop_batch":64}"#;
                format!(
                    r#"fq_codel","handle":"{leaf_major:x}:","parent":"1:{minor:x}","options":{options},{figures},"maxpacket":1514,"drop_overlimit":0,"new_flow_count":{},"ecn_mark":7,"new_flows_len":0,"old_flows_len":2"#,
                    number * 13
                )
            }
            Leaf::Cake => {
                let options = r#"{"bandwidth":"unlimited","diffserv":"diffserv4","flowmode":"triple-isolate","nat":false,"wash":false,"ingress":false,"ack-filter":"disabled","split_gso":true,"rtt":100000,"raw":true,"overhead":0,"fwmark":"0"}"#;
                let memory = r#""memory_used":131072,"memory_limit":4194304,"capacity_estimate":0,"min_network_size":28,"max_network_size":1500,"min_adj_size":46,"max_adj_size":1514,"active_queues":2,"avg_hdr_offset":14"#;
                let tin = format!(
                    r#"{{"threshold_rate":1250000,"sent_bytes":{},"backlog_bytes":1514,"target_us":5000,"interval_us":100000,"peak_delay_us":812,"avg_delay_us":97,"base_delay_us":4,"sent_packets":{},"way_indirect_hits":3,"way_misses":912,"way_collisions":0,"drops":{number},"ecn_mark":12,"ack_drops":0,"sparse_flows":1,"bulk_flows":1,"unresponsive_flows":0,"max_pkt_len":1514,"flow_quantum":300}}"#,
                    number * 123_456,
                    number * 1_021,
                );
                let tins = [&tin as &str; 4].join(",");
                format!(
                    r#"cake","handle":"{leaf_major:x}:","parent":"1:{minor:x}","options":{options},{figures},{memory},"tins":[{tins}]"#
                )
            }
        };
        let _ = write!(qdiscs, ",{{\"kind\":\"{below}}}");
        let delays = delays(number);
        let comma = if number == 0 { "" } else { "," };
        let _ = write!(
            all,
            r#"{comma}{{"class":"htb","handle":"1:{minor:x}","root":true,"leaf":"0x{leaf_major:x}","rate":625000,"ceil":2500000,"prio":0,"stats":{{{figures},{delays},"round_trip":{{"min_us":20100,"p50_us":24000,"p99_us":60000}},"losses":{{"segments":5000,"before":1,"beyond":12}},"lended":{},"borrowed":{},"giants":0,"tokens":-40000,"ctokens":10000}},"burst":1600,"cburst":1600}}"#,
            number * 1_000,
            number * 21,
        );
    }
    qdiscs + &all + "]"
}

fn delays(number: usize) -> String {
    let counts: Vec<String> = (0..24)
        .map(|bucket| {
            let time_ns = 3_000.0 * 1.5_f64.powi(bucket);
            format!("[{:.3},{}]", time_ns.round() / 1e3, number % 100_000 + 7)
        })
        .collect();
    format!(
        r#""delays":{{"p50_us":24.584,"p99_us":812.125,"p999_us":3604.479,"max_us":14417.919,"counts":[{}]}}"#,
        counts.join(",")
    )
}
