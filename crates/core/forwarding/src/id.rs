//! The numbers of ports and devices, and tables of something for each of them.

use typed_index_collections::TiVec;

/// The most ports of an instance.
pub const PORTS_MAX: usize = 64;
/// The most devices of an instance: each has a port.
pub const DEVICES_MAX: usize = PORTS_MAX;

/// A port of an instance, by number: below [`PORTS_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PortId(u8);

/// A device of an instance, by number: below [`DEVICES_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeviceId(u8);

/// Something for each port.
pub type PerPort<T> = TiVec<PortId, T>;
/// Something for each device.
pub type PerDevice<T> = TiVec<DeviceId, T>;

impl PortId {
    /// The first port.
    pub const FIRST: Self = Self(0);
    /// The second port.
    pub const SECOND: Self = Self(1);

    /// The port with this number; `None` from [`PORTS_MAX`] on.
    pub const fn new(number: u8) -> Option<Self> {
        if (number as usize) < PORTS_MAX { Some(Self(number)) } else { None }
    }

    /// The first `count` ports.
    ///
    /// # Panics
    /// If they are more than [`PORTS_MAX`].
    pub fn first(count: usize) -> impl DoubleEndedIterator<Item = Self> + ExactSizeIterator {
        assert!(count <= PORTS_MAX, "{count} ports are more than an instance has");
        (0..count as u8).map(Self)
    }

    /// Its number.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The other port of its pair.
    #[inline(always)]
    pub const fn partner(self) -> Self {
        Self(self.0 ^ 1)
    }
}

impl DeviceId {
    /// The first device.
    pub const FIRST: Self = Self(0);

    /// The first `count` devices.
    ///
    /// # Panics
    /// If they are more than [`DEVICES_MAX`].
    pub fn first(count: usize) -> impl DoubleEndedIterator<Item = Self> + ExactSizeIterator {
        assert!(count <= DEVICES_MAX, "{count} devices are more than an instance has");
        (0..count as u8).map(Self)
    }

    /// Its number.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// For tables, whose indices are numbers of ports.
///
/// # Panics
/// From [`PORTS_MAX`] on.
impl From<usize> for PortId {
    #[inline]
    fn from(index: usize) -> Self {
        assert!(index < PORTS_MAX, "an instance has no port {index}");
        Self(index as u8)
    }
}

impl From<PortId> for usize {
    #[inline(always)]
    fn from(port: PortId) -> Self {
        port.index()
    }
}

/// For tables, whose indices are numbers of devices.
///
/// # Panics
/// From [`DEVICES_MAX`] on.
impl From<usize> for DeviceId {
    #[inline]
    fn from(index: usize) -> Self {
        assert!(index < DEVICES_MAX, "an instance has no device {index}");
        Self(index as u8)
    }
}

impl From<DeviceId> for usize {
    #[inline(always)]
    fn from(device: DeviceId) -> Self {
        device.index()
    }
}
