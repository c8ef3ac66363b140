//! Which parts of netfilter would see a packet that the kernel routes: firewalls, connection
//! tracking, NAT. And which IPsec policies.
//!
//! A router in XDP jumps over all of them, and a switch in XDP over those of the kernel's bridge
//! ([`bridge_hooks`]). A firewall's verdict is not to be jumped over
//! unknowingly, and what the kernel would encrypt is not to leave in clear. The kernel lists
//! netfilter's hooks since 5.14, if it is built with CONFIG_NETFILTER_NETLINK_HOOK. Another lists
//! the chains of nf_tables and names the tables of iptables, which leaves out what neither made
//! ([`Hooks::complete`]). IPsec policies are counted.
//!
//! * Only what a routed packet passes counts: prerouting, forward and postrouting of IPv4 and IPv6,
//!   and ingress and egress of the devices.
//! * **What changes nothing does not count**: a chain without rules that accepts; the security
//!   modules' hooks, which look at labels of this host's sockets, or at those that firewall rules
//!   or labelled networking set; br_netfilter's, which looks at bridged packets. Whether a table of
//!   iptables has rules cannot be seen, so it counts.
//!
//! A connection that the firewall has accepted may be handed to a *flowtable* ([`Flowtables`]).
//! Then its packets pass only what is at devices and IPsec policies, also in the kernel
//! ([`Hooks::beside_flows`]). So a router's programs may route packets of its flows.
//!
//! *VLANs.* A router may have thousands. Hooks are listed one device at a time, and what the kernel
//! itself has at those of devices is nf_tables' chains and flowtables, which are listed at once. So
//! ports are asked, and of their VLANs those where nf_tables has something.
//!
//! To list hooks or policies may load the kernel's module that lists them. It needs CAP_NET_ADMIN.
//!
//! Non-goals: what the rules say; noticing changes (it is cheap to list again).

use crate::netlink::{Request, attach, dump};
use crate::status::{each, text};
use crate::{LinkError, ipsec};
use netlink_sys::protocols::NETLINK_NETFILTER;
use std::collections::HashSet;
use std::fs;

mod flowtables;

pub use flowtables::Flowtables;

/// Subsystems and messages of nfnetlink.
const GET_HOOKS: u16 = 12 << 8;
const GET_CHAINS: u16 = (10 << 8) | 4;
/// `struct nfgenmsg`: family, version, resource.
const HEADER: usize = 4;

const INET: u8 = 1;
const IPV4: u8 = 2;
const BRIDGE: u8 = 7;
const NETDEV: u8 = 5;
const IPV6: u8 = 10;
/// The hooks that routed packets pass.
const PREROUTING: u32 = 0;
const FORWARD: u32 = 2;
const POSTROUTING: u32 = 4;
/// That of a device, as chains of the family `inet` call it.
const INET_INGRESS: u32 = 5;
/// Those of a device.
const INGRESS: u32 = 0;
const EGRESS: u32 = 1;

const NFNLA_HOOK_HOOKNUM: u16 = 1;
const NFNLA_HOOK_PRIORITY: u16 = 2;
const NFNLA_HOOK_DEV: u16 = 3;
const NFNLA_HOOK_FUNCTION_NAME: u16 = 4;
const NFNLA_HOOK_MODULE_NAME: u16 = 5;
const NFNLA_HOOK_CHAIN_INFO: u16 = 6;
const NFNLA_HOOK_INFO_DESC: u16 = 1;
const NFNLA_HOOK_INFO_TYPE: u16 = 2;
const NFNLA_CHAIN_TABLE: u16 = 1;
const NFNLA_CHAIN_FAMILY: u16 = 2;
const NFNLA_CHAIN_NAME: u16 = 3;
const TYPE_CHAIN: u32 = 1;
const TYPE_BPF: u32 = 2;
const TYPE_FLOWTABLE: u32 = 3;

