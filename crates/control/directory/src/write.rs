//! The policy file, and the file of names.

use crate::form::{FilterForm, Leaf};
use crate::{Compiled, DEFAULT, Draft, Entry, Place, Prefix, ROOT, Tree, rate_words};

/// Downstream and upstream: the comment in the policy, and the address field of the filters.
pub(crate) const DIRECTIONS: [(&str, &str); 2] = [("Downloads", "dst_ip"), ("Uploads", "src_ip")];

impl Compiled {
    /// Writes the policy and the names to `draft`. Filters have handles, so that a later change can
    /// say which of them it means.
    pub fn write(&self, draft: &mut Draft) {
        self.write_with(draft, true);
    }

    /// Writes the policy and the names to `draft`, with filters that get any handle.
    pub fn write_plain(&self, draft: &mut Draft) {
        self.write_with(draft, false);
    }

    /// The names of the classes, in the format of `tc -nm`: one line `1:10 NAME` each.
    pub fn names(&self) -> String {
        let mut draft = Draft::default();
        draft.name(&format!("1:{ROOT:x}"), "uplink");
        draft.name(&format!("1:{DEFAULT:x}"), "others");
        for Entry { minor, name, .. } in &self.entries {
            draft.name(&format!("1:{minor:x}"), name);
        }
        draft.finish().1
    }

    fn write_with(&self, draft: &mut Draft, has_handles: bool) {
        for (direction, (what, _)) in DIRECTIONS.iter().enumerate() {
            let Tree { dev, whole, rest, places } = &self.trees[direction];
            draft.blank();
            draft.comment(&format!("{what} leave through {dev}."));
            draft.line(&format!("qdisc replace dev {dev} root handle 1: htb default {DEFAULT:x}"));
            let whole = rate_words(*whole);
            draft.line(&format!(
                "class add dev {dev} parent 1: classid 1:{ROOT:x} htb rate {whole}"
            ));
            draft.comment("Traffic that belongs to no circuit: lowest priority.");
            if direction == 0 {
                draft.name(&format!("1:{ROOT:x}"), "uplink");
                draft.name(&format!("1:{DEFAULT:x}"), "others");
            }
            let rest = rate_words(*rest);
            draft.line(&format!(
                "class add dev {dev} parent 1:{ROOT:x} classid 1:{DEFAULT:x} htb rate {rest} ceil {whole} prio 7"
            ));
            draft.line(&format!(
                "qdisc add dev {dev} parent 1:{DEFAULT:x} handle {DEFAULT:x}: {}",
                Leaf::Plain.words()
            ));
            for (entry, Place { rate, ceil }) in self.entries.iter().zip(places) {
                let Entry { comment, name, minor, parent, queueing, addresses } = entry;
                draft.comment(comment);
                if direction == 0 {
                    draft.name(&format!("1:{minor:x}"), name);
                }
                draft.line(&format!(
                    "class add dev {dev} parent 1:{parent:x} classid 1:{minor:x} htb rate {} ceil {}",
                    rate_words(*rate),
                    rate_words(*ceil)
                ));
                if let Some(queueing) = queueing {
                    let qdisc = Leaf::from(queueing[direction]).words();
                    draft.line(&format!(
                        "qdisc add dev {dev} parent 1:{minor:x} handle {minor:x}: {qdisc}"
                    ));
                }
                for (filter, address) in FilterForm::of(*minor, addresses).zip(addresses) {
                    let FilterForm { pref, handle, .. } = filter;
                    let handle = match has_handles {
                        true => format!(" handle 0x{handle:x}"),
                        false => String::new(),
                    };
                    let (protocol, field) = (protocol(address), DIRECTIONS[direction].1);
                    draft.line(&format!(
                        "filter add dev {dev} parent 1: protocol {protocol} pref {pref}{handle} flower {field} {}/{} classid 1:{minor:x}",
                        address.ip, address.bits
                    ));
                }
            }
        }
    }
}

/// The protocol of a filter for an address.
pub(crate) fn protocol(address: &Prefix) -> &'static str {
    if address.ip.is_ipv4() { "ip" } else { "ipv6" }
}
