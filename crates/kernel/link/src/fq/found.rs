//! What a device has at its egress, and whether it holds packets until their departure.

use super::options::Options;
use crate::traffic_control::{Item, ROOT};

/// The handle of Narrows' own qdisc at a device's root: "NW". So each run recognizes what an
/// earlier one left, and the mark goes with the qdisc.
pub(super) const OURS: u32 = 0x4e57_0000;

/// The qdiscs of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// What the kernel gave it, or nothing.
    Default,
    /// An `fq` at its root, or at each queue in use.
    Holds(Whose),
    /// Narrows' `mq`, and the queues that have no `fq`: the kernel's numbers below it.
    Bare(Vec<u32>),
    /// Something else, which somebody installed, in words.
    Other(String),
}

/// Who has installed it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Whose {
    /// Narrows.
    Ours,
    /// Somebody else.
    Theirs,
}

impl Found {
    /// Judges the qdiscs `all` of a device.
    pub(super) fn among(all: &[Item]) -> Self {
        // The kernel gives no handle to what it chooses itself.
        let root = all.iter().find(|item| item.parent == ROOT && item.handle != 0);
        let Some(root) = root else { return Self::Default };
        let whose = if root.handle == OURS { Whose::Ours } else { Whose::Theirs };
        match root.kind.as_str() {
            "fq" => unfit(root).map_or(Self::Holds(whose), Self::Other),
            "mq" => Self::at_queues(root, whose, all),
            _ => Self::Other(root.to_string()),
        }
    }

    fn at_queues(root: &Item, whose: Whose, all: &[Item]) -> Self {
        // The kernel lists the queues in use, and all for which somebody has installed a qdisc.
        let is_below = |item: &&Item| item.parent >> 16 == root.handle >> 16;
        let mut queues: Vec<&Item> = all.iter().filter(is_below).collect();
        queues.sort_by_key(|queue| queue.parent);
        let chosen = queues.iter().filter(|queue| queue.handle != 0);
        if let Some(other) = chosen.copied().find_map(unfit) {
            return Self::Other(format!("{other} below {root}"));
        }
        let bare = queues.iter().filter(|queue| queue.handle == 0);
        match (whose, bare.clone().next()) {
            (_, None) if !queues.is_empty() => Self::Holds(whose),
            (Whose::Ours, _) => Self::Bare(bare.map(|queue| queue.parent).collect()),
            (Whose::Theirs, None) => Self::Other(root.to_string()),
            (Whose::Theirs, Some(first)) => Self::Other(format!("{root} with {}", first.kind)),
        }
    }
}

/// Why a qdisc does not hold all packets until their departure, in words; none if it does.
fn unfit(item: &Item) -> Option<String> {
    if item.kind != "fq" {
        return Some(item.to_string());
    }
    match Options::parse(&item.options) {
        Some(options) if options.suffice() => None,
        Some(options) => Some(format!("{item} {options}")),
        None => Some(item.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attach;
    use proptest::prelude::*;

    /// The options of an `fq` by the kernel's own defaults.
    fn by_default() -> Vec<u8> {
        let mut options = Vec::new();
        for (kind, value) in [(1, 10_000), (2, 100), (10, 1023), (14, 10_000_000_u32)] {
            attach(&mut options, kind, &value.to_ne_bytes());
        }
        options
    }

    fn item(kind: &str, handle: u32, parent: u32, options: Vec<u8>) -> Item {
        let (kind, ifindex) = (kind.to_owned(), 2);
        Item { ifindex, handle, parent, info: 2, kind, options }
    }

    fn fq(handle: u32, parent: u32) -> Item {
        item("fq", handle, parent, Options::request())
    }

    fn plain(kind: &str, handle: u32, parent: u32) -> Item {
        item(kind, handle, parent, Vec::new())
    }

    fn among(all: &[Item]) -> Found {
        // As the kernel lists them.
        let listed = all.iter().map(|item| Item::parse(&item.body()).unwrap());
        Found::among(&listed.collect::<Vec<_>>())
    }

    #[test]
    fn what_the_kernel_chose_is_nobodys() {
        assert_eq!(among(&[]), Found::Default);
        assert_eq!(among(&[plain("noqueue", 0, ROOT)]), Found::Default);
        assert_eq!(among(&[item("fq", 0, ROOT, by_default())]), Found::Default);
        let many = [plain("mq", 0, ROOT), plain("fq_codel", 0, 1), plain("fq_codel", 0, 2)];
        assert_eq!(among(&many), Found::Default);
        // What is at ingress does not matter.
        assert_eq!(among(&[plain("clsact", 0xffff_0000, 0xffff_fff1)]), Found::Default);
    }

    #[test]
    fn an_fq_holds_whoever_installed_it() {
        assert_eq!(among(&[fq(OURS, ROOT)]), Found::Holds(Whose::Ours));
        assert_eq!(among(&[fq(0x8001_0000, ROOT)]), Found::Holds(Whose::Theirs));
        let queues = |root: u32| {
            [plain("mq", root, ROOT), fq(0x8002_0000, root | 1), fq(0x8003_0000, root | 2)]
        };
        assert_eq!(among(&queues(OURS)), Found::Holds(Whose::Ours));
        assert_eq!(among(&queues(0x8001_0000)), Found::Holds(Whose::Theirs));
    }

    #[test]
    fn queues_that_came_later_are_bare_below_ours_only() {
        let queues = |root: u32| {
            let [second, third] = [2, 3].map(|queue| plain("fq_codel", 0, root | queue));
            among(&[plain("mq", root, ROOT), third, fq(0x8002_0000, root | 1), second])
        };
        assert_eq!(queues(OURS), Found::Bare(vec![OURS | 2, OURS | 3]));
        assert_eq!(queues(0x8001_0000), Found::Other("mq 8001: with fq_codel".into()));
        // An fq that the kernel chose has the kernel's limits.
        let chosen = item("fq", 0, OURS | 1, by_default());
        assert_eq!(among(&[plain("mq", OURS, ROOT), chosen]), Found::Bare(vec![OURS | 1]));
    }

    #[test]
    fn what_somebody_installed_is_named() {
        assert_eq!(among(&[plain("htb", 0x1_0000, ROOT)]), Found::Other("htb 1:".into()));
        let small = item("fq", 0x8001_0000, ROOT, by_default());
        let said = "fq 8001: limit 10000 flow_limit 100 orphan_mask 1023 horizon 10000ms";
        assert_eq!(among(&[small]), Found::Other(said.into()));
        let below = [plain("mq", OURS, ROOT), plain("cake", 0x9_0000, OURS | 1)];
        assert_eq!(among(&below), Found::Other("cake 9: below mq 4e57:".into()));
    }

    proptest! {
        #[test]
        fn any_qdiscs_are_judged_without_panic(
            bodies in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..90), 0..9),
            kinds in proptest::collection::vec(0..4_usize, 0..9),
        ) {
            let mut items: Vec<Item> = bodies.iter().filter_map(|body| Item::parse(body)).collect();
            for (item, kind) in items.iter_mut().zip(kinds) {
                item.kind = ["mq", "fq", "htb", ""][kind].to_owned();
                item.parent = [ROOT, OURS | 1, OURS | 2, 1][kind];
            }
            // Nothing but an fq at the root or at a queue holds.
            if let Found::Holds(_) = Found::among(&items) {
                prop_assert!(items.iter().any(|item| item.kind == "fq"));
            }
        }
    }
}
