//! The flowtables of nf_tables: whether one has all of a router's devices, and could be asked by
//! its programs for connections that the firewall has accepted.
//!
//! * *All devices.* A flow goes in through one and out through another, and back.
//! * *In software.* Programs ask only a flowtable without `flags offload`: another leads packets
//!   past the kernel in hardware, and past XDP.
//! * *In use.* A rule has to add flows to it.
//!
//! Non-goals: which flows it has; what the rules say.

use super::{DeviceNames, HEADER, INET, IPV4, IPV6, Name, listed, number};
use crate::LinkError;
use crate::status::{each, text};
use narrows_escape::shell;

const GET_FLOWTABLES: u16 = (10 << 8) | 23;

const NFTA_FLOWTABLE_TABLE: u16 = 1;
const NFTA_FLOWTABLE_NAME: u16 = 2;
const NFTA_FLOWTABLE_HOOK: u16 = 3;
const NFTA_FLOWTABLE_USE: u16 = 4;
const NFTA_FLOWTABLE_FLAGS: u16 = 7;
const NFTA_FLOWTABLE_HOOK_DEVS: u16 = 3;
const HW_OFFLOAD: u32 = 1;

/// The best that a router's devices have of flowtables. Names are those that `nft` shows: `inet
/// home f`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Flowtables {
    /// No flowtable has all of them.
    #[default]
    None,
    /// This one has, and leads flows past XDP in hardware (`flags offload`).
    Offloads(String),
    /// This one has, and no rule adds flows to it.
    Unused(String),
    /// This one has the flows that rules add to it.
    Ready(String),
}

impl Flowtables {
    /// What to change so that a router between `devices` routes by flows, in words; nothing if it
    /// can.
    pub fn remedy(&self, devices: &[&str]) -> Option<String> {
        const ADD: &str = "ct state established flow add";
        match self {
            Self::None => Some(format!(
                "put the ports into a flowtable, flowtable f {{ hook ingress priority 0; devices = \
                 {{ {} }}; }}, and add connections to it in a chain of the hook forward: {ADD} @f",
                devices.iter().map(|device| shell(device)).collect::<Vec<_>>().join(", ")
            )),
            Self::Offloads(name) => Some(format!("take flags offload off the flowtable {name}")),
            Self::Unused(name) => {
                let f = name.rsplit(' ').next().unwrap_or_default();
                Some(format!(
                    "add connections to the flowtable {name} in a chain of the hook forward: {ADD} \
                     @{f}"
                ))
            }
            Self::Ready(_) => None,
        }
    }
}

/// Finds the best flowtable that has all of `devices`, in the namespace of the calling thread.
///
/// # Errors
///
/// Without CAP_NET_ADMIN, and if the kernel does not answer.
pub(super) fn of(devices: &[&str]) -> Result<Flowtables, LinkError> {
    Ok(all()?.iter().map(|table| table.serves(devices)).max().unwrap_or_default())
}

/// The devices of all flowtables in the namespace of the calling thread.
///
/// # Errors
///
/// Without CAP_NET_ADMIN, and if the kernel does not answer.
pub(super) fn devices() -> Result<DeviceNames, LinkError> {
    Ok(DeviceNames(all()?.into_iter().flat_map(|table| table.devices.0).collect()))
}

fn all() -> Result<Vec<Flowtable>, LinkError> {
    let answers = listed("listing flowtables of nf_tables", GET_FLOWTABLES, vec![0; HEADER])?;
    Ok(answers.unwrap_or_default().iter().filter_map(|it| Flowtable::parse(it)).collect())
}

/// A flowtable.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Flowtable {
    name: Name,
    devices: DeviceNames,
    offloads: bool,
    /// The rules that add flows to it.
    rules: u32,
}

impl Flowtable {
    /// None if it is truncated.
    fn parse(body: &[u8]) -> Option<Self> {
        let (header, attributes) = body.split_at_checked(HEADER)?;
        let mut table = Self::default();
        table.name.family = header[0];
        each(attributes, |kind, value| match kind {
            NFTA_FLOWTABLE_TABLE => table.name.table = text(value),
            NFTA_FLOWTABLE_NAME => table.name.name = text(value),
            NFTA_FLOWTABLE_USE => table.rules = number(value),
            NFTA_FLOWTABLE_FLAGS => table.offloads = number(value) & HW_OFFLOAD != 0,
            NFTA_FLOWTABLE_HOOK => each(value, |kind, value| {
                if kind == NFTA_FLOWTABLE_HOOK_DEVS {
                    each(value, |kind, name| table.devices.add(kind, name));
                }
            }),
            _ => {}
        });
        Some(table)
    }

