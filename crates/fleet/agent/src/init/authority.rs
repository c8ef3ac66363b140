//! An authority of a fleet, and what it attests.
//!
//! Its certificate follows from its name and its key, so one that is kept attests as before.

use super::InitError;
use super::files::{AUTHORITIES, Files, Secrecy};
use super::host::Host;
use crate::name::Name;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, date_time_ymd,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// How many years a certificate is valid from the year in which it is made.
const YEARS: i32 = 20;
/// Seconds of a year, on average.
const YEAR: u64 = 31_556_952;

/// What an authority attests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Servers, to agents and to each other.
    Server,
    /// Agents, to servers.
    Agent,
}

impl Role {
    /// The stem of its files.
    const fn stem(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Agent => "agent",
        }
    }
}

/// One of a fleet's authorities.
#[derive(Debug)]
pub(super) struct Authority {
    role: Role,
    fleet: Name,
    params: CertificateParams,
    key: KeyPair,
    pem: String,
}

impl Authority {
    /// The one for `role`: with the key that is kept, or with a new one.
    pub(super) fn of(role: Role, fleet: &Name, files: &Files) -> Result<Self, InitError> {
        let stem = role.stem();
        let folder = Path::new(AUTHORITIES);
        let key = key(&folder.join(format!("{stem}s.key")), files)?;
        let mut params = params(&format!("Narrows fleet {fleet}: {stem}s"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let pem = params.self_signed(&key)?.pem();
        files.put(&folder.join(format!("{stem}s.pem")), &pem, Secrecy::Public)?;
        Ok(Self { role, fleet: fleet.clone(), params, key, pem })
    }

    /// Its own certificate.
    pub(super) fn pem(&self) -> &str {
        &self.pem
    }

    /// Writes a key and a certificate of the box `name` to `folder`, for what is at `host`.
    pub(super) fn attest(
        &self,
        name: &Name,
        host: Option<&Host>,
        folder: &Path,
        files: &Files,
    ) -> Result<(), InitError> {
        let stem = self.role.stem();
        let key = key(&folder.join(format!("{stem}.key")), files)?;
        let mut params = params(&format!("Narrows fleet {}: {stem} {name}", self.fleet));
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // A server is a client of other servers.
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if self.role == Role::Server {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        params.subject_alt_names = match host {
            Some(host) => alternatives(host)?,
            None => Vec::new(),
        };
        let issuer = Issuer::from_params(&self.params, &self.key);
        let certificate = params.signed_by(&key, &issuer)?;
        files.put(&folder.join(format!("{stem}.pem")), &certificate.pem(), Secrecy::Public)
    }
}

/// The names under which a server is reached: its own, and those of the box on itself.
fn alternatives(host: &Host) -> Result<Vec<SanType>, InitError> {
    let own = match host {
        Host::Address(address) => SanType::IpAddress(*address),
        Host::Name(name) => SanType::DnsName(name.as_str().try_into()?),
    };
    let v4 = SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let v6 = SanType::IpAddress(IpAddr::V6(Ipv6Addr::LOCALHOST));
    Ok(vec![own, v4, v6, SanType::DnsName("localhost".try_into()?)])
}

/// What all certificates have in common. They are valid since long ago, so that a clock that is
/// behind refuses none.
fn params(name: &str) -> CertificateParams {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let year = 1970 + i32::try_from(since_epoch.as_secs() / YEAR).unwrap_or_default();
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(year.clamp(2025, 9_000) + YEARS, 1, 1);
    params
}

/// The key at `path` if it is kept, else a new one, written there.
fn key(path: &Path, files: &Files) -> Result<KeyPair, InitError> {
    if let Some(pem) = files.kept(path)? {
        return KeyPair::from_pem(&pem).map_err(|error| files.no_key(path, error.to_string()));
    }
    let key = KeyPair::generate()?;
    files.put(path, &key.serialize_pem(), Secrecy::Secret)?;
    Ok(key)
}
