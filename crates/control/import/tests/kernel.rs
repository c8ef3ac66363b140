//! Trees that the real `tc` sets up, imported from what it prints.
//!
//! Whatever tree the kernel has, the imported policy shows the same; and what cannot be carried
//! over (filters of linked hash tables) is named, and matches nothing here. Needs root.

#[path = "../../tc/tests/parity/kernel.rs"]
mod kernel;

use kernel::Kernel;
use narrows_import::Imported;
use narrows_import::tc::Printed;
use narrows_tc::{OfflineHost, execute, load};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};

const DEV: &str = "nrwv0";

/// A class below the one of that index, or below the root class.
#[derive(Clone, Debug)]
struct Class {
    below: usize,
    kbit: u32,
    ceil_more: u32,
    burst: Option<u32>,
    quantum: Option<u32>,
    prio: u32,
    mpu: u32,
    overhead: u32,
    is_atm: bool,
}

#[derive(Clone, Debug)]
struct Filter {
    pref: u32,
    value: u32,
    mask: u32,
    at: u32,
    class: usize,
}

#[derive(Clone, Debug)]
struct Tree {
    classes: Vec<Class>,
    leaves: Vec<(usize, &'static str)>,
    filters: Vec<Filter>,
    /// Filters of a hash table, by bucket.
    hashed: Vec<(u8, usize)>,
}

fn tree() -> impl Strategy<Value = Tree> {
    let class = (
        (0..8_usize, 8..2_000_000_u32, 0..1_000_000_u32, proptest::option::of(2_000..200_000_u32)),
        (proptest::option::of(1_000..60_000_u32), 0..8_u32, 0..200_u32, 0..100_u32, any::<bool>()),
    );
    let class = class.prop_map(|((below, kbit, ceil_more, burst), rest)| {
        let (quantum, prio, mpu, overhead, is_atm) = rest;
        Class { below, kbit, ceil_more, burst, quantum, prio, mpu, overhead, is_atm }
    });
    let leaf = prop_oneof![
        Just("pfifo limit 33"),
        Just("bfifo limit 33333"),
        Just("tbf rate 7777kbit burst 5000 latency 30ms"),
        Just("tbf rate 7777kbit burst 5000 latency 30ms mpu 64 overhead 4 linklayer atm"),
    ];
    let filter = (1..9_u32, any::<u32>(), any::<u32>(), 0..6_u32, 0..8_usize);
    let filter = filter.prop_map(|(pref, value, mask, at, class)| Filter {
        pref,
        value: value & mask,
        mask,
        at: at * 4,
        class,
    });
    (
        vec(class, 1..8),
        vec((0..8_usize, leaf), 0..4),
        vec(filter, 0..6),
        vec((any::<u8>(), 0..8_usize), 0..4),
    )
        .prop_map(|(classes, leaves, filters, hashed)| Tree {
            classes,
            leaves,
            filters,
            hashed,
        })
}

impl Tree {
    /// Classes below which there are others.
    fn inner(&self) -> BTreeSet<usize> {
        (1..self.classes.len()).filter_map(|index| self.above(index)).collect()
    }

    /// The class above: an earlier one, at most two levels below the root class.
    fn above(&self, index: usize) -> Option<usize> {
        let above = self.classes[index].below.checked_rem(index)?;
        let is_even = self.classes[index].below.is_multiple_of(2);
        (is_even && self.above(above).is_none()).then_some(above)
    }

    /// The class of a filter: a leaf, as an inner class needs filters of its own here.
    fn leaf(&self, index: usize) -> String {
        let inner = self.inner();
        let leaves: Vec<usize> =
            (0..self.classes.len()).filter(|class| !inner.contains(class)).collect();
        self.id(leaves[index % leaves.len()])
    }

    /// The qdiscs below classes, by class. A class has one.
    fn qdiscs(&self) -> BTreeMap<usize, &'static str> {
        let inner = self.inner();
        let below = self.leaves.iter().map(|(index, leaf)| (index % self.classes.len(), *leaf));
        below.filter(|(index, _)| !inner.contains(index)).collect()
    }

    fn id(&self, index: usize) -> String {
        format!("1:{:x}", 16 + index % self.classes.len())
    }

