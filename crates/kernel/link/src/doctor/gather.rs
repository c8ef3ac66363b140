//! Gathers the facts. This module only reads and decides nothing.
//!
//! Files of `/proc` and of `/sys/devices/system/cpu` belong to the host and not to a network
//! namespace, except `/proc/sys/net`, which shows that of the reader. A file that is missing or
//! unreadable makes an unknown fact.

use super::interrupts::{self, QueueInterrupt};
use super::{
    BridgedFacts, Capabilities, Dispatcher, Facts, HostFacts, HostPortsFacts, KernelVersion,
    PortFacts, RouterFacts, StickFacts,
};
use crate::link::all;
use crate::peer::Peer;
use crate::routing::RoutingFacts;
use crate::switching::SwitchFacts;
use crate::{Link, is_addressed, is_reached_elsewhere, netfilter, stick};
use narrows_forwarding::stick::Pair;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::process::{Resource, getrlimit};
use rustix::thread::CapabilitySet;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Gathers everything about two ports and the host.
pub(super) fn facts(a: &str, b: &str) -> Facts {
    let ports = [port(a), port(b)];
    let (indices, _) = indices_and_names(&ports);
    let reached_elsewhere = is_reached_elsewhere(&indices).unwrap_or(true);
    Facts { ports, others: all().unwrap_or_default(), reached_elsewhere, host: host() }
}

/// Gathers everything about a stick and the host.
pub(super) fn stick_facts(device: &str, pairs: &[Pair]) -> StickFacts {
    let device = port(device);
    let others = all().unwrap_or_default();
    let found = |pair: Pair| {
        let lower = device.link.as_ref().ok()?;
        stick::find(&lower.status, pair, &others).ok()
    };
    let pairs = pairs.iter().map(|&pair| (pair, found(pair).unwrap_or_default())).collect();
    StickFacts { device, pairs, vlan_devices: vlan_devices(), others, host: host() }
}

/// Gathers everything about a host's ports and the host.
pub(super) fn host_ports_facts(devices: &[String]) -> HostPortsFacts {
    let ports = devices.iter().map(|device| port(device)).collect();
    HostPortsFacts { ports, others: all().unwrap_or_default(), host: host() }
}

/// Gathers everything about a router and the host.
pub(super) fn router_facts(devices: &[String]) -> RouterFacts {
    let ports: Vec<PortFacts> = devices.iter().map(|device| port(device)).collect();
    let (indices, names) = indices_and_names(&ports);
    let routing = RoutingFacts::read(&indices).map_err(|error| error.to_string());
    let netfilter = netfilter::routed_hooks(&names).map_err(|error| error.to_string());
    let is_seen = netfilter.as_ref().is_ok_and(|hooks| !hooks.found.is_empty());
    let flow_look_up = if is_seen { has_function("bpf_xdp_flow_lookup") } else { None };
    let others = all().unwrap_or_default();
    RouterFacts { ports, routing, netfilter, flow_look_up, others, host: host() }
}

/// Gathers everything about a switch and the host.
pub(super) fn bridged_facts(devices: &[String]) -> BridgedFacts {
    let ports: Vec<PortFacts> = devices.iter().map(|device| port(device)).collect();
    let (indices, names) = indices_and_names(&ports);
    let bridge = SwitchFacts::read(&indices).map_err(|error| error.to_string());
    let netfilter = netfilter::bridge_hooks(&names).map_err(|error| error.to_string());
    BridgedFacts { ports, bridge, netfilter, others: all().unwrap_or_default(), host: host() }
}

/// Of those of `ports` that are there.
fn indices_and_names(ports: &[PortFacts]) -> (Vec<u32>, Vec<&str>) {
    let links = ports.iter().filter_map(|port| port.link.as_ref().ok());
    links.map(|link| (link.status.ifindex, link.name())).unzip()
}

