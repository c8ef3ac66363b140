//! A device's carrier and loss counters.

use crate::LinkError;
use crate::link::device_message;
use crate::status::{each, u32_at};

const IFLA_STATS64: u16 = 23;
const IFLA_CARRIER: u16 = 33;
/// `struct ifinfomsg`.
const HEADER: usize = 16;
/// The offset of its flags, with `IFF_LOWER_UP`.
const FLAGS: usize = 8;

/// Packets that a device lost since it was created, whatever program sent them, in the kernel's
/// terms (`struct rtnl_link_stats64`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceLosses {
    /// Received and dropped (`rx_dropped`).
    pub rx_dropped: u64,
    /// Received with an error (`rx_errors`).
    pub rx_errors: u64,
    /// Missed because there was no buffer (`rx_missed_errors`).
    pub rx_missed: u64,
    /// Not sent: no carrier, or no room (`tx_dropped`).
    pub tx_dropped: u64,
    /// Not sent because of an error (`tx_errors`).
    pub tx_errors: u64,
    /// Lost with the carrier (`tx_carrier_errors`); included in `tx_errors`.
    pub tx_carrier: u64,
}

impl DeviceLosses {
    /// The losses since `earlier`; 0 for a counter that went back.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        self.with(earlier, u64::saturating_sub)
    }

    /// The sum of both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    fn with(&self, other: &Self, of: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            rx_dropped: of(self.rx_dropped, other.rx_dropped),
            rx_errors: of(self.rx_errors, other.rx_errors),
            rx_missed: of(self.rx_missed, other.rx_missed),
            tx_dropped: of(self.tx_dropped, other.tx_dropped),
            tx_errors: of(self.tx_errors, other.tx_errors),
            tx_carrier: of(self.tx_carrier, other.tx_carrier),
        }
    }
}

/// The state of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Device {
    /// Whether there is a carrier: a cable, or a veth peer that is up.
    pub carrier: bool,
    /// Its losses so far.
    pub losses: DeviceLosses,
}

impl Device {
    /// Reads the device with index `ifindex` in the network namespace of the calling thread.
    ///
    /// # Errors
    /// [`LinkError::NoSuchIndex`] if it is gone; another if the kernel does not answer.
    pub fn read(ifindex: u32) -> Result<Self, LinkError> {
        device_message(ifindex).map(|body| Self::parse(&body).unwrap_or_default())
    }

    fn parse(body: &[u8]) -> Option<Self> {
        let (header, attributes) = body.split_at_checked(HEADER)?;
        let flags = u32_at(header, FLAGS)?;
        let mut device = Self {
            carrier: flags & libc::IFF_LOWER_UP.cast_unsigned() != 0,
            losses: DeviceLosses::default(),
        };
        each(attributes, |kind, value| match kind {
            IFLA_CARRIER => device.carrier = value.first() == Some(&1),
            IFLA_STATS64 => {
                // Its fields in order; an older kernel has fewer.
                let field = |place: usize| {
                    let bytes = value.get(place * 8..).and_then(<[u8]>::first_chunk);
                    bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
                };
                device.losses = DeviceLosses {
                    rx_errors: field(4),
                    tx_errors: field(5),
                    rx_dropped: field(6),
                    tx_dropped: field(7),
                    rx_missed: field(15),
                    tx_carrier: field(17),
                };
            }
            _ => {}
        });
        Some(device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn losses_are_read_by_their_place_and_counted_from_a_beginning() {
        let mut body = vec![0; HEADER];
        let fields: Vec<u8> = (100..125_u64).flat_map(u64::to_ne_bytes).collect();
        body.extend((4 + fields.len() as u16).to_ne_bytes());
        body.extend(IFLA_STATS64.to_ne_bytes());
        body.extend(fields);
        let Device { carrier, losses } = Device::parse(&body).unwrap();
        assert!(!carrier);
        let expected = DeviceLosses {
            rx_errors: 104,
            tx_errors: 105,
            rx_dropped: 106,
            tx_dropped: 107,
            rx_missed: 115,
            tx_carrier: 117,
        };
        assert_eq!(losses, expected);
        let before = DeviceLosses { tx_dropped: 100, tx_errors: 200, ..DeviceLosses::default() };
        let since = losses.since(&before);
        assert_eq!((since.tx_dropped, since.tx_errors, since.rx_errors), (7, 0, 104));
        assert_eq!(since.and(&before).tx_dropped, 107);
    }

    #[test]
    fn the_loopback_device_has_a_carrier() {
        let device = Device::read(1).unwrap();
        assert!(device.carrier || !crate::Link::by_index(1).unwrap().status.up);
    }

    #[test]
    fn a_device_that_is_not_there_is_an_error() {
        assert!(matches!(Device::read(0), Err(LinkError::NoSuchIndex(0))));
        assert!(Device::read(i32::MAX.cast_unsigned()).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Device::parse(&bytes);
        }
    }
}
