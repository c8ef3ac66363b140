//! The selectors of `u32`.
//!
//! As in `tc`, a selector is four bytes at a multiple of four with a mask; smaller and odd places
//! become part of one, and what is asked of the same four bytes twice becomes one selector.
//!
//! Source: iproute2 6.1, `tc/f_u32.c`. Differences: what `tc` calls `Illegal "match"` says which
//! word it is about. The code of ICMPv6 (`ip6 icmp_code`) is at 41, where `tc` asks for it behind
//! the next header, too, so that it finds nothing.

use super::address::{IPV4, IPV6, mac, prefix};
use crate::complaint::Complaint;
use crate::number;
use crate::words::{Words, abbreviates};
use narrows_classify::{Prefix, Selector};
use std::net::Ipv4Addr;

/// The most selectors, as in the kernel.
const MOST: usize = 128;

/// Parses the words after `match`, and adds them to `all`.
pub(super) fn parse(words: &mut Words, all: &mut Vec<Selector>) -> Result<(), Complaint> {
    let mut selectors = Selectors { all, words };
    match selectors.words.next() {
        Some("ip") => selectors.ip(),
        Some("ip6") => selectors.ip6(),
        Some("tcp" | "udp") => selectors.ports(),
        Some("icmp") => selectors.icmp(),
        Some("ether") => selectors.ether(),
        Some("u32") => selectors.number_at(4, Place::NETWORK),
        Some("u16") => selectors.number_at(2, Place::NETWORK),
        Some("u8") => selectors.number_at(1, Place::NETWORK),
        Some("mark") => Err(Complaint::wrong(
            "Error: \"match mark\" is not supported here: give an fw, or basic match meta(nf_mark eq N).",
        )),
        word => Err(illegal(word, "one of ip, ip6, tcp, udp, icmp, ether, u32, u16 and u8")),
    }
}

/// `VALUE MASK at [nexthdr+]OFFSET`, as in an expression, where the place is not optional.
pub(super) fn placed(size: &str, words: &mut Words) -> Option<Selector> {
    let len = match size {
        "u32" => 4,
        "u16" => 2,
        "u8" => 1,
        _ => return None,
    };
    let (value, mask) = value_and_mask(words, len).ok()?;
    if words.next()? != "at" {
        return None;
    }
    let place = Place::NETWORK.read(words.next()?)?;
    part(value, mask, place, len)
}

/// What `selector` means in an IPv4 packet, as `tc -p` prints it; `None` for what `tc` does not
/// explain, and prints nothing for.
pub(super) fn explain(selector: &Selector) -> Option<String> {
    let Selector { value, mask, offset, is_behind_ip } = *selector;
    let byte = |mask: u32| value >> mask.trailing_zeros();
    Some(match (offset, mask) {
        _ if is_behind_ip => return None,
        (0, 0x0f00_0000) => format!("\n  match IP ihl {}", byte(mask)),
        (0, 0x00ff_0000) => format!("\n  match IP dsfield {:#x}", byte(mask)),
        (8, 0x00ff_0000) => format!("\n  match IP protocol {}", byte(mask)),
        (12 | 16, _) if mask.count_ones() == mask.leading_ones() => {
            let name = if offset == 12 { "src" } else { "dst" };
            format!("\n  match IP {name} {}/{}", Ipv4Addr::from_bits(value), mask.leading_ones())
        }
        // Without a line of its own.
        (20, 0x0000_ffff) => format!("match dport {value}"),
        (20, 0xffff_0000) => format!("\n  match sport {}", value >> 16),
        (20, u32::MAX) => {
            format!("\n  match dport {}, match sport {}", value & 0xffff, value >> 16)
        }
        _ => return None,
    })
}

fn illegal(word: Option<&str>, wanted: &str) -> Complaint {
    Complaint::wrong(match word {
        Some(word) => format!("Illegal \"match\": \"{word}\" is not {wanted}."),
        None => format!("Illegal \"match\": {wanted} is missing."),
    })
}

/// Where bytes are.
#[derive(Clone, Copy)]
struct Place {
    offset: i32,
    is_behind_ip: bool,
}

impl Place {
    const NETWORK: Self = Self::network(0);

    const fn network(offset: i32) -> Self {
        Self { offset, is_behind_ip: false }
    }

    const fn transport(offset: i32) -> Self {
        Self { offset, is_behind_ip: true }
    }