const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_CHAIN_POLICY: u16 = 5;
const NFTA_CHAIN_USE: u16 = 6;
const NFTA_CHAIN_TYPE: u16 = 7;
const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFTA_HOOK_DEV: u16 = 3;
const NFTA_HOOK_DEVS: u16 = 4;
const NFTA_DEVICE_PREFIX: u16 = 2;
const ACCEPT: u32 = 1;

/// What would see routed packets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Hooks {
    /// Each in words, once: `inet filter forward (nf_tables chain)`, `connection tracking
    /// (nf_conntrack)`, `3 IPsec policies`.
    pub found: Vec<String>,
    /// Whether there are no others. If not, the kernel cannot list hooks, and of netfilter only
    /// chains of nf_tables, tables of iptables and connection tracking in use were found; or it
    /// does not permit to list IPsec policies.
    pub complete: bool,
    /// Those that packets of a flow in a flowtable pass, too.
    pub beside_flows: Vec<String>,
    /// What the devices have of flowtables.
    pub flowtables: Flowtables,
}

impl Hooks {
    /// The flowtable by which a router may route: its flows have passed all that there is.
    pub fn flows(&self) -> Option<&str> {
        match &self.flowtables {
            Flowtables::Ready(name) if self.beside_flows.is_empty() => Some(name),
            _ => None,
        }
    }

    /// What to change so that a router between `devices` may route by flows, in words; nothing if
    /// it may.
    pub fn remedy(&self, devices: &[&str]) -> Option<String> {
        match &self.beside_flows[..] {
            [] => self.flowtables.remedy(devices),
            beside => {
                Some(format!("remove what also packets of flows pass: {}", beside.join(", ")))
            }
        }
    }
}

