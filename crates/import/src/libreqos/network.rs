//! `network.json`: sites, access points and other nodes.

use crate::ImportError;
use crate::draft::Draft;
use crate::number::kbit;
use serde_json::{Map, Value};
use std::collections::HashMap;

const FILE: &str = "network.json";
/// The most levels of nodes: the root and the circuits take two of the sixteen levels of an `htb`.
const LEVELS_MAX: usize = 14;

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
    /// The bandwidth in kbit/s, downstream and upstream; none if it is inherited.
    pub(super) most: [Option<u64>; 2],
}

impl Network {
    pub(super) fn read(json: &[u8], draft: &mut Draft) -> Result<Self, ImportError> {
        let value: Value = serde_json::from_slice(json)
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
            let Value::Object(node) = value else {
                // LibreQoS writes an object for each node; anything else is a remark.
                draft.report("an entry of network.json is not a node and is left out", name);
                continue;
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
                let rate = |key: &str| node.get(key).and_then(Value::as_f64).and_then(kbit);
                let most = [rate("downloadBandwidthMbps"), rate("uploadBandwidthMbps")];
                let kind = node.get("type").and_then(Value::as_str).unwrap_or("node").to_owned();
                if most.contains(&None) {
                    draft.report("a node has no bandwidth: it gets its parent's", name);
                }
                below = Some(self.nodes.len());
                if self.by_name.contains_key(name) {
                    draft.report("two nodes have one name: circuits go to the first", name);
                }
                self.by_name.entry(name.clone()).or_insert(self.nodes.len());
                let most = most.map(|rate| rate.filter(|&rate| rate > 0));
                self.nodes.push(Node { name: name.clone(), kind, parent, most });
            }
            if let Some(Value::Object(children)) = node.get("children") {
                self.add(children, below, level + usize::from(!is_virtual), draft)?;
            }
        }
        Ok(())
    }
}
