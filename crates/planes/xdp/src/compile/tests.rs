//! Commands of tc, and the resulting plan of the program.

use super::*;
use crate::DIRECT;
use narrows_bpf::tree::layout::Key;
use narrows_bpf::tree::term::{Does, Layer, Next, Number, Term, Test};
use narrows_classify::{ActionId, ActionKind};
use narrows_policy::Handle;
use narrows_tc::OfflineHost;

/// The plan of port `a` under `lines`.
fn plan(lines: &str) -> Plan {
    let lines: String =
        lines.lines().map(|line| line.replace(" dev a ", " dev nrw-a ") + "\n").collect();
    let policy = narrows_tc::load(&lines, "policy", &OfflineHost::default()).unwrap();
    Plan::of(policy.port("nrw-a"), 2).unwrap()
}

fn compiled(lines: &str) -> Compiled {
    compile(&plan(lines), &Numbers::default(), Enforcement::Policing).unwrap()
}

#[track_caller]
fn assert_refused(lines: &str, words: &str) {
    let refusal =
        compile(&plan(lines), &Numbers::default(), Enforcement::Policing).unwrap_err().to_string();
    assert!(refusal.contains(words) && refusal.contains("--plane xsk"), "{refusal}");
}

const HTB: &str = "qdisc add dev a root handle 1: htb default 30\n\
    class add dev a parent 1: classid 1:1 htb rate 40mbit\n\
    class add dev a parent 1:1 classid 1:10 htb rate 10mbit ceil 40mbit prio 2\n\
    class add dev a parent 1:1 classid 1:30 htb rate 4mbit ceil 8mbit prio 3 quantum 3000\n";

#[test]
fn a_tbf_is_a_tree_of_one() {
    let Compiled { image, numbers, .. } =
        compiled("qdisc add dev a root handle 1: tbf rate 8mbit burst 10k latency 20ms\n");
    let class = image.classes[&1];
    assert_eq!((class.rate, class.ceil, class.parent, class.child), (1_000_000, 1_000_000, 0, 0));
    assert_eq!(class.burst, 10_240_000);
    // Latency and burst, as tbf has its limit.
    assert!((20_000_000..31_000_000).contains(&class.limit), "{}", class.limit);
    assert_eq!(image.outermost.otherwise, [1; 16]);
    assert_eq!(numbers.new_since(&Numbers::default()), [1]);
}

#[test]
fn a_virtual_queue_has_its_configured_length_and_the_aqm_s_target_is_near_its_end() {
    let tbf = |words: &str| {
        let line = format!("qdisc add dev a root handle 1: tbf rate 8mbit burst 10k {words}\n");
        compiled(&line).image.classes[&1]
    };
    for (words, limit) in [
        ("limit 1k", 5_000_000),
        ("limit 100k", 102_400_000),
        ("limit 200k", 204_800_000),
        ("limit 1m", 250_000_000),
    ] {
        let class = tbf(words);
        assert_eq!((class.limit, class.target), (limit, limit - limit / 10), "{words}");
    }
    // The default of a thousand packets: a second and a half at 8 Mbit/s.
    let leaf = compiled(HTB).image.classes[&3];
    assert_eq!((leaf.limit, leaf.target), (100_000_000, 90_000_000));
    let codel = format!("{HTB}qdisc add dev a parent 1:30 codel target 7ms interval 50ms\n");
    let leaf = compiled(&codel).image.classes[&3];
    assert_eq!((leaf.target, leaf.interval), (7_000_000, 50_000_000));
}

#[test]
fn a_port_without_a_rate_lets_everything_pass() {
    for lines in ["", "qdisc add dev a root pfifo limit 10\n"] {
        assert_eq!(compiled(lines).image, Image::default());
    }
}

#[test]
fn classes_are_linked_and_have_what_they_need() {
    let Compiled { image, .. } = compiled(HTB);
    let [root, ten, thirty] = [1, 2, 3].map(|number| image.classes[&number]);
    assert_eq!((root.parent, root.child, root.sibling), (0, 2, 0));
    assert_eq!((ten.parent, ten.child, ten.sibling), (1, 0, 3));
    assert_eq!((thirty.parent, thirty.sibling, thirty.quantum), (1, 0, 3000));
    assert_eq!((root.prio, ten.prio, thirty.prio), (2, 2, 3));
    assert_eq!((ten.rate, ten.ceil), (1_250_000, 5_000_000));
    assert_eq!(image.outermost.otherwise, [3; 16]);
}

