//! The selectors of `u32`.

use super::prefix;
use crate::number;
use crate::words::Words;
use narrows_classify::{Prefix, Selector};

/// Parses the words after `match`.
pub(super) fn parse(words: &mut Words) -> Option<Vec<Selector>> {
    match words.next()? {
        "ip" => ip(words),
        "ip6" => ip6(words),
        "tcp" | "udp" => ports(words),
        "icmp" => icmp(words),
        "ether" => ether(words),
        "u32" => raw(words, 4),
        "u16" => raw(words, 2),
        "u8" => raw(words, 1),
        _ => None,
    }
}

/// `VALUE MASK at [nexthdr+]OFFSET`, as in an expression.
pub(super) fn placed(size: &str, words: &mut Words) -> Option<Selector> {
    let len = match size {
        "u32" => 4,
        "u16" => 2,
        "u8" => 1,
        _ => return None,
    };
    raw(words, len)?.first().copied()
}

/// The `len` bytes at `offset`, as a part of the aligned four bytes that contain them.
fn part(value: u32, mask: u32, offset: i32, len: i32, is_behind_ip: bool) -> Option<Selector> {
    let within = offset.rem_euclid(4);
    if within % len != 0 {
        return None;
    }
    let shift = (8 * (4 - len - within)) as u32;
    let offset = i16::try_from(offset - within).ok()?;
    let mask = mask << shift;
    Some(Selector { value: value << shift & mask, mask, offset, is_behind_ip })
}

/// A number in any base, and a mask in hexadecimal.
fn value_and_mask(words: &mut Words, bytes: i32) -> Option<(u32, u32)> {
    let value = number::mask(words.next()?)?;
    let mask = words.next()?;
    let mask = u32::from_str_radix(mask.strip_prefix("0x").unwrap_or(mask), 16).ok()?;
    let most = u32::MAX >> (32 - 8 * bytes);
    (value <= most && mask <= most).then_some((value, mask))
}

fn ip(words: &mut Words) -> Option<Vec<Selector>> {
    let field = words.next()?;
    if let "src" | "dst" = field {
        let prefix = prefix(words.next()?).filter(|prefix| !prefix.is_v6())?;
        return Some(address(prefix, if field == "src" { 12 } else { 16 }));
    }
    let (offset, len) = match field {
        "protocol" => (9, 1),
        "tos" | "dsfield" | "precedence" => (1, 1),
        "sport" => (20, 2),
        "dport" => (22, 2),
        "ihl" => (0, 1),
        "icmp_type" => (20, 1),
        "icmp_code" => (21, 1),
        "nofrag" => return Some(vec![part(0, 0x3fff, 6, 2, false)?]),
        "firstfrag" => return Some(vec![part(0x2000, 0x3fff, 6, 2, false)?]),
        "df" => return Some(vec![part(0x4000, 0x4000, 6, 2, false)?]),
        "mf" => return Some(vec![part(0x2000, 0x2000, 6, 2, false)?]),
        _ => return None,
    };
    number_at(words, offset, len, false)
}

fn ip6(words: &mut Words) -> Option<Vec<Selector>> {
    let at = match words.next()? {
        "src" => 8,
        "dst" => 24,
        "protocol" => return number_at(words, 6, 1, false),
        "sport" => return number_at(words, 40, 2, false),
        "dport" => return number_at(words, 42, 2, false),
        _ => return None,
    };
    let prefix = prefix(words.next()?).filter(Prefix::is_v6)?;
    Some(address(prefix, at))
}

/// `VALUE MASK` of `len` bytes at `offset`.
fn number_at(
    words: &mut Words,
    offset: i32,
    len: i32,
    is_behind_ip: bool,
) -> Option<Vec<Selector>> {
    let (value, mask) = value_and_mask(words, len)?;
    Some(vec![part(value, mask, offset, len, is_behind_ip)?])
}

fn ports(words: &mut Words) -> Option<Vec<Selector>> {
    let offset = match words.next()? {
        "src" => 0,
        "dst" => 2,
        _ => return None,
    };
    number_at(words, offset, 2, true)
}

fn icmp(words: &mut Words) -> Option<Vec<Selector>> {
    let offset = match words.next()? {
        "type" => 0,
        "code" => 1,
        _ => return None,
    };
    number_at(words, offset, 1, true)
}

/// Six bytes of the Ethernet header, in frames without a tag.
fn ether(words: &mut Words) -> Option<Vec<Selector>> {
    let (first, second) = match words.next()? {
        "src" => ((-8, 4), (-4, 2)),
        "dst" => ((-14, 2), (-12, 4)),
        _ => return None,
    };
    let (mac, mask) = super::mac(words.next()?)?;
    let bytes = |number: u64| number.to_be_bytes();
    let taken = |number: u64, at: usize, len: i32| {
        let all = bytes(number);
        (0..len as usize).fold(0, |sum, index| sum << 8 | u32::from(all[2 + at + index]))
    };
    let at = |skip: usize, (offset, len)| {
        part(taken(mac, skip, len), taken(mask, skip, len), offset, len, false)
    };
    Some(vec![at(0, first)?, at(first.1 as usize, second)?])
}

/// Matches an address at `offset` against `prefix`.
fn address(prefix: Prefix, offset: i16) -> Vec<Selector> {
    let (bits, words) = prefix.bits();
    let word = |place: usize| {
        let shift = 32 * (words - 1 - place);
        let mask = (prefix.mask() >> shift) as u32;
        Selector::network(offset + 4 * place as i16, (bits >> shift) as u32, mask)
    };
    // Keeps the first word even without a mask, so that `ip src 0.0.0.0/0` matches everything.
    let first = std::iter::once(word(0));
    first.chain((1..words).map(word).filter(|selector| selector.mask != 0)).collect()
}

/// `VALUE MASK at [nexthdr+]OFFSET`, of `len` bytes.
fn raw(words: &mut Words, len: i32) -> Option<Vec<Selector>> {
    let (value, mask) = value_and_mask(words, len)?;
    if words.next()? != "at" {
        return None;
    }
    let word = words.next()?;
    let (digits, is_behind_ip) = match word.strip_prefix("nexthdr+") {
        Some(digits) => (digits, true),
        None => (word, false),
    };
    let offset = digits.parse().ok()?;
    Some(vec![part(value, mask, offset, len, is_behind_ip)?])
}
