//! Switches off offloads that would corrupt traffic, on a port or on the other end of a veth, and
//! on again.
//!
//! A [`Features`] holds a socket in the interface's own network namespace. Opening it needs the
//! right to enter that namespace (CAP_SYS_ADMIN for a namespace other than this one). Afterwards,
//! switching needs CAP_NET_ADMIN in that namespace, and reading needs nothing.

use crate::ethtool::{self, Offloads};
use crate::peer::Peer;
use crate::sys::{Ethtool, Question, Setting};
use crate::{Link, LinkError};
use narrows_escape::shell;
use narrows_forwarding::Forwarding;
use serde::{Deserialize, Serialize};
use std::io;

/// An offload that changes what XDP sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Offload {
    /// Tags are stripped from received frames.
    RxVlan,
    /// The device inserts tags.
    TxVlan,
    /// Outer 802.1ad tags are stripped from received frames.
    RxServiceTag,
    /// The device inserts outer 802.1ad tags.
    TxServiceTag,
    /// Received packets are merged in the device.
    Lro,
    /// Received packets are merged in the device, in a way that can be reversed.
    GroHw,
    /// Received packets are merged in the stack.
    Gro,
    /// The device computes transport checksums.
    TxChecksum,
}

impl Offload {
    /// The offloads that corrupt the frames that a port receives; `generic` if XDP runs in the
    /// stack.
    pub fn of_port(generic: bool) -> &'static [Self] {
        if generic {
            &[Self::RxVlan, Self::RxServiceTag, Self::Lro, Self::GroHw, Self::Gro]
        } else {
            &[Self::RxVlan, Self::RxServiceTag, Self::Lro, Self::GroHw]
        }
    }

    /// The offloads that corrupt received frames where programs run behind the driver, at tcx. All
    /// others can be reversed there.
    pub const AT_TCX: &'static [Self] = &[Self::Lro];

    /// The work that the other end of a veth leaves undone in the frames that it sends.
    pub const OF_PEER: &'static [Self] = &[Self::TxChecksum, Self::TxVlan, Self::TxServiceTag];

    /// Those of them that hide something from filters. A host's stack does the rest of that work on
    /// what it receives.
    const OF_PEER_OF_HOST: &'static [Self] = &[Self::TxVlan, Self::TxServiceTag];

    /// The words of `ethtool -K` that switch all of these off.
    pub const PEER_WORDS: &'static str = "tx off txvlan off tx-vlan-stag-hw-insert off";

    /// Its name in `ethtool -K`.
    pub fn word(self) -> &'static str {
        match self {
            Self::RxVlan => "rxvlan",
            Self::TxVlan => "txvlan",
            Self::RxServiceTag => ethtool::RX_SERVICE_TAG,
            Self::TxServiceTag => ethtool::TX_SERVICE_TAG,
            Self::Lro => "lro",
            Self::GroHw => ethtool::GRO_HW,
            Self::Gro => "gro",
            Self::TxChecksum => "tx",
        }
    }

    /// The effect on traffic while it is on.
    fn harm(self) -> &'static str {
        match self {
            Self::RxVlan | Self::TxVlan => "tagged frames pass without their tag",
            Self::RxServiceTag | Self::TxServiceTag => {
                "802.1ad frames pass without their outer tag"
            }
            Self::Lro | Self::GroHw | Self::Gro => "merged packets cannot be forwarded as received",
            Self::TxChecksum => "TCP and UDP arrive with wrong checksums",
        }
    }

    /// The effect on the traffic of a stick while it is on. A frame without its tag is in none of
    /// the stick's VLANs, or with its inner tag in the wrong one, so the kernel gets it: its VLAN
    /// devices know the tag all the same.
    fn harm_to_stick(self) -> &'static str {
        match self {
            Self::RxVlan | Self::TxVlan => {
                "tagged frames pass Narrows by, unshaped with the standby and lost without it, and \
                 of two tags the inner one counts"
            }
            Self::RxServiceTag | Self::TxServiceTag => {
                "802.1ad frames pass Narrows by, unshaped with the standby and lost without it, or \
                 their inner tag counts"
            }
            _ => self.harm(),
        }
    }

    /// The effect on the traffic of a router or a switch while it is on. Only its tag says which
    /// device or VLAN a frame arrives in, and so what the kernel would do with it.
    fn harm_to_router(self) -> &'static str {
        match self {
            Self::RxVlan | Self::TxVlan => {
                "what arrives in a VLAN is forwarded as if it had arrived without a tag, or in the \
                 VLAN of the inner one"
            }
            Self::RxServiceTag | Self::TxServiceTag => {
                "what arrives in an 802.1ad VLAN is forwarded as if it had arrived outside of it"
            }
            _ => self.harm(),
        }
    }

    /// The effect on the filters of a host while it is on. All frames arrive whole all the same.
    fn harm_to_host(self) -> &'static str {
        match self {
            Self::RxVlan | Self::TxVlan => "filters do not see the tags of VLANs",
            Self::RxServiceTag | Self::TxServiceTag => "filters do not see the outer tags",
            Self::Lro | Self::GroHw | Self::Gro => "filters see several packets as one",
            Self::TxChecksum => self.harm(),
        }
    }

    /// Whether it is on in `offloads`.
    pub fn is_on(self, offloads: &Offloads) -> bool {
        match self {
            Self::RxVlan => offloads.rx_vlan,
            Self::TxVlan => offloads.tx_vlan,
            Self::RxServiceTag => offloads.rx_service_tag,
            Self::TxServiceTag => offloads.tx_service_tag,
            Self::Lro => offloads.lro,
            Self::GroHw => offloads.gro_hw,
            Self::Gro => offloads.gro,
            Self::TxChecksum => offloads.tx_checksum,
        }
    }
}

