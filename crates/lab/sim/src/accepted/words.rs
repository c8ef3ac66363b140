//! From bytes to commands and packets.
//!
//! Each byte is a choice among a few; behind the last byte all choices are the first. The numbers
//! are those at the ends of what `tc` takes, and some that are usual.

use narrows_units::Nanos;

const RATES: [&str; 12] = [
    "1mbit",
    "10mbit",
    "64kbit",
    "8bit",
    "1bit",
    "100mbit",
    "1gbit",
    "40gbit",
    "400gbit",
    "4tbit",
    "1000tbit",
    "34359738360bit",
];
const SIZES: [&str; 10] =
    ["1600", "15k", "0", "1", "60", "1514", "64k", "1mb", "100mb", "4294967295"];
const TIMES: [&str; 9] = ["1ms", "0", "1us", "100us", "20ms", "100ms", "1s", "4s", "4290s"];
const COUNTS: [&str; 10] =
    ["10", "0", "1", "2", "100", "1000", "65535", "65536", "1000000", "4294967295"];
const BANDS: [&str; 6] = ["3", "2", "1", "16", "8", "17"];
const SHARES: [&str; 6] = ["10%", "0%", "0.0001%", "50%", "99.99%", "100%"];
const MINORS: [u32; 14] = [
    0x10,
    0x11,
    0x1,
    0x2,
    0x3,
    0xffff,
    0x1_0000,
    0xff_ffff,
    0x100_0000,
    0x100_0001,
    0x7fff_fffe,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
];
const MAJORS: [u32; 6] = [0x1, 0x2, 0xfffe, 0x1_0001, 0x100_0001, 0x7fff_ffff];
const LENGTHS: [u32; 5] = [1514, 60, 64, 1000, 590];
const GAPS: [u64; 8] =
    [0, 1, 1_000, 100_000, 1_000_000, 20_000_000, 1_000_000_000, 600_000_000_000];

/// From here on, a byte that would choose an `htb` chooses an `hfsc`. Kept inputs use smaller ones.
const HFSC_FROM: u8 = 160;

/// Flows, of which each has an address.
const FLOWS: u8 = 8;
/// How deep qdiscs are put in each other, at most.
const DEEP: usize = 5;
/// Commands of a policy, at most.
const LINES: usize = 60;
/// Packets of a run, at most.
const PACKETS: usize = 400;

/// Packets that arrive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// The pause before it.
    pub(super) after: Nanos,
    pub(super) queue: usize,
    pub(super) flow: u8,
    pub(super) len: u32,
}

/// The commands that `bytes` choose, as text: to read what a trial has done.
pub fn script(bytes: &[u8]) -> String {
    let mut words = Words::new(bytes);
    let queues = words.queues();
    let policy = words.policy();
    words.arrivals();
    let changes = words.changes();
    format!("# {queues} queues\n{}\n# under load\n{}\n", policy.join("\n"), changes.join("\n"))
}

/// Makes commands and packets from bytes, each of which is a choice among a few.
pub(super) struct Words<'a> {
    bytes: std::slice::Iter<'a, u8>,
    lines: Vec<String>,
    /// The qdiscs that have been named, with their kinds.
    qdiscs: Vec<(u32, &'static str)>,
    /// Their classes.
    classes: Vec<(u32, u32)>,
}

