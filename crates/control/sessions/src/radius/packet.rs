//! RADIUS packets as they are on the wire.
//!
//! *Idea.* A [`Packet`] borrows the datagram. [`Packet::decode`] walks all attributes once, so that
//! everything behind it may rely on their lengths. A [`Reply`] is written attribute by attribute
//! and signed at the end.
//!
//! *Source.* RFC 2865 section 3 and 5 (header, attributes, vendor-specific attributes), RFC 2866
//! section 3 and RFC 5176 section 2.3 (authenticators), RFC 3579 section 3.2 and RFC 5176 section
//! 3.4 (Message-Authenticator).
//!
//! *Non-goals.* Access-Request and its hidden passwords, attributes of more than 253 bytes
//! (RFC 6929), RADIUS over TCP and TLS.

use hmac::{Hmac, KeyInit as _, Mac as _};
use md5::{Digest as _, Md5};
use subtle::ConstantTimeEq as _;

/// The bytes before the attributes: code, identifier, length, authenticator.
pub const HEADER: usize = 20;
/// The longest packet (RFC 2865 section 3).
pub const PACKET_MAX: usize = 4096;
/// The most attributes that are looked at. A packet of nothing but empty ones has 2,038.
const ATTRIBUTES_MAX: usize = 512;
/// Where the authenticator is.
const AUTHENTICATOR: std::ops::Range<usize> = 4..20;

/// Proxy-State (RFC 2865 section 5.33).
pub const PROXY_STATE: u8 = 33;
/// Vendor-Specific (RFC 2865 section 5.26).
pub const VENDOR_SPECIFIC: u8 = 26;
/// Message-Authenticator (RFC 3579 section 3.2).
pub const MESSAGE_AUTHENTICATOR: u8 = 80;
/// Error-Cause (RFC 5176 section 3.5).
pub const ERROR_CAUSE: u8 = 101;

/// What a packet is: of the codes of RFC 2866 and RFC 5176, those that a server receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    /// Accounting-Request, 4.
    Accounting,
    /// Disconnect-Request, 40.
    Disconnect,
    /// CoA-Request, 43.
    ChangeOfAuthorization,
}

impl Code {
    fn of(byte: u8) -> Option<Self> {
        match byte {
            4 => Some(Self::Accounting),
            40 => Some(Self::Disconnect),
            43 => Some(Self::ChangeOfAuthorization),
            _ => None,
        }
    }
}

/// What is wrong with a datagram. RFC 2865 wants all of these dropped without an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Malformed {
    /// Shorter than its header, or than the length in it.
    #[error("it is shorter than its header says")]
    Short,
    /// The length in the header is not in 20..=4096.
    #[error("its header has no possible length")]
    Length,
    /// A request of another kind, or an answer.
    #[error("it is no request of accounting, CoA or Disconnect")]
    Code(u8),
    /// An attribute is shorter than its own header, or ends behind the packet.
    #[error("an attribute has no possible length")]
    Attribute,
    /// There are more attributes than anything sends.
    #[error("it has more than 512 attributes")]
    TooMany,
}

/// A request whose attributes all have possible lengths.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    code: Code,
    bytes: &'a [u8],
}

/// What an attribute is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Type {
    /// The vendor (an enterprise number of IANA's registry); none for RFC attributes.
    pub vendor: Option<u32>,
    /// The number.
    pub number: u8,
}

impl Type {
    /// An attribute of an RFC.
    pub const fn standard(number: u8) -> Self {
        Self { vendor: None, number }
    }

    /// A vendor's attribute.
    pub const fn vendor(vendor: u32, number: u8) -> Self {
        Self { vendor: Some(vendor), number }
    }
}

/// Whether a request is one of a client with this secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Authentic {
    /// It is.
    Yes {
        /// It has a Message-Authenticator, so the answer has one, too.
        by_message: bool,
    },
    /// Another secret was used, or somebody changed it.
    No,
}

impl<'a> Packet<'a> {
    /// The packet in `datagram`. What is behind the length in its header is padding.
    ///
    /// # Errors
    /// If it is none, or one that no server of accounting or CoA answers.
    pub fn decode(datagram: &'a [u8]) -> Result<Self, Malformed> {
        let header = datagram.first_chunk::<HEADER>().ok_or(Malformed::Short)?;
        let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if !(HEADER..=PACKET_MAX).contains(&length) {
            return Err(Malformed::Length);
        }
        let bytes = datagram.get(..length).ok_or(Malformed::Short)?;
        let code = Code::of(header[0]).ok_or(Malformed::Code(header[0]))?;
        let mut rest = &bytes[HEADER..];
        let mut count = 0;
        while !rest.is_empty() {
            let (_, _, behind) = split(rest).ok_or(Malformed::Attribute)?;
            rest = behind;
            count += 1;
            if count > ATTRIBUTES_MAX {
                return Err(Malformed::TooMany);
            }
        }
        Ok(Self { code, bytes })
    }

