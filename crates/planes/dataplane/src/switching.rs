//! What the programs of a switch have to know of the kernel's bridge: which ports forward, which
//! are in which VLAN, and where each station is.
//!
//! The bridge learns and ages; a thread writes what it knows into maps, by its announcements. So a
//! station that moved, or a port that spanning tree blocks, is known a moment later, whatever else
//! this process does meanwhile. The same thread tells the bridge which stations were heard by
//! programs: four times in the time in which the bridge would forget them.
//!
//! *When in doubt, the bridge.* If the kernel does not tell, no port forwards in the driver.
//!
//! Non-goals: learning, flooding, spanning tree.

use crate::error::SessionError;
use crate::session::Secrets;
use mirror::Mirror;
use narrows_bpf::{STATIONS_MAX, SteerError, Switch};
use narrows_forwarding::PortId;
use narrows_link::LinkError;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

mod mirror;

/// Why the programs do not know what the bridge does.
#[derive(Debug, thiserror::Error)]
pub enum SwitchingError {
    /// The kernel does not tell.
    #[error("the kernel does not say what its bridge does: {0}")]
    Facts(#[from] LinkError),
    /// The maps cannot be written.
    #[error("the switch's maps cannot be written: {0}")]
    Maps(String),
    /// There is no thread for it.
    #[error("cannot follow the bridge: {0}")]
    Thread(#[from] std::io::Error),
}

/// The maps of a switch, and the thread that keeps them.
pub(crate) struct Switching {
    switch: Arc<Switch>,
    standing: Arc<Mutex<Standing>>,
    /// Written to when the thread is to end.
    end: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// What the programs do not know.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Standing {
    /// Why they know nothing, or may not know all.
    error: Option<String>,
    /// How many stations have no room in the table.
    left_out: usize,
}

impl Switching {
    /// Those of `ports`, by the indices of their devices, as the bridge is now.
    pub(crate) fn new(
        ports: Vec<(u32, PortId)>,
        failed: impl Fn(SteerError) -> SessionError,
    ) -> Result<Self, SessionError> {
        let switch = Switch::new().map_err(|error| failed(SteerError::Load(error)))?;
        let switch = Arc::new(switch.sealed(Secrets::own().seal));
        let start = || {
            let mut mirror = Mirror::open(Arc::clone(&switch), ports)?;
            mirror.read_all()?;
            let standing = Arc::new(Mutex::new(mirror.standing()));
            let end = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(std::io::Error::from)?);
            let (shared, ended) = (Arc::clone(&standing), Arc::clone(&end));
            let thread = std::thread::Builder::new().name("bridge".to_owned());
            let thread = thread.spawn(move || mirror.follow(&ended, &shared))?;
            Ok((standing, end, thread))
        };
        let (standing, end, thread) = start().map_err(SessionError::Switching)?;
        Ok(Self { switch, standing, end, thread: Some(thread) })
    }

    /// The maps, for programs.
    pub(crate) fn switch(&self) -> &Switch {
        &self.switch
    }

    /// What the programs do not know, in words.
    pub(crate) fn trouble(&self) -> Option<String> {
        let standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let full = || {
            format!(
                "{} stations of the bridge have no place in the table of {STATIONS_MAX}: their \
                 frames go through the bridge, unshaped",
                standing.left_out
            )
        };
        standing.error.or_else(|| (standing.left_out > 0).then(full))
    }
}

impl Drop for Switching {
    fn drop(&mut self) {
        // It cannot fail: the counter is far from full.
        let _ = rustix::io::write(&*self.end, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
