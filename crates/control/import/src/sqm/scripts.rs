//! The scripts of sqm-scripts, and what each becomes.

/// What a script becomes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Becomes {
    /// One `cake`.
    Cake(Tins),
    /// A `tbf` with an `fq_codel`.
    FqCodel,
}

/// The tins of a `cake`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tins {
    One,
    Three,
}

/// A script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Script {
    name: &'static str,
    pub(super) becomes: Becomes,
    /// A sentence for the operator.
    pub(super) what: &'static str,
}

const SCRIPTS: [Script; 10] = [
    Script {
        name: "piece_of_cake.qos",
        becomes: Becomes::Cake(Tins::One),
        what: "piece_of_cake.qos: one cake with one tin.",
    },
    Script {
        name: "layer_cake.qos",
        becomes: Becomes::Cake(Tins::Three),
        what: "layer_cake.qos: one cake with three tins.",
    },
    Script {
        name: "simple.qos",
        becomes: Becomes::Cake(Tins::Three),
        what: "simple.qos: its three tiers of htb are cake's three tins, with cake's shares.",
    },
    Script {
        name: "hfsc_lite.qos",
        becomes: Becomes::Cake(Tins::Three),
        what: "hfsc_lite.qos: its three tiers of hfsc are cake's three tins, with cake's shares.",
    },
    Script {
        name: "simplest.qos",
        becomes: Becomes::FqCodel,
        what: "simplest.qos: its htb with one class is a tbf with an fq_codel.",
    },
    Script {
        name: "simplest_tbf.qos",
        becomes: Becomes::FqCodel,
        what: "simplest_tbf.qos: a tbf with an fq_codel.",
    },
    Script {
        name: "hfsc_litest.qos",
        becomes: Becomes::FqCodel,
        what: "hfsc_litest.qos: its hfsc with one class is a tbf with an fq_codel.",
    },
    Script {
        name: "nss-rk.qos",
        becomes: Becomes::FqCodel,
        what: "nss-rk.qos: its tbf and fq_codel in the network processor are a tbf and an fq_codel.",
    },
    Script {
        name: "nss-zk.qos",
        becomes: Becomes::FqCodel,
        what: "nss-zk.qos: its tbf and fq_codel in the network processor are a tbf and an fq_codel.",
    },
    // No script: what the web page shows first.
    Script {
        name: "",
        becomes: Becomes::Cake(Tins::One),
        what: "No script is named: one cake with one tin, as piece_of_cake.qos.",
    },
];

/// The script of that name.
pub(super) fn find(name: &str) -> Option<Script> {
    SCRIPTS.into_iter().find(|script| script.name == name)
}
