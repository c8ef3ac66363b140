//! LibreQoS: `ShapedDevices.csv` and `network.json`.
//!
//! A circuit becomes a class with an assured rate (its minimum) and a ceiling (its maximum), below
//! the class of its parent node, with the queue management that LibreQoS would give it. A node
//! becomes a class. Its ceiling is the node's bandwidth, and its assured rate is the sum of those
//! of its circuits. Both ports get the same tree: one filters downloads by destination address, the
//! other uploads by source address.
//!
//! A class has the same number, and so the same name, at both ports. The number follows the
//! identity of the circuit or node ([`numbers`]), so that a running class keeps its queue and its
//! counters whatever other rows come and go.
//!
//! Formats: LibreQoS's documentation, "Configure LibreQoS", of versions 1.4 to 2.0. Columns are
//! found by their names, with or without `Mbps`.

mod devices;
mod network;
mod numbers;
mod rows;
mod tree;

use crate::draft::Draft;
use crate::number::rate;
use crate::{ImportError, Imported, Ports};
use devices::{Address, Circuit, Sqm};
use narrows_units::counted;
use network::Network;
use numbers::Kept;
use std::net::IpAddr;
use tree::{CLASSES_MAX, DEFAULT, Place, ROOT, Tree};

/// What the files do not say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The ports.
    pub ports: Ports,
    /// The capacity of the uplink, downstream and upstream, in kbit/s. None: the sum of the rates
    /// at the top of the tree.
    pub uplink_kbit: [Option<u64>; 2],
    /// The [numbers](Imported::numbers) of a former import, which stay; empty for none.
    pub numbers: String,
}

/// Downstream and upstream: the comment in the policy, and the address field of the filters.
const DIRECTIONS: [(&str, &str); 2] = [("Downloads", "dst_ip"), ("Uploads", "src_ip")];

/// Imports `ShapedDevices.csv` and, if given, `network.json`.
///
/// # Errors
/// If a file is not in its format, has no circuit, or has more than the tree of a port can hold.
pub fn import(
    shaped_devices: &[u8],
    network: Option<&[u8]>,
    options: &Options,
) -> Result<Imported, ImportError> {
    let mut draft = Draft::default();
    draft.comment("Imported from LibreQoS (ShapedDevices.csv, network.json).");
    let network =
        network.map(|json| Network::read(json, &mut draft)).transpose()?.unwrap_or_default();
    let circuits = devices::read(shaped_devices, &mut draft)?;
    if circuits.is_empty() {
        return Err(ImportError::Nothing(
            "ShapedDevices.csv has no circuit with a rate".to_owned(),
        ));
    }
    let places = network.nodes.len() + circuits.len();
    if places > CLASSES_MAX {
        return Err(ImportError::TooMuch(format!(
            "{} and {} are {places} classes, and one port's htb has at most {CLASSES_MAX}: leave \
             some sites to another box",
            counted(circuits.len(), "circuit"),
            counted(network.nodes.len(), "node")
        )));
    }
    let mut identities = network.identities();
    identities.extend(devices::identities(&circuits));
    let numbers = Kept::read(&options.numbers)?.assign(&identities);
    for (direction, (what, _)) in DIRECTIONS.iter().enumerate() {
        let uplink = options.uplink_kbit[direction];
        let tree = Tree::grow(&network, &circuits, direction, uplink, &numbers, &mut draft);
        write(&mut draft, what, direction, &tree, &network, &circuits, options);
    }
    let addresses: usize = circuits.iter().map(|circuit| circuit.addresses.len()).sum();
    let summary = format!(
        "{} with {} below {}",
        counted(circuits.len(), "circuit"),
        counted(addresses, "address"),
        counted(network.nodes.len(), "node")
    );
    let numbers = numbers::write(&identities, &numbers);
    Ok(Imported { numbers, ..draft.finish(summary) })
}

fn write(
    draft: &mut Draft,
    what: &str,
    direction: usize,
    tree: &Tree,
    network: &Network,
    circuits: &[Circuit],
    options: &Options,
) {
    let dev = match direction {
        0 => &options.ports.subscribers,
        _ => &options.ports.internet,
    };
    let field = DIRECTIONS[direction].1;
    draft.blank();
    draft.comment(&format!("{what} leave through {dev}."));
    draft.line(&format!("qdisc replace dev {dev} root handle 1: htb default {DEFAULT:x}"));
    let whole = rate(tree.whole);
    draft.line(&format!("class add dev {dev} parent 1: classid 1:{ROOT:x} htb rate {whole}"));
    draft.comment("Traffic that belongs to no circuit: lowest priority.");
    if direction == 0 {
        draft.name(&format!("1:{ROOT:x}"), "uplink");
        draft.name(&format!("1:{DEFAULT:x}"), "others");
    }
    let rest = rate(tree.rest);
    draft.line(&format!(
        "class add dev {dev} parent 1:{ROOT:x} classid 1:{DEFAULT:x} htb rate {rest} ceil {whole} prio 7"
    ));
    draft.line(&format!("qdisc add dev {dev} parent 1:{DEFAULT:x} handle {DEFAULT:x}: cake"));
    for (node, Place { minor, parent, rate: assured, ceil }) in
        network.nodes.iter().zip(&tree.nodes)
    {
        draft.comment(&format!("{} {}", node.kind, node.name));
        if direction == 0 {
            draft.name(&format!("1:{minor:x}"), &node.name);
        }
        draft.line(&format!(
            "class add dev {dev} parent 1:{parent:x} classid 1:{minor:x} htb rate {} ceil {}",
            rate(*assured),
            rate(*ceil)
        ));
    }
    for (circuit, Place { minor, parent, rate: assured, ceil }) in
        circuits.iter().zip(&tree.circuits)
    {
        draft.comment(&format!("circuit {} {}", circuit.id, circuit.name));
        if direction == 0 {
            let name = if circuit.name.is_empty() { &circuit.id } else { &circuit.name };
            draft.name(&format!("1:{minor:x}"), name);
        }
        draft.line(&format!(
            "class add dev {dev} parent 1:{parent:x} classid 1:{minor:x} htb rate {} ceil {}",
            rate(*assured),
            rate(*ceil)
        ));
        let qdisc = match circuit.sqm[direction] {
            Sqm::Cake => "cake diffserv4",
            Sqm::FqCodel => "fq_codel",
            Sqm::None => "pfifo limit 1000",
        };
        draft.line(&format!("qdisc add dev {dev} parent 1:{minor:x} handle {minor:x}: {qdisc}"));
        for address in &circuit.addresses {
            draft.line(&filter(dev, field, *minor, address));
        }
    }
}

/// The filter for an address. If two overlap, the one with the longer prefix is evaluated first.
fn filter(dev: &str, field: &str, minor: u32, address: &Address) -> String {
    /// The first preference of IPv6 filters: as in the kernel, a preference has a single protocol.
    const SIX: u32 = 100;
    let (protocol, pref) = match address.ip {
        IpAddr::V4(_) => ("ip", 1 + (32 - u32::from(address.bits))),
        IpAddr::V6(_) => ("ipv6", SIX + (128 - u32::from(address.bits))),
    };
    format!(
        "filter add dev {dev} parent 1: protocol {protocol} pref {pref} flower {field} {}/{} classid 1:{minor:x}",
        address.ip, address.bits
    )
}
