//! Filters as rules: keys under masks.
//!
//! A range of ports is as many rules as it has blocks of a power of two; a field of IP without a
//! version is one rule for each version. What keys cannot say is for [terms](crate::terms).

use crate::Refusal;
use crate::compile::room;
use narrows_bpf::carrier;
use narrows_bpf::tree::layout::{Key, MASKS_MAX, Mask, RULES_MAX, Rule};
use narrows_classify::{ANY_PROTOCOL, Filter, Flower, Matches, PortRange, Prefix, is_tag};
use std::collections::BTreeMap;

/// The bits of [`Key::has`] that say what IP is in.
const CARRIER_BITS: u8 = 6;

/// EtherTypes.
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// A key and the bits of it that count.
type Masked = (Key, Key);

/// The rules under a mask: order and class, by scope and key.
type Rules = BTreeMap<(u16, Key), (u64, u32)>;

/// A filter of a scope, and the number of the class, or scope, that it assigns.
#[derive(Clone, Copy)]
pub(crate) struct Assigned<'a> {
    pub(crate) scope: u16,
    pub(crate) filter: &'a Filter,
    pub(crate) class: u32,
}

/// Filters as rules under their masks, and those that are no rules.
pub(crate) struct Tables<'a> {
    pub(crate) masks: Vec<Mask>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) rest: Vec<Assigned<'a>>,
}

/// The tables of `filters`. All scopes have the same masks.
pub(crate) fn tables<'a>(
    filters: impl Iterator<Item = Assigned<'a>>,
) -> Result<Tables<'a>, Refusal> {
    let mut by_mask: BTreeMap<Key, Rules> = BTreeMap::new();
    let mut rest = Vec::new();
    for assigned in filters {
        let Assigned { scope, filter, class } = assigned;
        let Some(keys) = keys(filter).filter(|_| filter.actions.is_empty()) else {
            rest.push(assigned);
            continue;
        };
        for (bits, key) in keys {
            let rule = (filter.order(), class);
            let best = by_mask.entry(bits).or_default().entry((scope, key)).or_insert(rule);
            *best = rule.min(*best);
        }
    }
    let mut tables: Vec<_> = by_mask.into_iter().collect();
    let first = |rules: &Rules| rules.values().map(|rule| rule.0).min();
    tables.sort_by_key(|(_, rules)| first(rules));
    room("different masks of filters", MASKS_MAX, tables.len())?;
    room("rules", RULES_MAX, tables.iter().map(|(_, rules)| rules.len()).sum())?;
    let masks = tables
        .iter()
        .map(|(bits, rules)| Mask { bits: *bits, first: first(rules).unwrap_or(u64::MAX) })
        .collect();
    let rules = (0u16..).zip(&tables).flat_map(|(mask, (_, rules))| {
        let rule = move |(&(scope, key), &(order, class)): (&(u16, Key), &(u64, u32))| Rule {
            scope,
            mask,
            key,
            order,
            class,
        };
        rules.iter().map(rule)
    });
    Ok(Tables { masks, rules: rules.collect(), rest })
}

/// All that a packet may be that `filter` matches; `None` if keys cannot say it.
fn keys(filter: &Filter) -> Option<Vec<Masked>> {
    let (mut bits, mut key) = (Key::default(), Key::default());
    let flower = match &filter.matches {
        Matches::All => Flower::default(),
        Matches::Mark(mark) if mark.is_impossible() => return Some(Vec::new()),
        Matches::Mark(mark) => {
            (bits.mark, key.mark) = (mark.mask, mark.value);
            Flower::default()
        }
        Matches::Flower(flower) => *flower,
        _ => return None,
    };
    match filter.protocol {
        ANY_PROTOCOL => {}
        protocol if is_tag(protocol) => return None,
        protocol => match carrier(protocol) {
            Some(number) => (bits.has, key.has) = (CARRIER_BITS, number << 1),
            None => (bits.ether_type, key.ether_type) = (u16::MAX, protocol),
        },
    }
    let plain = Flower {
        protocol: None,
        traffic_class: None,
        destination: None,
        source: None,
        destination_port: None,
        source_port: None,
        ..flower
    };
    if plain != Flower::default() {
        return None;
    }
    if let Some(protocol) = flower.protocol {
        (bits.protocol, key.protocol) = (u8::MAX, protocol);
    }
    if let Some((value, mask)) = flower.traffic_class {
        (bits.traffic_class, key.traffic_class) = (mask, value & mask);
    }
    let mut versions = match filter.protocol {
        IPV4 => vec![4],
        IPV6 => vec![6],
        _ => vec![4, 6],
    };
    for prefix in [flower.source, flower.destination].into_iter().flatten() {
        versions.retain(|version| (*version == 6) == prefix.is_v6());
    }
    let address = |prefix: Option<Prefix>| {
        prefix.map_or((0, 0), |prefix| (prefix.mask(), prefix.bits().0 & prefix.mask()))
    };
    (bits.source, key.source) = address(flower.source);
    (bits.destination, key.destination) = address(flower.destination);
    if flower == Flower::default() {
        return Some(vec![(bits, key)]);
    }
    let mut all = Vec::new();
    for ip in versions {
        for (source_mask, source) in blocks(flower.source_port) {
            for (destination_mask, destination) in blocks(flower.destination_port) {
                let asks = flower.source_port.or(flower.destination_port).is_some();
                let has_ports = u8::from(asks);
                let [bits_of, key_of] = [bits.has, key.has].map(|has| has | has_ports);
                let (source_port, destination_port) = (source_mask, destination_mask);
                let ip_bits = u8::MAX;
                all.push((
                    Key { ip: ip_bits, has: bits_of, source_port, destination_port, ..bits },
                    Key {
                        ip,
                        has: key_of,
                        source_port: source,
                        destination_port: destination,
                        ..key
                    },
                ));
            }
        }
    }
    Some(all)
}

/// The blocks of a power of two that `range` is made of, each a mask and what ports are under it.
fn blocks(range: Option<PortRange>) -> Vec<(u16, u16)> {
    let Some(PortRange { first, last }) = range else { return vec![(0, 0)] };
    let (mut at, last) = (u32::from(first), u32::from(last));
    let mut blocks = Vec::new();
    while at <= last {
        // The largest that begins here and does not end behind the range.
        let aligned = if at == 0 { 16 } else { at.trailing_zeros() };
        let fits = (last - at + 1).ilog2();
        let size = 1 << aligned.min(fits);
        blocks.push((!(size - 1) as u16, at as u16));
        at += size;
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_ports_is_blocks_that_hold_each_port_once() {
        for (first, last) in [(0, 65535), (80, 80), (1, 65535), (1000, 2000), (5, 4096), (0, 0)] {
            let blocks = blocks(Some(PortRange { first, last }));
            assert!(blocks.len() <= 30);
            for port in 0..=65535u16 {
                let held = blocks.iter().filter(|(mask, value)| port & mask == *value).count();
                assert_eq!(
                    held,
                    usize::from((first..=last).contains(&port)),
                    "{first} {last} {port}"
                );
            }
        }
        assert_eq!(super::blocks(None), [(0, 0)]);
    }
}
