//! The capabilities that are kept. Each was found by dropping it and checking what fails.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, configure_capability_in_ambient_set,
    remove_capability_from_bounding_set, set_capabilities,
};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// The capabilities for joining ports again, with their purposes.
pub(super) const KEPT: [(CapabilitySet, &str); 6] = [
    (CapabilitySet::NET_ADMIN, "bridges, promiscuous ports, offloads, attaching XDP programs"),
    (CapabilitySet::NET_RAW, "AF_XDP sockets, and echo requests to reflectors"),
    (CapabilitySet::BPF, "loading XDP programs"),
    (
        CapabilitySet::PERFMON,
        "loading the XDP plane's programs, and the connection tracking look-up for cake nat",
    ),
    (CapabilitySet::IPC_LOCK, "frames are locked memory, whatever the limit of the shell"),
    (CapabilitySet::SYS_NICE, "workers go before all ordinary threads"),
];

/// The highest number that a capability can have.
const LAST: u32 = 63;

/// Drops all capabilities but those of [`KEPT`], as far as they are there. If connection tracking
/// is a module, CAP_SYS_ADMIN is kept if present, because `cake nat`, a router's flowtable and the
/// modules may come at any time later. To avoid that, start the process without it, as the service
/// does.
pub(super) fn drop_others() -> Result<(), String> {
    let mut kept = KEPT.iter().fold(CapabilitySet::empty(), |set, (one, _)| set | *one);
    if has(CapabilitySet::SYS_ADMIN) && !is_look_up_built_in() {
        // A module's functions are found through its BTF, which the kernel gives only to
        // CAP_SYS_ADMIN.
        kept |= CapabilitySet::SYS_ADMIN;
        log::info!("CAP_SYS_ADMIN stays: cake nat needs it where connection tracking is a module");
    }
    let failed = |error: Errno| format!("privileges are not dropped: {error}");
    // First, because it needs a capability itself. If that is missing, `no_new_privs` makes the
    // rest of this set useless.
    for number in 0..=LAST {
        let one = CapabilitySet::from_bits_retain(1 << number);
        if !kept.contains(one) && remove_capability_from_bounding_set(one).is_err() {
            break;
        }
    }
    let held = capabilities(None).map_err(failed)?.permitted & kept;
    let sets = CapabilitySets { effective: held, permitted: held, inheritable: held };
    set_capabilities(None, sets).map_err(failed)?;
    for one in held.iter() {
        // For a process that takes over from one that does not run as root. A root process does not
        // need it, and without it only such a takeover fails.
        let _ = configure_capability_in_ambient_set(one, true);
    }
    Ok(())
}

fn has(capability: CapabilitySet) -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(capability))
}

/// Whether the translation look-up is built into the kernel. Connection tracking has parameters, so
/// it is among the modules even then, but has no state. Only then all symbols are read, which takes
/// milliseconds.
fn is_look_up_built_in() -> bool {
    let module = Path::new("/sys/module/nf_conntrack");
    if !module.exists() || module.join("initstate").exists() {
        return false;
    }
    let Ok(symbols) = File::open("/proc/kallsyms") else { return false };
    // `address type name`, and after a tab the module.
    let mut lines = BufReader::new(symbols).lines().map_while(Result::ok);
    lines.any(|line| line.split(' ').nth(2) == Some("bpf_xdp_ct_lookup"))
}