    /// What it asks for.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The number by which the client knows the answer.
    pub fn identifier(&self) -> u8 {
        self.bytes[1]
    }

    /// The sixteen bytes that only the owner of the secret can compute.
    pub fn authenticator(&self) -> [u8; 16] {
        // The constructor saw a whole header.
        self.bytes[AUTHENTICATOR].try_into().unwrap_or_default()
    }

    /// All attributes with their values, in order. Those inside a Vendor-Specific attribute stand
    /// for it; one that does not have the recommended format counts as unknown and is left out.
    pub fn attributes(&self) -> impl Iterator<Item = (Type, &'a [u8])> + use<'a> {
        self.plain().flat_map(|(number, value)| {
            let vendor = value.first_chunk::<4>().filter(|_| number == VENDOR_SPECIFIC);
            let plain = (number != VENDOR_SPECIFIC).then_some((Type::standard(number), value));
            let mut inside = vendor.map(|vendor| (u32::from_be_bytes(*vendor), &value[4..]));
            let of_vendor = std::iter::from_fn(move || {
                let (vendor, rest) = inside?;
                let (number, value, behind) = split(rest)?;
                inside = Some((vendor, behind));
                Some((Type::vendor(vendor, number), value))
            });
            plain.into_iter().chain(of_vendor)
        })
    }

    /// The value of the first attribute of this type.
    pub fn value(&self, wanted: Type) -> Option<&'a [u8]> {
        self.attributes().find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
    }

    /// The value of the first attribute of this type, if it has `N` bytes.
    pub fn fixed<const N: usize>(&self, number: u8) -> Option<[u8; N]> {
        self.value(Type::standard(number))?.try_into().ok()
    }

    /// A 32-bit number: the format "integer" or "time" of RFC 2865 section 5.
    pub fn integer(&self, number: u8) -> Option<u32> {
        self.fixed(number).map(u32::from_be_bytes)
    }

    fn plain(&self) -> impl Iterator<Item = (u8, &'a [u8])> + use<'a> {
        let mut rest = &self.bytes[HEADER..];
        std::iter::from_fn(move || {
            let (number, value, behind) = split(rest)?;
            rest = behind;
            Some((number, value))
        })
    }

    /// Whether it was signed with `secret`: the authenticator, and the Message-Authenticator if
    /// there is one. Takes the same time wherever they differ.
    pub fn authentic(&self, secret: &[u8]) -> Authentic {
        let mut copy = self.bytes.to_vec();
        copy[AUTHENTICATOR].fill(0);
        let is_signed = digest(&copy, secret).ct_eq(&self.bytes[AUTHENTICATOR]);
        if !bool::from(is_signed) {
            return Authentic::No;
        }
        let mut at = HEADER;
        let mut by_message = false;
        for (number, value) in self.plain() {
            if number == MESSAGE_AUTHENTICATOR {
                // A second one, or one of another length, is nobody's.
                if by_message || value.len() != 16 {
                    return Authentic::No;
                }
                copy[at + 2..at + 18].fill(0);
                let is_signed = keyed(&copy, secret).ct_eq(value);
                if !bool::from(is_signed) {
                    return Authentic::No;
                }
                by_message = true;
            }
            at += 2 + value.len();
        }
        Authentic::Yes { by_message }
    }

    /// The answer with this `code`: the request's Proxy-State attributes, then `cause`.
    pub fn answer(
        &self,
        code: AnswerCode,
        cause: Option<ErrorCause>,
        secret: &[u8],
        by_message: bool,
    ) -> Vec<u8> {
        let mut bytes = vec![code as u8, self.identifier(), 0, 0];
        bytes.extend(self.authenticator());
        if by_message {
            bytes.extend([MESSAGE_AUTHENTICATOR, 18]);
            bytes.extend([0; 16]);
        }
        if let Some(cause) = cause {
            bytes.extend([ERROR_CAUSE, 6]);
            bytes.extend((cause as u32).to_be_bytes());
        }
        // A request may be full of Proxy-State; the last one does not fit behind a cause.
        for (number, value) in self.plain().filter(|(number, _)| *number == PROXY_STATE) {
            if bytes.len() + 2 + value.len() > PACKET_MAX {
                break;
            }
            bytes.extend([number, (2 + value.len()) as u8]);
            bytes.extend(value);
        }
        let length = bytes.len() as u16;
        bytes[2..4].copy_from_slice(&length.to_be_bytes());
        if by_message {
            let message = keyed(&bytes, secret);
            bytes[HEADER + 2..HEADER + 18].copy_from_slice(&message);
        }
        let authenticator = digest(&bytes, secret);
        bytes[AUTHENTICATOR].copy_from_slice(&authenticator);
        bytes
    }
}

/// The kinds of answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum AnswerCode {
    /// Accounting-Response.
    Accounting = 5,
    /// Disconnect-ACK.
    DisconnectAck = 41,
    /// Disconnect-NAK.
    DisconnectNak = 42,
    /// CoA-ACK.
    CoaAck = 44,
    /// CoA-NAK.
    CoaNak = 45,
}