#[test]
fn a_class_keeps_its_number_while_others_come_and_go() {
    let first = compiled(HTB);
    let lines = HTB.replace("1:10", "1:20");
    let second = compile(&plan(&lines), &first.numbers, Enforcement::Policing).unwrap();
    assert_eq!(second.image.outermost.otherwise, [3; 16]);
    assert_eq!(second.numbers.new_since(&first.numbers), [4]);
    assert_eq!(second.image.classes[&1].child, 4);
}

#[test]
fn filters_become_rules_in_their_order() {
    let filters = "filter add dev a parent 1: protocol ip pref 2 flower dst_ip 10.1.0.0/16 classid 1:10\n\
        filter add dev a parent 1: protocol ip pref 1 flower ip_proto udp dst_port 1000-1003 classid 1:30\n\
        filter add dev a parent 1: protocol all pref 9 matchall classid 1:10\n";
    let Compiled { image, .. } = compiled(&format!("{HTB}{filters}"));
    assert_eq!(image.masks.len(), 3);
    assert!(image.masks.is_sorted_by_key(|mask| mask.first));
    assert_eq!(image.masks[0].bits.destination_port, 0xfffc);
    let [ports, network, all] = &image.rules[..] else { panic!("{:?}", image.rules) };
    assert_eq!((ports.class, ports.key.destination_port, ports.key.ip), (3, 1000, 4));
    assert_eq!((network.class, network.key.destination), (2, 0x0a01_0000));
    assert_eq!((all.class, all.mask), (2, 2));
}

#[test]
fn a_mark_is_asked_for_and_leaves_are_known_by_their_names() {
    let filter = "filter add dev a parent 1: pref 1 handle 0x10/0xf0 fw classid 1:10\n";
    let Compiled { image, .. } = compiled(&format!("{HTB}{filter}"));
    assert_eq!(image.masks[0].bits, Key { mark: 0xf0, ..Key::default() });
    assert_eq!((image.rules[0].key.mark, image.rules[0].class), (0x10, 2));
    // The root is no leaf.
    assert_eq!(image.names, BTreeMap::from([(0x1_0010, 2), (0x1_0030, 3)]));
    assert_eq!((image.outermost.major, image.outermost.unknown), (1, 3));
    let tbf = compiled("qdisc add dev a root handle 1: tbf rate 8mbit burst 10k latency 20ms\n");
    assert_eq!((tbf.image.names, tbf.image.outermost.major), (BTreeMap::new(), 0));
}

#[test]
fn all_filters_at_ingress_run_in_front_or_are_refused() {
    let ingress = |words: &str| {
        let lines = format!(
            "qdisc add dev a clsact\nfilter add dev a ingress pref 5 {words}\n\
             filter add dev a ingress pref 6 matchall action skbedit mark 5\n"
        );
        let lines = lines.replace(" dev a ", " dev nrw-a ");
        let policy = narrows_tc::load(&lines, "policy", &OfflineHost::default()).unwrap();
        let port = policy.port("nrw-a");
        Plan::of(port, 2).unwrap().without_workers(port).map(|plan| {
            compile(&plan, &Numbers::default(), Enforcement::Policing).unwrap();
            plan.front.iter().map(|term| term.is_repeated).collect::<Vec<_>>()
        })
    };
    // Also behind a policer and a filter that passes: no worker repeats what they set.
    let police = "action police rate 1mbit burst 10k conform-exceed drop/pipe";
    for words in ["action pass", "action skbedit priority 1:10", police] {
        let both = format!("flower ip_proto udp {words} action skbedit mark 7");
        assert_eq!(ingress(&format!("protocol ip {both}")), Ok(vec![false; 2]));
    }
    for (words, why) in
        [("action drop random determ pass 5", "random"), ("action reclassify", "once")]
    {
        let refused = ingress(&format!("matchall {words}")).unwrap_err().to_string();
        assert!(refused.contains(why) && refused.contains("--plane xsk"), "{refused}");
    }
    let egress = "qdisc add dev a clsact\nfilter add dev a egress pref 1 matchall action drop\n";
    assert_refused(egress, "at egress");
}

#[test]
fn bands_below_a_rate_are_classes_and_choose_by_priority() {
    let lines = "qdisc add dev a root handle 1: tbf rate 10mbit burst 10k latency 20ms\n\
        qdisc add dev a parent 1:1 handle 2: prio\n";
    let Compiled { image, .. } = compiled(lines);
    assert_eq!(image.classes.len(), 4);
    let of = |priority: usize| image.classes[&image.outermost.otherwise[priority]].prio;
    assert_eq!([of(6), of(0), of(2)], [0, 1, 2]);
}

