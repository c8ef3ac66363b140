//! What an instance runs at the two ports, as rows that can be compared with those of a directory.
//!
//! Only what a directory compiles into is looked at: the classes with its numbers, and filters for
//! one address each. Anything else is the operator's, and stays.

use narrows_classify::{Filter, Matches};
use narrows_directory::{ClassForm, DEFAULT, FilterForm, Form, Leaf, PortForm, ROOT};
use narrows_policy::{ClassId, FilterPlace, Kind, Node, Policy, PortPolicy};
use narrows_tc::{OfflineHost, load};

/// The qdiscs of classes that a directory compiles into.
const LEAVES: [Leaf; 4] = [Leaf::Plain, Leaf::Cake, Leaf::FqCodel, Leaf::Fifo];

/// The forms of the ports with the names `devs` (of the subscribers, and of the Internet) in a
/// policy that `tc save` has printed.
///
/// # Errors
/// If it is no policy, or the root of a port is a qdisc that no directory compiles into.
pub(crate) fn form(saved: &str, devs: [&str; 2]) -> Result<Form, String> {
    let policy = load(saved, "the running policy", &OfflineHost::default())?;
    let kinds = kinds();
    let mut form = Form::default();
    for (direction, dev) in devs.into_iter().enumerate() {
        form.ports[direction] = port_form(dev, policy.port(dev), &kinds, direction)?;
    }
    Ok(form)
}

/// The kinds of qdiscs that stand for each leaf.
fn kinds() -> Vec<(Leaf, Kind)> {
    let kind = |leaf: Leaf| {
        let words = format!("qdisc add dev it root {}", leaf.words());
        let policy: Policy = load(&words, "leaf", &OfflineHost::default()).ok()?;
        Some((leaf, policy.port("it").root()?.kind.clone()))
    };
    LEAVES.into_iter().filter_map(kind).collect()
}

fn port_form(
    dev: &str,
    port: &PortPolicy,
    kinds: &[(Leaf, Kind)],
    direction: usize,
) -> Result<PortForm, String> {
    let mut form = PortForm { dev: dev.to_owned(), ..PortForm::default() };
    let Some(root) = port.root() else { return Ok(form) };
    let Kind::Htb(htb) = &root.kind else { return Err(foreign(dev, root)) };
    if root.handle.major() != 1 || htb.default != DEFAULT {
        return Err(foreign(dev, root));
    }
    form.has_root = true;
    let is_ours = |minor: u32| minor == ROOT || minor == DEFAULT || minor > 0xffff;
    for (minor, class) in htb.classes.iter().filter(|(minor, _)| is_ours(*minor)) {
        let leaf = match port.child(root, minor) {
            None => Leaf::None,
            Some(node) if node.handle.major() != minor => Leaf::Other,
            Some(node) => {
                let known = kinds.iter().find(|(_, kind)| *kind == node.kind);
                known.map_or(Leaf::Other, |(leaf, _)| *leaf)
            }
        };
        let params = &class.params;
        form.classes.push(ClassForm {
            minor,
            parent: class.parent.unwrap_or(0),
            rate: params.rate,
            ceil: params.ceil,
            prio: params.prio,
            leaf,
        });
    }
    let place = FilterPlace::Class(ClassId { major: root.handle.major(), minor: 0 });
    let filters = port.filters(place);
    form.filters.extend(filters.iter().filter_map(|(_, filter)| filter_form(filter, direction)));
    Ok(form)
}

/// The filter, if it is one for an address.
fn filter_form(filter: &Filter, direction: usize) -> Option<FilterForm> {
    let Matches::Flower(flower) = &filter.matches else { return None };
    let address = if direction == 0 { flower.destination } else { flower.source }?;
    let address = address.to_string().parse().ok()?;
    let is_ours = filter.pref == FilterForm::pref_of(&address) && filter.actions.is_empty();
    let Filter { pref, handle, class, .. } = *filter;
    is_ours.then_some(FilterForm { pref, handle, address, minor: class })
}

fn foreign(dev: &str, root: &Node) -> String {
    let Node { handle, kind, .. } = root;
    format!(
        "{dev} has the qdisc {} {handle} at its root, which is not from a directory of subscribers: \
         remove it with `narrows tc qdisc del dev {dev} root`, then apply again",
        kind.name()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_directory::{
        Directory, Draft, Options, Plan, Ports, Queueing, Site, Subscriber, compile,
    };
    use narrows_units::Rate;

    const DEVS: [&str; 2] = ["lan0", "wan0"];

    fn directory() -> Directory {
        let mut directory = Directory::default();
        directory.sites.insert("A".to_owned(), Site::default());
        let queues = [Queueing::Cake, Queueing::FqCodel, Queueing::Fifo];
        for (index, queueing) in queues.into_iter().enumerate() {
            let ceiling = [Rate::from_bits_per_sec(50_000_000), Rate::from_bits_per_sec(2_500_000)];
            let queueing = [queueing, Queueing::Cake];
            let plan = Plan { ceiling, queueing, ..Plan::default() };
            let address = |text: String| text.parse().unwrap();
            let addresses = vec![
                address(format!("10.0.0.{index}/31")),
                address(format!("10.1.{index}.0/24")),
                address(format!("2001:db8:{index}::/56")),
                address(format!("2001:db8:{index}:100::/56")),
            ];
            let site = (index > 0).then(|| "A".to_owned());
            let subscriber = Subscriber { site, plan, addresses, ..Subscriber::default() };
            directory.subscribers.insert(index.to_string(), subscriber);
        }
        directory.subscribers.get_mut("1").unwrap().addresses.remove(0);
        directory
    }

    fn compiled() -> (String, Form) {
        let ports = Ports { internet: DEVS[1].to_owned(), subscribers: DEVS[0].to_owned() };
        let compiled = compile(&directory(), &Options { ports, ..Options::default() });
        let mut draft = Draft::default();
        compiled.write(&mut draft);
        (draft.finish().0, Form::of(&compiled))
    }

    #[test]
    fn what_runs_from_the_policy_file_is_what_was_compiled() {
        let (policy, form) = compiled();
        // As `tc save` prints it.
        let saved = load(&policy, "it", &OfflineHost::default()).unwrap();
        assert_eq!(super::form(&narrows_tc::save(&saved), DEVS), Ok(form));
    }

    #[test]
    fn what_is_the_operators_is_not_looked_at() {
        let (policy, form) = compiled();
        let own = "class add dev lan0 parent 1:1 classid 1:99 htb rate 1mbit\n\
                   filter add dev lan0 parent 1: protocol ip pref 500 flower dst_ip 10.9.0.0/16 classid 1:99\n\
                   filter add dev lan0 parent 1: pref 501 u32 match u32 0 0 classid 1:2\n";
        assert_eq!(super::form(&(policy + own), DEVS), Ok(form));
    }

    #[test]
    fn another_qdisc_at_the_root_is_refused_and_none_is_made() {
        let empty = super::form("", DEVS).unwrap();
        assert!(!empty.ports[0].has_root && empty.ports[0].classes.is_empty());
        let why = super::form("qdisc add dev wan0 root tbf rate 1mbit burst 2k limit 9k", DEVS);
        assert!(why.unwrap_err().contains("narrows tc qdisc del dev wan0 root"));
    }
}