/// Finds what would see packets that the kernel routes between `devices` and their VLANs in the
/// namespace of the calling thread.
///
/// # Errors
///
/// Without CAP_NET_ADMIN, and if the kernel does not answer.
pub fn routed_hooks(devices: &[&str]) -> Result<Hooks, LinkError> {
    let vlans = crate::vlan::names_on(devices)?;
    seen(devices, &vlans.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Finds what would see packets that the kernel routes between `devices` in the namespace of the
/// calling thread.
///
/// # Errors
///
/// Without CAP_NET_ADMIN, and if the kernel does not answer.
pub fn hooks(devices: &[&str]) -> Result<Hooks, LinkError> {
    seen(devices, &[])
}

/// What sees packets between `ports` and `vlans` on them, and the flowtable of the ports.
fn seen(ports: &[&str], vlans: &[&str]) -> Result<Hooks, LinkError> {
    let mut hooks = of_families(&[IPV4, IPV6], ports, vlans)?;
    match ipsec::found()? {
        Some(policies) => {
            hooks.found.extend(policies.iter().cloned());
            hooks.beside_flows.extend(policies);
        }
        None => hooks.complete = false,
    }
    if !hooks.found.is_empty() {
        hooks.flowtables = flowtables::of(ports)?;
    }
    Ok(hooks)
}

/// Finds what would see frames that the kernel's bridge forwards between `devices` in the namespace
/// of the calling thread: chains of the family `bridge`, ebtables; and if the bridge hands what it
/// forwards to netfilter of IP (`br_netfilter`), what [`hooks`] finds.
///
/// # Errors
///
/// Without CAP_NET_ADMIN, and if the kernel does not answer.
pub fn bridge_hooks(devices: &[&str]) -> Result<Hooks, LinkError> {
    let families: &[u8] = if bridge_calls()? { &[BRIDGE, IPV4, IPV6] } else { &[BRIDGE] };
    of_families(families, devices, &[])
}

/// Whether a bridge hands what it forwards to netfilter of IP or ARP.
fn bridge_calls() -> Result<bool, LinkError> {
    let call = |table| {
        let path = format!("/proc/sys/net/bridge/bridge-nf-call-{table}");
        fs::read_to_string(path).ok()
    };
    let calls = ["iptables", "ip6tables", "arptables"].map(call);
    if calls.iter().all(Option::is_none) {
        return Ok(false);
    }
    let is_on = |call: &String| call.trim() != "0";
    Ok(calls.iter().flatten().any(is_on) || crate::switching::some_bridge_calls_netfilter()?)
}

/// What of netfilter sees packets that are forwarded between `ports` and `vlans` on them, in these
/// families.
fn of_families(families: &[u8], ports: &[&str], vlans: &[&str]) -> Result<Hooks, LinkError> {
    let Some(hooks) = all_hooks(families, ports, vlans)? else {
        let devices = [ports, vlans].concat();
        let chains = chains()?.into_iter().filter(|chain| chain.sees(families, &devices));
        let chains: Vec<Chain> = chains.collect();
        let words = |chain: &Chain| chain.name.words("chain");
        let at_devices = chains.iter().filter(|chain| !chain.devices.0.is_empty());
        let beside_flows = once(at_devices.map(words).collect());
        let mut found: Vec<String> = chains.iter().map(words).collect();
        if families.contains(&IPV4) {
            found.extend(iptables());
            found.extend(tracked());
        }
        return Ok(Hooks { found: once(found), beside_flows, ..Hooks::default() });
    };
    let is_of_tables = |hook: &Hook| hook.chain.is_some() || hook.is_nat();
    let chains = if hooks.iter().any(is_of_tables) { chains()? } else { Vec::new() };
    let words = |hook: &Hook| hook.words(&chains);
    let at_devices = hooks.iter().filter(|hook| hook.family == NETDEV && !hook.is_flowtable());
    let beside_flows = once(at_devices.flat_map(words).collect());
    let found = once(hooks.iter().flat_map(words).collect());
    Ok(Hooks { found, complete: true, beside_flows, ..Hooks::default() })
}

/// Each word once, in the order of their first.
fn once(mut words: Vec<String>) -> Vec<String> {
    let mut seen = HashSet::new();
    words.retain(|word| seen.insert(word.clone()));
    words
}

/// The name of a chain or a flow table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Name {
    family: u8,
    table: String,
    name: String,
}

impl Name {
    /// As `nft` lists it, and what it is.
    fn words(&self, what: &str) -> String {
        format!("{} (nf_tables {what})", self.path())
    }

    /// As `nft` lists it.
    fn path(&self) -> String {
        let Self { family, table, name } = self;
        let family = match *family {
            INET => "inet",
            IPV4 => "ip",
            BRIDGE => "bridge",
            NETDEV => "netdev",
            IPV6 => "ip6",
            _ => "other",
        };
        format!("{family} {table} {name}")
    }
}

/// A function that the kernel calls for packets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Hook {
    family: u8,
    number: u32,
    priority: i32,
    function: String,
    module: String,
    /// What it stands for, if the kernel says so: its type and its name.
    chain: Option<(u32, Name)>,
}

impl Hook {
    fn parse(body: &[u8]) -> Option<Self> {
        let (header, attributes) = body.split_at_checked(HEADER)?;
        let mut hook = Self { family: header[0], ..Self::default() };
        each(attributes, |kind, value| match kind {
            NFNLA_HOOK_HOOKNUM => hook.number = number(value),
            NFNLA_HOOK_PRIORITY => hook.priority = number(value).cast_signed(),
            NFNLA_HOOK_FUNCTION_NAME => hook.function = text(value),
            NFNLA_HOOK_MODULE_NAME => hook.module = text(value),
            NFNLA_HOOK_CHAIN_INFO => hook.chain = Some(description(value)),
            _ => {}
        });
        Some(hook)
    }

    /// Whether it is a flowtable. Not all kernels say its name.
    fn is_flowtable(&self) -> bool {
        matches!(self.chain, Some((TYPE_FLOWTABLE, _)))
            || self.function.starts_with("nf_flow_offload_")
    }

