//! A filter that redirects what arrives at a device to another one.
//!
//! A program cannot do it by itself: before Linux 6.14, an ifb drops what a program redirects to
//! it. So the filter's program says which packets, and an action (`mirred`) redirects them.
//!
//! It is behind the filters of others, which packets do not meet any more on their way back.
//!
//! Source: net/sched/act_mirred.c, net/sched/cls_bpf.c, drivers/net/ifb.c.

use super::{Filter, FilterError, INGRESS, make_clsact, taken};
use crate::LinkError;
use crate::netlink::attach;
use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;

const TCA_BPF_ACT: u16 = 1;
const TCA_ACT_KIND: u16 = 1;
const TCA_ACT_OPTIONS: u16 = 2;
const TCA_MIRRED_PARMS: u16 = 2;
/// `TCA_EGRESS_REDIR`, and what the filter answers then (`TC_ACT_STOLEN`).
const EGRESS_REDIRECT: u32 = 1;
const STOLEN: u32 = 4;

/// A filter of Narrows' at the ingress of a device. It stays when this is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RedirectFilter(Filter);

impl RedirectFilter {
    /// Redirects those packets that arrive at the device `ifindex` and that `program` chooses (it
    /// answers -1, or 0 for others) to the device `to`, in the namespace of the calling thread.
    /// What an earlier run has left there goes, once this is in its place.
    ///
    /// # Errors
    ///
    /// Without CAP_NET_ADMIN, or if the kernel refuses.
    pub fn attach(ifindex: u32, program: BorrowedFd<'_>, to: u32) -> Result<Self, FilterError> {
        let left = Filter::all(ifindex, INGRESS)?;
        let made_clsact =
            make_clsact(ifindex, INGRESS)? || left.iter().any(|left| left.made_clsact);
        let priority = last(&taken(ifindex, INGRESS)?);
        let filter = Filter { ifindex, list: INGRESS, priority, made_clsact };
        let mut options = filter.options(program);
        attach(&mut options, TCA_BPF_ACT, &redirect(to));
        filter.add("redirecting what arrives at a device", options)?;
        left.into_iter().try_for_each(|left| Self(left).remove())?;
        Ok(Self(filter))
    }

    /// Removes it. One that is gone is no error.
    ///
    /// # Errors
    ///
    /// Without CAP_NET_ADMIN, or if the kernel refuses.
    pub fn remove(self) -> Result<(), LinkError> {
        self.0.remove("removing a filter at a device's ingress")
    }
}

/// The list of one action that redirects to the device `to`.
fn redirect(to: u32) -> Vec<u8> {
    // `struct tc_mirred`: index, capabilities, answer, and two counts of the kernel's come first.
    let parameters = [0, 0, STOLEN, 0, 0, EGRESS_REDIRECT, to];
    let parameters: Vec<u8> = parameters.into_iter().flat_map(u32::to_ne_bytes).collect();
    let (mut all, mut action, mut options) = (Vec::new(), Vec::new(), Vec::new());
    attach(&mut options, TCA_MIRRED_PARMS, &parameters);
    attach(&mut action, TCA_ACT_KIND, b"mirred\0");
    attach(&mut action, TCA_ACT_OPTIONS, &options);
    attach(&mut all, 1, &action);
    all
}

/// The last priority that nobody has.
fn last(taken: &BTreeSet<u16>) -> u16 {
    (1..u16::MAX).rev().find(|free| !taken.contains(free)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_behind_all_others() {
        assert_eq!(last(&BTreeSet::new()), 65_534);
        assert_eq!(last(&BTreeSet::from([65_534, 65_533, 7])), 65_532);
    }
}
