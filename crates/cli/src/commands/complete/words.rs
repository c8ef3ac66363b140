//! The words of `tc`, as completions offer them: `tc(8)`, `tc-htb(8)` and so on, and docs/tc.md.

/// Its options.
pub(super) const OPTIONS: &[&str] =
    &["-s", "-d", "-j", "-p", "-o", "-iec", "-n", "-nm", "-batch", "-force", "-csv", "--policy"];

/// What its commands are about.
pub(super) const OBJECTS: &[&str] = &["qdisc", "class", "filter", "actions", "save"];

/// A kind of qdisc or filter.
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// Whether it is one of filters.
    filters: bool,
    /// The words of its qdisc, or of its filters.
    own: &'static [&'static str],
    /// The words of its classes. None if no command makes any.
    classes: &'static [&'static str],
}

impl Kind {
    /// Whether commands about `object` name it.
    pub(super) fn is_of(&self, object: &str) -> bool {
        match object {
            "qdisc" => !self.filters,
            "class" => !self.classes.is_empty(),
            _ => self.filters,
        }
    }

    /// Its words in commands about `object`.
    pub(super) fn words_of(&self, object: &str) -> &'static [&'static str] {
        if object == "class" { self.classes } else { self.own }
    }
}

const fn qdisc(
    name: &'static str,
    own: &'static [&'static str],
    classes: &'static [&'static str],
) -> Kind {
    Kind { name, filters: false, own, classes }
}

const fn filter(name: &'static str, own: &'static [&'static str]) -> Kind {
    Kind { name, filters: true, own, classes: &[] }
}

const CAKE: &[&str] = &[
    "bandwidth",
    "unlimited",
    "autorate-ingress",
    "besteffort",
    "precedence",
    "diffserv8",
    "diffserv4",
    "diffserv3",
    "flowblind",
    "srchost",
    "dsthost",
    "hosts",
    "flows",
    "dual-srchost",
    "dual-dsthost",
    "triple-isolate",
    "nat",
    "nonat",
    "wash",
    "nowash",
    "split-gso",
    "no-split-gso",
    "ack-filter",
    "ack-filter-aggressive",
    "no-ack-filter",
    "memlimit",
    "fwmark",
    "rtt",
    "datacentre",
    "lan",
    "metro",
    "regional",
    "internet",
    "oceanic",
    "satellite",
    "interplanetary",
    "raw",
    "conservative",
    "overhead",
    "mpu",
    "atm",
    "noatm",
    "ptm",
    "pppoa-vcmux",
    "pppoa-llc",
    "pppoe-vcmux",
    "pppoe-llcsnap",
    "bridged-vcmux",
    "bridged-llcsnap",
    "ipoa-vcmux",
    "ipoa-llcsnap",
    "pppoe-ptm",
    "bridged-ptm",
    "docsis",
    "ethernet",
    "ether-vlan",
    "ingress",
    "egress",
    "coordination",
    "sync",
    "inner",
    "noinner",
    "fleet",
    "nofleet",
];
const CODEL: &[&str] = &["limit", "target", "interval", "ecn", "noecn", "ce_threshold"];

/// All kinds.
pub(super) const KINDS: &[Kind] = &[
    qdisc("pfifo", &["limit"], &[]),
    qdisc("bfifo", &["limit"], &[]),
    qdisc("pfifo_fast", &[], &[]),
    qdisc(
        "tbf",
        &[
            "rate",
            "burst",
            "limit",
            "latency",
            "peakrate",
            "mtu",
            "overhead",
            "mpu",
            "linklayer",
            "coordination",
            "sync",
            "fleet",
        ],
        &[],
    ),
    qdisc(
        "htb",
        &["default", "r2q", "direct_qlen", "coordination"],
        &[
            "rate",
            "ceil",
            "burst",
            "cburst",
            "prio",
            "quantum",
            "mtu",
            "mpu",
            "overhead",
            "linklayer",
            "weight",
            "borrow",
            "fleet",
        ],
    ),
    qdisc("hfsc", &["default"], &["rt", "ls", "sc", "ul"]),
    qdisc("prio", &["bands", "priomap"], &[]),
    qdisc("drr", &[], &["quantum"]),
    qdisc("ets", &["bands", "strict", "quanta", "priomap"], &["quantum"]),
    qdisc("cake", CAKE, &[]),
    qdisc("cake_mq", CAKE, &[]),
    qdisc(
        "fq",
        &[
            "limit",
            "flow_limit",
            "quantum",
            "initial_quantum",
            "maxrate",
            "buckets",
            "pacing",
            "nopacing",
            "refill_delay",
            "low_rate_threshold",
            "orphan_mask",
            "timer_slack",
            "ce_threshold",
            "horizon",
            "horizon_cap",
            "horizon_drop",
            "bands",
            "weights",
        ],
        &[],
    ),
    qdisc(
        "fq_codel",
        &[
            "limit",
            "flows",
            "quantum",
            "target",
            "interval",
            "memory_limit",
            "ecn",
            "noecn",
            "ce_threshold",
            "drop_batch",
            "hosts",
            "nat",
        ],
        &[],
    ),
    qdisc("codel", CODEL, &[]),
    qdisc("sfq", &["limit", "perturb", "quantum", "depth", "divisor", "flows"], &[]),
    qdisc(
        "netem",
        &[
            "limit",
            "delay",
            "distribution",
            "loss",
            "corrupt",
            "duplicate",
            "reorder",
            "gap",
            "rate",
            "slot",
            "ecn",
            "seed",
        ],
        &[],
    ),
    qdisc(
        "red",
        &[
            "limit",
            "min",
            "max",
            "avpkt",
            "burst",
            "bandwidth",
            "probability",
            "ecn",
            "harddrop",
            "nodrop",
            "adaptive",
        ],
        &[],
    ),
    qdisc("carousel", &[], &[]),
    qdisc("eiffel", &[], &[]),
    qdisc("flowbundler", &[], &[]),
    qdisc("mq", &[], &[]),
    qdisc("noqueue", &[], &[]),
    filter(
        "flower",
        &[
            "classid",
            "src_ip",
            "dst_ip",
            "src_port",
            "dst_port",
            "ip_proto",
            "ip_tos",
            "vlan_id",
            "vlan_prio",
            "src_mac",
            "dst_mac",
            "tcp_flags",
            "action",
            "skip_hw",
            "skip_sw",
        ],
    ),
    filter("u32", &["match", "classid", "flowid", "action"]),
    filter("matchall", &["classid", "flowid", "action"]),
    filter("basic", &["match", "classid", "flowid", "action"]),
    filter("fw", &["classid", "action"]),
];