fn port(name: &str) -> PortFacts {
    let link = Link::by_name(name).map_err(|error| error.to_string());
    let of_link = |link: &Link| {
        let peer = link.status.peer.filter(|_| link.status.is_veth()).and_then(Peer::find);
        (peer, queue_interrupts(link), dispatchers(link))
    };
    let (peer, interrupts, dispatchers) = link.as_ref().map(of_link).unwrap_or_default();
    let is_addressed = |link: &Link| is_addressed(link.status.ifindex).unwrap_or_default();
    let addressed = link.as_ref().is_ok_and(is_addressed);
    PortFacts { asked: name.to_owned(), link, peer, addressed, interrupts, dispatchers }
}

/// Libxdp pins what runs under a dispatcher in a directory named after the interface and the
/// dispatcher's number, two files for each program.
fn dispatchers(link: &Link) -> Vec<Dispatcher> {
    let pins = |id: u32| format!("/sys/fs/bpf/xdp/dispatch-{}-{id}", link.status.ifindex);
    let of = |id: u32| {
        let files = fs::read_dir(pins(id)).ok()?.filter_map(Result::ok);
        let links = files.filter(|file| file.file_name().as_encoded_bytes().ends_with(b"-link"));
        Some(Dispatcher { id, programs: links.count() })
    };
    link.status.xdp.iter().filter_map(|program| of(program.id)).collect()
}

/// Whether libxdp's dispatcher runs on the interface `name`, as far as its pins say.
pub fn has_dispatcher(name: &str) -> bool {
    Link::by_name(name).is_ok_and(|link| !dispatchers(&link).is_empty())
}

fn queue_interrupts(link: &Link) -> Vec<QueueInterrupt> {
    let text = fs::read("/proc/interrupts").unwrap_or_default();
    interrupts::find(&text, link.name(), &link.driver.bus)
        .into_iter()
        .filter_map(|(irq, queue)| {
            // The effective affinity if the kernel has it, otherwise the allowed one.
            let file = |name: &str| word(&format!("/proc/irq/{irq}/{name}"));
            let cpus = file("effective_affinity_list").filter(|cpus| !cpus.is_empty());
            let cpus = cpus.or_else(|| file("smp_affinity_list"))?;
            Some(QueueInterrupt { irq, queue, cpus })
        })
        .collect()
}

fn host() -> HostFacts {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    HostFacts {
        kernel: KernelVersion::parse(&rustix::system::uname().release().to_string_lossy()),
        af_xdp: af_xdp(),
        jit: word("/proc/sys/net/core/bpf_jit_enable").map(|word| word != "0"),
        bridge_netfilter: bridge_netfilter(),
        conntrack: conntrack(),
        cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
        online: online_cpus(),
        governors: governors(),
        irqbalance: runs("irqbalance"),
        capabilities: capabilities(),
        lockable: getrlimit(Resource::Memlock).current,
        real_time: may_be_real_time(),
    }
}

/// The content of a one-line file, without the newline.
fn word(path: &str) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// Opens a socket to see whether AF_XDP exists; without the privilege it is unknown.
fn af_xdp() -> Option<bool> {
    match socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None) {
        Ok(_) => Some(true),
        Err(rustix::io::Errno::AFNOSUPPORT) => Some(false),
        Err(_) => None,
    }
}

fn bridge_netfilter() -> Option<bool> {
    let calls = ["iptables", "ip6tables", "arptables"]
        .map(|table| word(&format!("/proc/sys/net/bridge/bridge-nf-call-{table}")));
    calls.iter().flatten().map(|call| call != "0").reduce(|one, other| one || other)
}

/// Whether the kernel has VLAN devices, or a module for them that it loads when the first is made.
fn vlan_devices() -> Option<bool> {
    if Path::new("/proc/self/net/vlan").exists() {
        return Some(true);
    }
    // They are not built in. A kernel without modules lists none, unless only this process's own
    // files of `/proc` can be seen.
    if !Path::new("/proc/modules").exists() && Path::new("/proc/interrupts").exists() {
        return Some(false);
    }
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let table = fs::read(format!("/lib/modules/{release}/modules.dep")).ok()?;
    Some(has_module(&String::from_utf8_lossy(&table), "8021q"))
}