#[test]
fn qdiscs_that_need_a_queue_are_refused_with_the_plane_that_has_one() {
    let leaf = |kind: &str| format!("{HTB}qdisc add dev a parent 1:10 {kind}\n");
    for kind in ["cake", "fq", "fq_codel", "sfq", "netem delay 5ms"] {
        assert_refused(&leaf(kind), kind.split(' ').next().unwrap());
    }
    assert_refused("qdisc add dev a root cake bandwidth 1mbit\n", "cake");
    assert_refused("qdisc add dev a root handle 1: mq\n", "mq");
    let hfsc = "qdisc add dev a root handle 1: hfsc default 1\n\
                class add dev a parent 1: classid 1:1 hfsc rt rate 1mbit\n";
    assert_refused(hfsc, "hfsc");
    let below_a_rate = "qdisc add dev a root handle 9: tbf rate 8mbit burst 10k latency 20ms\n"
        .to_owned()
        + &hfsc.replace("root", "parent 9:");
    assert_refused(&below_a_rate, "hfsc");
    assert_refused(&HTB.replace("default 30", "default 30 coordination lock"), "coordination");
    let tbf = "qdisc add dev a root tbf rate 8mbit burst 10k latency 20ms";
    assert_refused(&format!("{tbf} peakrate 9mbit mtu 2000\n"), "peakrate");
    assert_refused(&format!("{tbf} coordination lock\n"), "coordination");
}

#[test]
fn by_flowvalve_s_rules_a_class_has_a_label() {
    let lines = "qdisc add dev a root handle 1: htb coordination flowvalve\n\
        class add dev a parent 1: classid 1:1 htb rate 80mbit\n\
        class add dev a parent 1:1 classid 1:2 htb rate 8mbit ceil 40mbit weight 3 prio 1\n\
        class add dev a parent 1:1 classid 1:3 htb rate 8mbit ceil 80mbit prio 2\n\
        class add dev a parent 1:1 classid 1:4 htb rate 8mbit ceil 80mbit borrow none\n\
        class add dev a parent 1:2 classid 1:20 htb rate 1mbit ceil 80mbit burst 9000\n\
        class add dev a parent 1:2 classid 1:21 htb rate 1mbit ceil 80mbit borrow 1:3,1:99,1:20\n";
    let Image { classes, labels, .. } = compiled(lines).image;
    let label = |number: u32| &labels[&number];
    // In the order of their numbers: 1:1, 1:2, 1:3, 1:4, 1:20, 1:21.
    assert_eq!(labels.len(), 6);
    let limited = classes.values().filter(|class| class.rate != 0);
    assert!(limited.clone().all(|class| class.rules == layout::Rules::FlowValve));
    assert_eq!(limited.count(), 6);
    assert_eq!((label(5).path.as_slice(), label(2).path.as_slice()), (&[1, 2, 5][..], &[1, 2][..]));
    // Those beside it, then those beside what is above it that are not before that.
    assert_eq!((label(5).lenders.as_slice(), label(4).lenders.as_slice()), (&[6, 3][..], &[][..]));
    // One that is not there lends nothing.
    assert_eq!(label(6).lenders, [3, 5]);
    assert_eq!((label(2).weight, label(3).weight), (3, 1));
    // The ceiling of the class above is its own.
    assert_eq!((classes[&5].ceil, classes[&3].ceil), (5_000_000, 10_000_000));
    assert_eq!((label(5).is_limited, label(3).is_limited), (true, false));
    assert_eq!((label(1).promised, label(2).promised, label(5).promised), (3_000_000, 250_000, 0));
    assert_eq!((label(5).burst, label(3).burst), (9_000, 3_028));
    assert_eq!((classes[&2].prio, classes[&5].prio), (1, 0));
}

#[test]
fn the_examples_of_flowvalve_are_plans() {
    for example in [
        include_str!("../../../../../examples/flowvalve/motivation.tc"),
        include_str!("../../../../../examples/flowvalve/fair-queueing.tc"),
        include_str!("../../../../../examples/flowvalve/weighted.tc"),
    ] {
        let image = compiled(&example.replace("dev eth1", "dev a")).image;
        assert_eq!(image.labels.len(), image.classes.values().filter(|it| it.rate != 0).count());
    }
}

