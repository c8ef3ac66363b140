//! `cake` and `cake_mq`: the words of `tc-cake(8)`, and Narrows' own for shared rates
//! (`coordination`, `sync`) and for tunnels (`inner`).
//!
//! As in `tc`, no word may be abbreviated. Of two that exclude each other, the later one counts.
//! Words about overhead apply in order: most of them add to the earlier ones.

mod figures;
mod print;
mod words;

use super::autorate;
use super::coordination;
use super::fleet;
use super::legal::legal;
use super::no_look_up;
use crate::complaint::Complaint;
use crate::number;
use crate::words::Words;
use narrows_policy::{Autorate, CakeOptions, Fleet, Params};
use narrows_qdisc::cake::Diffserv;
use narrows_units::wire::Framing;
use narrows_units::{Bytes, Nanos, Rate};
use std::ops::RangeInclusive;
pub use words::link_overhead;
use words::{
    ACK_FILTERS, CONSERVATIVE, DIFFSERVS, FRAMINGS, ISOLATIONS, LINKS, ROUND_TRIPS, nearest, value,
};

pub(crate) use figures::figures;
pub(super) use print::{save, show};

const USAGE: &str = "Usage: { cake | cake_mq } [ bandwidth RATE | unlimited* | autorate-ingress ]
           [ rtt TIME | datacentre | lan | metro | regional | internet* | oceanic
             | satellite | interplanetary ]
           [ besteffort | precedence | diffserv8 | diffserv4 (diffserv) | diffserv3* ] [ fwmark MASK ]
           [ flowblind | srchost | dsthost | hosts | flows | dual-srchost | dual-dsthost
             | triple-isolate* ] [ nat | nonat* ] [ inner | noinner* ]
           [ ack-filter | ack-filter-aggressive | no-ack-filter* ] [ wash | nowash* ]
           [ memlimit SIZE ] [ ingress | egress* ] [ split-gso* | no-split-gso ]
           [ raw* | overhead N | conservative | ethernet | ether-vlan | docsis
             | pppoe-ptm | bridged-ptm | { pppoa | ipoa }-{ vcmux | llc | llcsnap }
             | { pppoe | bridged }-{ vcmux | llcsnap } ] [ atm | ptm | noatm* ] [ mpu N ]
           [ coordination fair*|equal|edt|lock ] [ sync TIME ]
           [ fleet NAME { safe RATE | boxes N } [ rejoin ] | nofleet* ]
           [ autorate MIN MAX [ line PORT ] [ reflector ADDRESS ]... | noautorate* ]
* marks the defaults. inner tells flows apart inside of tunnels. split-gso changes nothing:
frames at a port are segments already.";

/// The range of `overhead`: a few headers more or less.
const OVERHEADS: RangeInclusive<i32> = -64..=256;
/// The range of `mpu`.
const MINIMA: RangeInclusive<i32> = 0..=256;

/// What has been read so far.
#[derive(Default)]
struct Draft {
    options: CakeOptions,
    /// The sum of all words about overhead, once there is one.
    overhead: Option<i32>,
    /// The named round-trip time.
    round_trip: Option<&'static str>,
    shared: coordination::Draft,
    fleet: Option<Box<Fleet>>,
    autorate: Option<Box<Autorate>>,
}

pub(super) fn parse(multi: bool, mut words: Words) -> Result<Params, Complaint> {
    let kind = if multi { "cake_mq" } else { "cake" };
    let mut draft = Draft::default();
    while let Some(word) = words.next() {
        draft.parameter(kind, word, &mut words)?;
    }
    Ok(Params::Cake { multi, options: draft.finish(kind)? })
}

