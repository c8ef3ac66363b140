//! Which server a QUIC connection id names.
//!
//! A client's address may change during a connection (NAT rebinding, migration: RFC 9000, section
//! 9). Its packets then carry connection ids that the server has chosen, and a server that puts its
//! own id in there gets them wherever they come from.
//!
//! *Formats.* QUIC-LB's plaintext: behind the first octet, whose upper three bits say which
//! configuration it is, are the server's id and a nonce. And those of Katran and mvfst: the upper
//! two bits are a version, which says how many bits the id has.
//!
//! Source: draft-ietf-quic-load-balancers-19, sections 3 and 5.2; Katran's `pckt_parsing.h`; RFC
//! 8999 for what all versions of QUIC have in common.
//!
//! *Non-goals.* Encrypted ids: a program in the driver has no AES. Several formats of one service.

use narrows_escape::shell;
use std::fmt;

/// The most octets of a server's id in QUIC-LB.
const LB_OCTETS_MAX: u8 = 15;

/// Where in a connection id the server's id is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QuicFormat {
    /// `lb:N`: QUIC-LB, in plaintext. The id has so many octets, from 1 to 15.
    Lb(u8),
    /// `katran`: Katran's versions 1 (16 bits), 2 (24 bits) and 3 (32 bits).
    Katran,
}

impl QuicFormat {
    /// Reads the word behind `--quic`.
    ///
    /// # Errors
    /// What it is not.
    pub fn read(word: &str) -> Result<Self, String> {
        if word == "katran" {
            return Ok(Self::Katran);
        }
        let known = "lb:N, with a server id of N octets (1 to 15), or katran";
        let Some(octets) = word.strip_prefix("lb:") else {
            return Err(format!("\"{}\" is no format of connection ids: {known}", shell(word)));
        };
        let octets = octets.parse().ok().filter(|octets| (1..=LB_OCTETS_MAX).contains(octets));
        octets.map(Self::Lb).ok_or_else(|| {
            format!(
                "\"{}\" is no format of connection ids: {known}. Encrypted ids are not read, because \
                 a program in the driver has no AES: let servers send theirs without a key",
                shell(word)
            )
        })
    }

    /// The lowest and the highest id of a server. Katran takes 0 for no server.
    const fn bounds(self) -> (u128, u128) {
        match self {
            Self::Lb(octets) => (0, (1 << (8 * octets as u32)) - 1),
            Self::Katran => (1, u32::MAX as u128),
        }
    }

    /// Whether `id` can be a server's.
    ///
    /// # Errors
    /// Which ids can.
    pub fn fits(self, id: u128) -> Result<(), String> {
        let (least, most) = self.bounds();
        match (least..=most).contains(&id) {
            true => Ok(()),
            false => {
                Err(format!("--quic-id {id:#x} does not fit --quic {self}: {least} to {most:#x}"))
            }
        }
    }
}

impl fmt::Display for QuicFormat {
    /// As commands have it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lb(octets) => write!(f, "lb:{octets}"),
            Self::Katran => f.write_str("katran"),
        }
    }
}

/// Reads a server's id: a decimal number, or a hexadecimal one behind `0x`.
///
/// # Errors
/// If it is none.
pub(crate) fn read_id(word: &str) -> Result<u128, String> {
    let number = match word.strip_prefix("0x") {
        Some(digits) => u128::from_str_radix(digits, 16),
        None => word.parse(),
    };
    number.map_err(|_| {
        format!("\"{}\" is no server id: a number, decimal or hexadecimal (0x2a)", shell(word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_read_as_it_is_written() {
        for word in ["lb:1", "lb:15", "katran"] {
            assert_eq!(QuicFormat::read(word).unwrap().to_string(), word);
        }
        for (wrong, why) in [
            ("lb:0", "1 to 15"),
            ("lb:16", "1 to 15"),
            ("lb:4:8f95f09245765f80", "no AES"),
            ("lb", "lb:N"),
            ("aes", "katran"),
        ] {
            let said = QuicFormat::read(wrong).unwrap_err();
            assert!(said.contains(why), "{wrong}: {said}");
        }
    }

    #[test]
    fn an_id_fits_into_its_octets() {
        assert_eq!(read_id("0x2a"), Ok(42));
        assert_eq!(read_id("42"), Ok(42));
        assert!(read_id("2a").is_err() && read_id("-1").is_err() && read_id("0x").is_err());
        let lb = QuicFormat::Lb(2);
        assert!(lb.fits(0).is_ok() && lb.fits(0xffff).is_ok() && lb.fits(0x1_0000).is_err());
        assert!(QuicFormat::Lb(15).fits((1 << 120) - 1).is_ok());
        assert!(QuicFormat::Lb(15).fits(1 << 120).is_err());
        let katran = QuicFormat::Katran;
        assert!(katran.fits(0).is_err() && katran.fits(u32::MAX.into()).is_ok());
        assert!(katran.fits(1 << 32).is_err());
    }
}