impl<'a> Words<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let (lines, qdiscs, classes) = Default::default();
        Self { bytes: bytes.iter(), lines, qdiscs, classes }
    }

    /// How many queues the port has.
    pub(super) fn queues(&mut self) -> usize {
        1 + self.below(4)
    }

    /// The first commands.
    pub(super) fn policy(&mut self) -> Vec<String> {
        self.qdisc("root".to_owned(), 0);
        for _ in 0..self.below(12) {
            self.filter();
        }
        std::mem::take(&mut self.lines)
    }

    /// Commands under load.
    pub(super) fn changes(&mut self) -> Vec<String> {
        for _ in 0..self.below(10) {
            self.change();
        }
        std::mem::take(&mut self.lines)
    }

    /// Packets.
    pub(super) fn arrivals(&mut self) -> Vec<Arrival> {
        let mut arrivals = Vec::new();
        for _ in 0..1 + self.below(24) {
            let after = Nanos(self.of(&GAPS));
            let (queue, flow) = (self.below(4), self.below(usize::from(FLOWS)) as u8);
            let (len, count) = (self.of(&LENGTHS), 1 + self.below(64));
            let spread = Nanos(self.of(&GAPS[..5]));
            for number in 0..count {
                let after = if number == 0 { after } else { spread };
                // A burst of one flow, or of all in turns.
                let flow = if flow == 0 { number as u8 % FLOWS } else { flow };
                arrivals.push(Arrival { after, queue: queue + number % 2, flow, len });
            }
        }
        arrivals.truncate(PACKETS);
        arrivals
    }

    fn byte(&mut self) -> u8 {
        self.bytes.next().copied().unwrap_or(0)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// Some of `options`, each with its values.
    fn options(&mut self, options: &[(&str, &[&str])]) -> String {
        let mut text = String::new();
        let mut chosen = 0;
        for (number, (name, values)) in options.iter().enumerate() {
            if number % 4 == 0 {
                chosen = self.byte();
            }
            if chosen >> (2 * (number % 4)) & 3 == 3 {
                let value = if values.is_empty() { "" } else { self.of(values) };
                text.push_str(&format!(" {name} {value}"));
            }
        }
        text
    }

    fn handle(&mut self) -> u32 {
        let next = self.qdiscs.len() as u32;
        match self.below(4) {
            0 => self.of(&MAJORS),
            _ => 0x10 + next,
        }
    }

    /// A new qdisc at `place`, with classes, and qdiscs in these.
    fn qdisc(&mut self, place: String, depth: usize) {
        let handle = self.handle();
        let (kind, words) = self.kind(depth);
        self.qdiscs.push((handle, kind));
        // Chosen by what is there, so that the bytes of kept inputs mean the same.
        let stab = match (handle as usize + self.qdiscs.len()) % 9 {
            3 => "stab overhead 24 mpu 64 ",
            5 => "stab linklayer atm overhead 10 ",
            _ => "",
        };
        self.lines.push(format!("qdisc add dev B {place} handle {handle:x}: {stab}{words}"));
        let classes: Vec<u32> = match kind {
            "htb" | "hfsc" => self.tree(handle, kind),
            "drr" => (0..1 + self.below(4)).map(|_| self.drr_class(handle)).collect(),
            "prio" | "ets" => (1..=self.below(4) as u32).collect(),
            "mq" => (1..=self.below(5) as u32).collect(),
            "tbf" | "red" | "netem" => (1..=self.below(2) as u32).collect(),
            _ => Vec::new(),
        };
        for minor in classes {
            self.classes.push((handle, minor));
            if depth < DEEP && self.lines.len() < LINES && self.below(3) != 0 {
                self.qdisc(format!("parent {handle:x}:{minor:x}"), depth + 1);
            }
        }
    }

    fn kind(&mut self, depth: usize) -> (&'static str, String) {
        let first = if depth == 0 { self.byte() } else { 1 };
        let (kind, byte) = match first % 2 {
            0 => (0, first),
            _ => {
                let byte = self.byte();
                (byte % 20, byte)
            }
        };
        let (kind, words) = match kind {
            0 | 1 if byte >= HFSC_FROM => ("hfsc", self.hfsc()),
            0 | 1 => ("htb", self.htb()),
            2 | 3 => ("tbf", self.tbf()),
            4 => ("prio", self.options(&[("bands", &BANDS)])),
            5 => ("drr", String::new()),
            6 => {
                let options: [(&str, &[&str]); 2] = [("bands", &BANDS), ("strict", &BANDS)];
                ("ets", self.options(&options))
            }
            7 => ("mq", String::new()),
            8 => ("cake", self.cake()),
            9 => ("cake_mq", self.cake()),
            10 => ("fq", self.fq()),
            11 => ("fq_codel", self.fq_codel()),
            12 => ("codel", self.codel()),
            13 => ("sfq", self.sfq()),
            14 => ("netem", self.netem()),
            15 => ("pfifo", self.options(&[("limit", &COUNTS)])),
            16 => ("bfifo", self.options(&[("limit", &SIZES)])),
            17 => ("flowbundler", self.pacing()),
            18 => ("carousel", self.pacing()),
            _ => match self.below(3) {
                0 => ("eiffel", self.pacing()),
                _ => ("red", self.red()),
            },
        };
        (kind, format!("{kind} {words}"))
    }

    fn htb(&mut self) -> String {
        let default = self.of(&MINORS);
        let default = [format!(" default {default:x}"), String::new()][self.below(4) / 3].clone();
        let coordination = ["fair", "fair", "fair", "lock", "flowvalve"];
        let options: [(&str, &[&str]); 3] =
            [("r2q", &COUNTS), ("direct_qlen", &COUNTS), ("coordination", &coordination)];
        default + &self.options(&options)
    }

    fn hfsc(&mut self) -> String {
        match self.below(4) {
            0 => String::new(),
            1 => format!("default {:x}", self.of(&MINORS)),
            // One that the tree is likely to have.
            choice => format!("default {:x}", 0x1e + choice),
        }
    }

    /// The classes of an `htb` or `hfsc`. Returns their numbers.
    fn tree(&mut self, handle: u32, kind: &str) -> Vec<u32> {
        let mut minors = Vec::new();
        for _ in 0..1 + self.below(8) {
            let minor = match self.below(2) {
                0 => self.of(&MINORS),
                _ => 0x20 + minors.len() as u32,
            };
            let parent = if minors.is_empty() || self.below(3) == 0 { 0 } else { self.of(&minors) };
            let class = self.class(kind);
            self.lines.push(format!(
                "class add dev B parent {handle:x}:{parent:x} classid {handle:x}:{minor:x} {class}"
            ));
            minors.push(minor);
        }
        minors
    }

    /// The words of a class of the tree `kind`.
    fn class(&mut self, kind: &str) -> String {
        if kind == "hfsc" { self.hfsc_class() } else { self.htb_class() }
    }

    /// The words of a class below the qdisc `handle`.
    fn class_below(&mut self, handle: u32) -> String {
        let kind = self.qdiscs.iter().find(|(other, _)| *other == handle);
        self.class(kind.map_or("htb", |(_, kind)| kind))
    }

    fn hfsc_class(&mut self) -> String {
        let chosen = self.byte();
        // More often link sharing alone, which has something to be held to.
        let curves: &[&str] = match chosen % 8 {
            0 => &["rt"],
            1 => &["sc"],
            2 => &["rt", "ls"],
            3 => &["sc", "ul"],
            4 => &["rt", "ls", "ul"],
            5 => &["ls"],
            _ => &["ls", "ul"],
        };
        let curve = |name: &&str| format!(" {name} {}", self.curve());
        format!("hfsc{}", curves.iter().map(curve).collect::<String>())
    }

    fn curve(&mut self) -> String {
        match self.below(4) {
            0 | 1 => format!("rate {}", self.of(&RATES)),
            2 => {
                let (m1, d, m2) = (self.of(&RATES), self.of(&TIMES), self.of(&RATES));
                // A flat piece, first or second.
                match self.below(6) {
                    0 => format!("m1 0bit d {d} m2 {m2}"),
                    1 => format!("m1 {m1} d {d} m2 0bit"),
                    _ => format!("m1 {m1} d {d} m2 {m2}"),
                }
            }
            _ => {
                let (umax, dmax) = (self.of(&SIZES), self.of(&TIMES));
                format!("umax {umax} dmax {dmax} rate {}", self.of(&RATES))
            }
        }
    }

    fn htb_class(&mut self) -> String {
        let (rate, ceil) = (self.of(&RATES), self.of(&RATES));
        let ceil = if self.below(3) == 0 { ceil } else { rate };
        let overhead = ["0", "4", "18", "65535", "-4"];
        let prio = ["0", "1", "7", "8"];
        let layers = ["ethernet", "atm", "ptm"];
        let options: [(&str, &[&str]); 7] = [
            ("burst", &SIZES),
            ("cburst", &SIZES),
            ("prio", &prio),
            ("quantum", &SIZES),
            ("mpu", &SIZES),
            ("overhead", &overhead),
            ("linklayer", &layers),
        ];
        format!("htb rate {rate} ceil {ceil}{}", self.options(&options))
    }

    fn drr_class(&mut self, handle: u32) -> u32 {
        let minor = self.of(&MINORS[..7]);
        let quantum = self.options(&[("quantum", &SIZES)]);
        self.lines.push(format!(
            "class add dev B parent {handle:x}: classid {handle:x}:{minor:x} drr{quantum}"
        ));
        minor
    }

    fn tbf(&mut self) -> String {
        let (rate, burst) = (self.of(&RATES), self.of(&SIZES));
        let limit = match self.below(2) {
            0 => format!("limit {}", self.of(&SIZES)),
            _ => format!("latency {}", self.of(&TIMES)),
        };
        let coordination = ["fair", "equal", "edt", "lock"];
        let options: [(&str, &[&str]); 5] = [
            ("peakrate", &RATES),
            ("mtu", &SIZES),
            ("mpu", &SIZES),
            ("overhead", &SIZES),
            ("coordination", &coordination),
        ];
        format!("rate {rate} burst {burst} {limit}{}", self.options(&options))
    }

    fn cake(&mut self) -> String {
        let coordination = ["fair", "equal", "edt", "lock"];
        let options: [(&str, &[&str]); 15] = [
            ("bandwidth", &RATES),
            ("rtt", &TIMES),
            ("overhead", &["0", "44", "256", "-64"]),
            ("mpu", &["0", "64", "256"]),
            ("memlimit", &SIZES),
            ("diffserv8", &[]),
            ("besteffort", &[]),
            ("precedence", &[]),
            ("flowblind", &[]),
            ("dual-srchost", &[]),
            ("ack-filter", &[]),
            ("atm", &[]),
            ("wash", &[]),
            ("autorate-ingress", &[]),
            ("coordination", &coordination),
        ];
        self.options(&options)
    }

    fn fq(&mut self) -> String {
        let options: [(&str, &[&str]); 13] = [
            ("limit", &COUNTS),
            ("flow_limit", &COUNTS),
            ("quantum", &SIZES),
            ("initial_quantum", &SIZES),
            ("maxrate", &RATES),
            ("low_rate_threshold", &RATES),
            ("refill_delay", &TIMES),
            ("buckets", &COUNTS),
            ("orphan_mask", &COUNTS),
            ("ce_threshold", &TIMES),
            ("timer_slack", &TIMES),
            ("horizon", &TIMES),
            ("nopacing", &[]),
        ];
        self.options(&options)
    }

    fn fq_codel(&mut self) -> String {
        let options: [(&str, &[&str]); 9] = [
            ("limit", &COUNTS),
            ("flows", &COUNTS),
            ("memory_limit", &SIZES),
            ("target", &TIMES),
            ("interval", &TIMES),
            ("quantum", &SIZES),
            ("ce_threshold", &TIMES),
            ("drop_batch", &COUNTS),
            ("hosts", &["src", "dst", "none", "src nat", "dst nat"]),
        ];
        self.options(&options)
    }

    fn codel(&mut self) -> String {
        let options: [(&str, &[&str]); 4] = [
            ("limit", &COUNTS),
            ("target", &TIMES),
            ("interval", &TIMES),
            ("ce_threshold", &TIMES),
        ];
        self.options(&options)
    }

    fn sfq(&mut self) -> String {
        let options: [(&str, &[&str]); 6] = [
            ("limit", &COUNTS),
            ("perturb", &COUNTS),
            ("quantum", &SIZES),
            ("divisor", &["1024", "1", "2", "65536", "131072"]),
            ("flows", &COUNTS),
            ("depth", &COUNTS),
        ];
        self.options(&options)
    }

    fn netem(&mut self) -> String {
        let options: [(&str, &[&str]); 11] = [
            ("limit", &COUNTS),
            ("delay", &TIMES),
            ("delay 1s", &TIMES),
            ("loss random", &SHARES),
            ("corrupt", &SHARES),
            ("reorder", &SHARES),
            ("rate", &RATES),
            ("slot", &TIMES),
            ("seed", &COUNTS),
            ("duplicate", &SHARES),
            ("loss 1% ecn duplicate", &SHARES),
        ];
        self.options(&options)
    }

    fn red(&mut self) -> String {
        let (limit, min) = (self.of(&SIZES), self.of(&SIZES));
        let options: [(&str, &[&str]); 8] = [
            ("max", &SIZES),
            ("burst", &COUNTS),
            ("probability", &["0.02", "0", "1", "0.5"]),
            ("bandwidth", &RATES),
            ("ecn", &[]),
            ("harddrop", &[]),
            ("ecn nodrop", &[]),
            ("adaptive", &[]),
        ];
        format!("limit {limit} min {min} avpkt 1000{}", self.options(&options))
    }

    fn pacing(&mut self) -> String {
        let options: [(&str, &[&str]); 7] = [
            ("maxrate", &RATES),
            ("limit", &COUNTS),
            ("flow_limit", &COUNTS),
            ("horizon", &TIMES),
            ("slot", &TIMES),
            ("slots", &COUNTS),
            ("safeguard", &[]),
        ];
        self.options(&options)
    }

    fn filter(&mut self) {
        if self.classes.is_empty() {
            return;
        }
        let (handle, minor) = self.of(&self.classes.clone());
        let (flow, pref) = (1 + self.below(usize::from(FLOWS) - 1), 1 + self.below(3));
        let matches = match self.below(4) {
            0 => format!("flower src_ip 10.0.0.{flow}"),
            1 => format!("u32 match ip src 10.0.0.{flow}/32"),
            2 => "matchall".to_owned(),
            _ => format!("flower ip_proto udp src_port {flow}"),
        };
        let action = match self.below(6) {
            0 => " action police rate 1mbit burst 10k conform-exceed drop/pass",
            1 => " action skbedit priority 6",
            2 => " action pace rate 2mbit",
            _ => "",
        };
        // At a class above, or at the qdisc itself.
        let at = if self.below(4) == 0 { self.of(&self.classes.clone()).1 } else { 0 };
        self.lines.push(format!(
            "filter add dev B parent {handle:x}:{at:x} protocol ip pref {pref} {matches} classid \
             {handle:x}:{minor:x}{action}"
        ));
    }

    fn change(&mut self) {
        let class = if self.classes.is_empty() { (1, 1) } else { self.of(&self.classes.clone()) };
        let qdisc = if self.qdiscs.is_empty() { (1, "htb") } else { self.of(&self.qdiscs.clone()) };
        let ((handle, minor), (major, kind)) = (class, qdisc);
        let line = match self.below(8) {
            0 => {
                let class = self.class_below(handle);
                format!(
                    "class replace dev B parent {handle:x}: classid {handle:x}:{minor:x} {class}"
                )
            }
            1 => format!("class del dev B classid {handle:x}:{minor:x}"),
            2 => format!("qdisc del dev B parent {handle:x}:{minor:x}"),
            3 => return self.filter(),
            4 => {
                let (new, class) = (self.of(&MINORS), self.class_below(handle));
                format!(
                    "class add dev B parent {handle:x}:{minor:x} classid {handle:x}:{new:x} {class}"
                )
            }
            5 => {
                let words = match kind {
                    "htb" => self.htb(),
                    "hfsc" => self.hfsc(),
                    "tbf" => self.tbf(),
                    "cake" | "cake_mq" => self.cake(),
                    "fq" => self.fq(),
                    "netem" => self.netem(),
                    "red" => self.red(),
                    _ => String::new(),
                };
                format!("qdisc change dev B root handle {major:x}: {kind} {words}")
            }
            6 => {
                let (_, words) = self.kind(1);
                format!("qdisc replace dev B parent {handle:x}:{minor:x} {words}")
            }
            _ => {
                let (_, words) = self.kind(0);
                format!("qdisc replace dev B root {words}")
            }
        };
        self.lines.push(line);
    }
}
