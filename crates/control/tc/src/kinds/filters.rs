//! The kinds of filters: parses, prints and saves their conditions.

mod address;
mod basic;
mod flower;
mod selector;

use crate::action;
use crate::complaint::Complaint;
use crate::options::Options;
use crate::render::{Json, Line};
use crate::words::{Words, abbreviates};
use crate::{number, protocols};
use address::IPV4;
use narrows_classify::{
    ANY_PROTOCOL, ActionId, ActionStats, Expression, Filter, Flower, Mark, Matches, Route,
    Selector, route,
};
use narrows_policy::{ActionDraft, ClassId, Parent, Policy};
use std::fmt::Write;

const USAGE: &str = "Usage: ... matchall [ classid ID ] [ ACTION ]
       ... fw handle MARK[/MASK] [ classid ID ] [ ACTION ]
       ... route [ from REALM ] [ to REALM ] [ metric NUMBER ] [ classid ID ] [ ACTION ]
       ... flower [ vlan_id ID ] [ vlan_prio N ] [ vlan_ethtype PROTO ]
                  [ cvlan_id ID ] [ cvlan_prio N ] [ cvlan_ethtype PROTO ] [ dst_mac M[/M] ] [ src_mac M[/M] ]
                  [ ip_proto tcp|udp|icmp|icmpv6|sctp|NUMBER ] [ ip_tos V[/M] ] [ ip_ttl V[/M] ]
                  [ src_ip PREFIX ] [ dst_ip PREFIX ] [ src_port N[-N] ] [ dst_port N[-N] ]
                  [ tcp_flags V[/M] ] [ type V[/M] ] [ code V[/M] ] [ ip_flags [no]frag|[no]firstfrag ]
                  [ classid ID ] [ ACTION ]
       ... u32 { match { ip { src|dst PREFIX | protocol|tos N M | sport|dport N M | nofrag|df|mf }
                       | ip6 { src|dst PREFIX | protocol N M | sport|dport N M } | { tcp|udp } { src|dst } N M
                       | icmp { type|code } N M | ether { src|dst } MAC
                       | { u32|u16|u8 } V M at [nexthdr+]OFFSET } }... [ classid ID ] [ ACTION ]
       ... basic [ match EXPRESSION ] [ classid ID ] [ ACTION ]
ACTION is action { drop | pass | continue | reclassify | police ... | skbedit ... | pace ... }";

/// The number of a filter of `kind`.
pub(crate) fn handle(kind: &str, word: &str) -> Result<u32, Complaint> {
    let wrong = |what: &str| Complaint::wrong(format!("Illegal {what}."));
    match kind {
        "u32" => {
            node(word).ok_or_else(|| wrong("filter ID: a table, a bucket and a number, as 800::1"))
        }
        "fw" => mark(word)
            .map(|mark| mark.value)
            .ok_or_else(|| wrong("\"handle\": MARK or MARK/MASK, 32 bits each")),
        "route" => number::mask(word)
            .and_then(route::number)
            .ok_or_else(|| wrong("\"handle\": as it is listed behind fh")),
        _ => number::mask(word).ok_or_else(|| wrong("\"handle\": a number of 32 bits")),
    }
}

/// `u32`'s table, bucket and number: `800:0:1`, each up to `fff`, `ff` and `fff`, or all in one
/// hexadecimal number. Parts that are left out are 0. A table here has only the bucket 0, which any
/// other stands for, as for a table with one bucket in the kernel.
fn node(word: &str) -> Option<u32> {
    let hex = |word: &str, most: u32| match word {
        "" => Some(0),
        word if word.starts_with('+') => None,
        word => u32::from_str_radix(word, 16).ok().filter(|number| *number <= most),
    };
    let mut parts = word.splitn(3, ':');
    let (table, bucket, node) = (parts.next()?, parts.next(), parts.next());
    let Some(bucket) = bucket else {
        return hex(word.strip_prefix("0x").filter(|digits| !digits.is_empty())?, u32::MAX);
    };
    hex(bucket, 0xff)?;
    // As in tc, what follows another colon has no meaning.
    let node = node.map_or("", |node| node.split_once(':').map_or(node, |(node, _)| node));
    Some(hex(table, 0xfff)? << 20 | hex(node, 0xfff)?)
}

