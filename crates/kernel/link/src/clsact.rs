//! A program at a device's egress by a filter of `clsact`: the way of kernels without tcx, before
//! Linux 6.6.
//!
//! * **What others have stays.** If there is a `clsact`, it is used, and only the filter is
//!   removed. One that was made for it goes with it, if nothing else is there by then.
//! * *In front*, where that is possible: the programs of others may end the list with what they let
//!   pass.
//! * *It outlives the process*, as it is no link. So the program should do nothing once its process
//!   has ended, and the next start [removes](EgressFilter::find) it, as the end of each run does.
//!   The filter has a name for that, which also says who made the `clsact`.
//!
//! What arrives at a device is redirected by another filter there ([`RedirectFilter`]).
//!
//! Non-goals: replacing the program of a filter.

use crate::LinkError;
use crate::link::status_by_index;
use crate::netlink::{self, Request, attach};
use crate::status::{each, text};
use crate::traffic_control::{Item, filters, qdiscs};
use narrows_escape::shell;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, BorrowedFd};

mod redirect;

pub use redirect::RedirectFilter;

/// The place of `clsact` at a device, which is also that of `ingress` (`TC_H_CLSACT`), its only
/// handle, and where the two lists of its filters are.
const CLSACT: u32 = 0xffff_fff1;
const HANDLE: u32 = 0xffff_0000;
const INGRESS: u32 = 0xffff_fff2;
const EGRESS: u32 = 0xffff_fff3;

const TCA_BPF_FD: u16 = 6;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_FLAGS: u16 = 8;
/// The program's answer is the verdict (`TCA_BPF_FLAG_ACT_DIRECT`).
const DIRECT: u32 = 1;
/// `ETH_P_ALL`, as on the wire.
const ALL_PROTOCOLS: u32 = 0x0300;

/// The filter's name where there was a `clsact`, and where one was made for it.
const NAMES: [&str; 2] = ["narrows", "narrows with clsact"];
/// Its number among the filters of its priority: "NW".
const NUMBER: u32 = 0x4e57;
/// Its priority, unless others are in front of that: the kernel itself begins at 49,152.
const PRIORITY: u16 = 100;

/// A program cannot be attached by a filter.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// There is an `ingress`, which has no egress and the place of a `clsact`.
    #[error(
        "{0} has the qdisc ingress, where clsact is needed, which has the same and egress as well; \
         try: tc qdisc del dev {name} ingress && tc qdisc add dev {name} clsact (and its filters \
         again)",
        name = shell(.0)
    )]
    Ingress(String),
    /// The kernel refused, or did not answer.
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// A filter of Narrows' at the egress of a device. It stays when this is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EgressFilter(Filter);

impl EgressFilter {
    /// Attaches `program` to what leaves through the device `ifindex`, in the namespace of the
    /// calling thread, in place of what an earlier run has left there.
    ///
    /// # Errors
    ///
    /// Without CAP_NET_ADMIN, or if the kernel refuses; also where there is an `ingress`.
    pub fn attach(ifindex: u32, program: BorrowedFd<'_>) -> Result<Self, FilterError> {
        if let Some(left) = Self::find(ifindex)? {
            left.remove()?;
        }
        let made_clsact = make_clsact(ifindex, EGRESS)?;
        let priority = priority(&taken(ifindex, EGRESS)?);
        let filter = Filter { ifindex, list: EGRESS, priority, made_clsact };
        let mut options = filter.options(program);
        attach(&mut options, TCA_BPF_FLAGS, &DIRECT.to_ne_bytes());
        filter.add("attaching a program to a device's egress by a filter", options)?;
        Ok(Self(filter))
    }

    /// The filter of this or of an earlier process at the egress of the device `ifindex`.
    ///
    /// # Errors
    ///
    /// If the kernel does not answer.
    pub fn find(ifindex: u32) -> Result<Option<Self>, LinkError> {
        Ok(Filter::all(ifindex, EGRESS)?.into_iter().next().map(Self))
    }

    /// Removes it. One that is gone is no error.
    ///
    /// # Errors
    ///
    /// Without CAP_NET_ADMIN, or if the kernel refuses.
    pub fn remove(self) -> Result<(), LinkError> {
        self.0.remove("removing a filter at a device's egress")
    }
}

/// A filter of Narrows' in one of the two lists of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Filter {
    ifindex: u32,
    list: u32,
    priority: u16,
    made_clsact: bool,
}

impl Filter {
    /// Those of this or of earlier processes.
    fn all(ifindex: u32, list: u32) -> Result<Vec<Self>, LinkError> {
        let parse = |item| Self::parse(ifindex, list, item);
        Ok(filters(ifindex, list)?.iter().filter_map(parse).collect())
    }

    fn parse(ifindex: u32, list: u32, item: &Item) -> Option<Self> {
        let mut name = String::new();
        each(&item.options, |kind, value| {
            if kind == TCA_BPF_NAME {
                name = text(value);
            }
        });
        let made_clsact = NAMES.iter().position(|known| *known == name)? == 1;
        let is_ours = item.kind == "bpf" && item.handle == NUMBER;
        let priority = (item.info >> 16) as u16;
        is_ours.then_some(Self { ifindex, list, priority, made_clsact })
    }

    /// What all have in their options: program and name.
    fn options(&self, program: BorrowedFd<'_>) -> Vec<u8> {
        let mut options = Vec::new();
        attach(&mut options, TCA_BPF_FD, &program.as_raw_fd().to_ne_bytes());
        let name = format!("{}\0", NAMES[usize::from(self.made_clsact)]);
        attach(&mut options, TCA_BPF_NAME, name.as_bytes());
        options
    }