#[test]
fn what_flowvalve_s_rules_do_not_know_is_refused() {
    let valve = HTB.replace("default 30", "default 30 coordination flowvalve");
    for (below, words) in [
        ("codel", "codel below coordination flowvalve"),
        ("handle 2: prio", "give rates and classes to the htb"),
        ("fq_codel", "fq_codel"),
    ] {
        assert_refused(&format!("{valve}qdisc add dev a parent 1:10 {below}\n"), words);
    }
    let within = "qdisc add dev a root handle 9: tbf rate 8mbit burst 10k latency 20ms\n"
        .to_owned()
        + &valve.replace("root", "parent 9:");
    assert_refused(&within, "give it to the root");
    let mut deep = "qdisc add dev a root handle 1: htb coordination flowvalve\n\
                    class add dev a parent 1: classid 1:1 htb rate 1mbit\n"
        .to_owned();
    for level in 1..9 {
        deep += &format!(
            "class add dev a parent 1:{level:x} classid 1:{:x} htb rate 1mbit\n",
            level + 1
        );
    }
    assert_refused(&deep, "room for 8 levels of classes under coordination flowvalve");
    let mut wide = "qdisc add dev a root handle 1: htb coordination flowvalve\n\
                    class add dev a parent 1: classid 1:1 htb rate 1mbit\n"
        .to_owned();
    for leaf in 0x10..0x32 {
        wide += &format!("class add dev a parent 1:1 classid 1:{leaf:x} htb rate 8kbit\n");
    }
    assert_refused(&wide, "room for 32 lenders of a class");
    let at_host = compile(&plan(&valve), &Numbers::default(), Enforcement::Shaping).unwrap_err();
    assert!(at_host.to_string().contains("htb with coordination flowvalve"), "{at_host}");
}

/// The plan of [`HTB`] with `filters` at its root, each a line without the beginning.
fn filtered(filters: &[&str]) -> String {
    let line = |filter: &&str| format!("filter add dev a parent 1: {filter}\n");
    filters.iter().map(line).fold(HTB.to_owned(), |lines, line| lines + &line)
}

#[test]
fn filters_that_no_key_can_say_become_terms_in_the_order_of_all() {
    let lines = filtered(&[
        "protocol ip pref 5 u32 match ip dport 53 0xffff match u8 0x40 0xf0 at 0 classid 1:10",
        "protocol ip pref 1 flower ip_ttl 1 classid 1:30",
        "protocol ip pref 2 flower ip_proto udp classid 1:10",
        "protocol 802.1Q pref 3 matchall classid 1:10",
        "pref 4 basic match 'meta(pkt_len gt 100)' classid 1:30",
        "pref 6 handle 7 fw action drop",
    ]);
    let Image { masks, rules, terms, .. } = compiled(&lines).image;
    assert_eq!((masks.len(), rules.len(), terms.len()), (1, 1, 5));
    assert!(terms.is_sorted_by_key(|term| term.order));
    let prefs = terms.iter().map(|term| term.order >> 32);
    assert_eq!(prefs.collect::<Vec<_>>(), [1, 3, 4, 5, 6]);
    assert_eq!(terms.iter().map(|term| term.tests.len()).collect::<Vec<_>>(), [2, 1, 1, 3, 1]);
    let assigned = [Does::Assigns(3), Does::Assigns(2), Does::Assigns(3), Does::Assigns(2)];
    assert_eq!(terms.iter().map(|term| term.does).take(4).collect::<Vec<_>>(), assigned);
    assert_eq!(terms[4].does, Does::Drops);
}

#[test]
fn an_expression_has_a_test_for_each_comparison_and_each_leads_on() {
    let line = "pref 1 basic match 'not (cmp(u8 at 0 layer 0 eq 1) or meta(fwmark eq 2)) and \
                nbyte(abc at 3 layer 2)' classid 1:10";
    let Image { terms, .. } = compiled(&filtered(&[line])).image;
    let [Term { first, tests, .. }] = &terms[..] else { panic!("{terms:?}") };
    let at = |next: Next| match next {
        Next::Test(index) => tests[usize::from(index)],
        end => panic!("{end:?}"),
    };
    let byte = at(*first);
    assert_eq!((byte.comparison.value, byte.then), (1, Next::Fails));
    let mark = at(byte.otherwise);
    assert_eq!((mark.comparison.number, mark.then), (Number::Mark, Next::Fails));
    // Three bytes are two and one.
    let [two, one] = [at(mark.otherwise), at(at(mark.otherwise).then)];
    assert_eq!((two.comparison.value, two.otherwise), (0x6162, Next::Fails));
    assert_eq!((one.comparison.value, one.then, one.otherwise), (0x63, Next::Matches, Next::Fails));
    let place = |test: Test| match test.comparison.number {
        Number::At { layer: Layer::Transport, offset, size, .. } => (offset, size),
        other => panic!("{other:?}"),
    };
    assert_eq!([place(two), place(one)], [(3, 2), (5, 1)]);
}