    /// The place that `word` names: `[nexthdr+]OFFSET`. As in `tc`, a number alone leaves it behind
    /// the header where it is.
    fn read(self, word: &str) -> Option<Self> {
        match word.strip_prefix("nexthdr+") {
            Some(digits) => Some(Self::transport(number::integer(digits)?)),
            None => Some(Self { offset: number::integer(word)?, ..self }),
        }
    }
}

/// The `len` bytes at `place`, as a part of the aligned four bytes that contain them. As in `tc`,
/// two bytes at an odd offset are those at the end of the four.
fn part(value: u32, mask: u32, place: Place, len: i32) -> Option<Selector> {
    let Place { offset, is_behind_ip } = place;
    let within = match (len, offset.rem_euclid(4)) {
        (4, 0) => 0,
        (4, _) => return None,
        (2, 0) => 0,
        (2, _) => 2,
        (_, within) => within,
    };
    let shift = (8 * (4 - len - within)) as u32;
    let offset = i16::try_from(offset - offset.rem_euclid(4)).ok()?;
    let mask = mask << shift;
    Some(Selector { value: value << shift & mask, mask, offset, is_behind_ip })
}

/// A number in any base, and a mask in hexadecimal, of `len` bytes each.
fn value_and_mask(words: &mut Words, len: i32) -> Result<(u32, u32), Complaint> {
    let most = u32::MAX >> (32 - 8 * len);
    let wanted = |what: &str| format!("{what} of {} bits", 8 * len);
    let word = words.next();
    let value = word.and_then(number::mask).filter(|value| *value <= most);
    let value = value.ok_or_else(|| illegal(word, &wanted("a number")))?;
    let word = words.next();
    let hexadecimal = |word: &str| {
        let digits = word.strip_prefix("0x").or(word.strip_prefix("0X")).unwrap_or(word);
        let is_number = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        u32::from_str_radix(digits, 16).ok().filter(|_| is_number)
    };
    let mask = word.and_then(hexadecimal).filter(|mask| *mask <= most);
    let mask = mask.ok_or_else(|| illegal(word, &wanted("a hexadecimal mask")))?;
    Ok((value, mask))
}

/// The selectors so far, and the words of the next.
struct Selectors<'s, 'w, 'a> {
    all: &'s mut Vec<Selector>,
    words: &'w mut Words<'a>,
}

