//! A server whose leases are read again and again.

use super::kea_file::Follower;
use super::kea_socket::{self, SocketError};
use super::{News, Server, dnsmasq, isc_file};
use narrows_units::Nanos;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

/// The longest lease file of dnsmasq, which is kept in memory: far above its limit of leases.
const DNSMASQ_MAX: u64 = 64 << 20;

/// Why the leases of a server are not known.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A socket does not give them.
    #[error("the control socket {}: {source}", path.display())]
    Socket {
        /// Which.
        path: PathBuf,
        /// Why.
        source: SocketError,
    },
}

/// A server, and what was read of it.
#[derive(Debug)]
pub enum Source {
    /// Kea's lease file.
    KeaFile(PathBuf, Box<Follower>),
    /// Kea's control socket, and when it was asked.
    KeaSocket {
        /// Where.
        path: PathBuf,
        /// Whether it serves DHCPv6.
        is_v6: bool,
        /// How often it is asked.
        every: Nanos,
        /// When it was asked last.
        asked: Option<Nanos>,
    },
    /// The lease file of ISC's dhcpd.
    IscFile(PathBuf, Box<isc_file::Follower>),
    /// The lease file of dnsmasq, and the last version of it: inode, length, time of change.
    Dnsmasq(PathBuf, Option<(u64, u64, i64, i64)>),
}

impl Source {
    /// Of a server. Nothing is read yet.
    pub fn new(server: &Server) -> Self {
        match server {
            Server::KeaFile(path) => {
                Self::KeaFile(path.clone(), Box::new(Follower::new(path.clone())))
            }
            Server::KeaSocket { path, is_v6, every } => {
                Self::KeaSocket { path: path.clone(), is_v6: *is_v6, every: *every, asked: None }
            }
            Server::IscFile(path) => {
                Self::IscFile(path.clone(), Box::new(isc_file::Follower::new(path.clone())))
            }
            Server::Dnsmasq(path) => Self::Dnsmasq(path.clone(), None),
        }
    }

    /// What is new, if anything may be.
    ///
    /// # Errors
    /// If the server's file or socket is not there.
    pub fn poll(&mut self, now: Nanos) -> Result<Option<News>, SourceError> {
        match self {
            Self::KeaFile(path, follower) => {
                let failed = |source| SourceError::File { path: path.clone(), source };
                let is_new = follower.poll().map_err(failed)?;
                Ok(is_new.then(|| follower.news()))
            }
            Self::IscFile(path, follower) => {
                let failed = |source| SourceError::File { path: path.clone(), source };
                let is_new = follower.poll().map_err(failed)?;
                Ok(is_new.then(|| follower.news()))
            }
            Self::KeaSocket { path, is_v6, every, asked } => {
                if asked.is_some_and(|asked| now.since(asked) < *every) {
                    return Ok(None);
                }
                *asked = Some(now);
                let failed = |source| SourceError::Socket { path: path.clone(), source };
                let all = kea_socket::read(path, *is_v6).map_err(failed)?;
                Ok(Some(News::All(all)))
            }
            Self::Dnsmasq(path, version) => {
                let failed = |source| SourceError::File { path: path.clone(), source };
                let metadata = std::fs::metadata(&*path).map_err(failed)?;
                let now =
                    Some((metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec()));
                if *version == now {
                    return Ok(None);
                }
                if metadata.len() > DNSMASQ_MAX {
                    return Err(failed(io::Error::other("it has more than 64 MiB")));
                }
                let text = std::fs::read(&*path).map_err(failed)?;
                *version = now;
                Ok(Some(News::All(dnsmasq::read(&String::from_utf8_lossy(&text)))))
            }
        }
    }
}