    /// Adds it with `options`; if that fails, nothing that was made for it stays.
    fn add(&self, doing: &str, options: Vec<u8>) -> Result<(), LinkError> {
        let item = Item { options, ..self.item() };
        let request = Request::route(libc::RTM_NEWTFILTER, item.body());
        match netlink::ask(doing, request, NLM_F_CREATE | NLM_F_EXCL) {
            Ok(_) => Ok(()),
            Err(error) => {
                self.remove_empty_clsact()?;
                Err(error)
            }
        }
    }

    fn remove(&self, doing: &str) -> Result<(), LinkError> {
        let request = Request::route(libc::RTM_DELTFILTER, self.item().body());
        match netlink::ask(doing, request, 0) {
            Ok(_) => self.remove_empty_clsact(),
            // The filter, its qdisc, or its device.
            Err(error) if is_gone(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes the `clsact` that was made for it, if nothing else is there.
    fn remove_empty_clsact(&self) -> Result<(), LinkError> {
        let is_empty = |list| filters(self.ifindex, list).map(|filters| filters.is_empty());
        if !self.made_clsact || !is_empty(EGRESS)? || !is_empty(INGRESS)? {
            return Ok(());
        }
        match clsact(self.ifindex).delete_qdisc("removing clsact") {
            Err(error) if !is_gone(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// The filter without its program.
    fn item(&self) -> Item {
        Item {
            ifindex: self.ifindex,
            handle: NUMBER,
            parent: self.list,
            info: u32::from(self.priority) << 16 | ALL_PROTOCOLS,
            kind: "bpf".to_owned(),
            options: Vec::new(),
        }
    }
}

/// The priorities in a list.
fn taken(ifindex: u32, list: u32) -> Result<BTreeSet<u16>, LinkError> {
    Ok(filters(ifindex, list)?.iter().map(|item| (item.info >> 16) as u16).collect())
}

/// Makes a `clsact` for a filter in `list`. Returns whether Narrows has made it, now or for its
/// filter in the other list: the last of both that goes removes it.
fn make_clsact(ifindex: u32, list: u32) -> Result<bool, FilterError> {
    match clsact(ifindex).add_qdisc("making clsact") {
        Ok(()) => return Ok(true),
        Err(error) if error.errno() == Some(libc::EEXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let there = qdiscs(ifindex)?.into_iter().find(|item| item.parent == CLSACT);
    match there.filter(|there| there.kind == "ingress") {
        // It would take filters for egress, and have them at ingress.
        Some(_) if list == EGRESS => Err(FilterError::Ingress(status_by_index(ifindex)?.name)),
        Some(_) => Ok(false),
        None => {
            let other = Filter::all(ifindex, if list == EGRESS { INGRESS } else { EGRESS })?;
            Ok(other.iter().any(|other| other.made_clsact))
        }
    }
}

fn clsact(ifindex: u32) -> Item {
    let kind = "clsact".to_owned();
    Item { ifindex, handle: HANDLE, parent: CLSACT, kind, ..Item::default() }
}

fn is_gone(error: &LinkError) -> bool {
    matches!(error.errno(), Some(libc::ENOENT | libc::EINVAL | libc::ENODEV))
}

/// A priority that nobody has, in front of those `taken`; behind the first if it is 1.
fn priority(taken: &BTreeSet<u16>) -> u16 {
    let first = taken.first().copied().unwrap_or(u16::MAX);
    match first.saturating_sub(1).min(PRIORITY) {
        0 => (1..u16::MAX).find(|free| !taken.contains(free)).unwrap_or(u16::MAX),
        front => front,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn it_is_in_front_of_others_where_there_is_room() {
        let among = |taken: &[u16]| priority(&taken.iter().copied().collect());
        assert_eq!(among(&[]), PRIORITY);
        assert_eq!(among(&[49_152, 49_151]), PRIORITY);
        assert_eq!(among(&[100]), 99);
        assert_eq!(among(&[7, 49_152]), 6);
        assert_eq!(among(&[1, 2, 4]), 3);
    }

    proptest! {
        #[test]
        fn a_priority_is_never_that_of_others(taken in proptest::collection::btree_set(1..300_u16, 0..300)) {
            let chosen = priority(&taken);
            prop_assert!(chosen > 0 && !taken.contains(&chosen));
            prop_assert!(taken.contains(&1) || taken.first().is_none_or(|first| chosen < *first));
        }

        #[test]
        fn any_filter_is_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(item) = Item::parse(&bytes) {
                let _ = Filter::parse(1, EGRESS, &item);
            }
        }
    }

    #[test]
    fn it_is_known_by_its_name_which_says_who_made_the_clsact() {
        for made_clsact in [false, true] {
            let filter = Filter { ifindex: 2, list: EGRESS, priority: 99, made_clsact };
            let mut item = filter.item();
            let name = format!("{}\0", NAMES[usize::from(made_clsact)]);
            attach(&mut item.options, TCA_BPF_NAME, name.as_bytes());
            let listed = Item::parse(&item.body()).unwrap();
            assert_eq!(Filter::parse(2, EGRESS, &listed), Some(filter));
        }
        let mut other = Filter { ifindex: 2, list: EGRESS, priority: 1, made_clsact: false }.item();
        attach(&mut other.options, TCA_BPF_NAME, b"cil_to_netdev\0");
        assert_eq!(Filter::parse(2, EGRESS, &other), None);
    }
}
