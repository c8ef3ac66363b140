//! LibreQoS: `ShapedDevices.csv` and `network.json`.
//!
//! A circuit becomes a class with an assured rate (its minimum) and a ceiling (its maximum), below
//! the class of its parent node, with the queue management that LibreQoS would give it. A node
//! becomes a class. Its ceiling is the node's bandwidth, and its assured rate is the sum of those
//! of its circuits. Both ports get the same tree: one filters downloads by destination address, the
//! other uploads by source address.
//!
//! A class has the same number, and so the same name, at both ports. The number follows the
//! identity of the circuit or node ([`Numbers`]), so that a running class keeps its queue and its
//! counters whatever other rows come and go.
//!
//! Formats: LibreQoS's documentation, "Configure LibreQoS", of versions 1.4 to 2.0. Columns are
//! found by their names, with or without `Mbps`.

mod devices;
mod network;
mod rows;

use crate::number::of_kbit;
use crate::{ImportError, Imported, Ports};
use devices::Circuit;
use narrows_directory::{
    CLASSES_MAX, Directory, Draft, Numbers, Options as Compiling, Plan, Report, Row, Rows, Site,
    Subscriber, compile_rows,
};
use narrows_units::counted;
use network::Network;
use std::collections::BTreeMap;

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
    let (directory, rows) = to_directory(shaped_devices, network, &mut draft)?;
    let numbers = Numbers::read(&options.numbers)
        .map_err(|error| ImportError::format("numbers", error.to_string()))?;
    // The next import keeps the numbers of what there is now.
    let numbers = numbers.of_rows(&rows);
    let kept = numbers.write();
    let compiling = Compiling {
        ports: options.ports.clone(),
        uplink: options.uplink_kbit.map(|kbit| kbit.map(of_kbit)),
        numbers,
    };
    let summary = summary(&directory);
    compile_rows(&directory, &rows, &compiling, &mut draft).write_plain(&mut draft);
    Ok(Imported { numbers: kept, ..Imported::of(draft, summary) })
}

/// Reads `ShapedDevices.csv` and, if given, `network.json`: the directory, a summary of what was
/// read, and what was left out or is worth knowing. A circuit's identity is its number, a node's is
/// its name.
///
/// # Errors
/// If a file is not in its format, has no circuit, or has more than the tree of a port can hold.
pub fn read(
    shaped_devices: &[u8],
    network: Option<&[u8]>,
) -> Result<(Directory, String, Report), ImportError> {
    let mut draft = Draft::default();
    let (directory, _) = to_directory(shaped_devices, network, &mut draft)?;
    let summary = summary(&directory);
    Ok((directory, summary, draft.finish().2))
}

fn to_directory(
    shaped_devices: &[u8],
    network: Option<&[u8]>,
    draft: &mut Draft,
) -> Result<(Directory, Rows), ImportError> {
    draft.comment("Imported from LibreQoS (ShapedDevices.csv, network.json).");
    let network = network.map(|json| Network::read(json, draft)).transpose()?.unwrap_or_default();
    let circuits = devices::read(shaped_devices, draft)?;
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
    let mut directory = Directory::default();
    let mut rows = Rows::default();
    let sites = network.identities();
    for (node, identity) in network.nodes.iter().zip(&sites) {
        let site = Site {
            name: node.name.clone(),
            parent: node.parent.map(|parent| sites[parent].clone()),
            capacity: node.most,
        };
        rows.sites.push(Row {
            identity: identity.clone(),
            place: node.name.clone(),
            comment: format!("{} {}", node.kind, node.name),
            name: node.name.clone(),
        });
        directory.sites.insert(identity.clone(), site);
    }
    let identities = devices::identities(&circuits);
    for (circuit, identity) in circuits.into_iter().zip(identities) {
        let Circuit { id, name, parent, least, most, sqm, addresses, line } = circuit;
        let place = format!("line {line}, circuit {id}");
        let site = network.by_name.get(&parent).map(|node| sites[*node].clone());
        if site.is_none() && !parent.is_empty() {
            draft.fault(&format!(
                "{place}: its parent node {parent} is not in network.json: it is below the root"
            ));
        }
        rows.subscribers.push(Row {
            identity: identity.clone(),
            place,
            comment: format!("circuit {id} {name}"),
            name: if name.is_empty() { id } else { name.clone() },
        });
        let plan = Plan { name: None, assured: least, ceiling: most, queueing: sqm };
        let labels = BTreeMap::new();
        directory.subscribers.insert(identity, Subscriber { name, site, plan, addresses, labels });
    }
    Ok((directory, rows))
}

fn summary(directory: &Directory) -> String {
    let addresses = directory.subscribers.values().map(|subscriber| subscriber.addresses.len());
    format!(
        "{} with {} below {}",
        counted(directory.subscribers.len(), "circuit"),
        counted(addresses.sum::<usize>(), "address"),
        counted(directory.sites.len(), "node")
    )
}
