//! The host and this process: kernel, privileges, memory, clock speed.

use super::{Finding, HostFacts, KernelVersion, Wanted, WantedPlane};

/// The first version in which queues and ports can share one UMEM.
const SHARED_UMEM: KernelVersion = KernelVersion::new(5, 10);
/// The first version in which workers can busy-poll with deferred interrupts.
const BUSY_POLL: KernelVersion = KernelVersion::new(5, 11);
/// The first version with `bpf_loop`, with which the XDP plane's programs loop over classes.
const BPF_LOOP: KernelVersion = KernelVersion::new(5, 17);

pub(super) fn judge(host: &HostFacts, wanted: &Wanted) -> Vec<Finding> {
    let mut findings = Vec::new();
    match wanted.plane {
        WantedPlane::Xsk => {
            findings.push(version(host));
            findings.extend(af_xdp(host));
            findings.extend(conntrack(host));
            findings.extend(real_time(host));
        }
        WantedPlane::Xdp => findings.push(version_in_driver(host)),
        // Its own checks say so.
        WantedPlane::Host => {}
    }
    findings.extend(jit(host));
    findings.push(privileges(host));
    findings.extend(memory(host, wanted));
    findings.extend(firewall(host, wanted));
    findings.extend(governor(host));
    findings
}

fn version(host: &HostFacts) -> Finding {
    let kernel = host.kernel;
    if kernel < SHARED_UMEM {
        let what = format!("Linux {kernel} cannot share frames between queues and ports");
        return Finding::blocker("kernel", what)
            .remedy(format!("boot Linux {SHARED_UMEM} or newer"));
    }
    if kernel < BUSY_POLL {
        let what = format!("Linux {kernel}: busy polling needs {BUSY_POLL}");
        return Finding::note("kernel", what);
    }
    Finding::ok("kernel", format!("Linux {kernel}"))
}

fn version_in_driver(host: &HostFacts) -> Finding {
    let kernel = host.kernel;
    if kernel < BPF_LOOP {
        let what = format!("Linux {kernel} has no bpf_loop, which the XDP plane's programs call");
        return Finding::blocker("kernel", what)
            .remedy(format!("boot Linux {BPF_LOOP} or newer, or use --plane xsk"));
    }
    Finding::ok("kernel", format!("Linux {kernel}"))
}

fn af_xdp(host: &HostFacts) -> Option<Finding> {
    Some(match host.af_xdp? {
        true => Finding::ok("kernel", "has AF_XDP"),
        false => Finding::blocker("kernel", "has no AF_XDP")
            .remedy("boot a kernel with CONFIG_XDP_SOCKETS=y"),
    })
}

fn jit(host: &HostFacts) -> Option<Finding> {
    (host.jit == Some(false)).then(|| {
        Finding::warning("kernel", "interprets BPF programs instead of compiling them")
            .remedy("sysctl -w net.core.bpf_jit_enable=1")
    })
}

fn privileges(host: &HostFacts) -> Finding {
    let has = host.capabilities;
    let missing: Vec<_> =
        [(has.net_admin, "CAP_NET_ADMIN"), (has.net_raw, "CAP_NET_RAW"), (has.bpf, "CAP_BPF")]
            .into_iter()
            .filter_map(|(has, name)| (!has).then_some(name))
            .collect();
    if missing.is_empty() {
        return Finding::ok("process", "has the privileges that it needs");
    }
    Finding::blocker("process", format!("lacks {}", missing.join(", "))).remedy(
        "run as root or as the service in dist/; as another user: \
         setcap cap_net_admin,cap_net_raw,cap_bpf,cap_perfmon,cap_ipc_lock,cap_sys_nice+ep \
         \"$(command -v narrows)\", and install -d -m 700 -o USER /run/narrows",
    )
}

/// Nice values count only within a session or a service, so an ordinary worker shares its core with
/// each of the others.
fn real_time(host: &HostFacts) -> Option<Finding> {
    let error = host.real_time.as_ref().err()?;
    let what = format!(
        "its threads cannot be real-time ({error}): while other programs want all cores, packets \
         wait for some 100 ms"
    );
    Some(Finding::warning("process", what).remedy(
        "run with CAP_SYS_NICE (as root, or as the service in dist/) and, in a control group with \
         a real-time budget, cpu.rt_runtime_us above 0",
    ))
}

/// The kernel counts the pages of a UMEM against the limit, unless CAP_IPC_LOCK lifts it.
fn memory(host: &HostFacts, wanted: &Wanted) -> Option<Finding> {
    let limit = host.lockable.filter(|_| !host.capabilities.ipc_lock)?;
    let kib = |bytes: u64| bytes.div_ceil(1024);
    (wanted.locked_bytes > limit).then(|| {
        let what = format!(
            "may lock {} KiB of memory, but frames need {} KiB",
            kib(limit),
            kib(wanted.locked_bytes)
        );
        Finding::blocker("process", what)
            .remedy("ulimit -l unlimited (or LimitMEMLOCK=infinity in the systemd unit)")
    })
}