impl Draft {
    fn parameter(&mut self, kind: &str, word: &str, words: &mut Words) -> Result<(), Complaint> {
        let options = &mut self.options;
        match word {
            "bandwidth" => {
                let value = words.value(word, "100mbit")?;
                let rate = legal(kind, word, value, number::rate, rate_hint(value))?;
                // As in tc, a rate of 0 counts as none.
                options.rate = Some(rate).filter(|rate| !rate.is_zero());
                options.autorate = Some(false);
            }
            "unlimited" => {
                options.rate = Some(Rate::default());
                options.autorate = Some(false);
            }
            "autorate-ingress" => options.autorate = Some(true),
            "rtt" => {
                let value = words.value(word, "100ms")?;
                let hint = "a time from 1us on, below 4295 s, as 100ms";
                let some = |word: &str| number::time(word).filter(|time| *time != Nanos::ZERO);
                options.interval = Some(legal(kind, word, value, some, hint)?);
            }
            // The older name of diffserv4.
            "diffserv" => options.diffserv = Some(Diffserv::Diffserv4),
            "nat" | "nonat" => options.nat = Some(word == "nat"),
            "inner" | "noinner" => options.inner = Some(word == "inner"),
            "wash" | "nowash" => options.wash = Some(word == "wash"),
            "split-gso" | "no-split-gso" => options.split_gso = Some(word == "split-gso"),
            "ingress" | "egress" => options.ingress = Some(word == "ingress"),
            "raw" => {
                options.raw = true;
                options.framing = Some(Framing::Whole);
                self.overhead = Some(0);
            }
            "conservative" => {
                options.framing = Some(Framing::Atm);
                self.overhead = Some(CONSERVATIVE);
            }
            "overhead" => {
                let value = words.value(word, "38")?;
                let hint = "a number of bytes from -64 to 256, without a unit";
                self.overhead =
                    Some(legal(kind, word, value, |word| within(word, OVERHEADS), hint)?);
            }
            "mpu" => {
                let value = words.value(word, "84")?;
                let hint = "a number of bytes from 0 to 256, without a unit";
                let minimum = legal(kind, word, value, |word| within(word, MINIMA), hint)?;
                options.minimum = Some(minimum.unsigned_abs()).filter(|minimum| *minimum != 0);
            }
            "memlimit" => {
                let value = words.value(word, "32mb")?;
                let limit = legal(kind, word, value, number::size, number::SIZE_HINT)?;
                options.memory = Some(Bytes(u64::from(limit))).filter(|limit| limit.0 != 0);
            }
            "fwmark" => {
                let value = words.value(word, "0xff")?;
                let hint = "the bits of the mark that name the tin, as 0xff";
                let mask = legal(kind, word, value, number::mask, hint)?;
                options.mark_mask = Some(mask).filter(|mask| *mask != 0);
            }
            "coordination" => self.shared.strategy(kind, words)?,
            "sync" => self.shared.sync(kind, words)?,
            "fleet" => fleet::parse(kind, words, &mut self.fleet)?,
            "autorate" => autorate::parse(kind, words, &mut self.autorate)?,
            "noautorate" => {
                options.follows = Some(None);
                self.autorate = None;
            }
            "nofleet" => {
                options.fleet = Some(None);
                self.fleet = None;
            }
            // tc accepts it without effect, for old scripts.
            "via-ethernet" => {}
            "help" => return Err(Complaint::wrong(USAGE)),
            _ => return self.named_value(kind, word),
        }
        Ok(())
    }

    fn named_value(&mut self, kind: &str, word: &str) -> Result<(), Complaint> {
        let options = &mut self.options;
        if let Some((name, micros)) = ROUND_TRIPS.into_iter().find(|(name, _)| *name == word) {
            if let Some(first) = self.round_trip {
                return Err(Complaint::unreadable(format!(
                    "Error: duplicate \"{name}\": \"{first}\" was given before, give one round trip."
                )));
            }
            self.round_trip = Some(name);
            options.interval = Some(Nanos::from_micros(micros));
        } else if let Some(isolation) = value(&ISOLATIONS, word) {
            options.isolation = Some(isolation);
        } else if let Some(diffserv) = value(&DIFFSERVS, word) {
            options.diffserv = Some(diffserv);
        } else if let Some(ack_filter) = value(&ACK_FILTERS, word) {
            options.ack_filter = Some(ack_filter);
        } else if let Some(framing) = value(&FRAMINGS, word) {
            options.framing = Some(framing);
        } else if let Some(link) = LINKS.iter().find(|link| link.name == word) {
            self.overhead = Some(self.overhead.unwrap_or(0).saturating_add(link.adds));
            options.framing = link.framing.or(options.framing);
            options.minimum = link.minimum.or(options.minimum);
        } else {
            let nearest =
                nearest(word).map_or(String::new(), |like| format!(" Perhaps \"{like}\"?"));
            return Err(Complaint::wrong(format!(
                "What is \"{word}\"?{nearest} \"{kind} help\" lists the words of {kind}.\n{USAGE}"
            )));
        }
        Ok(())
    }

    fn finish(self, kind: &str) -> Result<CakeOptions, Complaint> {
        if let Some(sum) = self.overhead.filter(|sum| !OVERHEADS.contains(sum)) {
            return Err(Complaint::wrong(format!(
                "{kind}: the words about overhead add up to {sum} bytes: it may be -64 to 256."
            )));
        }
        let strategy = self.shared.finish(kind)?;
        let fleet = self.fleet.map(Some).or(self.options.fleet);
        let follows = self.autorate.map(Some).or(self.options.follows);
        Ok(CakeOptions { per_frame: self.overhead, strategy, fleet, follows, ..self.options })
    }
}

fn rate_hint(value: &str) -> &'static str {
    if value.ends_with('%') {
        "a share of the device's speed means nothing here, since Narrows sits before the \
         bottleneck: give the rate itself, as 100mbit"
    } else {
        number::RATE_HINT
    }
}

/// A decimal number in that range, with an optional sign.
fn within(word: &str, range: RangeInclusive<i32>) -> Option<i32> {
    word.parse().ok().filter(|number| range.contains(number))
}

/// A warning about options that are allowed but cannot work on this port; `looks_up` says whether
/// the kernel can tell addresses before translation.
pub(super) fn warning(options: &CakeOptions, looks_up: impl FnOnce() -> bool) -> Option<String> {
    let nat = options.nat == Some(true) && !looks_up();
    let mark = options.mark_mask.is_some();
    let nat = nat.then(|| no_look_up("cake: nat"));
    let mark = mark.then(|| {
        "Warning: cake: fwmark: frames at a port carry no firewall mark, so their code points \
         decide the tin."
            .to_owned()
    });
    let warnings: Vec<_> = [nat, mark].into_iter().flatten().collect();
    (!warnings.is_empty()).then(|| warnings.join("\n"))
}
