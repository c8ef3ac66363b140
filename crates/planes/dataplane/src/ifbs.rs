//! The ifbs of a host's ports, through which what arrives leaves first: there while Narrows runs.
//!
//! Nothing has to be remembered: their names follow from those of the ports, and the kernel knows
//! which of them Narrows has made.

use crate::error::InstanceError;
use narrows_forwarding::Forwarding;
use narrows_link::ifb;

/// Makes those that are not there.
pub(crate) fn prepare(forwarding: &Forwarding) -> Result<(), InstanceError> {
    for port in forwarding.ports() {
        if let Some(before) = port.ifb_of {
            ifb::prepare(forwarding.name(before), &port.name)?;
        }
    }
    Ok(())
}

/// Removes those that Narrows has made.
pub(crate) fn remove(forwarding: &Forwarding) {
    for port in forwarding.ports().iter().filter(|port| port.ifb_of.is_some()) {
        if let Err(error) = ifb::remove(&port.name) {
            log::warn!("{error}; try: ip link del dev {}", port.name);
        }
    }
}