/// Why a Disconnect or CoA was refused (RFC 5176 section 3.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum ErrorCause {
    /// An attribute that is not supported here.
    UnsupportedAttribute = 401,
    /// It names no session, or changes nothing.
    MissingAttribute = 402,
    /// No session is of the NAS that it names.
    NasIdentificationMismatch = 403,
    /// A value that cannot be, for instance a plan that nobody configured.
    InvalidAttributeValue = 407,
    /// A service other than a change at once, for instance "Authorize Only".
    UnsupportedService = 405,
    /// The client may not do this.
    AdministrativelyProhibited = 501,
    /// No such session.
    SessionContextNotFound = 503,
}

/// The number, the value and what is behind an attribute.
fn split(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let [number, length, ..] = *bytes else { return None };
    let value = bytes.get(2..usize::from(length))?;
    Some((number, value, &bytes[usize::from(length)..]))
}

/// MD5 over `packet` and the secret.
fn digest(packet: &[u8], secret: &[u8]) -> [u8; 16] {
    Md5::new().chain_update(packet).chain_update(secret).finalize().into()
}

/// HMAC-MD5 over `packet`.
fn keyed(packet: &[u8], secret: &[u8]) -> [u8; 16] {
    match Hmac::<Md5>::new_from_slice(secret) {
        Ok(mac) => mac.chain_update(packet).finalize().into_bytes().into(),
        // HMAC takes keys of every length.
        Err(_) => unreachable!("a key of HMAC may have any length"),
    }
}

/// What a client sends, for tests and load.
#[derive(Clone, Debug)]
pub struct Request(Vec<u8>);

impl Request {
    /// A request with this code and identifier, without attributes.
    pub fn new(code: Code, identifier: u8) -> Self {
        let byte = match code {
            Code::Accounting => 4,
            Code::Disconnect => 40,
            Code::ChangeOfAuthorization => 43,
        };
        let mut bytes = vec![byte, identifier];
        bytes.resize(HEADER, 0);
        Self(bytes)
    }

    /// With one more attribute. Of a value that does not fit into one, only the beginning is sent.
    #[must_use]
    pub fn with(mut self, kind: Type, value: &[u8]) -> Self {
        let value = &value[..value.len().min(if kind.vendor.is_some() { 247 } else { 253 })];
        let length = value.len() as u8 + 2;
        if let Some(vendor) = kind.vendor {
            self.0.extend([VENDOR_SPECIFIC, length + 6]);
            self.0.extend(vendor.to_be_bytes());
        }
        self.0.extend([kind.number, length]);
        self.0.extend(value);
        self
    }

