//! Notices what changes in a bridge.

use super::table::Entry;
use crate::{LinkError, netlink};
use netlink_sys::Socket;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_NEWVLAN: u16 = 112;
const RTM_DELVLAN: u16 = 113;
const RTNLGRP_BRVLAN: u32 = 33;
/// Where a table is emptied, each entry makes a message.
const BUFFER: usize = 4 << 20;
/// As many changes are told at once.
const TOGETHER: usize = 4096;

/// A change of a bridge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SwitchEvent {
    /// An entry is new, or another one than before.
    Put(Entry),
    /// An entry is gone.
    Gone(Entry),
    /// Interfaces, ports or VLANs have changed: [`SwitchFacts::read`](super::SwitchFacts::read)
    /// says how.
    Ports,
    /// Events were lost: read everything again.
    Overrun,
}

/// A subscription to the changes of bridges of one network namespace.
pub struct SwitchMonitor(Socket);

impl SwitchMonitor {
    /// Subscribes in the namespace of the calling thread. Read everything once after this.
    ///
    /// # Errors
    ///
    /// If the kernel provides no socket.
    pub fn open() -> Result<Self, LinkError> {
        let failed = |error| LinkError::from_io("subscribing to changes of the bridge", error);
        let socket = netlink::open().map_err(failed)?;
        socket.add_membership(libc::RTNLGRP_LINK).map_err(failed)?;
        socket.add_membership(libc::RTNLGRP_NEIGH).map_err(failed)?;
        // Kernels without VLANs in bridges have no such changes.
        let _ = socket.add_membership(RTNLGRP_BRVLAN);
        // A smaller one is worth less, and overruns are noticed.
        let _ = socket.set_rx_buf_sz(BUFFER as u32);
        socket.set_non_blocking(true).map_err(failed)?;
        Ok(Self(socket))
    }

    /// Changes so far, of entries only those of `bridge`. Never blocks; none if there are none. If
    /// there are more, they are left for the next time.
    pub fn events(&mut self, bridge: Option<u32>) -> Vec<SwitchEvent> {
        let mut events = Vec::new();
        while events.len() < TOGETHER {
            match netlink::receive(&self.0) {
                Ok(datagram) => {
                    for message in netlink::messages(&datagram) {
                        let (kind, body) = (message.message_type(), message.payload());
                        events.extend(SwitchEvent::parse(kind, body, bridge));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return events,
                // ENOBUFS; after any other error events are missed, too, and reading clears it.
                Err(_) => return vec![SwitchEvent::Overrun],
            }
        }
        events
    }
}

impl SwitchEvent {
    /// What a message of this kind says, of entries only those of `bridge`.
    pub fn parse(kind: u16, body: &[u8], bridge: Option<u32>) -> Option<Self> {
        match kind {
            RTM_NEWLINK | RTM_DELLINK | RTM_NEWVLAN | RTM_DELVLAN => Some(Self::Ports),
            libc::RTM_NEWNEIGH => Entry::parse(body, bridge?).map(Self::Put),
            libc::RTM_DELNEIGH => Entry::parse(body, bridge?).map(Self::Gone),
            _ => None,
        }
    }
}

/// Readable if [`SwitchMonitor::events`] has any.
impl AsFd for SwitchMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