/// Whether `table`, which names files of modules and what they need, has `module`.
fn has_module(table: &str, module: &str) -> bool {
    table.lines().any(|line| {
        let path = line.split(':').next().unwrap_or_default();
        let file = path.rsplit('/').next().unwrap_or_default();
        file.split_once(".ko").is_some_and(|(name, _)| name == module)
    })
}

/// Whether XDP programs can look up connections. Without connection tracking they cannot, and the
/// many symbols need not be read.
fn conntrack() -> Option<bool> {
    if !Path::new("/sys/module/nf_conntrack").exists() {
        return Some(false);
    }
    has_function("bpf_xdp_ct_lookup")
}

/// Looks for a kernel function that XDP programs would call, in the kernel or in a loaded module.
fn has_function(function: &str) -> Option<bool> {
    let symbols = BufReader::new(fs::File::open("/proc/kallsyms").ok()?);
    let mut names = symbols.lines().map_while(Result::ok);
    Some(names.any(|line| line.split(' ').nth(2).is_some_and(|symbol| is_of(symbol, function))))
}

/// Whether `symbol`, which a module's name may follow, is that function.
fn is_of(symbol: &str, function: &str) -> bool {
    symbol.split('\t').next() == Some(function)
}

/// How many CPUs may handle frames: one more than the highest number that is online. One if the
/// kernel does not say.
pub fn online_cpus() -> u32 {
    let listed = word("/sys/devices/system/cpu/online").unwrap_or_default();
    highest(&listed).map_or(1, |highest| highest + 1)
}

/// The highest number in a list such as `0-3,6`.
fn highest(listed: &str) -> Option<u32> {
    listed.rsplit([',', '-']).next()?.parse().ok()
}

fn governors() -> Vec<String> {
    let entries = fs::read_dir("/sys/devices/system/cpu").into_iter().flatten();
    let names: BTreeSet<_> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| word(&entry.path().join("cpufreq/scaling_governor").to_string_lossy()))
        .collect();
    names.into_iter().collect()
}

fn runs(program: &str) -> bool {
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    entries
        .filter_map(|entry| word(&entry.path().join("comm").to_string_lossy()))
        .any(|name| name == program)
}

/// Tried in a thread that does nothing else.
fn may_be_real_time() -> Result<(), String> {
    let tried = std::thread::spawn(|| narrows_cpu::schedule(narrows_cpu::Class::RealTime)).join();
    let tried = tried.unwrap_or_else(|_| Err(std::io::Error::other("it could not be tried")));
    tried.map_err(|error| error.to_string())
}

fn capabilities() -> Capabilities {
    // Capabilities that cannot be read count as missing.
    let has =
        rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    Capabilities {
        net_admin: has.contains(CapabilitySet::NET_ADMIN),
        net_raw: has.contains(CapabilitySet::NET_RAW),
        bpf: has.intersects(CapabilitySet::BPF | CapabilitySet::SYS_ADMIN),
        ipc_lock: has.contains(CapabilitySet::IPC_LOCK),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_found_by_its_file_and_not_by_what_needs_it() {
        let table = "kernel/net/802/garp.ko.xz: kernel/net/llc/llc.ko.xz\n\
                     kernel/net/8021q/8021q.ko: kernel/net/802/garp.ko.xz\n\
                     kernel/net/x/x.ko.zst: kernel/net/y/y.ko.zst\n";
        assert!(has_module(table, "8021q") && has_module(table, "garp") && has_module(table, "x"));
        assert!(!has_module(table, "llc") && !has_module(table, "y") && !has_module("", "8021q"));
    }
}