fn mark(word: &str) -> Option<Mark> {
    let (value, mask) = match word.split_once('/') {
        Some((value, mask)) => (number::mask(value)?, number::mask(mask)?),
        None => (number::mask(word)?, u32::MAX),
    };
    Some(Mark { value, mask })
}

/// The words after the name of a kind.
pub(crate) struct Parsed {
    pub(crate) matches: Matches,
    pub(crate) class: Option<ClassId>,
    pub(crate) actions: Vec<ActionDraft>,
    /// The number of a `u32` within its table, given with `order`.
    pub(crate) order: Option<u32>,
    /// The table of a `u32`, given with `ht`.
    pub(crate) table: Option<u32>,
    /// Whether `skip_hw` was given.
    pub(crate) skips_hardware: bool,
}

/// Parses them. `handle` is the word that was given for the filter's number.
pub(crate) fn parse(
    kind: &str,
    protocol: Option<u16>,
    handle: Option<&str>,
    words: Words,
) -> Result<Parsed, Complaint> {
    let mut draft = Draft { protocol: protocol.unwrap_or(ANY_PROTOCOL), ..Draft::default() };
    match kind {
        "matchall" => draft.read(words, &MATCHALL, |_, word, _| Err(unknown(word)))?,
        "fw" => draft.read(words, &FW, |_, word, _| Err(unknown(word)))?,
        "flower" => draft.read(words, &FLOWER, Draft::flower)?,
        "u32" => draft.read(words, &U32, Draft::selector)?,
        "basic" => draft.read(words, &BASIC, Draft::expression)?,
        "route" => draft.read(words, &ROUTE, Draft::route)?,
        _ => {
            return Err(Complaint::wrong(format!(
                "Unknown filter \"{kind}\", hence option is unparsable: {}the kinds are flower, u32, matchall, fw, route and basic.",
                instead_of_kind(kind)
            )));
        }
    }
    let matches = match kind {
        "matchall" => Matches::All,
        "flower" => Matches::Flower(draft.flower),
        "basic" => Matches::Basic(draft.expression),
        "route" => Matches::Route(draft.route),
        "fw" => {
            let illegal =
                || Complaint::wrong("Illegal \"handle\": MARK or MARK/MASK, 32 bits each.");
            let mark = handle.map(|word| mark(word).ok_or_else(illegal)).transpose()?;
            Matches::Mark(mark.filter(|mark| mark.value != 0).ok_or_else(|| {
                Complaint::refused("Error: an fw wants a mark before its kind: handle MARK[/MASK].")
            })?)
        }
        _ => Matches::Words(draft.words.ok_or_else(|| {
            Complaint::refused(
                "Error: cls_u32: Selector not specified: give match, as match ip dst 10.0.0.0/8.",
            )
        })?),
    };
    let Draft { class, actions, order, table, skips_hardware, .. } = draft;
    Ok(Parsed { matches, class, actions, order, table, skips_hardware })
}

#[derive(Default)]
struct Draft {
    protocol: u16,
    class: Option<ClassId>,
    actions: Vec<ActionDraft>,
    flower: Flower,
    order: Option<u32>,
    table: Option<u32>,
    skips_hardware: bool,
    /// The selectors of `u32`; none if nothing was to match.
    words: Option<Vec<Selector>>,
    expression: Option<Expression>,
    route: Route,
}

/// What to give in the place of a kind that only the kernel has.
fn instead_of_kind(kind: &str) -> &'static str {
    match kind {
        "bpf" => "narrows run --front has your own program at the port (XDP); otherwise ",
        "cgroup" => {
            "no process of this box sends what comes in at a port, so give addresses to flower; "
        }
        "flow" => {
            "fq_codel, sfq and cake distinguish flows by themselves, and cake hosts (dual-srchost): give one of them to the class; "
        }
        "rsvp" | "rsvp6" => "nothing is reserved here, so give addresses and ports to flower; ",
        "tcindex" => {
            "frames have no index, so give the code point to flower, as ip_tos 0xb8/0xfc; "
        }
        _ => "",
    }
}

