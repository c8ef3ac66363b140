//! Qdiscs and filters of the kernel's traffic control: messages, as netlink has them.
//!
//! Source: `linux/rtnetlink.h` and `linux/pkt_sched.h`. An attribute that is missing or too short
//! counts as absent, as in [`crate::status`].

use crate::LinkError;
use crate::netlink::{self, Request, attach};
use crate::status::{each, text, u32_at};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use std::fmt;

/// The parent of a qdisc at a device's root (`TC_H_ROOT`).
pub(crate) const ROOT: u32 = 0xffff_ffff;

const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
/// `struct tcmsg`: family, padding, index, handle, parent, info.
const HEADER: usize = 20;

/// A qdisc or a filter.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Item {
    /// Its device.
    pub(crate) ifindex: u32,
    /// Its number there; 0 for a qdisc that the kernel chose itself, and for one that has none yet.
    pub(crate) handle: u32,
    /// The qdisc or class that it is below.
    pub(crate) parent: u32,
    /// Priority and protocol of a filter.
    pub(crate) info: u32,
    /// Its kind, such as `fq`.
    pub(crate) kind: String,
    /// The attributes of its kind.
    pub(crate) options: Vec<u8>,
}

impl Item {
    /// Parses the body of a message; none if it is shorter than its header.
    pub(crate) fn parse(body: &[u8]) -> Option<Self> {
        let (header, attributes) = body.split_at_checked(HEADER)?;
        let mut item = Self {
            ifindex: u32_at(header, 4)?,
            handle: u32_at(header, 8)?,
            parent: u32_at(header, 12)?,
            info: u32_at(header, 16)?,
            ..Self::default()
        };
        each(attributes, |kind, value| match kind {
            TCA_KIND => item.kind = text(value),
            TCA_OPTIONS => value.clone_into(&mut item.options),
            _ => {}
        });
        Some(item)
    }

    /// A message about it. Without a kind it says only where it is.
    pub(crate) fn body(&self) -> Vec<u8> {
        let mut body = vec![0; 4];
        for number in [self.ifindex, self.handle, self.parent, self.info] {
            body.extend(number.to_ne_bytes());
        }
        if !self.kind.is_empty() {
            attach(&mut body, TCA_KIND, format!("{}\0", self.kind).as_bytes());
        }
        if !self.options.is_empty() {
            attach(&mut body, TCA_OPTIONS, &self.options);
        }
        body
    }

    /// Makes a qdisc of it, where there is none but what the kernel chose itself.
    pub(crate) fn add_qdisc(&self, doing: &str) -> Result<(), LinkError> {
        let request = Request::route(libc::RTM_NEWQDISC, self.body());
        netlink::ask(doing, request, NLM_F_CREATE | NLM_F_EXCL).map(drop)
    }

    /// Changes the qdisc with this handle and this parent: the options that are named.
    pub(crate) fn change_qdisc(&self, doing: &str) -> Result<(), LinkError> {
        netlink::ask(doing, Request::route(libc::RTM_NEWQDISC, self.body()), 0).map(drop)
    }

    /// Deletes the qdisc with this handle and this parent, and all below it.
    pub(crate) fn delete_qdisc(&self, doing: &str) -> Result<(), LinkError> {
        netlink::ask(doing, Request::route(libc::RTM_DELQDISC, self.body()), 0).map(drop)
    }
}

/// Kind and handle, as `tc` has them: `htb 1:`.
impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, handle, .. } = self;
        write!(f, "{kind} {:x}:", handle >> 16)
    }
}

/// The qdiscs of the device `ifindex`. The kernel lists those of all devices.
pub(crate) fn qdiscs(ifindex: u32) -> Result<Vec<Item>, LinkError> {
    let request = Request::route(libc::RTM_GETQDISC, Item::default().body());
    let listed = netlink::dump("listing qdiscs", request)?;
    let items = listed.iter().filter_map(|body| Item::parse(body));
    Ok(items.filter(|item| item.ifindex == ifindex).collect())
}

/// The filters of the device `ifindex` below `parent`; 0 for its root.
pub(crate) fn filters(ifindex: u32, parent: u32) -> Result<Vec<Item>, LinkError> {
    let place = Item { ifindex, parent, ..Item::default() };
    let request = Request::route(libc::RTM_GETTFILTER, place.body());
    let listed = netlink::dump("listing filters", request)?;
    Ok(listed.iter().filter_map(|body| Item::parse(body)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Item::parse(&bytes);
        }

        #[test]
        fn what_is_written_is_read(
            numbers in any::<[u32; 4]>(),
            kind in "[a-z_]{0,15}",
            options in proptest::collection::vec(any::<u8>(), 0..50),
        ) {
            let [ifindex, handle, parent, info] = numbers;
            let item = Item { ifindex, handle, parent, info, kind, options };
            prop_assert_eq!(Item::parse(&item.body()), Some(item));
        }
    }

    #[test]
    fn a_qdisc_is_called_as_tc_calls_it() {
        let item = Item { handle: 0x8001_0000, kind: "fq_codel".into(), ..Item::default() };
        assert_eq!(item.to_string(), "fq_codel 8001:");
    }
}
