//! `ShapedDevices.csv`: one row per device, with the circuit that it belongs to.

use crate::ImportError;
use crate::draft::Draft;
use crate::number::kbit;
use csv::{ReaderBuilder, StringRecord, Trim};
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const FILE: &str = "ShapedDevices.csv";

/// A subscriber: the unit that has rates of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Circuit {
    pub(super) id: String,
    pub(super) name: String,
    /// The parent node; empty at the top.
    pub(super) parent: String,
    /// The assured rate in kbit/s, downstream and upstream.
    pub(super) least: [u64; 2],
    /// The maximum rate in kbit/s, downstream and upstream.
    pub(super) most: [u64; 2],
    pub(super) sqm: [Sqm; 2],
    pub(super) addresses: Vec<Address>,
}

/// The queue management of a circuit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sqm {
    Cake,
    FqCodel,
    None,
}

/// An address or a prefix.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Address {
    pub(super) ip: IpAddr,
    pub(super) bits: u8,
}

/// The positions of the columns.
struct Columns {
    id: usize,
    name: Option<usize>,
    parent: Option<usize>,
    addresses: [Option<usize>; 2],
    least: [Option<usize>; 2],
    most: [usize; 2],
    sqm: Option<usize>,
}

impl Columns {
    fn find(header: &StringRecord) -> Result<Self, ImportError> {
        let plain = |name: &str| {
            let name = name.trim_start_matches('\u{feff}').trim().to_lowercase();
            name.strip_suffix("mbps").unwrap_or(&name).trim().to_owned()
        };
        let names: Vec<String> = header.iter().map(plain).collect();
        let find = |wanted: &str| names.iter().position(|name| name == wanted);
        let need = |wanted: &str| {
            find(wanted).ok_or_else(|| {
                ImportError::format(
                    FILE,
                    format!("there is no column \"{wanted}\": the first line names the columns, as Circuit ID,Circuit Name,…,Download Max Mbps,Upload Max Mbps"),
                )
            })
        };
        Ok(Self {
            id: need("circuit id")?,
            name: find("circuit name"),
            parent: find("parent node"),
            addresses: [find("ipv4"), find("ipv6")],
            least: [find("download min"), find("upload min")],
            most: [need("download max")?, need("upload max")?],
            sqm: find("sqm"),
        })
    }
}

/// The circuits, in the order of their first devices.
pub(super) fn read(text: &[u8], draft: &mut Draft) -> Result<Vec<Circuit>, ImportError> {
    let mut reader = ReaderBuilder::new()
        .comment(Some(b'#'))
        .flexible(true)
        .has_headers(false)
        .trim(Trim::All)
        .from_reader(text);
    let mut circuits: Vec<Circuit> = Vec::new();
    let mut by_id: HashMap<String, usize> = HashMap::new();
    let mut taken: HashSet<Address> = HashSet::new();
    let mut columns = None;
    for row in reader.byte_records() {
        let row = row.map_err(|error| ImportError::format(FILE, error.to_string()))?;
        let line = row.position().map_or(0, csv::Position::line);
        let row = StringRecord::from_byte_record_lossy(row);
        let Some(columns) = &columns else {
            columns = Some(Columns::find(&row)?);
            continue;
        };
        let Some(new) = circuit(&row, columns, line, draft) else { continue };
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
        if (circuit.least, circuit.most) != (new.least, new.most) {
            let which = format!("line {line}, circuit {}", new.id);
            draft.report(
                "devices of one circuit have different rates: the first device's count",
                &which,
            );
        }
        for address in new.addresses {
            if taken.insert(address) {
                circuit.addresses.push(address);
            } else {
                let which = format!("{}/{}, line {line}", address.ip, address.bits);
                draft.report("an address occurs twice: the first counts", &which);
            }
        }
    }
    for circuit in circuits.iter().filter(|circuit| circuit.addresses.is_empty()) {
        draft.report("a circuit has no address, so nothing is sorted into it", &circuit.id);
    }
    Ok(circuits)
}