/// What to give in the place of a key of `flower` that only the kernel has; none if it has no such
/// key either.
fn instead_of_key(word: &str) -> Option<&'static str> {
    Some(match word {
        "mpls" | "mpls_label" | "mpls_tc" | "mpls_bos" | "mpls_ttl" => {
            "packets behind labels are matched, the labels are not: leave it out"
        }
        "ct_state" | "ct_zone" | "ct_mark" | "ct_label" => {
            "frames at a port have passed no connection tracking: give addresses, ports or tcp_flags"
        }
        "enc_dst_ip" | "enc_src_ip" | "enc_key_id" | "enc_dst_port" | "enc_tos" | "enc_ttl"
        | "geneve_opts" | "vxlan_opts" | "erspan_opts" => {
            "frames are matched by the header of the tunnel: give src_ip, dst_ip and, of UDP, dst_port"
        }
        "arp_tip" | "arp_sip" | "arp_op" | "arp_tha" | "arp_sha" => {
            "give protocol arp u32 match, as match u16 1 0xffff at 6 for requests"
        }
        "hw_tc" => "there is no hardware that filters: give a classid",
        "num_of_vlans" => "give vlan_id for a tag, and cvlan_id for a second one",
        "ppp_proto" | "pppoe_sid" => {
            "IP in a session is matched, the session is not: give protocol ip and what IP says"
        }
        _ => return None,
    })
}

/// How `tc` reads the words of a kind: those that it abbreviates in its order, which decides which
/// word a common beginning stands for, and those that it wants whole.
struct Spellings {
    abbreviated: &'static [&'static str],
    whole: &'static [&'static str],
}

impl Spellings {
    /// The word that `word` stands for, or `word` itself.
    fn whole<'a>(&self, word: &'a str) -> &'a str {
        if self.whole.contains(&word) {
            return word;
        }
        self.abbreviated.iter().find(|whole| abbreviates(word, whole)).map_or(word, |whole| whole)
    }
}

const MATCHALL: Spellings =
    Spellings { abbreviated: &["classid", "action"], whole: &["flowid", "skip_hw", "skip_sw"] };
const FW: Spellings =
    Spellings { abbreviated: &["classid", "flowid", "police", "action"], whole: &["indev"] };
const BASIC: Spellings =
    Spellings { abbreviated: &["match", "classid", "action", "police"], whole: &["flowid"] };
/// `metric` is no word of tc's.
const ROUTE: Spellings = Spellings {
    abbreviated: &["to", "from", "fromif", "classid", "police", "order", "action"],
    whole: &["flowid", "metric"],
};
const U32: Spellings = Spellings {
    abbreviated: &["match", "offset", "hashkey", "classid", "divisor", "action", "police"],
    whole: &["flowid", "order", "link", "ht", "sample", "indev", "skip_hw", "skip_sw"],
};
const FLOWER: Spellings = Spellings {
    abbreviated: &[
        "classid",
        "flowid",
        "hw_tc",
        "ip_flags",
        "verbose",
        "skip_hw",
        "skip_sw",
        "ct_state",
        "ct_zone",
        "ct_mark",
        "ct_label",
        "indev",
        "vlan_id",
        "vlan_prio",
        "vlan_ethtype",
        "cvlan_id",
        "cvlan_prio",
        "cvlan_ethtype",
        "mpls",
        "mpls_label",
        "mpls_tc",
        "mpls_bos",
        "mpls_ttl",
        "dst_mac",
        "src_mac",
        "ip_proto",
        "ip_tos",
        "ip_ttl",
        "dst_ip",
        "src_ip",
        "dst_port",
        "src_port",
        "tcp_flags",
        "type",
        "code",
        "arp_tip",
        "arp_sip",
        "arp_op",
        "arp_tha",
        "arp_sha",
        "enc_dst_ip",
        "enc_src_ip",
        "enc_key_id",
        "enc_dst_port",
        "enc_tos",
        "enc_ttl",
        "geneve_opts",
        "vxlan_opts",
        "erspan_opts",
        "action",
    ],
    whole: &[],
};

fn unknown(word: &str) -> Complaint {
    match word {
        "help" => Complaint::wrong(USAGE),
        _ => Complaint::wrong(format!("What is \"{word}\"?\n{USAGE}")),
    }
}

