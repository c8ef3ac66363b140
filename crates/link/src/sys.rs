//! The two system calls for which no safe wrapper exists: `SIOCETHTOOL`, and membership of
//! AF_PACKET sockets. All `unsafe` code of the crate is here.
//!
//! `rustix` opens the sockets (safe), reads capabilities, limits and the kernel's
//! version, and enters namespaces; it has no wrapper for these two, because their
//! argument is a structure that the kernel defines per command. Those structures are
//! declared below after `linux/ethtool.h`, which `libc` does not carry.
#![allow(unsafe_code)]

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GRINGPARAM: u32 = 0x10;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// An ethtool question that is answered with a single number (`struct ethtool_value`).
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(crate) enum Question {
    RxChecksum = 0x14,
    TxChecksum = 0x16,
    Tso = 0x1e,
    Gso = 0x23,
    /// A mask of the `ETH_FLAG_*` bits.
    Flags = 0x25,
    Gro = 0x2b,
}

/// An ethtool command that carries a single number, as the questions are answered with.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(crate) enum Setting {
    TxChecksum = 0x17,
    /// The whole mask of the `ETH_FLAG_*` bits.
    Flags = 0x26,
    Gro = 0x2c,
}

/// `struct ethtool_value`.
#[repr(C)]
#[derive(Default)]
struct Value {
    cmd: u32,
    data: u32,
}

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RawChannels {
    cmd: u32,
    pub(crate) max_rx: u32,
    pub(crate) max_tx: u32,
    pub(crate) max_other: u32,
    pub(crate) max_combined: u32,
    pub(crate) rx: u32,
    pub(crate) tx: u32,
    pub(crate) other: u32,
    pub(crate) combined: u32,
}

/// `struct ethtool_ringparam`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RawRings {
    cmd: u32,
    pub(crate) rx_max: u32,
    pub(crate) rx_mini_max: u32,
    pub(crate) rx_jumbo_max: u32,
    pub(crate) tx_max: u32,
    pub(crate) rx: u32,
    pub(crate) rx_mini: u32,
    pub(crate) rx_jumbo: u32,
    pub(crate) tx: u32,
}

/// `struct ethtool_drvinfo`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawDriver {
    cmd: u32,
    pub(crate) driver: [u8; 32],
    version: [u8; 32],
    firmware: [u8; 32],
    pub(crate) bus: [u8; 32],
    erom: [u8; 32],
    reserved: [u8; 12],
    numbers: [u32; 5],
}

/// A structure that the kernel reads and writes on `SIOCETHTOOL`.
///
/// # Safety
///
/// The type is `repr(C)`, holds integers only (any bytes are a valid value), begins with
/// the command number, and is at least as long as what the kernel writes for every
/// command number that this module puts there. None of them has a variable tail.
unsafe trait Command {}
// SAFETY: two u32, as `struct ethtool_value`; used with the `Question`s and `Setting`s only.
unsafe impl Command for Value {}
// SAFETY: nine u32, as `struct ethtool_channels`; used with ETHTOOL_GCHANNELS only.
unsafe impl Command for RawChannels {}
// SAFETY: nine u32, as `struct ethtool_ringparam`; used with ETHTOOL_GRINGPARAM only.
unsafe impl Command for RawRings {}
// SAFETY: 196 bytes, as `struct ethtool_drvinfo`; used with ETHTOOL_GDRVINFO only.
unsafe impl Command for RawDriver {}

/// A socket through which ethtool is spoken, in the network namespace in which it was
/// opened, whichever thread uses it afterwards.
pub(crate) struct Ethtool(OwnedFd);

impl Ethtool {
    /// Opens one in the namespace of the calling thread.
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self(socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?))
    }

    /// Asks for a number.
    pub(crate) fn ask(&self, name: &str, question: Question) -> io::Result<u32> {
        let mut value = Value { cmd: question as u32, data: 0 };
        self.call(name, &mut value)?;
        Ok(value.data)
    }

    /// Sets a number.
    pub(crate) fn set(&self, name: &str, setting: Setting, data: u32) -> io::Result<()> {
        self.call(name, &mut Value { cmd: setting as u32, data })
    }

    /// Reads the numbers of queues.
    pub(crate) fn channels(&self, name: &str) -> io::Result<RawChannels> {
        let mut channels = RawChannels { cmd: ETHTOOL_GCHANNELS, ..RawChannels::default() };
        self.call(name, &mut channels)?;
        Ok(channels)
    }

    /// Reads the sizes of the rings.
    pub(crate) fn rings(&self, name: &str) -> io::Result<RawRings> {
        let mut rings = RawRings { cmd: ETHTOOL_GRINGPARAM, ..RawRings::default() };
        self.call(name, &mut rings)?;
        Ok(rings)
    }

    /// Reads the driver's name and the bus address.
    pub(crate) fn driver(&self, name: &str) -> io::Result<RawDriver> {
        let mut driver = RawDriver {
            cmd: ETHTOOL_GDRVINFO,
            driver: [0; 32],
            version: [0; 32],
            firmware: [0; 32],
            bus: [0; 32],
            erom: [0; 32],
            reserved: [0; 12],
            numbers: [0; 5],
        };
        self.call(name, &mut driver)?;
        Ok(driver)
    }

    fn call<C: Command>(&self, name: &str, command: &mut C) -> io::Result<()> {
        // SAFETY: `ifreq` holds integers, byte arrays and a union of a pointer with such;
        // all zeros is a valid value of each.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // The last byte stays 0, so that the name ends whatever it is.
        if name.len() >= request.ifr_name.len() {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from.cast_signed();
        }
        request.ifr_ifru.ifru_data = std::ptr::from_mut(command).cast();
        // SAFETY: the descriptor is an open socket, `request` is a live `ifreq` whose data
        // points to a structure that is exclusively borrowed for the call and, by the
        // contract of `Command`, as long as what the kernel reads and writes there. The
        // kernel keeps neither pointer.
        let rc = unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SIOCETHTOOL as _, &mut request) };
        if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// What to do with a membership.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(crate) enum Membership {
    Add = libc::PACKET_ADD_MEMBERSHIP,
    Drop = libc::PACKET_DROP_MEMBERSHIP,
}

/// Makes `socket`, an AF_PACKET socket, hold interface `ifindex` in promiscuous mode until
/// told otherwise or closed.
pub(crate) fn promiscuous_membership(
    socket: &OwnedFd,
    ifindex: i32,
    what: Membership,
) -> io::Result<()> {
    let membership = libc::packet_mreq {
        mr_ifindex: ifindex,
        mr_type: libc::PACKET_MR_PROMISC as _,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    // SAFETY: the descriptor is open, the pointer and the length describe `membership`,
    // which outlives the call; the kernel only reads it.
    let rc = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            what as i32,
            std::ptr::from_ref(&membership).cast::<c_void>(),
            size_of::<libc::packet_mreq>() as libc::socklen_t,
        )
    };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_as_long_as_the_kernel_s() {
        assert_eq!(size_of::<Value>(), 8);
        assert_eq!(size_of::<RawChannels>(), 36);
        assert_eq!(size_of::<RawRings>(), 36);
        assert_eq!(size_of::<RawDriver>(), 196);
    }

    #[test]
    fn a_name_that_cannot_be_one_is_no_device() {
        let ethtool = Ethtool::open().unwrap();
        let error = ethtool.channels("a-name-far-too-long-for-one").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }
}
