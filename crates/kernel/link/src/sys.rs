//! The system calls without a safe wrapper: `SIOCETHTOOL`, and membership and addresses of
//! AF_PACKET sockets. All `unsafe` code of the crate is here.
//!
//! `rustix` opens the sockets (safe), reads capabilities, limits and the kernel's version, and
//! enters namespaces. It has no wrapper for these, because their argument is a structure that the
//! kernel defines per command. Those structures are declared below after `linux/ethtool.h`,
//! which `libc` does not include.
#![allow(unsafe_code)]

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GRINGPARAM: u32 = 0x10;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_SFEATURES: u32 = 0x3b;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// `ETH_SS_FEATURES`: the names of features.
const FEATURE_STRINGS: u32 = 4;
/// The bits in a word of a feature set.
const WORD_BITS: usize = 32;
/// The most words of features that are supported. Linux has two.
const WORDS: usize = 4;

/// An ethtool request that is answered with a single number (`struct ethtool_value`).
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

/// An ethtool command with a single number.
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

/// `struct ethtool_sset_info`, asked about one set.
#[repr(C)]
#[derive(Default)]
struct SetInfo {
    cmd: u32,
    reserved: u32,
    mask: u64,
    count: u32,
}

/// `struct ethtool_gstrings`, with room for the names of all supported features.
#[repr(C)]
struct Strings {
    cmd: u32,
    set: u32,
    count: u32,
    names: [[u8; 32]; WORDS * WORD_BITS],
}

/// `struct ethtool_gfeatures`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct FeatureState {
    cmd: u32,
    words: u32,
    blocks: [FeatureBlock; WORDS],
}

impl FeatureState {
    /// Whether the feature with `number` is on.
    pub(crate) fn is_on(&self, number: usize) -> bool {
        let block = self.blocks.get(number / WORD_BITS);
        block.is_some_and(|block| block.active >> (number % WORD_BITS) & 1 != 0)
    }
}

/// `struct ethtool_get_features_block`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FeatureBlock {
    available: u32,
    requested: u32,
    active: u32,
    never_changed: u32,
}

/// `struct ethtool_sfeatures`.
#[repr(C)]
#[derive(Default)]
struct SetFeatures {
    cmd: u32,
    words: u32,
    blocks: [SetFeatureBlock; WORDS],
}

/// `struct ethtool_set_features_block`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct SetFeatureBlock {
    valid: u32,
    requested: u32,
}

/// A structure that the kernel reads and writes on `SIOCETHTOOL`.
///
/// # Safety
///
/// The type is `repr(C)`, holds integers only (any bytes are a valid value), begins with the
/// command number, and is at least as long as what the kernel writes for every command number that
/// this module puts there. If the kernel's structure has a variable tail, the type has room for all
/// of it that this module requests.
unsafe trait Command {}
// SAFETY: two u32, as `struct ethtool_value`; used with the `Question`s and `Setting`s only.
unsafe impl Command for Value {}
// SAFETY: nine u32, as `struct ethtool_channels`; used with ETHTOOL_GCHANNELS only.
unsafe impl Command for RawChannels {}
// SAFETY: nine u32, as `struct ethtool_ringparam`; used with ETHTOOL_GRINGPARAM only.
unsafe impl Command for RawRings {}
// SAFETY: 196 bytes, as `struct ethtool_drvinfo`; used with ETHTOOL_GDRVINFO only.
unsafe impl Command for RawDriver {}
// SAFETY: as `struct ethtool_sset_info` followed by one number, which is what the kernel writes for
// a mask of one bit; used with ETHTOOL_GSSET_INFO and one bit only.
unsafe impl Command for SetInfo {}
// SAFETY: as `struct ethtool_gstrings`; used with ETHTOOL_GSTRINGS and FEATURE_STRINGS only, and
// only after `feature_names` has checked that `names` has room for all of them. Their number does
// not change while a kernel runs.
unsafe impl Command for Strings {}
// SAFETY: as `struct ethtool_gfeatures`; used with ETHTOOL_GFEATURES only, for which the kernel
// writes at most as many blocks as `words` says, and that is never more than WORDS.
unsafe impl Command for FeatureState {}
// SAFETY: as `struct ethtool_sfeatures`; used with ETHTOOL_SFEATURES only, for which the kernel
// reads as many blocks as it has words itself, or none if `words` differs from that.
unsafe impl Command for SetFeatures {}

/// A socket for ethtool requests, in the network namespace in which it was opened, whichever thread
/// uses it.
pub(crate) struct Ethtool(OwnedFd);

