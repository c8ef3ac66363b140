//! Any bytes have an answer, and any accepted configuration is accepted as commands.

use super::answer;
use crate::host_plane::holds;
use crate::{Config, set};
use narrows_tc::{Host, OfflineHost, Options, execute_batch, save};
use proptest::prelude::*;
use serde_json::{Value, json};

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        1 => any::<u64>(),
        4 => (10..49_u32).prop_map(|shift| 1 << shift),
        4 => 1_000..1_000_000_000_000_u64,
        1 => Just(u64::from(u32::MAX)),
    ]
}

fn place() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => Just(json!("1:1")),
        4 => Just(json!("1:a")),
        1 => Just(Value::Null),
        1 => "[0-9a-f:x ]{0,12}".prop_map(Value::from),
    ]
}

prop_compose! {
    /// Where a class is, and what it gets beside others.
    fn class()(
        places in [place(), place()], assured in proptest::option::of(number()), priority in 0..9_u64,
    ) -> Value {
        json!({
            "ingressParent": places[0], "ingressClass": places[1], "ingressAssured": assured,
            "ingressPriority": priority,
        })
    }
}

prop_compose! {
    /// Configurations, most of them sensible.
    fn config()(
        rates in [number(), number()],
        bursts in proptest::option::of([number(), number()]),
        class in proptest::option::of(class()),
        annotation in proptest::option::of("[0-9]{1,4}[kMGTKi]{0,2}"),
    ) -> Value {
        let mut config = class.unwrap_or_else(|| json!({}));
        config["cniVersion"] = json!("1.0.0");
        (config["ingressRate"], config["egressRate"]) = (json!(rates[0]), json!(rates[1]));
        if let Some([ingress, egress]) = bursts {
            (config["ingressBurst"], config["egressBurst"]) = (json!(ingress), json!(egress));
        }
        if let Some(burst) = annotation {
            config["runtimeConfig"] =
                json!({"io.kubernetes.cri.pod-annotations": {"narrows/ingress-burst": burst}});
        }
        config
    }
}

proptest! {
    #[test]
    fn any_bytes_have_an_answer(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        command in "ADD|DEL|CHECK|GC|VERSION|.{0,4}",
    ) {
        let answer = answer(&command, &bytes);
        prop_assert!(answer.status <= 1);
    }

    /// A host that has the tree in which classes are put.
    #[test]
    fn accepted_limits_are_commands_that_tc_accepts_and_that_hold_afterwards(config in config()) {
        let Ok(config) = Config::parse(config.to_string().as_bytes()) else { return Ok(()) };
        let class = config.limits.ingress.as_ref().and_then(|queue| queue.class.as_ref());
        let is_in_the_tree = |class: &crate::Class| {
            class.parent.to_string() == "1:1" && class.id.to_string() == "1:a"
        };
        prop_assume!(class.is_none_or(is_in_the_tree));
        let mut host = OfflineHost::default();
        // As much as any class may have: more would be a warning.
        let tree = "qdisc add dev veth0 root handle 1: htb default a\n\
                    class add dev veth0 parent 1: classid 1:1 htb rate 1000tbit\n";
        let outcome = execute_batch(tree, "tree", &Options::default(), &mut host);
        prop_assert_eq!(outcome.code, 0, "{}", outcome.stderr);
        let lines = set("veth0", &config.limits);
        prop_assert!(config.limits.is_empty() || !holds(&lines, &save(&host.policy())).unwrap());
        let outcome = execute_batch(&lines, "limits", &Options::default(), &mut host);
        prop_assert!(outcome.code == 0 && outcome.stderr.is_empty(), "{}{}", lines, outcome.stderr);
        prop_assert!(holds(&lines, &save(&host.policy())).unwrap(), "{}", lines);
    }
}