    /// What it is for a router between `devices`.
    fn serves(&self, devices: &[&str]) -> Flowtables {
        let is_of_ip = [INET, IPV4, IPV6].contains(&self.name.family);
        if !is_of_ip || !devices.iter().all(|device| self.devices.has(device)) {
            return Flowtables::None;
        }
        let name = self.name.path();
        match (self.offloads, self.rules) {
            (true, _) => Flowtables::Offloads(name),
            (false, 0) => Flowtables::Unused(name),
            (false, _) => Flowtables::Ready(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netfilter::NFTA_DEVICE_PREFIX;
    use crate::netlink::attach;
    use proptest::prelude::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        attach(&mut bytes, kind, value);
        bytes
    }

    /// A flowtable as the kernel says it. Names that end with `*` are beginnings.
    fn said(name: &str, devices: &[&str], flags: u32, rules: u32) -> Vec<u8> {
        let list = devices.iter().flat_map(|device| match device.strip_suffix('*') {
            Some(begin) => attribute(NFTA_DEVICE_PREFIX, begin.as_bytes()),
            None => attribute(1, &[device.as_bytes(), &[0]].concat()),
        });
        let mut hook = attribute(1, &0_u32.to_be_bytes());
        hook.extend(attribute(NFTA_FLOWTABLE_HOOK_DEVS, &list.collect::<Vec<_>>()));
        let mut body = vec![INET, 0, 0, 0];
        body.extend(attribute(NFTA_FLOWTABLE_TABLE, b"home\0"));
        body.extend(attribute(NFTA_FLOWTABLE_NAME, &[name.as_bytes(), &[0]].concat()));
        body.extend(attribute(NFTA_FLOWTABLE_USE, &rules.to_be_bytes()));
        body.extend(attribute(NFTA_FLOWTABLE_FLAGS, &flags.to_be_bytes()));
        body.extend(attribute(NFTA_FLOWTABLE_HOOK, &hook));
        body
    }

    fn serves(devices: &[&str], flags: u32, rules: u32) -> Flowtables {
        Flowtable::parse(&said("f", devices, flags, rules)).unwrap().serves(&["a", "b10"])
    }

    #[test]
    fn a_flowtable_serves_a_router_all_of_whose_devices_it_has_in_software() {
        const COUNTER: u32 = 2;
        let name = || "inet home f".to_owned();
        assert_eq!(serves(&["a", "b10", "c"], 0, 1), Flowtables::Ready(name()));
        assert_eq!(serves(&["a", "b*"], COUNTER, 1), Flowtables::Ready(name()));
        assert_eq!(serves(&["a", "b1"], 0, 1), Flowtables::None);
        assert_eq!(serves(&["a"], 0, 1), Flowtables::None);
        assert_eq!(serves(&["a", "b10"], 0, 0), Flowtables::Unused(name()));
        assert_eq!(serves(&["a", "b10"], HW_OFFLOAD, 1), Flowtables::Offloads(name()));
        let mut of_devices = said("f", &["a", "b10"], 0, 1);
        of_devices[0] = 5;
        assert_eq!(Flowtable::parse(&of_devices).unwrap().serves(&["a"]), Flowtables::None);
    }

    #[test]
    fn the_best_of_several_counts() {
        let name = String::new;
        let best = [Flowtables::Offloads(name()), Flowtables::Ready(name()), Flowtables::None];
        assert_eq!(best.into_iter().max(), Some(Flowtables::Ready(name())));
        let rest = [Flowtables::Unused(name()), Flowtables::Offloads(name()), Flowtables::None];
        assert_eq!(rest.into_iter().max(), Some(Flowtables::Unused(name())));
    }

    #[test]
    fn what_is_missing_is_said_with_what_to_type() {
        let remedy = |of: Flowtables| of.remedy(&["a", "b"]);
        let words = remedy(Flowtables::None).unwrap();
        assert!(words.contains("flowtable f { hook ingress priority 0; devices = { a, b }; }"));
        assert!(words.contains("flow add @f"));
        let words = remedy(Flowtables::Unused("inet home fast".into())).unwrap();
        assert!(words.contains("inet home fast") && words.ends_with("flow add @fast"), "{words}");
        let words = remedy(Flowtables::Offloads("ip t f".into())).unwrap();
        assert!(words.contains("flags offload off the flowtable ip t f"), "{words}");
        assert_eq!(remedy(Flowtables::Ready("ip t f".into())), None);
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = Flowtable::parse(&bytes).map(|table| table.serves(&["a"]));
        }
    }
}
