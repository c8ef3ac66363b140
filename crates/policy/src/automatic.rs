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
        let mut major = self.last.map_or(first - 1, Handle::major);
        // ffff: is the kernel's for ingress.
        for _ in first..0xffff {
            major = if major >= 0xfffe { first } else { major + 1 };
            let handle = Handle::new(major).ok_or(PolicyError::NoHandleLeft)?;
            if port.find(handle).is_none() {
                self.last = Some(handle);
                return Ok(handle);
            }
        }
        Err(PolicyError::NoHandleLeft)
    }
}