    fn batch(&self) -> String {
        let mut text = format!(
            "qdisc replace dev {DEV} root handle 1: htb default 10\n\
             class add dev {DEV} parent 1: classid 1:1 htb rate 4gbit\n"
        );
        for (index, class) in self.classes.iter().enumerate() {
            let above = self.above(index).map_or("1:1".to_owned(), |above| self.id(above));
            text += &format!(
                "class add dev {DEV} parent {above} classid {} htb rate {}kbit ceil {}kbit prio {} \
                 mpu {} overhead {}{}{}{}\n",
                self.id(index),
                class.kbit,
                class.kbit + class.ceil_more,
                class.prio,
                class.mpu,
                class.overhead,
                if class.is_atm { " linklayer atm" } else { "" },
                class.burst.map_or(String::new(), |burst| format!(" burst {burst} cburst {burst}")),
                class.quantum.map_or(String::new(), |quantum| format!(" quantum {quantum}")),
            );
        }
        for (index, leaf) in self.qdiscs() {
            let id = self.id(index);
            text += &format!("qdisc add dev {DEV} parent {id} handle {}: {leaf}\n", 50 + index);
        }
        if !self.hashed.is_empty() {
            text += &format!(
                "filter add dev {DEV} parent 1: prio 20 handle 5: protocol ip u32 divisor 256\n"
            );
            for (bucket, class) in &self.hashed {
                text += &format!(
                    "filter add dev {DEV} parent 1: protocol ip prio 20 u32 ht 5:{bucket:x}: match \
                     u32 0 0 at 0 flowid {}\n",
                    self.leaf(*class)
                );
            }
            text += &format!(
                "filter add dev {DEV} parent 1: protocol ip prio 20 u32 ht 800:: match ip src \
                 10.0.0.0/24 hashkey mask 0x000000ff at 12 link 5:\n"
            );
        }
        for Filter { pref, value, mask, at, class } in &self.filters {
            text += &format!(
                "filter add dev {DEV} parent 1: protocol ip prio {pref} u32 match u32 {value:#x} \
                 {mask:#x} at {at} flowid {}\n",
                self.leaf(*class)
            );
        }
        text
    }
}

/// The import of what the kernel has, asked for as `narrows import tc` does.
fn import(ask: &mut dyn FnMut(&str) -> String) -> Imported {
    let mut printed = Printed::default();
    let mut add = |printed: &mut Printed, line: &str, parent: Option<&str>| {
        let text = ask(line);
        printed
            .add(text.as_bytes(), Some(DEV), parent)
            .unwrap_or_else(|why| panic!("{why}\n{text}"));
    };
    add(&mut printed, &format!("-d -j qdisc show dev {DEV}"), None);
    add(&mut printed, &format!("-d -j class show dev {DEV}"), None);
    for (_, handles) in printed.handles() {
        for handle in handles {
            let line = format!("-j filter show dev {DEV} parent {handle}");
            add(&mut printed, &line, Some(&handle));
        }
    }
    printed.import(&HashMap::new()).unwrap()
}

fn ours(host: &mut OfflineHost, line: &str) -> String {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let outcome = execute(&words, host);
    assert_eq!(outcome.code, 0, "{line}: {}", outcome.stderr);
    outcome.stdout
}

/// The lines of `htb` classes without their sizes, and the sizes. The level is left to the tests
/// of `tc class show`.
fn classes(text: &str) -> (Vec<String>, Vec<u32>) {
    let mut lines: Vec<String> = text
        .lines()
        .filter(|line| line.starts_with("class htb "))
        .map(|line| line.split(" level").next().unwrap().replace("/1mpu", "/1 mpu"))
        .collect();
    lines.sort_by_key(|line| line.split(' ').nth(2).map(str::to_owned));
    let is_size = |word: &&str| word.ends_with("b/1");
    let words = lines.iter().flat_map(|line| line.split_whitespace());
    let sizes = words.filter(is_size).map(|word| {
        narrows_tc::number::size(word.trim_end_matches("/1")).unwrap_or_else(|| panic!("{word}"))
    });
    let sizes = sizes.collect();
    let rest = |line: &String| {
        // The qdiscs are compared for themselves.
        let is_qdisc = |word: &&str| *word == "leaf" || word.ends_with(':');
        let words = line.split_whitespace().filter(|word| !is_size(word) && !is_qdisc(word));
        words.collect::<Vec<_>>().join(" ")
    };
    (lines.iter().map(rest).collect(), sizes)
}

/// A bucket is kept in ticks of 64 ns, at a rate of which text has four digits: it may come back a
/// little different.
fn is_about(a: u32, b: u32) -> bool {
    a.abs_diff(b) <= 64 + a / 200
}

/// What a qdisc is, without counts and what only one of the two prints.
fn qdiscs(json: &str) -> BTreeSet<String> {
    let Ok(Value::Array(qdiscs)) = serde_json::from_str(json) else { panic!("{json}") };
    let text = |mut qdisc: Value| {
        let object = qdisc.as_object_mut()?;
        object.retain(|key, _| ["kind", "handle", "parent", "root", "options"].contains(&&**key));
        if let Some(options) = object.get_mut("options").and_then(Value::as_object_mut) {
            options.retain(|key, _| {
                !["direct_packets_stat", "coordination", "burst", "lat"].contains(&&**key)
            });
        }
        Some(qdisc.to_string())
    };
    qdiscs.into_iter().filter_map(text).collect()
}

