//! OpenWrt's sqm-scripts: `/etc/config/sqm`.
//!
//! A `queue` section shapes one interface, usually the one towards the Internet: `upload` is its
//! egress rate, `download` its ingress rate. Here the download is shaped where it leaves, at the
//! other port. With `cake`, both become a `cake` with the script's tins, link layer and options.
//! The scripts around `htb`, `hfsc` and `fq_codel` become `cake` with as many tins, or `tbf` with
//! `fq_codel` ([`scripts`]).
//!
//! *Overhead.* sqm-scripts gives `overhead` and `tcMPU` to `cake`, or else to `tc`'s size table,
//! with the same numbers for every link layer. `cake` adds them to the network-layer packet. A size
//! table adds them to the frame as the interface has it: with the Ethernet header of 14 bytes, but
//! without one at a `ppp` interface. `tbf` here counts frames with their Ethernet header, as the
//! size table of an Ethernet interface does.
//!
//! Options of `cake` are read by this project's own `cake`: what it takes is taken.
//!
//! Source: sqm-scripts' `defaults.sh`, `functions.sh` and `*.qos`, and OpenWrt's "SQM details".

mod scripts;
mod uci;

use crate::draft::Draft;
use crate::number::rate;
use crate::{ImportError, Imported, Ports};
use narrows_units::counted;
use scripts::{Becomes, Tins};
use uci::Section;

const FILE: &str = "sqm";

/// Imports the `queue` section that is enabled; `interface` selects one of several.
///
/// # Errors
/// If the file is not UCI, or has none or several such sections.
pub fn import(text: &str, interface: Option<&str>, ports: &Ports) -> Result<Imported, ImportError> {
    let sections = uci::read(text).map_err(|why| ImportError::format(FILE, why))?;
    let queues: Vec<&Section> = sections.iter().filter(|section| section.kind == "queue").collect();
    let of = |section: &Section| section.get("interface").unwrap_or("").to_owned();
    let is_wanted = |section: &&&Section| match interface {
        Some(name) => of(section) == name,
        None => is_on(section.get("enabled")),
    };
    let mut chosen = queues.iter().filter(is_wanted);
    let section = match (chosen.next(), chosen.next()) {
        (Some(section), None) => section,
        (None, _) => {
            let all: Vec<String> = queues.iter().map(|section| of(section)).collect();
            return Err(ImportError::Nothing(match (interface, all.as_slice()) {
                (_, []) => "the file has no `config queue`".to_owned(),
                (Some(name), all) => {
                    format!("no queue is for interface {name}: there are {}", all.join(", "))
                }
                (None, all) => {
                    format!("no queue is enabled: name one with --interface, of {}", all.join(", "))
                }
            }));
        }
        (Some(_), Some(_)) => {
            let all: Vec<String> =
                queues.iter().filter(is_wanted).map(|section| of(section)).collect();
            return Err(ImportError::Nothing(format!(
                "several queues are enabled, and an instance of Narrows joins two ports: name one \
                 with --interface, of {}",
                all.join(", ")
            )));
        }
    };
    let mut draft = Draft::default();
    let name = of(section);
    draft.comment(&format!("Imported from OpenWrt's sqm-scripts, interface {name}."));
    let mut shaper = Shaper { section, draft: &mut draft };
    shaper.remarks();
    let mut rates = Vec::new();
    for (direction, dev, option) in [
        (Direction::Download, &ports.subscribers, "download"),
        (Direction::Upload, &ports.internet, "upload"),
    ] {
        let written = shaper.write(direction, dev, option)?;
        rates.push(match written {
            Some(kbit) => format!("{option} {} through {dev}", rate(kbit)),
            None => format!("{option} without a limit"),
        });
    }
    let summary = format!("interface {name}: {}", rates.join(", "));
    Ok(draft.finish(summary))
}

fn is_on(value: Option<&str>) -> bool {
    matches!(value, Some("1" | "yes" | "on" | "true" | "enabled"))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Download,
    Upload,
}

/// The Ethernet header, which a `ppp` interface lacks.
const HEADER: i32 = 14;