    fn is_nat(&self) -> bool {
        self.module == "nf_nat" || self.function.starts_with("nf_nat_")
    }

    /// What it is; nothing if it changes nothing.
    fn words(&self, chains: &[Chain]) -> Vec<String> {
        let function = &self.function;
        match &self.chain {
            Some((TYPE_CHAIN, name)) => {
                let is_idle = |chain: &Chain| chain.name == *name && chain.is_idle();
                return match chains.iter().any(is_idle) {
                    true => Vec::new(),
                    false => vec![name.words("chain")],
                };
            }
            Some((TYPE_FLOWTABLE, name)) => return vec![name.words("flowtable")],
            Some((TYPE_BPF, _)) => return vec![format!("a BPF program at {}", self.place())],
            _ => {}
        }
        if self.is_nat() {
            // Its chains hang below it.
            let is_nat = |chain: &&Chain| chain.is_nat && !chain.is_idle();
            let words = chains.iter().filter(is_nat).map(|chain| chain.name.words("chain"));
            return words.chain(["NAT (nf_nat)".to_owned()]).collect();
        }
        let is_of = |module: &str, word: &str| self.module == module || function.contains(word);
        let words = match &**function {
            "apparmor_ip_postroute" | "ip_sabotage_in" => return Vec::new(),
            _ if self.module == "br_netfilter" || function.starts_with("br_nf_") => {
                return Vec::new();
            }
            _ if function.starts_with("nf_ct_bridge_") => {
                "connection tracking (nf_conntrack_bridge)".to_owned()
            }
            _ if function.starts_with("ebt_") => format!("ebtables at {}", self.place()),
            _ if function.starts_with("selinux_") => return Vec::new(),
            _ if self.module.starts_with("nf_defrag") || function.contains("defrag") => {
                "reassembly of fragments (nf_defrag)".to_owned()
            }
            _ if is_of("nf_conntrack", "conntrack") || is_of("nf_conntrack", "_confirm") => {
                "connection tracking (nf_conntrack)".to_owned()
            }
            _ if function.starts_with("ip_vs_") => "IPVS (ip_vs)".to_owned(),
            "ipt_do_table" | "iptable_mangle_hook" => format!("ip {} (iptables)", self.table()),
            "ip6t_do_table" | "ip6table_mangle_hook" => {
                format!("ip6 {} (ip6tables)", self.table())
            }
            _ if function.is_empty() => format!("a function at {}", self.place()),
            _ => format!("{function} at {}", self.place()),
        };
        vec![words]
    }

    /// The table of iptables that has this priority.
    fn table(&self) -> &'static str {
        match self.priority {
            -450 | -300 => "raw",
            -150 => "mangle",
            -100 | 100 => "nat",
            0 => "filter",
            50 => "security",
            _ => "other",
        }
    }

    fn place(&self) -> &'static str {
        match (self.family, self.number) {
            (NETDEV, INGRESS) => "ingress",
            (NETDEV, _) => "egress",
            (_, PREROUTING) => "prerouting",
            (_, FORWARD) => "forward",
            _ => "postrouting",
        }
    }
}

/// What a hook stands for.
fn description(info: &[u8]) -> (u32, Name) {
    let (mut kind, mut name) = (0, Name::default());
    each(info, |attribute, value| match attribute {
        NFNLA_HOOK_INFO_TYPE => kind = number(value),
        NFNLA_HOOK_INFO_DESC => each(value, |attribute, value| match attribute {
            NFNLA_CHAIN_TABLE => name.table = text(value),
            NFNLA_CHAIN_FAMILY => name.family = value.first().copied().unwrap_or_default(),
            NFNLA_CHAIN_NAME => name.name = text(value),
            _ => {}
        }),
        _ => {}
    });
    (kind, name)
}

/// The names of devices, and whether each is only a beginning.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct DeviceNames(Vec<(String, bool)>);

