//! VLAN devices: what the kernel's stack sees of one VLAN of a device.
//!
//! A VLAN device is identified by the device below it and by its tag. Its name says nothing: an
//! operator may have made it, under any name, and it is used as it is.
//!
//! One that Narrows makes is called as [`port_name`] says, which is the name of the stick's port,
//! too. It is silent: no address, and so no router solicitations; IPv4 answers on it for nobody.
//! The kernel makes it so only after it exists, so it is made while it is down. It keeps the
//! priority (PCP) of what arrives in it: Linux's own default forgets it.
//!
//! # Whose it is
//!
//! Only the run that made a VLAN device removes it ([`Vlan::created`]), if it then cannot start. No
//! later run needs to know who made one, so nothing marks it: whatever a killed run left half done
//! is found by device and tag, is still down, and is silenced before it comes up like any other.
//! `ip link del NAME` removes one, when the bridge of ours that it is a port of is not wanted any
//! more.
//!
//! Non-goals: changing the name, the priorities or the addresses of a VLAN device that exists.

use crate::changes::Changes;
use crate::link::{all, hide, status_by_name};
use crate::stick::StickError;
use crate::{LinkError, LinkStatus, netlink};
use narrows_forwarding::stick::port_name;
use narrows_forwarding::{Tag, TagProtocol};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVlan, LinkAttribute, LinkInfo, LinkMessage, VlanProtocol,
    VlanQosMapping,
};

/// The kernel's words for a VLAN that has a device already; it says only `EEXIST` for a name, too.
const IN_USE: &str = "VLAN device already exists";
/// The kernel's words for a device that takes no VLANs. The error is that of a kernel without any.
const NOT_HERE: &str = "VLANs not supported on device";

/// A VLAN device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Vlan {
    /// Its index.
    pub ifindex: u32,
    /// Its name when it was prepared.
    pub name: String,
    /// The tag of its frames.
    pub tag: Tag,
    /// Whether it was made just now.
    pub created: bool,
}

/// The VLAN device with `tag` on the device `lower`, whatever its name.
pub(crate) fn find(lower: u32, tag: Tag, all: &[LinkStatus]) -> Option<&LinkStatus> {
    all.iter().find(|link| is_on(lower, tag, link))
}

/// Whether `link` is the VLAN device with `tag` on the device `lower`.
pub(crate) fn is_on(lower: u32, tag: Tag, link: &LinkStatus) -> bool {
    let is_below = |peer: crate::PeerId| peer.ifindex == lower && peer.namespace.is_none();
    link.vlan == Some(tag) && link.peer.is_some_and(is_below)
}

/// The names of the VLAN devices on the devices called `lower`, in the namespace of the calling
/// thread, whose frames all have priority 0.
///
/// # Errors
/// If the kernel does not list interfaces.
pub fn names_on(lower: &[&str]) -> Result<Vec<String>, LinkError> {
    let all = all()?;
    // There may be thousands on them.
    let named = all.iter().filter(|link| lower.contains(&link.name.as_str()));
    let lower: Vec<u32> = named.map(|link| link.ifindex).collect();
    let is_on_one =
        |link: &&LinkStatus| link.plain_vlan().is_some_and(|(of, _)| lower.contains(&of));
    Ok(all.iter().filter(is_on_one).map(|link| link.name.clone()).collect())
}

/// The MTU that a VLAN device on `lower` should have: the device's own. Only MACsec counts the tag
/// as payload.
pub(crate) fn mtu(lower: &LinkStatus) -> u32 {
    /// What a tag adds to a frame, in bytes.
    const TAG: u32 = 4;
    match lower.kind.as_deref() {
        Some("macsec") => lower.mtu.saturating_sub(TAG),
        _ => lower.mtu,
    }
}

/// The interface that has the name of the VLAN device that is to be made.
pub(crate) fn namesake<'a>(
    lower: &LinkStatus,
    tag: Tag,
    all: &'a [LinkStatus],
) -> Option<&'a LinkStatus> {
    let name = port_name(&lower.name, tag);
    all.iter().find(|link| link.name == name)
}