fn firewall(host: &HostFacts, wanted: &Wanted) -> Option<Finding> {
    (wanted.bridge && host.bridge_netfilter == Some(true)).then(|| {
        let what = "the host's firewall sees bridged packets: the bridge that stands by may drop \
                    what Narrows forwards";
        Finding::warning("kernel", what).remedy(
            "sysctl -w net.bridge.bridge-nf-call-iptables=0 net.bridge.bridge-nf-call-ip6tables=0 \
             net.bridge.bridge-nf-call-arptables=0",
        )
    })
}

fn conntrack(host: &HostFacts) -> Option<Finding> {
    Some(match host.conntrack? {
        true => Finding::ok("kernel", "offers the conntrack look-up of cake nat"),
        false => Finding::note(
            "kernel",
            "does not offer the conntrack look-up of cake nat, which tells hosts apart by the \
             addresses in the frames",
        )
        .remedy("modprobe nf_conntrack (Linux 5.18 or newer with CONFIG_DEBUG_INFO_BTF=y)"),
    })
}

fn governor(host: &HostFacts) -> Option<Finding> {
    let slow: Vec<_> =
        host.governors.iter().filter(|governor| *governor != "performance").cloned().collect();
    (!slow.is_empty()).then(|| {
        let what = format!(
            "frequency governor {}: a sleeping CPU wakes up slowly, which adds latency",
            slow.join(", ")
        );
        Finding::note("cpu", what).remedy("cpupower frequency-set -g performance")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity;
    use crate::doctor::facts::fit;

    /// The worst finding for a fit host after `spoil` has changed it.
    fn worst(spoil: impl FnOnce(&mut HostFacts), wanted: Wanted) -> Finding {
        let mut host = fit().host;
        spoil(&mut host);
        judge(&host, &wanted).into_iter().max_by_key(|finding| finding.severity).unwrap()
    }

    #[test]
    fn a_fit_host_is_fit() {
        assert_eq!(worst(|_| (), Wanted::default()).severity, Severity::Ok);
    }

    #[test]
    fn each_defect_is_judged() {
        use Severity::{Blocker, Note, Warning};
        type Spoil = fn(&mut HostFacts);
        let cases: [(Spoil, Severity, &str); 11] = [
            (|host| host.kernel = KernelVersion::new(5, 9), Blocker, "share frames"),
            (|host| host.kernel = KernelVersion::new(5, 10), Note, "busy polling"),
            (|host| host.af_xdp = Some(false), Blocker, "no AF_XDP"),
            (|host| host.jit = Some(false), Warning, "interprets"),
            (|host| host.capabilities.net_admin = false, Blocker, "lacks CAP_NET_ADMIN"),
            (|host| host.capabilities.net_raw = false, Blocker, "lacks CAP_NET_RAW"),
            (|host| host.capabilities.bpf = false, Blocker, "lacks CAP_BPF"),
            (|host| host.bridge_netfilter = Some(true), Warning, "firewall"),
            (|host| host.conntrack = Some(false), Note, "conntrack"),
            (|host| host.governors.push("powersave".into()), Note, "powersave"),
            (|host| host.real_time = Err("no".into()), Warning, "real-time (no)"),
        ];
        for (spoil, severity, words) in cases {
            let worst = worst(spoil, Wanted { bridge: true, ..Wanted::default() });
            assert_eq!(worst.severity, severity, "{}", worst.what);
            assert!(worst.what.contains(words), "{}", worst.what);
        }
    }

    #[test]
    fn unknown_facts_are_not_judged() {
        let blind = |host: &mut HostFacts| {
            host.af_xdp = None;
            host.jit = None;
            host.conntrack = None;
            host.governors.clear();
        };
        assert_eq!(worst(blind, Wanted::default()).severity, Severity::Ok);
    }

    #[test]
    fn the_memory_limit_matters_only_without_the_capability() {
        let wanted = Wanted { locked_bytes: 64 << 20, ..Wanted::default() };
        let lacking = |host: &mut HostFacts| host.capabilities.ipc_lock = false;
        let finding = worst(lacking, wanted.clone());
        assert_eq!(finding.severity, Severity::Blocker);
        assert_eq!(finding.what, "may lock 8192 KiB of memory, but frames need 65536 KiB");
        let unlimited = |host: &mut HostFacts| {
            host.capabilities.ipc_lock = false;
            host.lockable = None;
        };
        assert_eq!(worst(unlimited, wanted.clone()).severity, Severity::Ok);
        assert_eq!(worst(|_| (), wanted).severity, Severity::Ok);
    }
}