impl DeviceNames {
    /// Adds the name in an attribute of that kind.
    fn add(&mut self, kind: u16, name: &[u8]) {
        self.0.push((text(name), kind == NFTA_DEVICE_PREFIX));
    }

    /// Which of `devices` are among them.
    fn of<'a>(&self, devices: &[&'a str]) -> Vec<&'a str> {
        let (begins, names): (Vec<_>, Vec<_>) = self.0.iter().partition(|(_, begins)| *begins);
        let names: HashSet<&str> = names.into_iter().map(|(name, _)| name.as_str()).collect();
        let has = |device: &&str| {
            names.contains(device) || begins.iter().any(|(begin, _)| device.starts_with(begin))
        };
        devices.iter().copied().filter(has).collect()
    }

    /// Whether `device` is one of them.
    fn has(&self, device: &str) -> bool {
        let mut names = self.0.iter();
        names.any(|(name, begins)| name == device || (*begins && device.starts_with(name)))
    }
}

/// A chain of nf_tables that is at a hook.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Chain {
    name: Name,
    hook: u32,
    /// At whose hooks it is.
    devices: DeviceNames,
    is_nat: bool,
    drops: bool,
    rules: u32,
}

impl Chain {
    /// None if it is truncated, or at no hook.
    fn parse(body: &[u8]) -> Option<Self> {
        let (header, attributes) = body.split_at_checked(HEADER)?;
        let mut chain = Self::default();
        chain.name.family = header[0];
        let mut is_at_hook = false;
        each(attributes, |kind, value| match kind {
            NFTA_CHAIN_TABLE => chain.name.table = text(value),
            NFTA_CHAIN_NAME => chain.name.name = text(value),
            NFTA_CHAIN_POLICY => chain.drops = number(value) != ACCEPT,
            NFTA_CHAIN_USE => chain.rules = number(value),
            NFTA_CHAIN_TYPE => chain.is_nat = text(value) == "nat",
            NFTA_CHAIN_HOOK => {
                is_at_hook = true;
                each(value, |kind, value| match kind {
                    NFTA_HOOK_HOOKNUM => chain.hook = number(value),
                    NFTA_HOOK_DEV => chain.devices.add(kind, value),
                    NFTA_HOOK_DEVS => each(value, |kind, name| chain.devices.add(kind, name)),
                    _ => {}
                });
            }
            _ => {}
        });
        is_at_hook.then_some(chain)
    }

    /// Whether it lets everything pass as it is.
    fn is_idle(&self) -> bool {
        self.rules == 0 && !self.drops
    }

    /// Whether packets that are forwarded between `devices` in these families pass it, and that
    /// makes a difference.
    fn sees(&self, families: &[u8], devices: &[&str]) -> bool {
        let is_named = |device: &&str| self.devices.has(device);
        let is_on_way = [PREROUTING, FORWARD, POSTROUTING].contains(&self.hook);
        let is_on_path = match self.name.family {
            INET if self.hook == INET_INGRESS => devices.iter().any(is_named),
            INET => is_on_way && families.contains(&IPV4),
            IPV4 | IPV6 | BRIDGE => is_on_way && families.contains(&self.name.family),
            NETDEV => devices.iter().any(is_named),
            _ => false,
        };
        is_on_path && !self.is_idle()
    }
}