/// Makes the VLAN device with `tag` on `lower`, down and silent. If another process was faster, its
/// device is as good.
pub(crate) fn create(
    lower: &LinkStatus,
    tag: Tag,
    changes: &mut Changes,
) -> Result<(LinkStatus, bool), StickError> {
    let name = port_name(&lower.name, tag);
    let doing = format!("creating {name} for {tag} of {}", lower.name);
    let request = RouteNetlinkMessage::NewLink(message(&name, lower.ifindex, tag));
    match netlink::ask(&doing, request, NLM_F_CREATE | NLM_F_EXCL) {
        Ok(_) => {}
        Err(error) if error.errno() == Some(libc::EEXIST) => {
            return match find(lower.ifindex, tag, &all()?) {
                Some(link) => Ok((link.clone(), false)),
                None => Err(in_the_way(&error, &lower.name, tag)),
            };
        }
        Err(error) if error.errno() == Some(libc::EOPNOTSUPP) && !says(&error, NOT_HERE) => {
            return Err(StickError::NoVlans);
        }
        Err(error) => return Err(error.into()),
    }
    let made = status_by_name(&name)?;
    changes.created(made.ifindex);
    hide(&format!("hiding {name} from its network"), made.ifindex)?;
    Ok((status_by_name(&name)?, true))
}

/// What is in the way of a VLAN device for `tag` that no interface of this namespace is.
fn in_the_way(error: &LinkError, device: &str, tag: Tag) -> StickError {
    match says(error, IN_USE) {
        true => StickError::Elsewhere { device: device.to_owned(), tag },
        false => StickError::NameTaken { device: device.to_owned(), tag },
    }
}

fn says(error: &LinkError, words: &str) -> bool {
    matches!(error, LinkError::Kernel { said: Some(said), .. } if said.contains(words))
}

fn message(name: &str, lower: u32, tag: Tag) -> LinkMessage {
    let protocol = match tag.protocol() {
        TagProtocol::Customer => VlanProtocol::Ieee8021Q,
        TagProtocol::Service => VlanProtocol::Ieee8021Ad,
    };
    // Each to itself; 0 is what the kernel takes for one that is not in the list.
    let priorities: Vec<VlanQosMapping> =
        (1..8).map(|priority| VlanQosMapping::Mapping(priority, priority)).collect();
    let mut message = LinkMessage::default();
    message.attributes = vec![
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::Link(lower),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Vlan),
            LinkInfo::Data(InfoData::Vlan(vec![
                InfoVlan::Id(tag.vid()),
                InfoVlan::Protocol(protocol),
                InfoVlan::IngressQos(priorities.clone()),
                InfoVlan::EgressQos(priorities),
            ])),
        ]),
    ];
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PeerId;

    fn tag(protocol: TagProtocol, vid: u16) -> Tag {
        Tag::new(protocol, vid).unwrap()
    }

    #[test]
    fn a_vlan_device_is_known_by_device_and_tag_and_not_by_name() {
        let (customer, service) = (TagProtocol::Customer, TagProtocol::Service);
        let on = |lower, namespace, protocol, vid: u16| LinkStatus {
            ifindex: vid.into(),
            name: "eth0.100".into(),
            vlan: Some(tag(protocol, vid)),
            peer: Some(PeerId { ifindex: lower, namespace }),
            ..LinkStatus::default()
        };
        let all = [
            on(2, Some(0), customer, 100),
            on(3, None, customer, 100),
            on(2, None, service, 100),
            on(2, None, customer, 101),
        ];
        assert_eq!(find(2, tag(customer, 100), &all), None);
        assert_eq!(find(2, tag(service, 100), &all), Some(&all[2]));
        assert_eq!(find(2, tag(customer, 101), &all), Some(&all[3]));
        assert_eq!(find(3, tag(customer, 100), &all), Some(&all[1]));
    }

    #[test]
    fn the_kernels_words_tell_a_taken_vlan_from_a_taken_name() {
        let refused = |said: Option<&str>| {
            let source = std::io::Error::from_raw_os_error(libc::EEXIST);
            let error = LinkError::from_kernel("creating", source, said.map(str::to_owned));
            in_the_way(&error, "eth0", tag(TagProtocol::Service, 7)).to_string()
        };
        let elsewhere = refused(Some("8021q: VLAN device already exists"));
        assert!(
            elsewhere.starts_with(
                "802.1ad VLAN 7 of eth0 has a device in another network namespace; try: ip -all"
            ),
            "{elsewhere}"
        );
        assert!(refused(None).starts_with("eth0.7 is the name of another interface"));
    }

    #[test]
    fn only_macsec_has_no_room_for_the_tag() {
        let mut lower = LinkStatus { mtu: 1468, ..LinkStatus::default() };
        assert_eq!(mtu(&lower), 1468);
        lower.kind = Some("macsec".into());
        assert_eq!(mtu(&lower), 1464);
    }
}