impl Draft {
    /// Parses the options of all kinds as `spellings` has them, and with `own` those of a single
    /// kind.
    fn read(
        &mut self,
        mut words: Words,
        spellings: &Spellings,
        own: impl Fn(&mut Self, &str, &mut Words) -> Result<(), Complaint>,
    ) -> Result<(), Complaint> {
        while let Some(word) = words.next() {
            let whole = spellings.whole(word);
            match whole {
                "classid" | "flowid" => {
                    let value = words.value(word, "1:10")?;
                    self.class = match number::parent(value) {
                        Some(Some(Parent::Class(class))) => Some(class),
                        Some(Some(Parent::Root)) => Some(ClassId { major: 0xffff, minor: 0xffff }),
                        _ => {
                            return Err(Complaint::wrong(format!(
                                "Illegal \"{word}\": a class, as 1:10."
                            )));
                        }
                    };
                }
                "skip_hw" => self.skips_hardware = true,
                "action" => self.actions.push(action::parse(&mut words)?),
                "police" => self.actions.push(action::police(&mut words)?),
                "indev" => {
                    return Err(Complaint::refused(
                        "Error: \"indev\" is not supported here: a filter is at the port where frames come in, leave it out.",
                    ));
                }
                "skip_sw" => {
                    return Err(Complaint::refused(
                        "Error: \"skip_sw\" is not supported here: no hardware filters for Narrows, leave it out.",
                    ));
                }
                _ => own(self, whole, &mut words)?,
            }
            if self.actions.len() > action::MOST {
                return Err(Complaint::wrong(format!(
                    "Error: a filter has {} actions at most.",
                    action::MOST
                )));
            }
        }
        Ok(())
    }

    fn flower(&mut self, word: &str, words: &mut Words) -> Result<(), Complaint> {
        if let Some(instead) = instead_of_key(word) {
            return Err(Complaint::wrong(format!(
                "Error: \"{word}\" is not supported here: {instead}."
            )));
        }
        match flower::parse(&mut self.flower, self.protocol, word, words)? {
            true => Ok(()),
            false => Err(unknown(word)),
        }
    }

    /// One word of `u32`. Its hash tables are not there: each word says what is instead.
    fn selector(&mut self, word: &str, words: &mut Words) -> Result<(), Complaint> {
        let instead = match word {
            "match" => return selector::parse(words, self.words.get_or_insert_default()),
            "order" => {
                let value = words.value(word, "1")?;
                let order = number::mask(value).filter(|order| *order <= 0xfff);
                let illegal = || Complaint::wrong("Illegal \"order\": a number up to 0xfff.");
                self.order = Some(order.ok_or_else(illegal)?).filter(|order| *order != 0);
                return Ok(());
            }
            "ht" => {
                let value = words.value(word, "800:")?;
                let illegal = || Complaint::wrong("Illegal \"ht\": a table, as 800:.");
                let table = node(value).filter(|_| value.contains(':')).ok_or_else(illegal)?;
                self.table = Some(table >> 20);
                return Ok(());
            }
            "link" => {
                "no table can be linked to: give all matches of both filters to one u32, which costs no more"
            }
            "hashkey" => {
                "it says which bytes select a bucket of the linked table, and there is none: give them to match"
            }
            "offset" => {
                "it moves nexthdr for the linked table, and there is none: nexthdr is behind the IP header and its options"
            }
            "sample" => {
                "it says in which bucket of a table the filter lies, and there are no buckets: give it to match"
            }
            "divisor" => {
                "it makes a hash table: here filters are in hash tables by themselves, one for each mask, leave the line out"
            }
            word => return Err(unknown(word)),
        };
        // tc takes the word, so the complaint is the kernel's.
        Err(Complaint::refused(format!("Error: \"{word}\" is not supported here: {instead}.")))
    }

