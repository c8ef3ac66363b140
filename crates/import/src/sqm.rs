//! OpenWrt's sqm-scripts: `/etc/config/sqm`.
//!
//! A `queue` section shapes one interface, usually the one towards the Internet: `upload` is its
//! egress rate, `download` its ingress rate. Here the download is shaped where it leaves, at the
//! other port. With `cake`, both become a `cake` with the script's tins, link layer and options.
//! The scripts around `htb` and `fq_codel` become `cake` with as many tins, or `tbf` with
//! `fq_codel`.
//!
//! Source: sqm-scripts' `defaults.sh`, `functions.sh` and `*.qos`, and OpenWrt's "SQM details".

mod uci;

use crate::draft::Draft;
use crate::number::rate;
use crate::{ImportError, Imported, Ports};
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
        match script.as_str() {
            "simplest.qos" | "simplest_tbf.qos" => self.fq_codel(dev, kbit, direction),
            _ => self.cake(dev, kbit, direction, &script),
        }
        Ok(Some(kbit))
    }

    fn cake(&mut self, dev: &str, kbit: u64, direction: Direction, script: &str) {
        let advanced = is_on(self.section.get("qdisc_advanced"));
        let is_download = direction == Direction::Download;
        // Without the advanced options, both are on.
        let squashes = |option: &str| is_download && !(advanced && self.get(option) == "0");
        let (squash, wash) = (squashes("squash_ingress"), squashes("squash_dscp"));
        let mut words = vec![format!("bandwidth {}", rate(kbit))];
        let tins = match script {
            "piece_of_cake.qos" | "" => "besteffort",
            // Marks from the Internet count only if that was requested.
            _ if squash => "besteffort",
            "layer_cake.qos" => "diffserv3",
            "simple.qos" => {
                let what = "simple.qos: its three tiers are cake's three tins, with cake's shares";
                self.draft.note(what, "");
                "diffserv3"
            }
            other => {
                self.draft.note(
                    "a script that is not one of sqm-scripts': taken for layer_cake.qos",
                    other,
                );
                "diffserv3"
            }
        };
        words.push(tins.to_owned());
        if wash {
            words.push("wash".to_owned());
        }
        words.extend(self.link());
        let (options, ecn) = match direction {
            Direction::Download => ("iqdisc_opts", "ingress_ecn"),
            Direction::Upload => ("eqdisc_opts", "egress_ecn"),
        };
        if advanced && self.get(ecn) == "NOECN" && self.get("qdisc") != "cake" {
            self.draft.note("cake marks what can be marked, whatever this says", ecn);
        }
        if is_on(self.section.get("qdisc_really_really_advanced")) && advanced {
            let given = self.get(options).to_owned();
            let mut given = given.split_whitespace();
            while let Some(word) = given.next() {
                match word {
                    "rtt" | "overhead" | "mpu" | "memlimit" | "fwmark" => {
                        let value = given.next().unwrap_or("");
                        match is_value(word, value) {
                            true => words.push(format!("{word} {value}")),
                            false => {
                                self.draft.note("not a value: left out", &format!("{word} {value}"))
                            }
                        }
                    }
                    "nat" => self.draft.note(
                        "Narrows is on the inside of the router and sees the hosts' own addresses",
                        "nat left out",
                    ),
                    "mq" | "cake_mq" => {}
                    word if is_cake(word) => words.push(word.to_owned()),
                    word => self.draft.note("not a word of cake: left out", word),
                }
            }
            for option in ["itarget", "etarget", "ilimit", "elimit"] {
                if !matches!(self.get(option), "" | "auto" | "1001") {
                    let value = self.get(option).to_owned();
                    let what = "cake sets its target and limit by the rate: left out";
                    self.draft.note(what, &format!("{option} {value}"));
                }
            }
        }
        self.draft.line(&format!("qdisc replace dev {dev} root cake {}", words.join(" ")));
    }

    /// The overhead of the link, in cake's words.
    fn link(&mut self) -> Vec<String> {
        let linklayer = self.get("linklayer").to_owned();
        let overhead: i32 = self.get("overhead").parse().unwrap_or(0);
        let mpu: i32 = self.get("tcMPU").parse().unwrap_or(0);
        let mut words = Vec::new();
        let framing = match linklayer.as_str() {
            "none" | "" => return words,
            "atm" | "adsl" => "atm",
            "ethernet" => "noatm",
            other => {
                self.draft.note("an unknown link layer: taken for ethernet", other);
                "noatm"
            }
        };
        // Within cake's range.
        words.push(format!("overhead {}", overhead.clamp(-64, 256)));
        words.push(framing.to_owned());
        if (1..=256).contains(&mpu) {
            words.push(format!("mpu {mpu}"));
        }
        words
    }

    fn fq_codel(&mut self, dev: &str, kbit: u64, direction: Direction) {
        let script = self.get("script").to_owned();
        if script == "simplest.qos" {
            self.draft.note("simplest.qos: its htb with one class is a tbf", "");
        }
        // The bytes of a millisecond, and at least four full frames.
        let burst = (kbit / 8).clamp(1_600 * 4, 1 << 30);
        let overhead: u32 = self.get("overhead").parse().unwrap_or(0);
        let link = match self.get("linklayer") {
            "atm" | "adsl" => format!(" overhead {} linklayer atm", overhead.min(256)),
            "ethernet" if overhead > 0 => {
                // tbf counts a frame with its Ethernet header of 14 bytes, cake without it.
                self.draft.note("tbf counts the Ethernet header: overhead is 14 bytes less", "");
                format!(" overhead {}", overhead.saturating_sub(14).min(256))
            }
            _ => String::new(),
        };
        self.draft.line(&format!(
            "qdisc replace dev {dev} root handle 1: tbf rate {} burst {burst} latency 50ms{link}",
            rate(kbit)
        ));
        let is_marking = match direction {
            Direction::Download => self.get("ingress_ecn") != "NOECN",
            Direction::Upload => self.get("egress_ecn") == "ECN",
        };
        let ecn = if is_marking { "ecn" } else { "noecn" };
        self.draft.line(&format!("qdisc replace dev {dev} parent 1:1 fq_codel {ecn}"));
    }
}

