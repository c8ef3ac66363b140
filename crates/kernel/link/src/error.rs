//! Why reading or changing an interface failed.

use std::io;

/// A failure to read or to change an interface.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// No interface has this name in the network namespace of the calling thread.
    #[error(
        "there is no interface '{0}' in this network namespace; `ip -brief link` lists those there are"
    )]
    NoSuchName(String),
    /// No interface has this index any more: it was removed, or moved to another namespace.
    #[error(
        "the interface with index {0} is gone; `ip -brief link` lists those that are still there"
    )]
    NoSuchIndex(u32),
    /// The process lacks a privilege.
    #[error("{doing}: not permitted; run as root, or with CAP_NET_ADMIN and CAP_NET_RAW")]
    NotPermitted {
        /// What was attempted.
        doing: String,
    },
    /// The kernel refused, or the system call failed.
    #[error("{doing}: {source}{}", hint(.said))]
    Kernel {
        /// What was attempted.
        doing: String,
        /// The kernel's own explanation (netlink's extended acknowledgement), if it gave one.
        said: Option<String>,
        /// The error number.
        source: io::Error,
    },
    /// The kernel's answer does not have its documented form.
    #[error("{doing}: invalid answer from the kernel: {why}")]
    Malformed {
        /// What was attempted.
        doing: String,
        /// What is wrong with it.
        why: String,
    },
}

fn hint(said: &Option<String>) -> String {
    said.as_ref().map(|said| format!(" (the kernel says: {said})")).unwrap_or_default()
}

impl LinkError {
    /// The failure of a system call made while `doing`.
    pub(crate) fn from_io(doing: impl Into<String>, source: io::Error) -> Self {
        Self::from_kernel(doing, source, None)
    }

    /// A refusal by the kernel, with its explanation.
    pub(crate) fn from_kernel(
        doing: impl Into<String>,
        source: io::Error,
        said: Option<String>,
    ) -> Self {
        let doing = doing.into();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::NotPermitted { doing },
            _ => Self::Kernel { doing, said, source },
        }
    }

    /// The error number, if the kernel gave one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::NoSuchName(_) | Self::NoSuchIndex(_) => Some(libc::ENODEV),
            Self::NotPermitted { .. } => Some(libc::EPERM),
            Self::Kernel { source, .. } => source.raw_os_error(),
            Self::Malformed { .. } => None,
        }
    }
}
