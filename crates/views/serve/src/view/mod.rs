//! What the page shows, made once per interval from a snapshot.
//!
//! *Idea.* A snapshot is a tree of qdiscs and classes for each port. People ask for subscribers and
//! sites, with download and upload side by side. A [`Model`] is that: each screen is a function of
//! it and of what a client asks for.
//!
//! *Principles.* Pure: time is an argument, nothing is read. A figure that is not known is unknown,
//! and not zero. What a client gets is bounded, whatever the number of subscribers.
//!
//! *Non-goals.* Metrics (`metrics`), the snapshot itself (`download`), a history of subscribers.

mod addresses;
mod detail;
mod equipment;
mod events;
mod figure;
mod heat;
mod overview;
mod query;
mod rows;
mod scale;
mod standing;
mod subject;

pub(crate) use addresses::Addresses;
pub(crate) use detail::Detail;
pub(crate) use equipment::Equipment;
pub(crate) use events::EventList;
pub(crate) use figure::Figure;
pub(crate) use heat::{Column, Heat, column};
pub(crate) use overview::Overview;
pub(crate) use query::{Kind, Parameters, Rows, Screen};
pub(crate) use rows::{Row, window};
pub(crate) use scale::scale;
pub(crate) use standing::{Gone, Standing};

use addresses::Network;
use narrows_snapshot::{Change, Snapshot};
use overview::Direction;
use std::sync::Arc;
use subject::Subject;

/// The deepest tree whose sites are followed upwards.
const DEPTH_MAX: usize = 64;

/// What all screens are made from.
#[derive(Debug)]
pub(crate) struct Model {
    /// When it was made, in seconds since 1970.
    pub(crate) time: f64,
    pub(crate) snapshot: Arc<Snapshot>,
    directions: Vec<Direction>,
    subjects: Vec<Subject>,
    hosts: Vec<Subject>,
    addresses: Arc<Addresses>,
}

impl Model {
    /// Of `now`, which is a `change` of an earlier snapshot. What leaves through the port
    /// `downlink` is download.
    pub(crate) fn new(
        now: Arc<Snapshot>,
        change: Option<&Change<'_>>,
        time: f64,
        downlink: Option<&str>,
        addresses: Arc<Addresses>,
    ) -> Self {
        let ways = subject::ways(&now.ports, downlink);
        let directions = overview::directions(&now, change, &ways);
        let subjects = subject::of_classes(&now, change, &ways);
        let hosts = subject::of_hosts(&now, &ways);
        Self { time, snapshot: now, directions, subjects, hosts, addresses }
    }

    /// The site of a subject.
    fn site(&self, subject: &Subject) -> Option<&Subject> {
        self.subjects.get(subject.site? as usize)
    }

    /// The places of the sites above a subject, the nearest first.
    fn path(&self, subject: &Subject) -> impl Iterator<Item = u32> {
        let above = |place: &u32| self.subjects.get(*place as usize)?.site;
        std::iter::successors(subject.site, above).take(DEPTH_MAX)
    }

    /// The networks of a subscriber.
    fn networks(&self, subject: &Subject) -> impl Iterator<Item = Network> {
        let of = |(port, class): (u16, u32)| {
            let port = self.snapshot.ports.get(usize::from(port))?;
            let class = port.classes.get(class as usize)?;
            Some(self.addresses.of(&port.name, &class.handle))
        };
        let places = subject.sides().filter_map(|side| side.place);
        places.filter_map(of).flatten().copied()
    }

    /// The subject with this id.
    fn find(&self, kind: Kind, id: &str) -> Option<&Subject> {
        let all = if kind == Kind::Hosts { &self.hosts } else { &self.subjects };
        all.iter().find(|one| one.id == id)
    }
}
