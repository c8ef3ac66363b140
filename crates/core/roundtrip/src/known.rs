//! Results by host and by class.

use crate::losses::Losses;
use crate::trips::Trips;
use crate::windows::Known;
use std::net::IpAddr;

/// A host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    /// Its address.
    pub address: IpAddr,
    /// Round trips to it, beyond the port.
    pub trips: Trips,
    /// Losses of segments sent to it through the port.
    pub to: Losses,
    /// Losses of segments that it sent through the port.
    pub from: Losses,
}

/// A class of the outermost qdisc with classes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Class {
    /// Its number.
    pub id: u32,
    /// Round trips beyond the port, of packets that it sent.
    pub trips: Trips,
    /// Losses of segments that it sent.
    pub losses: Losses,
}

impl Known for Host {
    type Key = IpAddr;

    fn of(address: IpAddr, trips: Trips) -> Self {
        Self { address, trips, to: Losses::default(), from: Losses::default() }
    }

    fn key(&self) -> IpAddr {
        self.address
    }

    fn bits(address: IpAddr) -> u64 {
        match address {
            IpAddr::V4(address) => u64::from(u32::from(address)),
            IpAddr::V6(address) => {
                let bits = u128::from(address);
                (bits >> 64) as u64 ^ bits as u64
            }
        }
    }

    fn weight(&self) -> u64 {
        self.to.segments + self.from.segments + u64::from(!self.trips.is_empty())
    }

    fn trips_mut(&mut self) -> &mut Trips {
        &mut self.trips
    }

    fn merge(&mut self, other: &Self) {
        self.trips.merge(&other.trips);
        self.to.merge(&other.to);
        self.from.merge(&other.from);
    }
}

impl Known for Class {
    type Key = u32;

    fn of(id: u32, trips: Trips) -> Self {
        Self { id, trips, losses: Losses::default() }
    }

    fn key(&self) -> u32 {
        self.id
    }

    fn bits(id: u32) -> u64 {
        id.into()
    }

    fn weight(&self) -> u64 {
        self.losses.segments + u64::from(!self.trips.is_empty())
    }

    fn trips_mut(&mut self) -> &mut Trips {
        &mut self.trips
    }

    fn merge(&mut self, other: &Self) {
        self.trips.merge(&other.trips);
        self.losses.merge(&other.losses);
    }
}
