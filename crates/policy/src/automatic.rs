//! Handles for qdiscs that are made without one, as the kernel's `qdisc_alloc_handle()` gives them out.

use crate::{Handle, PolicyError, PortPolicy};

/// Hands out handles from `8001:` on.
pub(crate) struct Automatic {
    /// The one that was given out last.
    pub(crate) last: Option<Handle>,
}

impl Automatic {
    /// The next handle that nothing on `port` has.
    pub(crate) fn next(&mut self, port: &PortPolicy) -> Result<Handle, PolicyError> {
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