/// Preference, matches and class of each `u32` filter with a class.
fn filters(json: &str) -> Vec<String> {
    let lines = json.split("\"protocol\"").filter(|part| part.contains("\"flowid\""));
    let key = |part: &str, key: &str| {
        let (_, rest) =
            part.split_once(&format!("\"{key}\":")).unwrap_or_else(|| panic!("{key} {part}"));
        rest.split([',', '}']).next().unwrap().trim_matches('"').to_owned()
    };
    let mut lines: Vec<String> = lines
        .map(|part| {
            ["pref", "value", "mask", "off", "flowid"].map(|name| key(part, name)).join(" ")
        })
        .collect();
    lines.sort();
    lines
}

#[test]
fn a_tree_of_the_kernel_is_shown_the_same_after_its_import() {
    let kernel = match Kernel::new() {
        Ok(kernel) => kernel,
        Err(why) => return eprintln!("SKIPPED: {why}"),
    };
    let mut runner =
        TestRunner::new(Config { cases: 24, failure_persistence: None, ..Config::default() });
    let result = runner.run(&tree(), |tree| {
        kernel.run(&format!("qdisc del dev {DEV} root"));
        let batch = tree.batch();
        let made = kernel.batch(&batch, false);
        prop_assert_eq!(made.code, 0, "{}\n{}", made.stderr, batch);
        let mut ask = |line: &str| kernel.run(line).stdout;
        let imported = import(&mut ask);
        let policy = load(&imported.policy, "imported", &OfflineHost::default())
            .map_err(|why| TestCaseError::fail(format!("{why}\n{}", imported.policy)))?;
        let mut host = OfflineHost::new(policy);
        let all = format!("{batch}\n{}\n{}", imported.policy, imported.report());

        let line = format!("-d -j qdisc show dev {DEV}");
        let mut theirs = qdiscs(&ask(&line));
        // A class has the rate here, so a tbf below it has none.
        theirs.retain(|qdisc| !qdisc.contains("tbf"));
        prop_assert_eq!(theirs, qdiscs(&ours(&mut host, &line)), "{}", all);
        let line = format!("-d class show dev {DEV}");
        let (theirs, sizes) = classes(&ask(&line));
        let (here, here_sizes) = classes(&ours(&mut host, &line));
        prop_assert_eq!(theirs, here, "{}", all);
        prop_assert_eq!(sizes.len(), here_sizes.len());
        for (theirs, here) in sizes.into_iter().zip(here_sizes) {
            prop_assert!(is_about(theirs, here), "{theirs} {here}\n{all}");
        }
        let mut plain: Vec<String> = (tree.filters.iter())
            .map(|Filter { pref, value, mask, at, class }| {
                format!("{pref} {value:x} {mask:x} {at} {}", tree.leaf(*class))
            })
            .collect();
        plain.sort();
        let line = format!("-j filter show dev {DEV} parent 1:");
        prop_assert_eq!(plain, filters(&ours(&mut host, &line)), "{}", all);
        let hashed = match tree.hashed.len() {
            0 => 0,
            filters => filters + 1,
        };
        let limits = tree.qdiscs().values().filter(|leaf| leaf.starts_with("tbf")).count();
        prop_assert_eq!(imported.faults.len(), hashed + limits, "{}", all);
        Ok(())
    });
    result.unwrap_or_else(|why| panic!("{}: {why}", kernel.version()));
}

/// The rest of what `tc` prints on this machine: hidden settings, and a `tbf` with a peak rate,
/// which its JSON lacks.
#[test]
fn what_tcs_json_lacks_or_a_policy_has_not_is_named() {
    let kernel = match Kernel::new() {
        Ok(kernel) => kernel,
        Err(why) => return eprintln!("SKIPPED: {why}"),
    };
    for (lines, said) in [
        (
            "qdisc replace dev nrwv0 root handle 1: tbf rate 1mbit burst 5k latency 20ms peakrate \
             2mbit mtu 1600",
            "tbf 1: of nrwv0: tc's JSON lacks the peakrate",
        ),
        (
            "qdisc replace dev nrwv0 root handle 1: tbf rate 1mbit burst 5k latency 20ms\n\
             qdisc add dev nrwv0 clsact",
            "clsact of nrwv0 is left out",
        ),
    ] {
        kernel.run("qdisc del dev nrwv0 root");
        kernel.batch(lines, true);
        let imported = import(&mut |line| kernel.run(line).stdout);
        assert!(load(&imported.policy, "imported", &OfflineHost::default()).is_ok());
        let faults = imported.faults.join("\n");
        assert!(faults.contains(said), "{lines}\n{faults}");
        kernel.run("qdisc del dev nrwv0 clsact");
    }
}