/// What the options of a direction are called.
struct Names {
    options: &'static str,
    ecn: &'static str,
    target: &'static str,
    limit: &'static str,
}

impl Direction {
    const fn names(self) -> Names {
        match self {
            Self::Download => Names {
                options: "iqdisc_opts",
                ecn: "ingress_ecn",
                target: "itarget",
                limit: "ilimit",
            },
            Self::Upload => Names {
                options: "eqdisc_opts",
                ecn: "egress_ecn",
                target: "etarget",
                limit: "elimit",
            },
        }
    }
}

struct Shaper<'a> {
    section: &'a Section,
    draft: &'a mut Draft,
}

impl Shaper<'_> {
    fn get(&self, option: &str) -> &str {
        self.section.get(option).unwrap_or("")
    }

    /// Notes settings of both directions that have no equivalent.
    fn remarks(&mut self) {
        let mechanism = self.get("linklayer_adaptation_mechanism").to_owned();
        if mechanism == "tc_stab" {
            self.draft.report("tc's size tables are not needed: the qdisc counts the overhead", "");
        }
        for option in ["tcMTU", "tcTSIZE"] {
            if self.section.get(option).is_some() {
                self.draft.report("options of tc's size tables have no use here", option);
            }
        }
        let unknown = self.section.keys().filter(|key| !KNOWN.contains(key));
        for option in unknown.map(str::to_owned).collect::<Vec<_>>() {
            let value = self.get(&option).to_owned();
            self.draft.fault(&format!("option {option} '{value}' is unknown: left out"));
        }
    }

    /// Writes one direction and returns its rate in kbit/s; none if it has no limit.
    fn write(
        &mut self,
        direction: Direction,
        dev: &str,
        option: &str,
    ) -> Result<Option<u64>, ImportError> {
        let text = self.get(option);
        let kbit = match text {
            "" => 0,
            _ => text.parse::<u64>().ok().filter(|&kbit| kbit < 1 << 40).ok_or_else(|| {
                ImportError::format(FILE, format!("{option} '{text}' is no number of kbit/s"))
            })?,
        };
        self.draft.blank();
        if kbit == 0 {
            self.draft.comment(&format!("{option} 0: this direction has no limit."));
            return Ok(None);
        }
        let script = self.get("script").to_owned();
        self.draft.comment(&format!("{option} {kbit} kbit/s, {script}"));
        let known = scripts::find(&script);
        let becomes = match known {
            Some(known) => {
                self.draft.comment(known.what);
                known.becomes
            }
            None => {
                let what = "is not one of sqm-scripts': taken for layer_cake.qos";
                self.draft.fault(&format!("{option}: script \"{script}\" {what}"));
                Becomes::Cake(Tins::Three)
            }
        };
        match becomes {
            Becomes::Cake(tins) => self.cake(dev, kbit, direction, tins),
            Becomes::FqCodel => self.fq_codel(dev, kbit, direction),
        }
        Ok(Some(kbit))
    }

    fn cake(&mut self, dev: &str, kbit: u64, direction: Direction, tins: Tins) {
        // Both are on unless the file turns them off.
        let squashes = |option: &str| direction == Direction::Download && self.get(option) != "0";
        let (squash, wash) = (squashes("squash_ingress"), squashes("squash_dscp"));
        let mut words = vec![format!("bandwidth {}", rate(kbit))];
        words.push(match tins {
            // Marks from the Internet count only if that was requested.
            Tins::Three if !squash => "diffserv3".to_owned(),
            Tins::One | Tins::Three => "besteffort".to_owned(),
        });
        if wash {
            words.push("wash".to_owned());
        }
        words.extend(self.link_of_cake());
        let names = direction.names();
        if self.get(names.ecn) == "NOECN" && self.get("qdisc") != "cake" {
            self.draft.note("cake marks what can be marked, whatever this says", names.ecn);
        }
        let given = self.get(names.options).to_owned();
        self.options("cake", names.options, &given, &mut words);
        for (option, usual) in [(names.target, "auto"), (names.limit, "1001")] {
            let value = self.get(option).to_owned();
            if !value.is_empty() && value != usual {
                let what = "cake sets its target and limit by the rate: left out";
                self.draft.fault(&format!("{option} {value}: {what}"));
            }
        }
        self.draft
            .attempt(&format!("qdisc replace dev {dev} root cake {}", words.join(" ")), "cake");
    }

    /// Adds the words of `given` that a `kind` takes behind `words`.
    fn options(&mut self, kind: &str, option: &str, given: &str, words: &mut Vec<String>) {
        let takes = |words: &[String], more: &str| {
            let line = format!("qdisc add dev port root {kind} {} {more}", words.join(" "));
            narrows_tc::load(&line, "sqm", &narrows_tc::OfflineHost::default())
                .map_err(|why| why.lines().next().unwrap_or("").to_owned())
        };
        let mut given = given.split_whitespace().peekable();
        while let Some(word) = given.next() {
            match word {
                "nat" => self.draft.note(
                    "Narrows is on the inside of the router and sees the hosts' own addresses",
                    "nat left out",
                ),
                "mq" | "cake_mq" => self.draft.note("cake here is on all queues of a port", word),
                word if takes(words, word).is_ok() => words.push(word.to_owned()),
                word => {
                    let has_value = HAVE_VALUES.contains(&word);
                    let value = given.next_if(|_| has_value);
                    let said = value.map_or(word.to_owned(), |value| format!("{word} {value}"));
                    match takes(words, &said) {
                        Ok(_) => words.push(said),
                        Err(why) => {
                            self.draft.fault(&format!("{option}: \"{said}\" is left out: {why}"));
                        }
                    }
                }
            }
        }
    }

    /// A number of bytes in a range, 0 if it is not given; what is not one is left out.
    fn bytes(&mut self, option: &str, range: std::ops::RangeInclusive<i32>) -> i32 {
        let text = self.get(option).to_owned();
        if text.is_empty() {
            return 0;
        }
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.unwrap_or_else(|| {
            let (from, to) = range.into_inner();
            self.draft.fault(&format!(
                "{option} \"{text}\" is not a number of bytes from {from} to {to}: left out"
            ));
            0
        })
    }

    /// Whether the link has ATM cells; none if it has no overhead that counts.
    fn is_atm(&mut self) -> Option<bool> {
        match self.get("linklayer").to_owned().as_str() {
            "none" | "" => None,
            "atm" | "adsl" => Some(true),
            "ethernet" => Some(false),
            other => {
                self.draft.fault(&format!("linklayer \"{other}\" is unknown: taken for ethernet"));
                Some(false)
            }
        }
    }

    /// The overhead of the link, in cake's words.
    fn link_of_cake(&mut self) -> Vec<String> {
        let Some(is_atm) = self.is_atm() else { return Vec::new() };
        let given = self.bytes("overhead", -64..=256);
        // A size table counts from the frame, and cake from the network layer.
        let is_table = self.get("linklayer_adaptation_mechanism") == "tc_stab";
        let counts_header = is_table && !self.get("interface").contains("ppp");
        let overhead = if counts_header { given + HEADER } else { given };
        if counts_header {
            let what = "a size table counts the Ethernet header, and cake does not: overhead is 14 bytes more";
            self.draft.note(what, &format!("{given} is {overhead}"));
        }
        let mut words = vec![format!("overhead {overhead}")];
        words.push(if is_atm { "atm" } else { "noatm" }.to_owned());
        let mpu = self.bytes("tcMPU", 0..=256);
        if mpu > 0 {
            words.push(format!("mpu {mpu}"));
        }
        words
    }

    /// The overhead of the link, in tbf's words.
    fn link_of_tbf(&mut self) -> String {
        let Some(is_atm) = self.is_atm() else { return String::new() };
        let given = self.bytes("overhead", -64..=256);
        let is_ppp = self.get("interface").contains("ppp");
        let overhead = if is_ppp { given - HEADER } else { given };
        if is_ppp {
            let what = "tbf counts the Ethernet header: overhead is 14 bytes less";
            self.draft.note(what, "a ppp interface has none");
        }
        if overhead < 0 {
            self.draft.fault(&format!(
                "overhead {given}: tbf takes no negative overhead ({overhead}), so each frame counts \
                 {} too much",
                counted(overhead.unsigned_abs() as usize, "byte")
            ));
        }
        let mpu = self.bytes("tcMPU", 0..=256);
        let mut words = String::new();
        if overhead > 0 {
            words.push_str(&format!(" overhead {overhead}"));
        }
        if mpu > 0 {
            words.push_str(&format!(" mpu {mpu}"));
        }
        if is_atm {
            words.push_str(" linklayer atm");
        }
        words
    }

    fn fq_codel(&mut self, dev: &str, kbit: u64, direction: Direction) {
        // The bytes of a millisecond, and at least four full frames.
        let burst = (kbit / 8).clamp(1_600 * 4, 1 << 30);
        let link = self.link_of_tbf();
        let tbf = format!(
            "qdisc replace dev {dev} root handle 1: tbf rate {} burst {burst} latency 50ms{link}",
            rate(kbit)
        );
        self.draft.attempt(&tbf, "tbf");
        let names = direction.names();
        let ecn = if self.get(names.ecn) == "NOECN" { "noecn" } else { "ecn" };
        let mut words = vec![ecn.to_owned()];
        let limit = self.get(names.limit).to_owned();
        let more = match limit.as_str() {
            "" => String::new(),
            limit => format!("limit {limit}"),
        };
        self.options("fq_codel", names.limit, &more, &mut words);
        let target = match self.get(names.target) {
            "" | "auto" | "Auto" | "AUTO" => for_a_slow_line(kbit),
            "default" | "Default" | "DEFAULT" => String::new(),
            target => format!("target {target}"),
        };
        self.options("fq_codel", names.target, &target, &mut words);
        let given = self.get(names.options).to_owned();
        self.options("fq_codel", names.options, &given, &mut words);
        let leaf = format!("qdisc replace dev {dev} parent 1:1 fq_codel {}", words.join(" "));
        self.draft.attempt(&leaf, "fq_codel");
    }
}