#[test]
fn the_actions_that_a_packet_meets_count_it() {
    let lines = filtered(&[
        "pref 1 matchall action continue index 5",
        "pref 2 matchall classid 1:10 action pipe index 6 action pass index 7 action drop index 8",
        "pref 3 matchall action ok",
        "pref 4 matchall classid 1:30 action drop index 8",
    ]);
    let Compiled { image, numbers, .. } = compiled(&lines);
    let gact = |index| numbers.action(ActionId { kind: ActionKind::Gact, index }).unwrap();
    let all: Vec<_> = image.terms.iter().map(|term| (term.does, &term.actions[..])).collect();
    let [passing, ending] = [[gact(6), gact(7)], [gact(9), 0]];
    let expected: [(Does, &[u32]); 4] = [
        (Does::Continues, &[gact(5)]),
        (Does::Assigns(2), &passing),
        (Does::Defaults, &ending[..1]),
        (Does::Drops, &[gact(8)]),
    ];
    assert_eq!(all, expected);
}

#[test]
fn filters_that_are_for_ingress_or_for_workers_are_refused_with_what_does_it() {
    let police = "pref 1 matchall action police rate 1mbit burst 10k conform-exceed drop/pipe";
    for (filter, words) in [
        (police, "police and skbedit at a qdisc: give them to a filter at ingress"),
        ("pref 1 matchall action skbedit mark 5", "give them to a filter at ingress"),
        ("pref 1 matchall action drop random determ pass 5", "random drops"),
        ("pref 1 matchall action reclassify", "write drop, pass, continue or pipe"),
    ] {
        assert_refused(&filtered(&[filter]), words);
    }
    let many = |count: usize, filter: &dyn Fn(usize) -> String| {
        let lines: Vec<String> = (0..count).map(filter).collect();
        filtered(&lines.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let of_ttl = |ttl: usize| format!("protocol ip pref 1 flower ip_ttl {ttl} classid 1:10");
    assert_eq!(compiled(&many(64, &of_ttl)).image.terms.len(), 64);
    assert_refused(&many(65, &of_ttl), "room for 64 filters that have actions, or ask for more");
    let bytes = |count: usize| {
        let line = format!("pref 1 basic match 'nbyte({} at 0)' classid 1:10", "a".repeat(count));
        filtered(&[&line])
    };
    assert_eq!(compiled(&bytes(128)).image.terms[0].tests.len(), 32);
    assert_refused(&bytes(129), "32 comparisons of a filter, and this needs 33");
    let pipes = "pref 1 matchall classid 1:10 action pipe action pipe action pipe action pipe";
    assert_refused(&filtered(&[pipes]), "3 actions of a filter, and this needs 4");
}

/// What the class `id` of the qdisc with this major number became.
#[track_caller]
fn class(of: &Compiled, major: u32, id: u32) -> layout::Class {
    let handle = Handle::new(major).unwrap();
    of.image.classes[&of.numbers.get((handle, id)).unwrap()]
}

#[track_caller]
fn number(of: &Compiled, major: u32, id: u32) -> u32 {
    of.numbers.get((Handle::new(major).unwrap(), id)).unwrap()
}

#[test]
fn bands_in_a_class_are_below_it_in_their_order_and_lend_its_assured_rate() {
    let of = compiled(&format!(
        "{HTB}qdisc add dev a parent 1:10 handle 2: ets bands 4 strict 2 quanta 3000 6000\n\
         qdisc add dev a parent 2:1 codel target 7ms interval 50ms\n"
    ));
    let ten = number(&of, 1, 0x10);
    assert_eq!(class(&of, 1, 0x10).child, number(&of, 2, 1));
    let bands = [1, 2, 3, 4].map(|id| class(&of, 2, id));
    assert_eq!(bands.map(|band| band.prio), [0, 1, 2, 2]);
    assert_eq!([bands[2].quantum, bands[3].quantum], [3000, 6000]);
    for band in bands {
        assert_eq!((band.parent, u32::from(band.lender)), (ten, ten));
        // Next to nothing of its own, and all that the class may have.
        assert_eq!((band.rate, band.ceil), (1, 5_000_000));
    }
    assert_eq!((bands[0].target, bands[0].interval), (7_000_000, 50_000_000));
    // The order among bands is none of the classes' round theirs.
    assert_eq!([class(&of, 1, 0x10).prio, class(&of, 1, 1).prio], [2, 2]);
}

#[test]
fn without_a_rate_above_bands_count_and_what_is_in_them_keeps_its_own_rate() {
    let of = compiled(
        "qdisc add dev a root handle 1: prio bands 3\n\
         qdisc add dev a parent 1:1 handle 2: tbf rate 8mbit burst 10k latency 20ms\n\
         qdisc add dev a parent 1:2 handle 3: htb\n\
         class add dev a parent 3: classid 3:1 htb rate 16mbit\n",
    );
    assert_eq!(of.image.classes.len(), 4);
    assert_eq!((class(&of, 2, 0).rate, class(&of, 2, 0).parent), (1_000_000, 0));
    assert_eq!((class(&of, 3, 1).rate, class(&of, 3, 1).parent), (2_000_000, 0));
    // Neither limits anything.
    assert_eq!([class(&of, 1, 3).rate, class(&of, 3, DIRECT).rate], [0, 0]);
    // The priomap: band 1 for interactive, 3 for bulk, else 2, whose htb has no default.
    let Image { outermost, inner, .. } = &of.image;
    let [six, two, none] = [6, 2, 0].map(|priority: usize| outermost.otherwise[priority]);
    assert_eq!([six, two, none], [number(&of, 2, 0), number(&of, 1, 3), SCOPE | 1]);
    assert_eq!(inner[0].otherwise, [number(&of, 3, DIRECT); 16]);
    assert!(!inner.is_empty() && inner[0].major == 3);
}

#[test]
fn a_rate_in_a_band_is_below_the_rate_above_it_and_never_above() {
    let of = compiled(
        "qdisc add dev a root handle 1: tbf rate 80mbit burst 100k latency 20ms overhead 24\n\
         qdisc add dev a parent 1:1 handle 2: drr\n\
         class add dev a parent 2: classid 2:1 drr quantum 2000\n\
         class add dev a parent 2: classid 2:2 drr quantum 4000\n\
         qdisc add dev a parent 2:1 handle 3: tbf rate 8mbit burst 10k latency 20ms\n\
         qdisc add dev a parent 2:2 handle 4: htb default 1\n\
         class add dev a parent 4: classid 4:1 htb rate 800mbit\n",
    );
    let [tbf, htb] = [class(&of, 3, 0), class(&of, 4, 1)];
    assert_eq!((tbf.parent, tbf.ceil, tbf.per_frame), (number(&of, 2, 1), 1_000_000, 24));
    assert_eq!((htb.parent, htb.rate, htb.ceil), (number(&of, 2, 2), 10_000_000, 10_000_000));
    assert_eq!([class(&of, 2, 1), class(&of, 2, 2)].map(|band| band.quantum), [2000, 4000]);
    // A drr has no default.
    assert_eq!(of.image.outermost.otherwise, [NOWHERE; 16]);
}

#[test]
fn what_an_htb_sends_without_a_class_is_below_the_rate_above_it() {
    let of = compiled(
        "qdisc add dev a root handle 1: tbf rate 80mbit burst 100k latency 20ms\n\
         qdisc add dev a parent 1:1 handle 2: htb\n\
         class add dev a parent 2: classid 2:1 htb rate 80mbit\n",
    );
    let direct = class(&of, 2, DIRECT);
    assert_eq!(
        (direct.parent, direct.rate, direct.ceil),
        (number(&of, 1, 0), 10_000_000, 10_000_000)
    );
    assert_eq!(of.image.outermost.otherwise, [number(&of, 2, DIRECT); 16]);
}

#[test]
fn filters_at_a_class_and_in_a_class_are_scopes_of_their_own() {
    let of = compiled(
        "qdisc add dev a root handle 1: htb default 30\n\
         class add dev a parent 1: classid 1:1 htb rate 40mbit\n\
         class add dev a parent 1:1 classid 1:2 htb rate 20mbit\n\
         class add dev a parent 1:2 classid 1:10 htb rate 10mbit\n\
         class add dev a parent 1:1 classid 1:30 htb rate 4mbit\n\
         qdisc add dev a parent 1:10 handle 2: prio bands 2 priomap 1 1 1 1 1 1 0 1 1 1 1 1 1 1 1 1\n\
         filter add dev a parent 1:2 protocol ip pref 1 flower ip_proto udp classid 1:10\n\
         filter add dev a parent 1: protocol ip pref 7 flower dst_ip 10.1.0.0/16 classid 1:2\n\
         filter add dev a parent 2: protocol ip pref 1 flower ip_proto tcp classid 2:1\n",
    );
    let Image { masks, rules, inner, .. } = &of.image;
    // Both by protocol: one mask for two scopes.
    assert_eq!((masks.len(), rules.len(), inner.len()), (2, 3, 2));
    let by_scope = |scope: u16| rules.iter().find(|rule| rule.scope == scope).unwrap().class;
    // The qdisc in the class, then the class above.
    assert_eq!([by_scope(0), by_scope(2), by_scope(1)], [SCOPE | 2, SCOPE | 1, number(&of, 2, 1)]);
    // What no filter of a class matches has the default of its qdisc.
    assert_eq!(inner[1].otherwise, [number(&of, 1, 0x30); 16]);
    assert_eq!(
        (inner[0].otherwise[0], inner[0].otherwise[6]),
        (number(&of, 2, 2), number(&of, 2, 1))
    );
    let name = |name: u32| of.image.names[&name];
    assert_eq!(
        [name(0x1_0002), name(0x1_0010), name(0x2_0001)],
        [SCOPE | 2, SCOPE | 1, number(&of, 2, 1)]
    );
    assert_eq!(of.image.names.get(&0x1_0001), None, "neither a leaf nor with filters");
}

#[test]
fn an_inner_class_without_filters_sends_its_packets_to_the_default_class_and_what_is_in_it() {
    let of = compiled(
        "qdisc add dev a root handle 1: htb default 30\n\
         class add dev a parent 1: classid 1:1 htb rate 40mbit\n\
         class add dev a parent 1: classid 1:30 htb rate 4mbit\n\
         qdisc add dev a parent 1:30 handle 3: prio bands 2 priomap 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n\
         filter add dev a parent 3: protocol ip pref 1 flower ip_proto tcp classid 3:1\n\
         filter add dev a parent 1: protocol ip pref 1 flower dst_ip 10.1.0.0/16 classid 1:1\n\
         class add dev a parent 1:1 classid 1:10 htb rate 10mbit\n",
    );
    let Image { rules, outermost, names, .. } = &of.image;
    let of_the_default = outermost.otherwise[0];
    assert_eq!(of_the_default, SCOPE | 1, "filters of the prio are asked");
    let rule = rules.iter().find(|rule| rule.scope == 0).unwrap();
    assert_eq!([rule.class, names[&0x1_0001]], [of_the_default; 2]);
}

#[test]
fn the_deepest_tree_that_a_port_may_have_fits() {
    let tbf = |handle: u32, above: u32| {
        let place = if above == 0 { "root".to_owned() } else { format!("parent {above:x}:1") };
        format!("qdisc add dev a {place} handle {handle:x}: tbf rate 9mbit burst 9k latency 9ms\n")
    };
    let class = |id: u32| {
        let above = if id == 1 { String::new() } else { format!("{:x}", id - 1) };
        format!("class add dev a parent 8:{above} classid 8:{id:x} htb rate 1mbit\n")
    };
    let tbfs: String = (1..=5).map(|number| tbf(number, number - 1)).collect();
    let classes: String = (1..=16).map(class).collect();
    let of = compiled(&format!(
        "{tbfs}qdisc add dev a parent 5:1 handle 6: prio\n\
         qdisc add dev a parent 6:1 handle 7: prio\n\
         qdisc add dev a parent 7:1 handle 8: htb default 10\n{classes}"
    ));
    let up = |number: &u32| Some(of.image.classes[number].parent).filter(|above| *above != 0);
    let leaf = number(&of, 8, 0x10);
    // The rate above the bands is their tree's, whose root has a class of its own.
    assert_eq!(std::iter::successors(Some(leaf), up).count(), 23);
    const { assert!(LEVELS_MAX >= 23) }
}

#[test]
fn a_stab_is_the_overhead_of_all_below_it() {
    let stabbed = HTB.replace("handle 1: htb", "handle 1: stab overhead 10 mpu 64 htb");
    let Compiled { image, numbers, .. } = compiled(&stabbed);
    assert_eq!(numbers, compiled(HTB).numbers);
    assert!(image.classes.values().all(|class| (class.per_frame, class.minimum) == (10, 64)));
    let own = stabbed.replace("rate 4mbit", "rate 4mbit overhead 4");
    assert_eq!(compiled(&own).image.classes[&3].per_frame, 14);
    let atm =
        "qdisc add dev a root handle 1: stab linklayer atm tbf rate 8mbit burst 10k latency 20ms";
    let class = compiled(&format!("{atm}\n")).image.classes[&1];
    assert_eq!(class.framing, layout::Framing::Atm);
    assert_refused(&format!("{atm} overhead 4\n"), "say them in one place");
    // What only queues is not there, with a size table or without.
    let pfifo = "qdisc add dev a root stab overhead 4 pfifo\n";
    assert_eq!(compiled(pfifo).image, compiled("qdisc add dev a root pfifo\n").image);
    assert_refused("qdisc add dev a root red limit 100k avpkt 1000\n", "red");
    assert_refused(
        "qdisc add dev a root handle 1: netem delay 1ms\nqdisc add dev a parent 1:1 pfifo\n",
        "netem",
    );
}

/// The classes of a tree whose packets wait.
fn shaped(lines: &str) -> BTreeMap<u32, layout::Class> {
    compile(&plan(lines), &Numbers::default(), Enforcement::Shaping).unwrap().image.classes
}

#[test]
fn what_waits_has_room_for_super_packets_and_a_codel_of_its_own() {
    let tbf =
        |words: &str| shaped(&format!("qdisc add dev a root handle 1: tbf {words} limit 1g\n"))[&1];
    // Four packets of 64 KiB, and no less than 100 ms; a second at most.
    let limit = |words: &str, stated: &str| {
        let lines = format!(
            "qdisc add dev a root handle 1: htb default 1\n\
            class add dev a parent 1: classid 1:1 htb rate {words}\n{stated}"
        );
        shaped(&lines)[&1].limit
    };
    assert_eq!(limit("1gbit", ""), 100_000_000);
    assert_eq!(limit("10mbit", ""), 209_715_200);
    assert_eq!(limit("1mbit", ""), 1_000_000_000);
    // A `tbf` says how long.
    assert_eq!(tbf("rate 8mbit burst 10k").limit, 1_000_000_000);
    let stated =
        shaped("qdisc add dev a root handle 1: tbf rate 80mbit burst 10k latency 50ms\n")[&1];
    assert!((50_000_000..52_000_000).contains(&stated.limit), "{}", stated.limit);
    // RFC 8289, but two frames are no queue; and timers are no more exact than a burst of 1 ms.
    assert_eq!((stated.target, stated.interval, stated.burst), (5_000_000, 100_000_000, 1_024_000));
    assert_eq!(tbf("rate 1mbit burst 10k").target, 24_224_000);
    assert_eq!(tbf("rate 1gbit burst 10k").burst, 1_000_000);
}

#[test]
fn an_inner_class_whose_leaves_wait_has_room_for_all_that_they_may_book() {
    let classes = shaped(HTB);
    let [root, ten, thirty] = [1, 2, 3].map(|number| classes[&number]);
    assert_eq!(root.limit, ten.limit.max(thirty.limit));
    assert_eq!(root.target, u64::MAX);
}

#[test]
fn a_host_s_classes_are_fair_to_their_flows_and_other_planes_need_a_queue_for_that() {
    for (leaf, aqm) in [
        ("fq_codel target 7ms interval 50ms", (7_000_000, 50_000_000)),
        ("fq", (5_000_000, 100_000_000)),
    ] {
        let lines = format!("{HTB}qdisc add dev a parent 1:30 {leaf}\n");
        let class = shaped(&lines)[&3];
        assert_eq!((class.target, class.interval), aqm);
        assert_refused(&lines, leaf.split(' ').next().unwrap());
    }
}

#[test]
fn a_host_s_class_shares_among_hosts_if_its_fq_codel_says_so() {
    for (words, hosts) in [
        ("", layout::Hosts::FlowsAlone),
        (" hosts src", layout::Hosts::Sources),
        (" hosts dst", layout::Hosts::Destinations),
        (" hosts src nat", layout::Hosts::SourcesInside),
        (" hosts dst nat", layout::Hosts::DestinationsInside),
        (" hosts none", layout::Hosts::FlowsAlone),
    ] {
        let lines = format!("{HTB}qdisc add dev a parent 1:30 fq_codel{words}\n");
        let classes = shaped(&lines);
        assert_eq!(classes[&3].hosts, hosts, "{words}");
        assert_eq!(classes[&2].hosts, layout::Hosts::FlowsAlone, "{words}");
    }
}

#[test]
fn what_a_host_cannot_run_is_refused_with_what_can() {
    let refused = |lines: &str| {
        let refusal = compile(&plan(lines), &Numbers::default(), Enforcement::Shaping);
        refusal.unwrap_err().to_string()
    };
    for (lines, what) in [
        ("qdisc add dev a root cake bandwidth 10mbit\n", "cake"),
        ("qdisc add dev a root handle 1: mq\n", "mq"),
    ] {
        let refusal = refused(lines);
        assert!(refusal.contains(&format!("cannot run {what}: use htb")), "{refusal}");
        assert!(refusal.contains("fq_codel") && refusal.contains("--plane xsk"), "{refusal}");
    }
}