    /// With these bytes behind the attributes so far, whatever they are.
    #[must_use]
    pub fn with_bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(&bytes[..bytes.len().min(PACKET_MAX - self.0.len().min(PACKET_MAX))]);
        self
    }

    /// The datagram, signed with `secret`; `by_message` with a Message-Authenticator, too.
    pub fn signed(mut self, secret: &[u8], by_message: bool) -> Vec<u8> {
        let at = self.0.len() + 2;
        if by_message {
            self = self.with(Type::standard(MESSAGE_AUTHENTICATOR), &[0; 16]);
        }
        let mut bytes = self.0;
        let length = bytes.len() as u16;
        bytes[2..4].copy_from_slice(&length.to_be_bytes());
        if by_message {
            let message = keyed(&bytes, secret);
            bytes[at..at + 16].copy_from_slice(&message);
        }
        let authenticator = digest(&bytes, secret);
        bytes[AUTHENTICATOR].copy_from_slice(&authenticator);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECRET: &[u8] = b"between us";

    fn request() -> Request {
        Request::new(Code::Accounting, 7)
            .with(Type::standard(1), b"ann")
            .with(Type::vendor(14_988, 8), b"10M/50M")
            .with(Type::standard(PROXY_STATE), b"one")
            .with(Type::standard(PROXY_STATE), b"two")
    }

    #[test]
    fn attributes_come_in_order_and_those_of_vendors_are_unwrapped() {
        let datagram = request().signed(SECRET, false);
        let packet = Packet::decode(&datagram).unwrap();
        let attributes: Vec<_> = packet.attributes().take(2).collect();
        let expected: [(Type, &[u8]); 2] =
            [(Type::standard(1), b"ann"), (Type::vendor(14_988, 8), b"10M/50M")];
        assert_eq!(attributes, expected);
    }

    #[test]
    fn several_attributes_of_a_vendor_may_share_one_envelope() {
        let mut inside = vec![];
        inside.extend([7, 6, 0, 0, 0, 1]);
        inside.extend([8, 6, 0, 0, 0, 2]);
        let mut value = 14_122_u32.to_be_bytes().to_vec();
        value.extend(inside);
        let datagram = Request::new(Code::Accounting, 0)
            .with(Type::standard(VENDOR_SPECIFIC), &value)
            .signed(SECRET, false);
        let packet = Packet::decode(&datagram).unwrap();
        assert_eq!(packet.value(Type::vendor(14_122, 7)), Some(&[0, 0, 0, 1][..]));
        assert_eq!(packet.value(Type::vendor(14_122, 8)), Some(&[0, 0, 0, 2][..]));
    }

    #[test]
    fn padding_behind_the_packet_is_not_signed() {
        let mut datagram = request().signed(SECRET, true);
        datagram.extend([0xaa; 9]);
        let packet = Packet::decode(&datagram).unwrap();
        assert_eq!(packet.authentic(SECRET), Authentic::Yes { by_message: true });
    }

    #[test]
    fn an_answer_returns_every_proxy_state_and_says_why() {
        let datagram = request().signed(SECRET, true);
        let packet = Packet::decode(&datagram).unwrap();
        let cause = Some(ErrorCause::SessionContextNotFound);
        let answer = packet.answer(AnswerCode::CoaNak, cause, SECRET, true);
        assert_eq!(answer[0], 45);
        assert_eq!(answer[1], 7);
        assert_eq!(usize::from(u16::from_be_bytes([answer[2], answer[3]])), answer.len());
        let cause = [ERROR_CAUSE, 6, 0, 0, 0x01, 0xf7];
        assert!(answer.windows(6).any(|bytes| bytes == cause));
        assert!(answer.ends_with(b"\x21\x05one\x21\x05two"));
    }

    #[test]
    fn the_longest_request_has_an_answer_that_is_not_too_long() {
        let mut request = Request::new(Code::Disconnect, 1);
        for _ in 0..15 {
            request = request.with(Type::standard(PROXY_STATE), &[1; 253]);
        }
        request = request.with(Type::standard(PROXY_STATE), &[2; 228]);
        let datagram = request.signed(SECRET, true);
        let packet = Packet::decode(&datagram).unwrap();
        let cause = Some(ErrorCause::MissingAttribute);
        let answer = packet.answer(AnswerCode::DisconnectNak, cause, SECRET, true);
        assert!(answer.len() <= PACKET_MAX);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(packet) = Packet::decode(&bytes) {
                packet.attributes().count();
                prop_assert_eq!(packet.authentic(SECRET), Authentic::No);
            }
        }

        #[test]
        fn one_changed_bit_is_noticed(by_message: bool, at in 0_usize..600) {
            let mut datagram = request().signed(SECRET, by_message);
            let at = at % (datagram.len() * 8);
            datagram[at / 8] ^= 1 << (at % 8);
            if let Ok(packet) = Packet::decode(&datagram) {
                prop_assert_eq!(packet.authentic(SECRET), Authentic::No);
            }
        }

        #[test]
        fn a_signed_request_is_authentic_under_its_own_secret_only(by_message: bool) {
            let datagram = request().signed(SECRET, by_message);
            let packet = Packet::decode(&datagram).unwrap();
            prop_assert_eq!(packet.authentic(SECRET), Authentic::Yes { by_message });
            prop_assert_eq!(packet.authentic(b"another"), Authentic::No);
        }
    }
}
