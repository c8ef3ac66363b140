//! `ShapedDevices.csv`: one row per device, with the circuit that it belongs to.
//!
//! A row is imported as it stands, or named with its line. Nothing is guessed: a rate that is not
//! a number leaves its row out, and what could have swallowed other rows (a quote that is not
//! closed) refuses the file.

use super::rows::{Row, rows};
use crate::ImportError;
use crate::number::{kbit, of_kbit};
use narrows_directory::{Draft, Prefix, Queueing, rate_words};
use narrows_units::Rate;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(super) const FILE: &str = "ShapedDevices.csv";

/// A subscriber: the unit that has rates of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Circuit {
    pub(super) id: String,
    pub(super) name: String,
    /// The parent node; empty at the top.
    pub(super) parent: String,
    /// The assured rate, downstream and upstream; 0 if there is none.
    pub(super) least: [Rate; 2],
    /// The maximum rate, downstream and upstream.
    pub(super) most: [Rate; 2],
    pub(super) sqm: [Queueing; 2],
    pub(super) addresses: Vec<Prefix>,
    /// The line of its first device.
    pub(super) line: u64,
}

impl Circuit {
    /// What tells it from all others, and stays when its row moves or its values change. A circuit
    /// without a number is told by its name, and then by its first address.
    fn identity(&self) -> String {
        match (self.id.as_str(), self.name.as_str(), self.addresses.first()) {
            ("", "", None) => "without name".to_owned(),
            ("", "", Some(Prefix { ip, bits })) => format!("at {ip}/{bits}"),
            ("", name, _) => format!("named {name}"),
            (id, ..) => id.to_owned(),
        }
    }
}

/// The identities of circuits, all different.
pub(super) fn identities(circuits: &[Circuit]) -> Vec<String> {
    let mut times: HashMap<String, usize> = HashMap::new();
    let identities = circuits.iter().map(|circuit| {
        let identity = circuit.identity();
        let time = times.entry(identity.clone()).or_default();
        *time += 1;
        match *time {
            1 => identity,
            // No circuit has a name with a line break at its end.
            time => format!("{identity}\n{time}"),
        }
    });
    identities.collect()
}

/// Downstream and upstream.
type Two<T> = [T; 2];

/// The positions of the columns.
struct Columns {
    id: usize,
    name: Option<usize>,
    parent: Option<usize>,
    addresses: [Option<usize>; 2],
    least: Two<Option<usize>>,
    most: Two<usize>,
    sqm: Option<usize>,
    /// How many there are.
    count: usize,
}

impl Columns {
    fn find(header: &Row) -> Result<Self, ImportError> {
        /// Columns that say nothing about shaping.
        const OTHERS: [&str; 6] =
            ["device id", "device name", "parent node id", "anchor node id", "mac", "comment"];
        let bad = |why: String| ImportError::format(FILE, format!("line {}: {why}", header.line));
        let plain = |name: &String| {
            let name = name.trim_start_matches('\u{feff}').trim().to_lowercase();
            name.strip_suffix("mbps").unwrap_or(&name).trim().to_owned()
        };
        let names: Vec<String> = header.fields.iter().map(plain).collect();
        let find = |wanted: &str| names.iter().position(|name| name == wanted);
        let need = |wanted: &str| {
            find(wanted).ok_or_else(|| {
                bad(format!("there is no column \"{wanted}\": the first line names the columns, with commas between, as Circuit ID,Circuit Name,…,Download Max Mbps,Upload Max Mbps"))
            })
        };
        let columns = Self {
            id: need("circuit id")?,
            name: find("circuit name"),
            parent: find("parent node"),
            addresses: [find("ipv4"), find("ipv6")],
            least: [find("download min"), find("upload min")],
            most: [need("download max")?, need("upload max")?],
            sqm: find("sqm"),
            count: names.len(),
        };
        if columns.addresses == [None, None] {
            need("ipv4")?;
        }
        let is_read = |index: usize| {
            let of = [columns.name, columns.parent, columns.sqm, Some(columns.id)];
            let lists = [columns.addresses, columns.least, columns.most.map(Some)].concat();
            of.into_iter().chain(lists).any(|column| column == Some(index))
        };
        for (index, name) in names.iter().enumerate() {
            if !is_read(index) && names[..index].contains(name) && !OTHERS.contains(&&**name) {
                return Err(bad(format!("two columns are called \"{name}\": which is meant?")));
            }
        }
        Ok(columns)
    }
}

