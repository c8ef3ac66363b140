//! Handles for qdiscs that are created without one, as in the kernel's `qdisc_alloc_handle()`.

use crate::{Handle, Parent, PolicyError, PortPolicy};
use std::collections::BTreeMap;

/// The automatic handles of a port by place.
pub(crate) type Given = BTreeMap<Parent, Handle>;

/// Allocates handles from `8001:` on.
pub(crate) struct Automatic<'a> {
    /// The last handle that was allocated.
    pub(crate) last: Option<Handle>,
    /// Handles to reuse in the same places when a policy file is read again.
    pub(crate) before: Option<&'a Given>,
}

impl Automatic<'_> {
    /// The handle for a new qdisc at `parent`: the next one that is free on `port`.
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
        // The kernel reserves ffff: for ingress. Handles beyond 16 bits follow when the kernel's
        // range is exhausted.
        let kernels = (first, 0xfffe);
        let wide = (Handle::FIRST_WIDE.major(), u32::MAX);
        let is_full = port.len() > (kernels.1 - first) as usize;
        let (first, last) = if is_full { wide } else { kernels };
        let mut major = self.last.map_or(0, Handle::major);
        if !(first..last).contains(&major) {
            // Another port has got a handle of the other range since. To begin anew would be a
            // look at every handle of this one.
            let highest = port.highest_handle(first, last);
            major = highest.map_or(0, Handle::major);
        }
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