/// The target that sqm-scripts gives to a line on which a full packet takes longer than CoDel's 5
/// ms, and an interval that is longer by as much; nothing for others.
fn for_a_slow_line(kbit: u64) -> String {
    /// How long a full packet in cells of ATM takes at 1 kbit/s, in microseconds.
    const PACKET_US: u64 = 33 * 53 * 8 * 1000;
    match PACKET_US / kbit.max(1) {
        ..=5000 => String::new(),
        target => format!("target {target}us interval {}us", target + 95_000),
    }
}

/// The words of cake and of fq_codel that have a value behind them.
const HAVE_VALUES: [&str; 14] = [
    "bandwidth",
    "rtt",
    "overhead",
    "mpu",
    "memlimit",
    "fwmark",
    "limit",
    "flows",
    "target",
    "interval",
    "quantum",
    "memory_limit",
    "drop_batch",
    "ce_threshold",
];

/// The options of a section that are read here, or that say nothing of queues. The scripts read
/// options whether the web page shows them (`qdisc_advanced`) or not.
const KNOWN: [&str; 36] = [
    "enabled",
    "interface",
    "download",
    "upload",
    "qdisc",
    "script",
    "linklayer",
    "overhead",
    "linklayer_adaptation_mechanism",
    "linklayer_advanced",
    "tcMTU",
    "tcTSIZE",
    "tcMPU",
    "qdisc_advanced",
    "qdisc_really_really_advanced",
    "squash_dscp",
    "squash_ingress",
    "ingress_ecn",
    "egress_ecn",
    "ilimit",
    "elimit",
    "itarget",
    "etarget",
    "target",
    "iqdisc_opts",
    "eqdisc_opts",
    "debug_logging",
    "verbosity",
    "use_mq",
    "autoflow",
    "limit",
    // What the package for OpenWrt adds.
    "home",
    "forwarding",
    "frames",
    // Of an older htb, whose bursts are this one's own affair.
    "shaper_burst",
    "htb_quantum_function",
];
