//! Notices what changes in a bridge.

use super::table::{Entry, Table, listed};
use crate::{LinkError, netlink};
use netlink_sys::Socket;
use std::collections::HashMap;
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
/// A table from which entries go is listed so often at most.
const LISTINGS_MAX: usize = 4;

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
pub struct SwitchMonitor {
    socket: Socket,
    /// What was announced while a table was listed, and is not part of it.
    kept: Vec<SwitchEvent>,
}

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
        Ok(Self { socket, kept: Vec::new() })
    }

    /// Changes so far, of entries only those of `bridge`. Never blocks; none if there are none. If
    /// there are more, they are left for the next time.
    pub fn events(&mut self, bridge: Option<u32>) -> Vec<SwitchEvent> {
        let mut events = std::mem::take(&mut self.kept);
        events.extend(self.announced(bridge));
        events
    }

    /// Whether there are events although the subscription is not readable.
    pub fn has_kept(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Lists the entries of `bridge`, each once.
    ///
    /// The kernel lists a table in parts, and counts where the next part begins. Where entries go
    /// meanwhile it leaves out as many others, and where some are added it lists as many twice. So
    /// what it announces meanwhile counts, and the table is listed again if something has gone. One
    /// that never comes to rest is listed four times: what was in one listing is in the table.
    ///
    /// # Errors
    ///
    /// If the kernel does not list them.
    pub fn table(&mut self, bridge: u32) -> Result<Table, LinkError> {
        let mut table = HashMap::new();
        for _ in 0..LISTINGS_MAX {
            table.extend(listed(bridge)?.into_iter().map(|entry| (entry.station(), entry)));
            let mut is_whole = true;
            for event in self.announced(Some(bridge)) {
                match event {
                    SwitchEvent::Put(entry) => {
                        table.insert(entry.station(), entry);
                    }
                    SwitchEvent::Gone(entry) => {
                        table.remove(&entry.station());
                        is_whole = false;
                    }
                    SwitchEvent::Overrun | SwitchEvent::Ports if self.kept.contains(&event) => {}
                    SwitchEvent::Overrun | SwitchEvent::Ports => self.kept.push(event),
                }
            }
            if is_whole {
                break;
            }
        }
        Ok(table.into_values().collect())
    }

    /// What the kernel has announced.
    fn announced(&mut self, bridge: Option<u32>) -> Vec<SwitchEvent> {
        let mut events = Vec::new();
        while events.len() < TOGETHER {
            match netlink::receive(&self.socket) {
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

/// Readable if [`SwitchMonitor::events`] has any that were not [kept](SwitchMonitor::has_kept).
impl AsFd for SwitchMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