impl Ethtool {
    /// Opens a socket in the namespace of the calling thread.
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self(socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?))
    }

    /// Reads a number.
    pub(crate) fn ask(&self, name: &str, question: Question) -> io::Result<u32> {
        let mut value = Value { cmd: question as u32, data: 0 };
        self.call(name, &mut value)?;
        Ok(value.data)
    }

    /// Sets a number.
    pub(crate) fn set(&self, name: &str, setting: Setting, data: u32) -> io::Result<()> {
        self.call(name, &mut Value { cmd: setting as u32, data })
    }

    /// Reads the names of all features, by their number.
    pub(crate) fn feature_names(&self, name: &str) -> io::Result<Vec<[u8; 32]>> {
        let mask = 1 << FEATURE_STRINGS;
        let mut info = SetInfo { cmd: ETHTOOL_GSSET_INFO, mask, ..SetInfo::default() };
        self.call(name, &mut info)?;
        let count = info.count as usize;
        if info.mask != mask || count > WORDS * WORD_BITS {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut strings = Strings {
            cmd: ETHTOOL_GSTRINGS,
            set: FEATURE_STRINGS,
            count: info.count,
            names: [[0; 32]; WORDS * WORD_BITS],
        };
        self.call(name, &mut strings)?;
        Ok(strings.names[..count].to_vec())
    }

    /// Switches the feature with `number`. Succeeds even if the driver ignores it.
    pub(crate) fn set_feature(&self, name: &str, number: usize, on: bool) -> io::Result<()> {
        let words = self.features(name)?.words;
        let bit = 1 << (number % WORD_BITS);
        let mut wanted = SetFeatures { cmd: ETHTOOL_SFEATURES, words, ..SetFeatures::default() };
        let block = wanted.blocks.get_mut(number / WORD_BITS);
        let block = block.ok_or(io::ErrorKind::Unsupported)?;
        *block = SetFeatureBlock { valid: bit, requested: if on { bit } else { 0 } };
        self.call(name, &mut wanted)
    }

    /// Reads which features are on.
    pub(crate) fn features(&self, name: &str) -> io::Result<FeatureState> {
        let cmd = ETHTOOL_GFEATURES;
        let mut features = FeatureState { cmd, words: WORDS as u32, ..FeatureState::default() };
        self.call(name, &mut features)?;
        if features.words as usize > WORDS {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(features)
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
        // SAFETY: `ifreq` holds integers, byte arrays and a union of these with a pointer; all
        // zeros are a valid value of each.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // The last byte stays 0, so that the name is terminated.
        if name.len() >= request.ifr_name.len() {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            // Signed or not, as the processor has it.
            *to = libc::c_char::from_ne_bytes([from]);
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

/// A change of a membership.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(crate) enum Membership {
    Add = libc::PACKET_ADD_MEMBERSHIP,
    Drop = libc::PACKET_DROP_MEMBERSHIP,
}

/// Makes `socket`, an AF_PACKET socket, hold interface `ifindex` in promiscuous mode until it is
/// dropped or the socket is closed.
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

/// The address of a neighbour at interface `ifindex`, and of frames of this type.
fn packet_address(ifindex: u32, mac: [u8; 6], ether_type: u16) -> libc::sockaddr_ll {
    let mut address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as libc::sa_family_t,
        sll_protocol: ether_type.to_be(),
        sll_ifindex: ifindex.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: mac.len() as u8,
        sll_addr: [0; 8],
    };
    address.sll_addr[..mac.len()].copy_from_slice(&mac);
    address
}

/// From now on `socket`, an AF_PACKET socket without a protocol, receives frames of this type from
/// all interfaces.
pub(crate) fn receive_type(socket: BorrowedFd<'_>, ether_type: u16) -> io::Result<()> {
    let address = packet_address(0, [0; 6], ether_type);
    // SAFETY: the descriptor is open; pointer and length describe `address`, which outlives the
    // call; the kernel only reads it.
    let rc = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            std::ptr::from_ref(&address).cast::<libc::sockaddr>(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sends `packet` by `socket`, an AF_PACKET socket of type SOCK_DGRAM, through interface `ifindex`
/// to `mac`, as the payload of a frame of this type.
pub(crate) fn send_to_neighbour(
    socket: BorrowedFd<'_>,
    ifindex: u32,
    mac: [u8; 6],
    ether_type: u16,
    packet: &[u8],
) -> io::Result<()> {
    let address = packet_address(ifindex, mac, ether_type);
    // SAFETY: the descriptor is open, both pointers and lengths describe `packet` and `address`,
    // which outlive the call; the kernel only reads them.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            packet.as_ptr().cast::<c_void>(),
            packet.len(),
            libc::MSG_DONTWAIT,
            std::ptr::from_ref(&address).cast::<libc::sockaddr>(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
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
        // Two words of features: a header, and 16 bytes a word to read, 8 to write.
        assert_eq!(std::mem::offset_of!(FeatureState, blocks) + 2 * size_of::<FeatureBlock>(), 40);
        assert_eq!(
            std::mem::offset_of!(SetFeatures, blocks) + 2 * size_of::<SetFeatureBlock>(),
            24
        );
        assert_eq!(std::mem::offset_of!(SetInfo, count), 16);
        assert_eq!(std::mem::offset_of!(Strings, names), 12);
    }

    #[test]
    fn features_have_the_names_that_ethtool_prints() {
        let names = Ethtool::open().unwrap().feature_names("lo").unwrap();
        let has = |wanted: &str| names.iter().any(|name| crate::status::text(name) == wanted);
        assert!(has("rx-vlan-stag-hw-parse") && has("rx-gro-hw") && !has("rx-nonsense"));
    }

    #[test]
    fn a_name_that_cannot_be_one_is_no_device() {
        let ethtool = Ethtool::open().unwrap();
        let error = ethtool.channels("a-name-far-too-long-for-one").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }
}
