//! Changes of interfaces that are reverted if a later one fails.

use crate::automatic::{NONE, generate};
use crate::link::{delete, set_administrative_state, set_master, set_mtu};
use crate::{LinkError, LinkStatus};

/// What was changed so far, in order.
#[derive(Default)]
pub(crate) struct Changes(Vec<Change>);

enum Change {
    Created { link: u32 },
    Enslaved { port: u32 },
    SetUp { link: u32 },
    Resized { link: u32, before: u32 },
    Silenced { link: u32, before: u8 },
}

/// Does `work`, which makes all its changes by what it is given. If it fails, they are reverted.
pub(crate) fn all_or_nothing<T, E>(
    work: impl FnOnce(&mut Changes) -> Result<T, E>,
) -> Result<T, E> {
    let mut changes = Changes::default();
    work(&mut changes).inspect_err(|_| changes.revert())
}

impl Changes {
    /// Notes that the interface `link` was created.
    pub(crate) fn created(&mut self, link: u32) {
        self.0.push(Change::Created { link });
    }

    /// Makes `port` a port of `bridge`, unless it is one.
    pub(crate) fn enslave(
        &mut self,
        port: &LinkStatus,
        bridge: &LinkStatus,
    ) -> Result<(), LinkError> {
        if port.master == Some(bridge.ifindex) {
            return Ok(());
        }
        let doing = format!("making {} a port of bridge {}", port.name, bridge.name);
        set_master(&doing, port.ifindex, bridge.ifindex)?;
        self.0.push(Change::Enslaved { port: port.ifindex });
        Ok(())
    }

    /// Sets `link` up, unless it is.
    pub(crate) fn set_up(&mut self, link: &LinkStatus) -> Result<(), LinkError> {
        if link.up {
            return Ok(());
        }
        set_administrative_state(link.ifindex, true)?;
        self.0.push(Change::SetUp { link: link.ifindex });
        Ok(())
    }

    /// Gives `link` the MTU `mtu`, unless it has it.
    pub(crate) fn resize(&mut self, link: &LinkStatus, mtu: u32) -> Result<(), LinkError> {
        if link.mtu == mtu {
            return Ok(());
        }
        let doing = format!("giving {} the MTU {mtu}", link.name);
        set_mtu(&doing, link.ifindex, mtu)?;
        self.0.push(Change::Resized { link: link.ifindex, before: link.mtu });
        Ok(())
    }

    /// Lets the kernel make no link-local address for `link` when it comes up.
    pub(crate) fn silence(&mut self, link: &LinkStatus) -> Result<(), LinkError> {
        let Some(before) = link.address_generation.filter(|&mode| mode != NONE) else {
            return Ok(());
        };
        generate(link.ifindex, NONE)?;
        self.0.push(Change::Silenced { link: link.ifindex, before });
        Ok(())
    }

    fn revert(self) {
        for change in self.0.into_iter().rev() {
            // One that cannot be reverted concerns an interface that is gone.
            let _ = match change {
                Change::Created { link } => delete("removing a new interface again", link),
                Change::Enslaved { port } => set_master("releasing a port", port, 0),
                Change::SetUp { link } => set_administrative_state(link, false),
                Change::Resized { link, before } => set_mtu("restoring an MTU", link, before),
                Change::Silenced { link, before } => generate(link, before),
            };
        }
    }
}
