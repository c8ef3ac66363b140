//! Handles for qdiscs that are made without one, as the kernel's `qdisc_alloc_handle()` gives them
//! out.

use crate::{Handle, Parent, PolicyError, PortPolicy};
use std::collections::BTreeMap;

/// Which handle what stands in a place of a port was given.
pub(crate) type Given = BTreeMap<Parent, Handle>;

/// Hands out handles from `8001:` on.
pub(crate) struct Automatic<'a> {
    /// The one that was given out last.
    pub(crate) last: Option<Handle>,
    /// Those that a policy written anew gives again in the same places.
    pub(crate) before: Option<&'a Given>,
}

impl Automatic<'_> {
    /// The handle for a new qdisc at `parent`: the next that nothing on `port` has.
    pub(crate) fn next(
        &mut self,
        port: &PortPolicy,
        parent: Parent,
    ) -> Result<Handle, PolicyError> {
        let again = self.before.and_then(|given| given.get(&parent));
        if let Some(&handle) = again.filter(|handle| port.find(**handle).is_none()) {
            return Ok(handle);
        }
        let first = Handle::FIRST_AUTOMATIC.major();
        // ffff: is the kernel's for ingress. Where the kernel's numbers may all be taken, ours
        // come behind them.
        let kernels = (first, 0xfffe);
        let wide = (Handle::FIRST_WIDE.major(), u32::MAX);
        let is_full = port.len() > (kernels.1 - first) as usize;
        let (first, last) = if is_full { wide } else { kernels };
        let mut major = self.last.map_or(0, Handle::major);
        for _ in 0..=port.len() {
            major = if (first..last).contains(&major) { major + 1 } else { first };
            let handle = Handle::new(major).ok_or(PolicyError::NoHandleLeft)?;
            if port.find(handle).is_none() {
                self.last = Some(handle);
                return Ok(handle);
            }
        }
        Err(PolicyError::NoHandleLeft)
    }
}
