//! `network.json`: sites, access points and other nodes.

use crate::ImportError;
use crate::json::Kept;
use crate::number::{kbit, of_kbit};
use narrows_directory::{Draft, LEVELS_MAX};
use narrows_units::{Rate, bytes_without_mark};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

const FILE: &str = "network.json";

/// The nodes, each after its parent.
#[derive(Debug, Default)]
pub(super) struct Network {
    pub(super) nodes: Vec<Node>,
    /// By name.
    pub(super) by_name: HashMap<String, usize>,
}

/// A node with a bandwidth.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Node {
    pub(super) name: String,
    /// `site`, `AP` …
    pub(super) kind: String,
    /// The parent node.
    pub(super) parent: Option<usize>,
    /// The bandwidth, downstream and upstream; none if it is inherited.
    pub(super) most: [Option<Rate>; 2],
}

impl Network {
    /// What tells a node from all others: its name, and its parents' for the later ones of a name.
    pub(super) fn identities(&self) -> Vec<String> {
        let mut taken = HashSet::new();
        let identity = |index: usize| {
            let mut identity = self.nodes[index].name.clone();
            let mut above = self.nodes[index].parent;
            while let Some(parent) = above {
                if !taken.contains(&identity) {
                    break;
                }
                identity = format!("{identity}\nbelow {}", self.nodes[parent].name);
                above = self.nodes[parent].parent;
            }
            while !taken.insert(identity.clone()) {
                identity.push('\n');
            }
            identity
        };
        (0..self.nodes.len()).map(identity).collect()
    }

    pub(super) fn read(json: &[u8], draft: &mut Draft) -> Result<Self, ImportError> {
        let Kept(value) = serde_json::from_slice(bytes_without_mark(json))
            .map_err(|error| ImportError::format(FILE, error.to_string()))?;
        let Value::Object(top) = &value else {
            return Err(ImportError::format(FILE, "an object with the top nodes is expected"));
        };
        let mut network = Self::default();
        network.add(top, None, 1, draft)?;
        Ok(network)
    }

    fn add(
        &mut self,
        children: &Map<String, Value>,
        parent: Option<usize>,
        level: usize,
        draft: &mut Draft,
    ) -> Result<(), ImportError> {
        for (name, value) in children {
            let node = match value {
                Value::Object(node) => node,
                // A key that is there twice has the array of its values.
                Value::Array(twice) if twice.iter().all(Value::is_object) => {
                    let why = format!("\"{name}\" occurs twice in one place: which is meant?");
                    return Err(ImportError::format(FILE, why));
                }
                // LibreQoS writes an object for each node; anything else is a remark.
                _ => {
                    draft.report("an entry of network.json is not a node and is left out", name);
                    continue;
                }
            };
            let is_virtual = node.get("virtual").and_then(Value::as_bool).unwrap_or(false);
            let mut below = parent;
            if is_virtual {
                draft.report("a virtual node has no class: its children move up a level", name);
                // Its circuits belong to its parent; at the top, to no node.
                if let Some(parent) = parent {
                    self.by_name.entry(name.clone()).or_insert(parent);
                }
            } else {
                if level > LEVELS_MAX {
                    return Err(ImportError::format(
                        FILE,
                        format!(
                            "{name} is {level} levels deep, and an htb has room for {LEVELS_MAX}"
                        ),
                    ));
                }
                let mut rate = |key: &str| {
                    let value = node.get(key)?;
                    let rate = value.as_f64().and_then(kbit).filter(|&rate| rate > 0);
                    if rate.is_none() {
                        draft.fault(&format!(
                            "network.json, {name}: {key} is {value}, not a number of Mbit/s: it \
                             gets its parent's"
                        ));
                    }
                    rate.map(of_kbit)
                };
                let keys = ["downloadBandwidthMbps", "uploadBandwidthMbps"];
                let most = keys.map(&mut rate);
                let kind = node.get("type").and_then(Value::as_str).unwrap_or("node").to_owned();
                if keys.iter().any(|key| !node.contains_key(*key)) {
                    draft.report("a node has no bandwidth: it gets its parent's", name);
                }
                below = Some(self.nodes.len());
                if self.by_name.contains_key(name) {
                    let what = "two nodes have one name: circuits go to the first";
                    draft.fault(&format!("network.json, {name}: {what}"));
                }
                self.by_name.entry(name.clone()).or_insert(self.nodes.len());
                self.nodes.push(Node { name: name.clone(), kind, parent, most });
            }
            match node.get("children") {
                None | Some(Value::Null) => {}
                Some(Value::Object(children)) => {
                    self.add(children, below, level + usize::from(!is_virtual), draft)?;
                }
                Some(_) => {
                    let why = format!("the children of \"{name}\" are not an object with nodes");
                    return Err(ImportError::format(FILE, why));
                }
            }
        }
        Ok(())
    }
}