impl Selectors<'_, '_, '_> {
    /// Adds one. What is asked of bytes that are asked for already becomes one selector.
    fn add(&mut self, new: Selector) -> Result<(), Complaint> {
        let same =
            |one: &&mut Selector| (one.offset, one.is_behind_ip) == (new.offset, new.is_behind_ip);
        if let Some(present) = self.all.iter_mut().find(same) {
            if (present.value ^ new.value) & present.mask & new.mask != 0 {
                return Err(Complaint::wrong(
                    "Illegal \"match\": the same bytes must have two values, so that nothing matches.",
                ));
            }
            present.value |= new.value;
            present.mask |= new.mask;
            return Ok(());
        }
        if self.all.len() == MOST {
            return Err(Complaint::wrong(format!(
                "Illegal \"match\": a u32 has {MOST} selectors at most."
            )));
        }
        self.all.push(new);
        Ok(())
    }

    fn add_part(&mut self, value: u32, mask: u32, place: Place, len: i32) -> Result<(), Complaint> {
        let selector = part(value, mask, place, len).ok_or_else(|| {
            Complaint::wrong(format!(
                "Illegal \"match\": \"at {}\" is not a multiple of 4 for a u32, or beyond 32767.",
                place.offset
            ))
        })?;
        self.add(selector)
    }

    /// `VALUE MASK [ at [nexthdr+]OFFSET ]` of `len` bytes, at `place` if nothing else is said.
    fn number_at(&mut self, len: i32, place: Place) -> Result<(), Complaint> {
        let (value, mask) = value_and_mask(self.words, len)?;
        let mut place = place;
        if self.words.next_if(|word| word == "at").is_some() {
            let word = self.words.next();
            let read = word.and_then(|word| place.read(word));
            place = read.ok_or_else(|| illegal(word, "an offset, as 20 or nexthdr+2"))?;
        }
        self.add_part(value, mask, place, len)
    }

    fn ip(&mut self) -> Result<(), Complaint> {
        let field = self.words.next();
        let (offset, len) = match field {
            Some("src") => return self.address_v4(12),
            Some("dst") => return self.address_v4(16),
            Some("protocol") => (9, 1),
            Some("tos") => (1, 1),
            Some("sport") => (20, 2),
            Some("dport") => (22, 2),
            Some("ihl") => (0, 1),
            Some("icmp_type") => (20, 1),
            Some("icmp_code") => (21, 1),
            Some("nofrag") => return self.add_part(0, 0x3fff, Place::network(6), 2),
            Some("firstfrag") => return self.add_part(0x2000, 0x3fff, Place::network(6), 2),
            Some("df") => return self.add_part(0x4000, 0x4000, Place::network(6), 2),
            Some("mf") => return self.add_part(0x2000, 0x2000, Place::network(6), 2),
            Some(word) if abbreviates(word, "dsfield") || abbreviates(word, "precedence") => (1, 1),
            word => {
                return Err(illegal(
                    word,
                    "a field of ip: src, dst, protocol, tos, dsfield, precedence, ihl, sport, dport, icmp_type, icmp_code, nofrag, firstfrag, df or mf",
                ));
            }
        };
        self.number_at(len, Place::network(offset))
    }

    fn ip6(&mut self) -> Result<(), Complaint> {
        match self.words.next() {
            Some("src") => self.address_v6(8),
            Some("dst") => self.address_v6(24),
            Some("protocol") => self.number_at(1, Place::network(6)),
            Some("sport") => self.number_at(2, Place::network(40)),
            Some("dport") => self.number_at(2, Place::network(42)),
            Some("icmp_type") => self.number_at(1, Place::network(40)),
            Some("icmp_code") => self.number_at(1, Place::network(41)),
            Some("flowlabel") => self.number_at(4, Place::NETWORK),
            // The traffic class lies across two bytes.
            Some("priority") => {
                let (value, mask) = value_and_mask(self.words, 1)?;
                self.add_part(value << 20, mask << 20, Place::NETWORK, 4)
            }
            word => Err(illegal(
                word,
                "a field of ip6: src, dst, protocol, priority, flowlabel, sport, dport, icmp_type or icmp_code",
            )),
        }
    }

    fn ports(&mut self) -> Result<(), Complaint> {
        match self.words.next() {
            Some("src") => self.number_at(2, Place::transport(0)),
            Some("dst") => self.number_at(2, Place::transport(2)),
            word => Err(illegal(word, "src or dst")),
        }
    }

    fn icmp(&mut self) -> Result<(), Complaint> {
        match self.words.next() {
            Some("type") => self.number_at(1, Place::transport(0)),
            Some("code") => self.number_at(1, Place::transport(1)),
            word => Err(illegal(word, "type or code")),
        }
    }

    /// Six bytes of the Ethernet header, in frames without a tag.
    fn ether(&mut self) -> Result<(), Complaint> {
        let places = match self.words.next() {
            Some("src") => [(-8, 4), (-4, 2)],
            Some("dst") => [(-14, 2), (-12, 4)],
            word => return Err(illegal(word, "src or dst")),
        };
        let word = self.words.next();
        let station = word.and_then(mac);
        let (mac, mask) = station.ok_or_else(|| illegal(word, "an address of Ethernet"))?;
        let mut left = 48;
        for (offset, len) in places {
            left -= 8 * len;
            let low = |number: u64| (number >> left) as u32 & (u32::MAX >> (32 - 8 * len));
            self.add_part(low(mac), low(mask), Place::network(offset), len)?;
        }
        Ok(())
    }

    fn address_v4(&mut self, offset: i16) -> Result<(), Complaint> {
        let word = self.words.next();
        let prefix = word.and_then(|word| prefix(word, IPV4)).filter(|of| !of.is_v6());
        let prefix = prefix.ok_or_else(|| illegal(word, "an address or a prefix of IPv4"))?;
        // Also without a mask: it asks for an IPv4 header's bytes.
        self.add(Selector::network(offset, prefix.bits().0 as u32, prefix.mask() as u32))
    }

    fn address_v6(&mut self, offset: i16) -> Result<(), Complaint> {
        let word = self.words.next();
        let prefix = word.and_then(|word| prefix(word, IPV6)).filter(Prefix::is_v6);
        let prefix = prefix.ok_or_else(|| illegal(word, "an address or a prefix of IPv6"))?;
        for place in 0..4 {
            let shift = 32 * (3 - place);
            let mask = (prefix.mask() >> shift) as u32;
            if mask != 0 {
                let bits = (prefix.bits().0 >> shift) as u32;
                self.add(Selector::network(offset + 4 * place as i16, bits, mask))?;
            }
        }
        Ok(())
    }
}
