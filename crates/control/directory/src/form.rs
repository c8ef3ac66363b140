//! The trees of both ports as plain rows that can be compared.
//!
//! A [`Form`] is made from what a directory compiles into, or from what an instance runs. The
//! difference of two is the commands that lead from one to the other ([`Form::towards`]).
//!
//! *Handles of filters.* A filter can only be deleted by its handle, so each has one that follows
//! from its subscriber and address: for IPv4 the address itself, since a preference has a single
//! prefix length; for IPv6 the number of the class and the place among the subscriber's prefixes of
//! that length.

use crate::write::protocol;
use crate::{Compiled, DEFAULT, Place, Prefix, Queueing, ROOT, Tree, rate_words};
use narrows_units::Rate;
use std::net::IpAddr;

/// How many IPv6 prefixes of one length a subscriber may have: the last byte of a filter's handle.
pub(crate) const SIX_MAX: usize = 256;

/// Both trees: the downloads, and the uploads.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Form {
    /// The ports' trees.
    pub ports: [PortForm; 2],
}

/// The tree of a port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortForm {
    /// The port.
    pub dev: String,
    /// Whether its root is `htb` with the handle `1:` and the default class.
    pub has_root: bool,
    /// The classes, by number.
    pub classes: Vec<ClassForm>,
    /// The filters, by preference and handle.
    pub filters: Vec<FilterForm>,
}

/// A class and its queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassForm {
    /// Its number.
    pub minor: u32,
    /// The number of the class above; 0 for the qdisc.
    pub parent: u32,
    /// Its assured rate.
    pub rate: Rate,
    /// Its ceiling.
    pub ceil: Rate,
    /// Its priority, 0 to 7.
    pub prio: u8,
    /// Its qdisc.
    pub leaf: Leaf,
}

/// The qdisc of a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leaf {
    /// None of its own.
    None,
    /// `cake` as it is.
    Plain,
    /// `cake diffserv4`.
    Cake,
    /// `fq_codel`.
    FqCodel,
    /// A FIFO.
    Fifo,
    /// Something that no directory compiles into.
    Other,
}

impl Leaf {
    /// Its words behind `qdisc add … handle …`.
    pub fn words(self) -> &'static str {
        match self {
            Self::Plain | Self::Other => "cake",
            Self::Cake => "cake diffserv4",
            Self::FqCodel => "fq_codel",
            Self::Fifo => "pfifo limit 1000",
            Self::None => "noqueue",
        }
    }
}

impl From<Queueing> for Leaf {
    fn from(queueing: Queueing) -> Self {
        match queueing {
            Queueing::Cake => Self::Cake,
            Queueing::FqCodel => Self::FqCodel,
            Queueing::Fifo => Self::Fifo,
        }
    }
}

/// A site or subscriber, as far as its class is concerned.
#[derive(Clone, Copy)]
pub(crate) struct ClassOf<'a> {
    pub(crate) minor: u32,
    pub(crate) parent: u32,
    /// None for a site.
    pub(crate) queueing: Option<[Queueing; 2]>,
    pub(crate) addresses: &'a [Prefix],
}

/// A filter for an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FilterForm {
    /// Its preference: longer prefixes come first.
    pub pref: u16,
    /// Its handle.
    pub handle: u32,
    /// The address.
    pub address: Prefix,
    /// The class.
    pub minor: u32,
}

impl FilterForm {
    /// The preference of the filters for addresses of this family and length.
    pub fn pref_of(address: &Prefix) -> u16 {
        /// The first preference of IPv6 filters: as in the kernel, a preference has one protocol.
        const SIX: u16 = 100;
        match address.ip {
            IpAddr::V4(_) => 1 + 32_u16.saturating_sub(address.bits.into()),
            IpAddr::V6(_) => SIX + 128_u16.saturating_sub(address.bits.into()),
        }
    }

    /// The filters of the class `minor`, one for each of its `addresses`.
    pub(crate) fn of(minor: u32, addresses: &[Prefix]) -> impl Iterator<Item = Self> {
        // By length.
        let mut before = [0_usize; 129];
        addresses.iter().map(move |address| {
            let pref = Self::pref_of(address);
            let handle = match address.ip {
                // No filter has the handle 0.
                IpAddr::V4(ip) => u32::from(ip).max(1),
                IpAddr::V6(_) => {
                    let place = before[usize::from(address.bits.min(128))];
                    before[usize::from(address.bits.min(128))] += 1;
                    // The numbers of classes have 24 bits.
                    minor << 8 | place.min(SIX_MAX - 1) as u32
                }
            };
            Self { pref, handle, address: *address, minor }
        })
    }

    /// The protocol of its packets, as `tc` calls it.
    pub(crate) fn protocol(&self) -> &'static str {
        protocol(&self.address)
    }
}

impl Form {
    /// The trees of what was compiled.
    pub fn of(compiled: &Compiled) -> Self {
        let classes = compiled.entries.iter().map(|entry| ClassOf {
            minor: entry.minor,
            parent: entry.parent,
            queueing: entry.queueing,
            addresses: &entry.addresses,
        });
        Self::of_classes(&compiled.trees, classes)
    }

    /// The trees with these rates, of these classes.
    pub(crate) fn of_classes<'a>(
        trees: &[Tree; 2],
        all: impl Iterator<Item = ClassOf<'a>> + Clone,
    ) -> Self {
        let filters = all.clone().flat_map(|of| FilterForm::of(of.minor, of.addresses));
        let mut filters: Vec<FilterForm> = filters.collect();
        filters.sort_unstable_by_key(|filter| (filter.pref, filter.handle));
        let port = |direction: usize| {
            let Tree { dev, whole, rest, places } = &trees[direction];
            let (whole, rest) = (*whole, *rest);
            let fixed = [
                ClassForm {
                    minor: ROOT,
                    parent: 0,
                    rate: whole,
                    ceil: whole,
                    prio: 0,
                    leaf: Leaf::None,
                },
                ClassForm {
                    minor: DEFAULT,
                    parent: ROOT,
                    rate: rest,
                    ceil: whole,
                    prio: 7,
                    leaf: Leaf::Plain,
                },
            ];
            let own = all.clone().zip(places).map(|(of, Place { rate, ceil })| ClassForm {
                minor: of.minor,
                parent: of.parent,
                rate: *rate,
                ceil: *ceil,
                prio: 0,
                leaf: of.queueing.map_or(Leaf::None, |queueing| queueing[direction].into()),
            });
            let mut classes: Vec<ClassForm> = fixed.into_iter().chain(own).collect();
            classes.sort_unstable_by_key(|class| class.minor);
            PortForm { dev: dev.clone(), has_root: true, classes, filters: filters.clone() }
        };
        Self { ports: [port(0), port(1)] }
    }
}

impl ClassForm {
    /// Its words behind `classid`.
    pub(crate) fn words(&self) -> String {
        let Self { rate, ceil, prio, .. } = self;
        let prio = if *prio == 0 { String::new() } else { format!(" prio {prio}") };
        format!("htb rate {} ceil {}{prio}", rate_words(*rate), rate_words(*ceil))
    }
}
