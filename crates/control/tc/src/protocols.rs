//! The names of EtherTypes in `tc`.
//!
//! Source: iproute2 6.1, `lib/ll_proto.c`; the numbers are those of `linux/if_ether.h`. A name is
//! read in upper or lower case, and so is a number in any base that C knows. Of several names for
//! a number the first is printed, and numbers without a name in brackets.

use crate::number;
use narrows_classify::ANY_PROTOCOL;

const NAMES: [(&str, u16); 53] = [
    ("all", ANY_PROTOCOL),
    ("ip", 0x0800),
    ("ipv4", 0x0800),
    ("ipv6", 0x86dd),
    ("arp", 0x0806),
    ("802.1Q", 0x8100),
    ("802.1ad", 0x88a8),
    ("ppp_disc", 0x8863),
    ("ppp_ses", 0x8864),
    ("mpls_uc", 0x8847),
    ("mpls_mc", 0x8848),
    ("LLDP", 0x88cc),
    ("loop", 0x0060),
    ("pup", 0x0200),
    ("pupat", 0x0201),
    ("x25", 0x0805),
    ("bpq", 0x08ff),
    ("ieeepup", 0x0a00),
    ("ieeepupat", 0x0a01),
    ("dec", 0x6000),
    ("dna_dl", 0x6001),
    ("dna_rc", 0x6002),
    ("dna_rt", 0x6003),
    ("lat", 0x6004),
    ("diag", 0x6005),
    ("cust", 0x6006),
    ("sca", 0x6007),
    ("teb", 0x6558),
    ("rarp", 0x8035),
    ("atalk", 0x809b),
    ("aarp", 0x80f3),
    ("ipx", 0x8137),
    ("atmmpoa", 0x884c),
    ("atmfate", 0x8884),
    ("profinet", 0x8892),
    ("aoe", 0x88a2),
    ("ethercat", 0x88a4),
    ("tipc", 0x88ca),
    ("802_3", 0x0001),
    ("ax25", 0x0002),
    ("802_2", 0x0004),
    ("snap", 0x0005),
    ("ddcmp", 0x0006),
    ("wan_ppp", 0x0007),
    ("ppp_mp", 0x0008),
    ("localtalk", 0x0009),
    ("can", 0x000c),
    ("ppptalk", 0x0010),
    ("tr_802_2", 0x0011),
    ("mobitex", 0x0015),
    ("control", 0x0016),
    ("irda", 0x0017),
    ("econet", 0x0018),
];

/// The EtherType `word`, a name or a number.
pub(crate) fn number(word: &str) -> Option<u16> {
    let named = NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
    let counted = || u16::try_from(number::mask(word)?).ok();
    named.map(|(_, number)| *number).or_else(counted)
}

/// The name of an EtherType, or its number in brackets.
pub(crate) fn name(number: u16) -> String {
    named(number).map_or_else(|| format!("[{number}]"), str::to_owned)
}

/// Whether no frame on Ethernet is of this protocol. Smaller numbers than those of EtherTypes are
/// the kernel's own, for other media; a frame with a length is `802_3` or `802_2`
/// (`eth_type_trans()`).
pub(crate) fn is_of_no_frame(number: u16) -> bool {
    const ETHER_TYPE_MIN: u16 = 0x600;
    let are_frames = ["802_3", "802_2"].map(self::number).contains(&Some(number));
    number < ETHER_TYPE_MIN && number != ANY_PROTOCOL && !are_frames
}

/// The words that [`number()`] reads back.
pub(crate) fn save(number: u16) -> String {
    named(number).map_or_else(|| format!("{number:#x}"), str::to_owned)
}

fn named(number: u16) -> Option<&'static str> {
    NAMES.iter().find(|(_, known)| *known == number).map(|(name, _)| *name)
}