/// The circuits, in the order of their first devices.
pub(super) fn read(text: &[u8], draft: &mut Draft) -> Result<Vec<Circuit>, ImportError> {
    let mut circuits: Vec<Circuit> = Vec::new();
    let mut by_id: HashMap<String, usize> = HashMap::new();
    // Which line an address is from.
    let mut taken: HashMap<Prefix, u64> = HashMap::new();
    let mut columns = None;
    for row in rows(text)? {
        let Some(columns) = &columns else {
            columns = Some(Columns::find(&row)?);
            continue;
        };
        let line = row.line;
        if row.fields.iter().all(String::is_empty) {
            draft.report("a row is empty", &format!("line {line}"));
            continue;
        }
        let new = match circuit(&row, columns, draft) {
            Ok(new) => new,
            Err(why) => {
                draft.fault(&format!("{}: {why}: the row is left out", row.place(columns.id)));
                continue;
            }
        };
        let index = match by_id.get(&new.id) {
            // A row without a circuit number is a circuit of its own.
            Some(&index) if !new.id.is_empty() => index,
            _ => {
                by_id.insert(new.id.clone(), circuits.len());
                circuits.push(Circuit { addresses: Vec::new(), ..new.clone() });
                circuits.len() - 1
            }
        };
        let circuit = &mut circuits[index];
        for what in differences(circuit, &new) {
            draft.fault(&format!(
                "{}: its {what} is not that of line {}, the circuit's first device, whose counts",
                row.place(columns.id),
                circuit.line
            ));
        }
        for address in new.addresses {
            match taken.insert(address, line) {
                None => circuit.addresses.push(address),
                Some(first) => {
                    taken.insert(address, first);
                    draft.fault(&format!(
                        "{}: {}/{} is also in line {first}, which counts",
                        row.place(columns.id),
                        address.ip,
                        address.bits
                    ));
                }
            }
        }
    }
    for circuit in circuits.iter().filter(|circuit| circuit.addresses.is_empty()) {
        let which = format!("line {}, circuit {}", circuit.line, circuit.id);
        draft.report("a circuit has no address, so nothing is sorted into it", &which);
    }
    Ok(circuits)
}

/// What two devices of one circuit say differently.
fn differences(first: &Circuit, new: &Circuit) -> Vec<&'static str> {
    let pairs = [
        ("name", first.name == new.name),
        ("parent node", first.parent == new.parent),
        ("minimum", first.least == new.least),
        ("maximum", first.most == new.most),
        ("queue management", first.sqm == new.sqm),
    ];
    pairs.into_iter().filter(|(_, is_equal)| !is_equal).map(|(what, _)| what).collect()
}

/// The circuit of a row, with its one device.
fn circuit(row: &Row, columns: &Columns, draft: &mut Draft) -> Result<Circuit, String> {
    if row.fields.len() > columns.count {
        return Err(format!(
            "it has {} fields, and the first line names {}: a field with a comma needs quotes",
            row.fields.len(),
            columns.count
        ));
    }
    if !row.is_utf8 {
        return Err("it is not UTF-8".to_owned());
    }
    let text = |column: Option<usize>| {
        column.and_then(|column| row.fields.get(column)).map_or("", String::as_str)
    };
    let id = text(Some(columns.id)).to_owned();
    let place = row.place(columns.id);
    let directions = ["download", "upload"];
    let mut most = [Rate::default(); 2];
    let mut least = [Rate::default(); 2];
    for index in 0..2 {
        let what = format!("the maximum of the {}", directions[index]);
        most[index] = rate(text(Some(columns.most[index])), &what)?
            .ok_or_else(|| format!("{what} is empty"))?;
        if most[index].is_zero() {
            return Err(format!("{what} is less than 1 kbit/s"));
        }
        let what = format!("the minimum of the {}", directions[index]);
        least[index] = rate(text(columns.least[index]), &what)?.unwrap_or_default();
        if least[index] > most[index] {
            draft.fault(&format!(
                "{place}: {what} is above the maximum: the maximum of {} counts for both",
                rate_words(most[index])
            ));
            least[index] = most[index];
        } else if least[index].is_zero() {
            draft.report("a device has no minimum: the least that a class can have", &place);
        }
    }
    let sqm = sqm(text(columns.sqm))?;
    let mut addresses: Vec<Prefix> = Vec::new();
    let mut own = HashSet::new();
    for (column, is_six) in columns.addresses.iter().zip([false, true]) {
        for part in text(*column).split([',', ' ', ';']).filter(|part| !part.is_empty()) {
            match address(part, is_six) {
                Some((address, is_cut)) => {
                    if is_cut {
                        draft.report(
                            "an address has bits behind its prefix: the prefix counts",
                            &format!("{part}, {place}"),
                        );
                    }
                    if own.insert(address) {
                        addresses.push(address);
                    }
                }
                None => {
                    let family = if is_six { "IPv6" } else { "IPv4" };
                    draft.fault(&format!("{place}: {part} is no {family} address: left out"));
                }
            }
        }
    }
    Ok(Circuit {
        name: text(columns.name).to_owned(),
        parent: text(columns.parent).to_owned(),
        least,
        most,
        sqm,
        addresses,
        line: row.line,
        id,
    })
}

