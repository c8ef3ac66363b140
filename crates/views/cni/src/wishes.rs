//! What a configuration asks for, before anybody has looked whether it is possible.
//!
//! Three places can say it. The plugin's own configuration is the operator's, and comes first. The
//! capability `bandwidth` has the rates that a runtime reads from a pod's annotations
//! `kubernetes.io/ingress-bandwidth` and `kubernetes.io/egress-bandwidth`. The rest are annotations
//! of Narrows.
//!
//! Source: containerd and CRI-O hand a pod's annotations to plugins that list the capability
//! `io.kubernetes.cri.pod-annotations`. Their structures for `bandwidth` have no names for JSON, so
//! the keys begin with capitals; Go, in which the reference plugin is written, does not mind.

use crate::CniError;
use crate::quantity::quantity;
use serde::Deserialize;
use std::collections::BTreeMap;

/// What annotations for this plugin begin with.
const PREFIX: &str = "narrows/";
/// A burst of so many bits or more was not chosen: runtimes fill in the largest number that they
/// have, 2^31 - 1, 2^32 - 1 or 2^35 - 9. No limit would hold before a pod has sent so much.
const FILLED_IN: u64 = i32::MAX as u64;

/// What is asked for one direction. Rates are in bits a second.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Wish {
    pub(crate) rate: Option<u64>,
    pub(crate) burst_bits: Option<u64>,
    pub(crate) assured: Option<u64>,
    pub(crate) parent: Option<String>,
    pub(crate) class: Option<String>,
    pub(crate) priority: Option<u64>,
}

/// What is asked for a pod.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Wishes {
    /// Into the pod.
    pub(crate) ingress: Wish,
    /// Out of the pod.
    pub(crate) egress: Wish,
}

/// The keys of the plugin's configuration. The first four are also those of `bandwidth`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Keys {
    #[serde(alias = "IngressRate")]
    ingress_rate: Option<u64>,
    #[serde(alias = "IngressBurst")]
    ingress_burst: Option<u64>,
    #[serde(alias = "EgressRate")]
    egress_rate: Option<u64>,
    #[serde(alias = "EgressBurst")]
    egress_burst: Option<u64>,
    ingress_assured: Option<u64>,
    ingress_parent: Option<String>,
    ingress_class: Option<String>,
    ingress_priority: Option<u64>,
    egress_assured: Option<u64>,
    egress_parent: Option<String>,
    egress_class: Option<String>,
    egress_priority: Option<u64>,
}

impl Wish {
    /// Takes what `other` says where this says nothing.
    fn or(self, other: Self) -> Self {
        Self {
            rate: self.rate.or(other.rate),
            burst_bits: self.burst_bits.or(other.burst_bits),
            assured: self.assured.or(other.assured),
            parent: self.parent.or(other.parent),
            class: self.class.or(other.class),
            priority: self.priority.or(other.priority),
        }
    }
}

impl Wishes {
    /// Takes what `other` says where this says nothing.
    pub(crate) fn or(self, other: Self) -> Self {
        Self { ingress: self.ingress.or(other.ingress), egress: self.egress.or(other.egress) }
    }

    /// What annotations of Narrows say.
    pub(crate) fn annotated(annotations: &BTreeMap<String, String>) -> Result<Self, CniError> {
        let mut wishes = Self::default();
        for (key, value) in annotations {
            let Some(name) = key.strip_prefix(PREFIX) else { continue };
            let (wish, field) = match name.split_once('-') {
                Some(("ingress", field)) => (&mut wishes.ingress, field),
                Some(("egress", field)) => (&mut wishes.egress, field),
                _ => return Err(unknown(key)),
            };
            let number = || {
                let number = quantity(value);
                number.map(Some).ok_or_else(|| no_number(key, value))
            };
            match field {
                "burst" => wish.burst_bits = number()?.filter(|bits| *bits != 0),
                "assured" => wish.assured = number()?,
                "priority" => wish.priority = number()?,
                "parent" => wish.parent = Some(value.clone()),
                "class" => wish.class = Some(value.clone()),
                _ => return Err(unknown(key)),
            }
        }
        Ok(wishes)
    }
}

impl From<Keys> for Wishes {
    fn from(keys: Keys) -> Self {
        let rate = |bits: Option<u64>| bits.filter(|bits| *bits != 0);
        let burst = |bits: Option<u64>| bits.filter(|bits| (1..FILLED_IN).contains(bits));
        Self {
            ingress: Wish {
                rate: rate(keys.ingress_rate),
                burst_bits: burst(keys.ingress_burst),
                assured: rate(keys.ingress_assured),
                parent: keys.ingress_parent,
                class: keys.ingress_class,
                priority: keys.ingress_priority,
            },
            egress: Wish {
                rate: rate(keys.egress_rate),
                burst_bits: burst(keys.egress_burst),
                assured: rate(keys.egress_assured),
                parent: keys.egress_parent,
                class: keys.egress_class,
                priority: keys.egress_priority,
            },
        }
    }
}

fn unknown(key: &str) -> CniError {
    CniError::Config(format!(
        "the annotation \"{key}\" is unknown: there are {PREFIX}ingress-burst, \
         {PREFIX}ingress-assured, {PREFIX}ingress-priority, {PREFIX}ingress-parent, \
         {PREFIX}ingress-class and {PREFIX}egress-burst"
    ))
}

fn no_number(key: &str, value: &str) -> CniError {
    CniError::Config(format!(
        "the annotation \"{key}\" is \"{value}\": write a whole number, perhaps with k, M, G, Ki, \
         Mi or Gi behind it, as 20M"
    ))
}