    /// One word of `route`.
    fn route(&mut self, word: &str, words: &mut Words) -> Result<(), Complaint> {
        let instead = match word {
            "to" | "from" => {
                let value = words.value(word, "10")?;
                let realm = number::mask(value).and_then(|realm| u8::try_from(realm).ok());
                let realm = realm.ok_or_else(|| {
                    Complaint::wrong(format!(
                        "Illegal \"{word}\": a realm, 0 to 255; its name is not read."
                    ))
                })?;
                match word {
                    "to" => self.route.to = Some(realm),
                    _ => self.route.from = Some(realm),
                }
                return Ok(());
            }
            "metric" => {
                let value = words.value(word, "100")?;
                let metric = number::mask(value).filter(|metric| *metric != u32::MAX);
                let illegal = || Complaint::wrong("Illegal \"metric\": 0 to 4294967294.");
                self.route.metric = Some(metric.ok_or_else(illegal)?);
                return Ok(());
            }
            "fromif" => {
                "set a mark at ingress of the port where packets come in (action skbedit mark), and match it with fw"
            }
            "order" => "filters are in the order of their pref",
            word => return Err(unknown(word)),
        };
        // tc takes the word, so the complaint is the kernel's.
        Err(Complaint::refused(format!("Error: \"{word}\" is not supported here: {instead}.")))
    }

    /// The `match` of `basic`.
    fn expression(&mut self, word: &str, words: &mut Words) -> Result<(), Complaint> {
        if word != "match" {
            return Err(unknown(word));
        }
        self.expression = Some(basic::parse(words)?);
        Ok(())
    }
}

/// Prints the number, the class `class` and the condition.
pub(crate) fn show(
    class: Option<&str>,
    filter: &Filter,
    policy: &Policy,
    stats: Option<&[(ActionId, ActionStats)]>,
    options: &Options,
    line: &mut Line,
) {
    let number = format!("{:#x}", filter.handle);
    let class_of = |name: &'static str, line: &mut Line| {
        if let Some(class) = class {
            line.add(name, Json::Text(class.to_owned()), &format!("{name} {class} "));
        }
    };
    let skip_hw = |shown: &str, line: &mut Line| {
        if filter.skips_hardware {
            line.add("skip_hw", Json::Bool(true), shown);
        }
    };
    match &filter.matches {
        Matches::All => {
            line.add("handle", Json::Text(number.clone()), &format!("handle {number} "));
            class_of("flowid", line);
            line.text("\n");
            skip_hw("  skip_hw\n", line);
            line.add("not_in_hw", Json::Bool(true), "  not_in_hw");
        }
        Matches::Flower(flower) => {
            let handle = u64::from(filter.handle);
            line.add("handle", Json::Number(handle), &format!("handle {number} "));
            // The short form is for flower alone, as in the kernel.
            if !options.brief {
                class_of("classid", line);
                let mut keys = Line::default();
                flower::show(flower, filter.protocol, &mut keys);
                line.nest("keys", keys);
            }
            skip_hw("\n  skip_hw", line);
            line.add("not_in_hw", Json::Bool(true), "\n  not_in_hw");
        }
        Matches::Mark(Mark { value, mask }) => {
            let text = |number: u32| Json::Text(format!("{number:#x}"));
            let (mut both, mut shown) = (vec![("mark", text(*value))], format!("{value:#x}"));
            if *mask != u32::MAX {
                both.push(("mask", text(*mask)));
                shown += &format!("/{mask:#x}");
            }
            line.add("fw", Json::Object(both), &format!("handle {shown} "));
            class_of("classid", line);
        }
        Matches::Route(Route { to, from, metric }) => {
            let handle = format!("{:#010x}", route::handle(filter.handle));
            line.add("fh", Json::Text(handle.clone()), &format!("fh {handle} "));
            class_of("flowid", line);
            let realms = [("to", to), ("from", from)];
            let realms =
                realms.into_iter().filter_map(|(name, realm)| Some((name, (*realm)?.into())));
            for (name, number) in realms.chain(metric.map(|metric| ("metric", metric))) {
                line.add(name, Json::Number(u64::from(number)), &format!("{name} {number} "));
            }
        }
        Matches::Basic(expression) => {
            line.add("handle", Json::Text(number.clone()), &format!("handle {number} "));
            class_of("flowid", line);
            if let Some(expression) = expression {
                let text = basic::text(expression, 1);
                let words = Json::Text(basic::save(expression));
                line.add("ematch", words, &format!("\n  {text}"));
            }
        }
        Matches::Words(words) => {
            let node = format!("{:x}::{:x}", filter.handle >> 20, filter.handle & 0xfff);
            let table = format!("{:x}", filter.handle >> 20);
            line.add("fh", Json::Text(node.clone()), &format!("fh {node} "));
            let order = u64::from(filter.handle & 0xfff);
            line.add("order", Json::Number(order), &format!("order {order} "));
            line.add("key_ht", Json::Text(table.clone()), &format!("key ht {table} "));
            line.add("bkt", Json::Text("0".to_owned()), "bkt 0 ");
            match class {
                Some(class) => {
                    // The star means that the class exists. Here it always does, if there are
                    // classes.
                    let star = if filter.class == 0 { "" } else { "*" };
                    let shown = format!("{star}flowid {class} ");
                    line.add("flowid", Json::Text(class.to_owned()), &shown);
                }
                None => line.add("terminal", Json::Bool(true), "terminal flowid "),
            }
            skip_hw("skip_hw ", line);
            line.add("not_in_hw", Json::Bool(true), "not_in_hw ");
            let mut list = Vec::new();
            for word in words {
                let Selector { value, mask, offset, is_behind_ip } = word;
                let from = if *is_behind_ip { "nexthdr+" } else { "" };
                let read = || selector::explain(word);
                let read = (options.pretty && filter.protocol == IPV4).then(read).flatten();
                let raw = || format!("\n  match {value:08x}/{mask:08x} at {from}{offset}");
                line.text(&read.unwrap_or_else(raw));
                list.push(vec![
                    ("value", Json::Text(format!("{value:x}"))),
                    ("mask", Json::Text(format!("{mask:x}"))),
                    ("offmask", Json::Text(from.trim_end_matches('+').to_owned())),
                    ("off", Json::Signed(i64::from(*offset))),
                ]);
            }
            // One is what tc prints. Of several, tc has the key several times.
            let all = match list.len() {
                1 => Json::Object(list.remove(0)),
                _ => Json::Objects(list),
            };
            line.json("match", all);
        }
    }
    action::show_bound(&filter.actions, policy, stats, options, line);
}