/// A number as nfnetlink writes it: the other way round than the rest of netlink.
fn number(value: &[u8]) -> u32 {
    value.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// Lists the hooks that forwarded packets pass; none if the kernel cannot.
fn all_hooks(
    families: &[u8],
    ports: &[&str],
    vlans: &[&str],
) -> Result<Option<Vec<Hook>>, LinkError> {
    let mut hooks = Vec::new();
    // A kernel without hooks for a family cannot say so: those of IPv4 tell whether it lists any.
    if hooks_at(IPV4, PREROUTING, None)?.is_none() {
        return Ok(None);
    }
    for &family in families {
        for at in [PREROUTING, FORWARD, POSTROUTING] {
            match hooks_at(family, at, None)? {
                Some(found) => hooks.extend(found),
                None if family == BRIDGE => {}
                None => return Ok(None),
            }
        }
    }
    for device in ports.iter().chain(&with_chains(vlans)?) {
        // A kernel without such hooks has none.
        hooks.extend(hooks_at(NETDEV, INGRESS, Some(device))?.unwrap_or_default());
        hooks.extend(hooks_at(NETDEV, EGRESS, Some(device))?.unwrap_or_default());
    }
    Ok(Some(hooks))
}

/// Those of `vlans` where nf_tables has a chain or a flowtable.
fn with_chains<'a>(vlans: &[&'a str]) -> Result<Vec<&'a str>, LinkError> {
    if vlans.is_empty() {
        return Ok(Vec::new());
    }
    let mut named = flowtables::devices()?;
    named.0.extend(chains()?.into_iter().flat_map(|chain| chain.devices.0));
    Ok(named.of(vlans))
}

fn hooks_at(family: u8, at: u32, device: Option<&str>) -> Result<Option<Vec<Hook>>, LinkError> {
    let mut body = vec![family, 0, 0, 0];
    attach(&mut body, NFNLA_HOOK_HOOKNUM, &at.to_be_bytes());
    if let Some(device) = device {
        attach(&mut body, NFNLA_HOOK_DEV, device.as_bytes());
    }
    let answers = listed("listing netfilter's hooks", GET_HOOKS, body)?;
    Ok(answers.map(|answers| answers.iter().filter_map(|it| Hook::parse(it)).collect()))
}

/// Lists the chains of nf_tables that are at hooks.
fn chains() -> Result<Vec<Chain>, LinkError> {
    let answers = listed("listing chains of nf_tables", GET_CHAINS, vec![0; HEADER])?;
    Ok(answers.unwrap_or_default().iter().filter_map(|it| Chain::parse(it)).collect())
}

/// A listing; none if the kernel lacks what it would list.
fn listed(doing: &str, kind: u16, body: Vec<u8>) -> Result<Option<Vec<Vec<u8>>>, LinkError> {
    let request = Request { protocol: NETLINK_NETFILTER, kind, body, strict: false };
    match dump(doing, request) {
        Ok(answers) => Ok(Some(answers)),
        Err(error) => match error.errno() {
            Some(libc::EINVAL | libc::EOPNOTSUPP | libc::EPROTONOSUPPORT | libc::ENODEV) => {
                Ok(None)
            }
            _ => Err(error),
        },
    }
}

/// The tables of iptables in this namespace. A kernel without any has no such files.
fn iptables() -> impl Iterator<Item = String> {
    [("ip", "iptables"), ("ip6", "ip6tables")].into_iter().flat_map(|(family, program)| {
        let path = format!("/proc/thread-self/net/{family}_tables_names");
        let names = fs::read_to_string(path).unwrap_or_default();
        let words = names.lines().map(|table| format!("{family} {table} ({program})"));
        words.collect::<Vec<_>>()
    })
}

