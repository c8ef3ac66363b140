//! Any bytes as a network configuration for `narrows-cni`.
//!
//! A configuration is refused with a number of CNI, or its limits are commands that `tc` accepts
//! without a warning, for a device whose tree has the class that they name.

#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_cni::{Config, set, unset};
use narrows_tc::{Host, OfflineHost, Options, execute_batch, save};

fuzz_target!(|bytes: &[u8]| {
    let config = match Config::parse(bytes) {
        Ok(config) => config,
        Err(error) => {
            assert!([1, 6, 7].contains(&error.code()), "{error}");
            return;
        }
    };
    let limits = &config.limits;
    let mut host = OfflineHost::default();
    let mut run = |lines: &str| execute_batch(lines, "cni", &Options::default(), &mut host);
    let tree = "qdisc add dev veth0 root handle 1: htb\n\
                class add dev veth0 parent 1: classid 1:1 htb rate 1000tbit\n";
    assert_eq!(run(tree).code, 0);
    let class = limits.ingress.as_ref().and_then(|queue| queue.class.as_ref());
    if class.is_some_and(|class| class.parent.to_string() != "1:1" || class.id.major != 1) {
        return;
    }
    // Other numbers of classes may be refused: the qdisc's own, and that of the parent.
    if class.is_some_and(|class| class.id.minor < 2) {
        return;
    }
    let lines = set("veth0", limits);
    let outcome = run(&lines);
    assert!(outcome.code == 0 && outcome.stderr.is_empty(), "{lines}{}", outcome.stderr);
    let before = save(&host.policy());
    let lines = unset("veth0", limits, &before);
    let outcome = execute_batch(&lines, "cni", &Options::default(), &mut host);
    assert!(outcome.code == 0 && outcome.stderr.is_empty(), "{lines}{}", outcome.stderr);
    assert!(save(&host.policy()) != before || limits.is_empty());
});