/// The command that creates `filter` at `place` of `dev`, with its class as `class`.
pub(crate) fn save(
    dev: &str,
    place: &str,
    class: Option<&str>,
    filter: &Filter,
    policy: &Policy,
) -> String {
    let protocol = protocols::save(filter.protocol);
    let handle = match filter.matches {
        Matches::Words(_) => format!("{:x}::{:x}", filter.handle >> 20, filter.handle & 0xfff),
        Matches::Mark(Mark { value, mask }) => format!("{value:#x}/{mask:#x}"),
        Matches::Route(_) => format!("{:#010x}", route::handle(filter.handle)),
        _ => format!("{:#x}", filter.handle),
    };
    let mut text = format!(
        "filter replace dev {dev} {place} protocol {protocol} pref {} handle {handle} {}",
        filter.pref,
        filter.kind()
    );
    if filter.skips_hardware {
        text.push_str(" skip_hw");
    }
    let mut add = |name: &str, value: &dyn std::fmt::Display| {
        // Writing to a string cannot fail.
        let _ = write!(text, " {name} {value}");
    };
    match &filter.matches {
        Matches::All | Matches::Mark(_) | Matches::Basic(None) => {}
        Matches::Basic(Some(expression)) => add("match", &basic::save(expression)),
        Matches::Flower(flower) => flower::save(flower, &mut add),
        Matches::Route(Route { to, from, metric }) => {
            let realms = [("to", *to), ("from", *from)];
            let realms = realms.into_iter().filter_map(|(name, realm)| Some((name, realm?.into())));
            realms
                .chain(metric.map(|metric| ("metric", metric)))
                .for_each(|(name, number): (_, u32)| add(name, &number));
        }
        // Without a selector: a match of nothing.
        Matches::Words(words) if words.is_empty() => add("match", &"ip6 dst any"),
        Matches::Words(words) => {
            for Selector { value, mask, offset, is_behind_ip } in words {
                let from = if *is_behind_ip { "nexthdr+" } else { "" };
                add("match", &format_args!("u32 {value:#x} {mask:#x} at {from}{offset}"));
            }
        }
    }
    if let Some(class) = class {
        add("classid", &class);
    }
    for bound in filter.actions.iter().filter_map(|id| policy.action(*id)) {
        add("action", &action::save(bound));
    }
    text.push('\n');
    text
}