fn circuit(row: &StringRecord, columns: &Columns, line: u64, draft: &mut Draft) -> Option<Circuit> {
    let text = |column: Option<usize>| column.and_then(|column| row.get(column)).unwrap_or("");
    let id = text(Some(columns.id)).to_owned();
    let where_ = format!("line {line}, circuit {id}");
    let read = |column: Option<usize>| text(column).parse::<f64>().ok().and_then(kbit);
    let mut most = [0; 2];
    for (most, column) in most.iter_mut().zip(columns.most) {
        match read(Some(column)).filter(|&rate| rate > 0) {
            Some(rate) => *most = rate,
            None => {
                draft.report("a device has no maximal rate and is left out", &where_);
                return None;
            }
        }
    }
    let least = columns.least.map(|column| read(column).unwrap_or(0));
    let mut addresses = Vec::new();
    for (column, is_six) in columns.addresses.iter().zip([false, true]) {
        for part in text(*column).split([',', ' ', ';']).filter(|part| !part.is_empty()) {
            match address(part, is_six) {
                Some(address) => addresses.push(address),
                None => draft.report("not an address: left out", &format!("{part}, {where_}")),
            }
        }
    }
    Some(Circuit {
        name: text(columns.name).to_owned(),
        parent: text(columns.parent).to_owned(),
        least,
        most,
        sqm: sqm(text(columns.sqm), &where_, draft),
        addresses,
        id,
    })
}

/// `10.0.0.1`, `10.0.0.0/24`, `2001:db8::/56`, without host bits.
fn address(text: &str, is_six: bool) -> Option<Address> {
    let (ip, bits) = match text.split_once('/') {
        Some((ip, bits)) => (ip, Some(bits.parse::<u8>().ok()?)),
        None => (text, None),
    };
    if is_six {
        let ip: Ipv6Addr = ip.parse().ok()?;
        let bits = bits.unwrap_or(128);
        let mask = u128::MAX.checked_shl(128_u32.checked_sub(bits.into())?).unwrap_or(0);
        Some(Address { ip: Ipv6Addr::from(u128::from(ip) & mask).into(), bits })
    } else {
        let ip: Ipv4Addr = ip.parse().ok()?;
        let bits = bits.unwrap_or(32);
        let mask = u32::MAX.checked_shl(32_u32.checked_sub(bits.into())?).unwrap_or(0);
        Some(Address { ip: Ipv4Addr::from(u32::from(ip) & mask).into(), bits })
    }
}

/// `cake`, `fq_codel`, `none`, or two of them for both directions: `cake/fq_codel`.
fn sqm(text: &str, where_: &str, draft: &mut Draft) -> [Sqm; 2] {
    let (down, up) = text.split_once('/').unwrap_or((text, text));
    [down, up].map(|name| match name.trim().to_lowercase().as_str() {
        "" | "cake" => Sqm::Cake,
        "fq_codel" => Sqm::FqCodel,
        "none" => Sqm::None,
        other => {
            draft.report("unknown queue management, taken for cake", &format!("{other}, {where_}"));
            Sqm::Cake
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_bits_are_cut_off() {
        let text = |address: Option<Address>| address.map(|a| format!("{}/{}", a.ip, a.bits));
        assert_eq!(text(address("10.1.2.3/16", false)).as_deref(), Some("10.1.0.0/16"));
        assert_eq!(text(address("10.1.2.3/0", false)).as_deref(), Some("0.0.0.0/0"));
        assert_eq!(text(address("2001:db8:1::7/48", true)).as_deref(), Some("2001:db8:1::/48"));
        assert_eq!(address("10.1.2.3/33", false), None);
        assert_eq!(address("10.1.2", false), None);
        assert_eq!(address("::/129", true), None);
    }
}