/// Whether cake accepts `value` after `word`.
fn is_value(word: &str, value: &str) -> bool {
    let end = value.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(value.len());
    let (number, unit) = value.split_at(end);
    let Ok(number) = number.parse::<u32>() else { return false };
    match word {
        "rtt" => {
            (1..=4000).contains(&number)
                && matches!(unit, "us" | "ms" | "s")
                && (unit != "s" || number < 4)
        }
        "memlimit" => number <= 1000 && matches!(unit, "" | "b" | "k" | "kb" | "m" | "mb"),
        "fwmark" => {
            value.strip_prefix("0x").is_some_and(|mask| u32::from_str_radix(mask, 16).is_ok())
        }
        _ => unit.is_empty() && number <= 256,
    }
}

/// Whether `word` is a cake option without a value.
fn is_cake(word: &str) -> bool {
    const WORDS: [&str; 48] = [
        "flowblind",
        "srchost",
        "dsthost",
        "hosts",
        "flows",
        "dual-srchost",
        "dual-dsthost",
        "triple-isolate",
        "nonat",
        "besteffort",
        "precedence",
        "diffserv3",
        "diffserv4",
        "diffserv8",
        "wash",
        "nowash",
        "ack-filter",
        "ack-filter-aggressive",
        "no-ack-filter",
        "split-gso",
        "no-split-gso",
        "ingress",
        "egress",
        "raw",
        "conservative",
        "ethernet",
        "ether-vlan",
        "docsis",
        "pppoe-ptm",
        "bridged-ptm",
        "pppoa-vcmux",
        "pppoa-llc",
        "pppoe-vcmux",
        "pppoe-llcsnap",
        "bridged-vcmux",
        "bridged-llcsnap",
        "ipoa-vcmux",
        "ipoa-llcsnap",
        "atm",
        "noatm",
        "ptm",
        "datacentre",
        "lan",
        "metro",
        "regional",
        "internet",
        "oceanic",
        "satellite",
    ];
    WORDS.contains(&word)
}