/// Whether connections are tracked in this namespace, as far as their number says.
fn tracked() -> Option<String> {
    let count = fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count").ok()?;
    (count.trim() != "0").then(|| "connection tracking (nf_conntrack)".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        attach(&mut bytes, kind, value);
        bytes
    }

    fn name(family: u8, table: &str, name: &str) -> Name {
        Name { family, table: table.into(), name: name.into() }
    }

    /// A hook as the kernel says it, which stands for something of type `stands_for`.
    fn hook(function: &str, module: &str, stands_for: Option<u32>) -> Hook {
        let mut body = vec![IPV4, 0, 0, 0];
        body.extend(attribute(NFNLA_HOOK_HOOKNUM, &FORWARD.to_be_bytes()));
        body.extend(attribute(NFNLA_HOOK_PRIORITY, &(-150_i32).to_be_bytes()));
        body.extend(attribute(NFNLA_HOOK_FUNCTION_NAME, function.as_bytes()));
        if !module.is_empty() {
            body.extend(attribute(NFNLA_HOOK_MODULE_NAME, module.as_bytes()));
        }
        if let Some(kind) = stands_for {
            let mut of = attribute(NFNLA_CHAIN_TABLE, b"t\0");
            of.extend(attribute(NFNLA_CHAIN_NAME, b"c\0"));
            of.extend(attribute(NFNLA_CHAIN_FAMILY, &[INET]));
            let mut info = attribute(NFNLA_HOOK_INFO_TYPE, &kind.to_be_bytes());
            info.extend(attribute(NFNLA_HOOK_INFO_DESC, &of));
            body.extend(attribute(NFNLA_HOOK_CHAIN_INFO, &info));
        }
        Hook::parse(&body).unwrap()
    }

    #[test]
    fn hooks_have_the_names_that_an_operator_knows() {
        for (function, module, stands_for, words) in [
            ("nft_do_chain_inet", "nf_tables", Some(TYPE_CHAIN), "inet t c (nf_tables chain)"),
            ("nft_do_chain_inet", "nf_tables", None, "nft_do_chain_inet at forward"),
            ("nf_flow", "nf_flow_table", Some(TYPE_FLOWTABLE), "inet t c (nf_tables flowtable)"),
            ("nf_hook_run_bpf", "", Some(TYPE_BPF), "a BPF program at forward"),
            ("ipv4_conntrack_in", "nf_conntrack", None, "connection tracking (nf_conntrack)"),
            ("nf_confirm", "", None, "connection tracking (nf_conntrack)"),
            ("ipv6_defrag", "nf_defrag_ipv6", None, "reassembly of fragments (nf_defrag)"),
            ("ipv4_conntrack_defrag", "", None, "reassembly of fragments (nf_defrag)"),
            ("nf_nat_ipv4_out", "nf_nat", None, "NAT (nf_nat)"),
            ("ipt_do_table", "ip_tables", None, "ip mangle (iptables)"),
            ("ip6t_do_table", "", None, "ip6 mangle (ip6tables)"),
            ("ip6table_mangle_hook", "ip6table_mangle", None, "ip6 mangle (ip6tables)"),
            ("ip_vs_forward_icmp", "ip_vs", None, "IPVS (ip_vs)"),
            ("odd", "", None, "odd at forward"),
            ("", "", None, "a function at forward"),
        ] {
            assert_eq!(hook(function, module, stands_for).words(&[]), [words]);
        }
    }

    #[test]
    fn security_modules_and_br_netfilter_change_nothing() {
        for function in [
            "apparmor_ip_postroute",
            "selinux_ip_forward",
            "selinux_ip_postroute",
            "ip_sabotage_in",
        ] {
            assert!(hook(function, "", None).words(&[]).is_empty(), "{function}");
        }
    }

    #[test]
    fn a_chain_without_rules_counts_only_if_it_drops() {
        let idle = Chain { name: name(INET, "t", "c"), ..Chain::default() };
        let words = |chain: &Chain| {
            hook("nft_do_chain_inet", "", Some(TYPE_CHAIN)).words(std::slice::from_ref(chain)).len()
        };
        assert_eq!(words(&idle), 0);
        assert_eq!(words(&Chain { drops: true, ..idle.clone() }), 1);
        assert_eq!(words(&Chain { rules: 1, ..idle.clone() }), 1);
        assert_eq!(words(&Chain { name: name(INET, "t", "other"), ..idle }), 1);
    }

    #[test]
    fn nat_is_said_with_its_chains() {
        let nat = |chain: &str, rules| {
            let name = name(IPV4, "nat", chain);
            Chain { name, is_nat: true, rules, ..Chain::default() }
        };
        let chains = [nat("PREROUTING", 0), nat("POSTROUTING", 2)];
        let words = hook("nf_nat_ipv4_out", "nf_nat", None).words(&chains);
        assert_eq!(words, ["ip nat POSTROUTING (nf_tables chain)", "NAT (nf_nat)"]);
    }

    /// A chain as the kernel says it.
    fn chain(family: u8, hook: Option<u32>, policy: u32, rules: u32, devices: &[&str]) -> Vec<u8> {
        let mut body = vec![family, 0, 0, 0];
        body.extend(attribute(NFTA_CHAIN_TABLE, b"t\0"));
        body.extend(attribute(NFTA_CHAIN_NAME, b"c\0"));
        body.extend(attribute(NFTA_CHAIN_USE, &rules.to_be_bytes()));
        let Some(hook) = hook else { return body };
        let mut at = attribute(NFTA_HOOK_HOOKNUM, &hook.to_be_bytes());
        let list = devices.iter().flat_map(|device| match device.strip_suffix('*') {
            Some(begin) => attribute(NFTA_DEVICE_PREFIX, begin.as_bytes()),
            None => attribute(1, device.as_bytes()),
        });
        at.extend(attribute(NFTA_HOOK_DEVS, &list.collect::<Vec<_>>()));
        if let [device] = devices {
            at.extend(attribute(NFTA_HOOK_DEV, device.as_bytes()));
        }
        body.extend(attribute(NFTA_CHAIN_HOOK, &at));
        body.extend(attribute(NFTA_CHAIN_TYPE, b"filter\0"));
        body.extend(attribute(NFTA_CHAIN_POLICY, &policy.to_be_bytes()));
        body
    }

    #[test]
    fn only_chains_on_the_path_of_routed_packets_count() {
        const INPUT: u32 = 1;
        const ARP: u8 = 3;
        let sees = |family, hook, devices: &[&str]| {
            let chain = Chain::parse(&chain(family, Some(hook), ACCEPT, 3, devices)).unwrap();
            chain.sees(&[IPV4, IPV6], &["a", "b10"])
        };
        for family in [IPV4, IPV6, INET] {
            assert!(sees(family, FORWARD, &[]) && sees(family, PREROUTING, &[]));
            assert!(sees(family, POSTROUTING, &[]) && !sees(family, INPUT, &[]));
        }
        assert!(sees(INET, INET_INGRESS, &["a"]) && !sees(INET, INET_INGRESS, &["c"]));
        assert!(sees(NETDEV, EGRESS, &["c", "b10"]) && !sees(NETDEV, INGRESS, &["b1"]));
        assert!(sees(NETDEV, INGRESS, &["c", "b1*"]) && !sees(ARP, FORWARD, &[]));
        let parsed = |policy, rules| Chain::parse(&chain(IPV4, Some(FORWARD), policy, rules, &[]));
        assert!(!parsed(ACCEPT, 0).unwrap().sees(&[IPV4, IPV6], &[]), "it accepts everything");
        assert!(parsed(0, 0).unwrap().sees(&[IPV4, IPV6], &[]), "it drops everything");
        assert_eq!(Chain::parse(&chain(IPV4, None, ACCEPT, 3, &[])), None, "no hook leads to it");
    }

    #[test]
    fn of_many_devices_those_are_chosen_that_are_named() {
        let devices = ["a", "b.7", "b.70", "c.1", "c.22"];
        let named = DeviceNames(vec![("b.7".into(), false), ("c.2".into(), true)]);
        assert_eq!(named.of(&devices), ["b.7", "c.22"]);
        assert!(devices.iter().all(|it| named.has(it) == named.of(&devices).contains(it)));
        assert!(DeviceNames::default().of(&devices).is_empty());
    }

    #[test]
    fn each_word_is_said_once_in_order() {
        let words = ["b", "a", "b"].map(str::to_owned).to_vec();
        assert_eq!(once(words), ["b", "a"]);
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let words = Hook::parse(&bytes).map(|hook| hook.words(&[]));
            let _ = (words, Chain::parse(&bytes), description(&bytes));
        }
    }
}