/// What offloads do to a kind of forwarding.
pub struct Harm {
    /// The effect of each.
    pub of: fn(Offload) -> &'static str,
    /// Those that have an effect while the other end of a veth has them on.
    pub of_peer: &'static [Offload],
}

impl Harm {
    /// To frames from port to port.
    pub const WIRE: Self = Self { of: Offload::harm, of_peer: Offload::OF_PEER };
    /// To those of a stick.
    pub const STICK: Self = Self { of: Offload::harm_to_stick, of_peer: Offload::OF_PEER };
    /// To those of a router or a switch.
    pub const ROUTER: Self = Self { of: Offload::harm_to_router, of_peer: Offload::OF_PEER };
    /// To those of a host.
    pub const HOST: Self = Self { of: Offload::harm_to_host, of_peer: Offload::OF_PEER_OF_HOST };

    /// What they do to the traffic of `ports`.
    pub fn to(ports: &Forwarding) -> &'static Self {
        match ports {
            ports if ports.is_stick() => &Self::STICK,
            ports if ports.is_chosen() => &Self::ROUTER,
            ports if ports.is_host() => &Self::HOST,
            _ => &Self::WIRE,
        }
    }
}

/// An interface whose offloads can be read and switched.
pub struct Features {
    ethtool: Ethtool,
    name: String,
    /// The prefix of a command that runs it in the interface's namespace.
    prefix: String,
}

impl Features {
    /// The interface `name` of the calling thread's namespace.
    ///
    /// # Errors
    /// If the kernel provides no socket.
    pub fn here(name: &str) -> Result<Self, LinkError> {
        let ethtool = Ethtool::open()
            .map_err(|error| LinkError::from_io("opening a socket to ask ethtool", error))?;
        Ok(Self { ethtool, name: name.to_owned(), prefix: String::new() })
    }

    /// The other end of the veth `link`; none if it is not a veth, or its namespace cannot be
    /// entered.
    pub fn peer_of(link: &Link) -> Option<Self> {
        let id = link.status.peer.filter(|_| link.status.is_veth())?;
        let (ethtool, name, prefix) = Peer::reach(id)?;
        Some(Self { ethtool, name, prefix })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The offloads that are on; none if the interface is gone.
    pub fn offloads(&self) -> Option<Offloads> {
        self.ethtool.driver(&self.name).ok()?;
        Some(Offloads::read(&self.ethtool, &self.name))
    }

    /// Switches `offload`.
    ///
    /// # Errors
    /// Without CAP_NET_ADMIN, and if the driver does not allow the change.
    pub fn set(&self, offload: Offload, on: bool) -> Result<(), LinkError> {
        let failed = |error| LinkError::from_io(self.command(offload, on), error);
        self.switch(offload, on).map_err(failed)?;
        // A driver may report success and leave a fixed feature as it is.
        match self.offloads().map(|now| offload.is_on(&now)) {
            Some(now) if now != on => Err(failed(io::ErrorKind::Unsupported.into())),
            _ => Ok(()),
        }
    }

    fn switch(&self, offload: Offload, on: bool) -> io::Result<()> {
        match offload {
            Offload::RxVlan => self.set_flag(ethtool::FLAG_RX_VLAN, on),
            Offload::TxVlan => self.set_flag(ethtool::FLAG_TX_VLAN, on),
            Offload::Lro => self.set_flag(ethtool::FLAG_LRO, on),
            Offload::Gro => self.ethtool.set(&self.name, Setting::Gro, u32::from(on)),
            Offload::TxChecksum => self.ethtool.set(&self.name, Setting::TxChecksum, u32::from(on)),
            Offload::RxServiceTag | Offload::TxServiceTag | Offload::GroHw => {
                ethtool::set_feature(&self.ethtool, &self.name, offload.word(), on)
            }
        }
    }

    fn set_flag(&self, flag: u32, on: bool) -> io::Result<()> {
        let flags = self.ethtool.ask(&self.name, Question::Flags)?;
        let flags = if on { flags | flag } else { flags & !flag };
        self.ethtool.set(&self.name, Setting::Flags, flags)
    }

    /// The equivalent command.
    pub fn command(&self, offload: Offload, on: bool) -> String {
        let (name, prefix) = (shell(&self.name), &self.prefix);
        format!("{prefix}ethtool -K {name} {} {}", offload.word(), if on { "on" } else { "off" })
    }
}
