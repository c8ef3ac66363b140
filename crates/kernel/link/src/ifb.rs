//! An ifb: a device that sends what is redirected to it back to where it arrived.
//!
//! * It has a queue for each receive queue of its port, so packets of different queues need not
//!   wait for each other, and the port's MTU.
//! * *Silent*: no address, and so no router solicitations.
//! * **Nothing of others is taken.** One that Narrows makes says so in its alias. So a start after
//!   a kill recognizes what was left, and no record can be stale. An ifb that is down is nobody's.
//! * One that is left behind costs nothing: nothing is redirected to it.
//!
//! Non-goals: what redirects to it.

use crate::changes::{Changes, all_or_nothing};
use crate::link::{change, delete, hide, status_by_name};
use crate::{Link, LinkError, LinkStatus, netlink};
use narrows_escape::shell;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage};

/// The alias of one that Narrows has made.
const MARK: &str = "narrows";

/// Why a port has no ifb.
#[derive(Debug, thiserror::Error)]
pub enum IfbError {
    /// The kernel has none.
    #[error("this kernel has no ifb (CONFIG_IFB), so --ifb cannot be used; try: modprobe ifb")]
    Missing,
    /// There is an interface of this name.
    #[error(
        "{0} is there already, and not Narrows'; if nothing needs it: ip link del dev {name}",
        name = shell(.0)
    )]
    Taken(String),
    /// The port, or the ifb, cannot be read or changed.
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// Makes the ifb `name` for what arrives at the interface `port`, in the namespace of the calling
/// thread, or finds one that an earlier run has left, and sets it up.
///
/// # Errors
/// If there is no such port, the kernel has no ifb, or somebody else has an interface of that name.
/// Then nothing stays changed.
pub fn prepare(port: &str, name: &str) -> Result<(), IfbError> {
    let port = Link::by_name(port)?;
    all_or_nothing(|changes| {
        let ifb = match find(name)? {
            Some(ifb) if is_ours(&ifb) || is_free(&ifb) => ifb,
            Some(_) => return Err(IfbError::Taken(name.to_owned())),
            None => create(name, port.queues.now.rx.max(1), changes)?,
        };
        mark(&ifb)?;
        hide(&format!("hiding {name} from the network"), ifb.ifindex)?;
        changes.resize(&ifb, port.status.mtu)?;
        Ok(changes.set_up(&ifb)?)
    })
}

/// Removes the ifb `name` if Narrows has made it. One that is gone is no error.
///
/// # Errors
/// Without CAP_NET_ADMIN, or if the kernel refuses.
pub fn remove(name: &str) -> Result<(), LinkError> {
    match find(name)?.filter(is_ours) {
        Some(ifb) => delete(&format!("removing {name}"), ifb.ifindex),
        None => Ok(()),
    }
}

fn find(name: &str) -> Result<Option<LinkStatus>, LinkError> {
    match status_by_name(name) {
        Ok(status) => Ok(Some(status)),
        Err(LinkError::NoSuchName(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_ifb(link: &LinkStatus) -> bool {
    link.kind.as_deref() == Some("ifb")
}

fn is_ours(link: &LinkStatus) -> bool {
    is_ifb(link) && link.alias == MARK
}

fn is_free(link: &LinkStatus) -> bool {
    is_ifb(link) && !link.up
}

fn create(name: &str, queues: u32, changes: &mut Changes) -> Result<LinkStatus, IfbError> {
    let mut message = LinkMessage::default();
    message.attributes = vec![
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::NumTxQueues(queues),
        LinkAttribute::NumRxQueues(queues),
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Ifb)]),
    ];
    let doing = format!("creating {name}");
    let request = RouteNetlinkMessage::NewLink(message);
    match netlink::ask(&doing, request, NLM_F_CREATE | NLM_F_EXCL) {
        Ok(_) => {}
        Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => return Err(IfbError::Missing),
        Err(error) => return Err(error.into()),
    }
    let made = status_by_name(name)?;
    changes.created(made.ifindex);
    Ok(made)
}

fn mark(ifb: &LinkStatus) -> Result<(), LinkError> {
    let mut message = LinkMessage::default();
    message.header.index = ifb.ifindex;
    message.attributes = vec![LinkAttribute::IfAlias(MARK.to_owned())];
    change(ifb.ifindex, &format!("marking {}", ifb.name), message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ifb_of_ours_or_of_nobody_is_used_and_only_ours_is_removed() {
        let link = |kind: &str, alias: &str, up| LinkStatus {
            kind: Some(kind.to_owned()),
            alias: alias.to_owned(),
            up,
            ..LinkStatus::default()
        };
        let whose = |link: &LinkStatus| (is_ours(link), is_free(link));
        assert_eq!(whose(&link("ifb", MARK, true)), (true, false));
        assert_eq!(whose(&link("ifb", "", false)), (false, true));
        assert_eq!(whose(&link("ifb", "sqm", true)), (false, false));
        assert_eq!(whose(&link("dummy", MARK, false)), (false, false));
    }
}
