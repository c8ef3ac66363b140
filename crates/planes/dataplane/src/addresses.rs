//! Automatic addresses of the ports: off while Narrows runs, restored at the end.
//!
//! A bump in the wire has no address on the networks that it joins. Where the operator gave a port
//! an address, the port's automatic ones stay, too. As with offloads, what was there is recorded
//! before it changes, for the instance after a killed one.

use crate::events::Events;
use crate::record;
use narrows_escape::shell;
use narrows_forwarding::PerDevice;
use narrows_link::{Automatic, Link};
use std::path::PathBuf;

/// The automatic addresses that were taken from the ports, and the file in which they are recorded.
pub(crate) struct Addresses {
    record: PathBuf,
    taken: Vec<Automatic>,
}

impl Addresses {
    /// With what an earlier instance recorded in `record` and did not restore.
    pub(crate) fn new(record: PathBuf) -> Self {
        let taken = record::read(&record);
        Self { record, taken }
    }

    /// Takes them off those of `devices` that have any.
    pub(crate) fn take_off(&mut self, devices: &PerDevice<String>, events: &mut Events) {
        for port in devices {
            // Joining it reports why it cannot be read.
            let Ok(link) = Link::by_name(port) else { continue };
            let is_given = link.addresses.iter().any(|address| !address.is_automatic());
            let Some(found) = Automatic::of(&link).filter(|_| !is_given) else { continue };
            match self.taken.iter_mut().find(|taken| taken.ifindex == found.ifindex) {
                Some(taken) => taken.extend(&found),
                None => self.taken.push(found.clone()),
            }
            if let Err(error) = record::write(&self.record, &self.taken) {
                log::warn!("cannot record the addresses of {port} in {:?}: {error}", self.record);
            }
            let list: Vec<String> = found.addresses.iter().map(ToString::to_string).collect();
            match found.take_off() {
                Ok(()) if list.is_empty() => {}
                Ok(()) => events.say(format!(
                    "{port} had the automatic address {}: off until Narrows ends, so that the \
                     network there does not reach this host",
                    list.join(", ")
                )),
                Err(error) => events.warn(format!(
                    "{port} keeps its automatic address: {error}; try: ip link set dev {word} \
                     addrgenmode none && ip -6 addr flush dev {word} scope link",
                    word = shell(port)
                )),
            }
        }
    }

    /// Restores them.
    pub(crate) fn put_back(&mut self) {
        for taken in self.taken.drain(..) {
            // A port that is gone has no address to restore.
            if let Err(error) = taken.put_back() {
                log::warn!("{error}");
            }
        }
        // There is no file if nothing was taken.
        let _ = std::fs::remove_file(&self.record);
    }
}