/// A rate; none if the field is empty.
fn rate(text: &str, what: &str) -> Result<Option<Rate>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    match text.parse::<f64>().ok().and_then(kbit) {
        Some(kbit) => Ok(Some(of_kbit(kbit))),
        None if text.contains(',') => {
            Err(format!("{what} is \"{text}\": write a decimal point, as 10.5"))
        }
        None => Err(format!(
            "{what} is \"{text}\": a number of Mbit/s without a unit is expected, as 25"
        )),
    }
}

/// `10.0.0.1`, `10.0.0.0/24`, `2001:db8::/56`, without host bits; true if it had some.
fn address(text: &str, is_six: bool) -> Option<(Prefix, bool)> {
    let (ip, bits) = match text.split_once('/') {
        Some((ip, bits)) => (ip, Some(bits.parse::<u8>().ok()?)),
        None => (text, None),
    };
    let ip: IpAddr = match is_six {
        true => ip.parse::<Ipv6Addr>().ok()?.into(),
        false => ip.parse::<Ipv4Addr>().ok()?.into(),
    };
    let prefix = Prefix::new(ip, bits.unwrap_or(if is_six { 128 } else { 32 }))?;
    // An IPv4 address in the notation of IPv6 has no bits behind it.
    Some((prefix, prefix.ip != ip.to_canonical()))
}

/// `cake`, `fq_codel`, `none`, or two of them for both directions: `cake/fq_codel`.
fn sqm(text: &str) -> Result<Two<Queueing>, String> {
    let (down, up) = text.split_once('/').unwrap_or((text, text));
    let one = |name: &str| match name.trim().to_lowercase().as_str() {
        "" | "cake" => Ok(Queueing::Cake),
        "fq_codel" => Ok(Queueing::FqCodel),
        "none" => Ok(Queueing::Fifo),
        other => Err(format!("its queue management is \"{other}\", not cake, fq_codel or none")),
    };
    Ok([one(down)?, one(up)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_bits_are_cut_off() {
        let text = |found: Option<(Prefix, bool)>| {
            found.map(|(Prefix { ip, bits }, is_cut)| format!("{ip}/{bits} {is_cut}"))
        };
        assert_eq!(text(address("10.1.2.3/16", false)).as_deref(), Some("10.1.0.0/16 true"));
        assert_eq!(text(address("10.1.2.3", false)).as_deref(), Some("10.1.2.3/32 false"));
        assert_eq!(text(address("10.1.2.3/0", false)).as_deref(), Some("0.0.0.0/0 true"));
        assert_eq!(
            text(address("2001:db8:1::7/48", true)).as_deref(),
            Some("2001:db8:1::/48 true")
        );
        assert_eq!(text(address("::ffff:1.2.3.4", true)).as_deref(), Some("1.2.3.4/32 false"));
        assert_eq!(address("10.1.2.3/33", false), None);
        assert_eq!(address("10.1.2", false), None);
        assert_eq!(address("::/129", true), None);
    }

    #[test]
    fn a_rate_is_a_plain_number() {
        assert_eq!(rate("0.5", ""), Ok(Some(of_kbit(500))));
        assert_eq!(rate("", ""), Ok(None));
        for text in ["25M", "n/a", "-5", "10,5", "inf", "nan", "1e99", "1 0", "0x10", "5 mbit"] {
            assert!(rate(text, "x").is_err(), "{text}");
        }
    }
}
