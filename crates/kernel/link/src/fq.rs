//! `fq` below a device: it holds packets until the departure times that a program at egress gives
//! them. Below anything else such times would hold nothing.
//!
//! * A device with several queues gets `mq` with an `fq` for each queue in use, another one `fq`.
//! * **Nothing of others is destroyed.** Narrows' own qdisc takes the place of what the kernel
//!   chose itself; the kernel refuses it where somebody has installed one. An `fq` of others that
//!   holds enough is used as it is.
//! * **The mark is in the kernel.** Narrows' root has a handle of its own (`4e57:`). So a start
//!   after a kill recognizes what was left, no record can be stale, and to restore is to delete
//!   that root: the kernel then chooses again as it did before.
//! * An `fq` that is left behind holds no packet for long: without the program there are no times.
//! * *Queues change* (`ethtool -L`): the kernel gives new queues its default. [`Held::standing`]
//!   sees that, and [`Held::repair`] gives them an `fq`. One listing of qdiscs each.
//!
//! Non-goals: what is at ingress (`clsact`); what makes the times; what a bridge forwards between
//! its ports, which passes none of its own queues.

mod found;
mod options;

use crate::link::status_by_index;
use crate::traffic_control::{Item, ROOT, filters, qdiscs};
use crate::{LinkError, LinkStatus};
use found::{Found, OURS, Whose};
use narrows_escape::shell;
use options::Options;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A device below which an `fq` holds packets. It stays when this is dropped: the process that
/// takes over continues with it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Held {
    ifindex: u32,
    /// For messages.
    device: String,
}

/// What has become of an `fq`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It holds packets at every queue in use.
    Holds,
    /// It is gone, and the kernel has chosen another one, or the device is gone.
    Gone,
    /// So many queues have come without one.
    Bare(usize),
    /// Somebody has installed this one, in words.
    Replaced(String),
}

/// Why nothing holds packets below a device.
#[derive(Debug, thiserror::Error)]
pub enum FqError {
    /// The kernel has none. Who needs one has to do without.
    #[error("this kernel has no fq (CONFIG_NET_SCH_FQ); try: modprobe sch_fq")]
    Missing,
    /// Somebody has installed another one.
    #[error(
        "{device} has a queue of somebody else, {found}, and packets need fq with at least {}; try: \
         tc qdisc del dev {} root (Narrows installs its own, until it ends)",
        Options::NEEDED, shell(.device)
    )]
    Taken {
        /// The device.
        device: String,
        /// What was found, in words.
        found: String,
    },
    /// The kernel has installed another one than it was asked for.
    #[error("the kernel has not installed fq below {device} as it was told, but {found}")]
    Unlike {
        /// The device.
        device: String,
        /// What was found, in words.
        found: String,
    },
    /// The kernel refused, or did not answer.
    #[error(transparent)]
    Link(#[from] LinkError),
}

impl Held {
    /// Installs an `fq` below the device `ifindex`, in the namespace of the calling thread, or
    /// finds one: of an earlier run, or of somebody else.
    ///
    /// # Errors
    ///
    /// [`FqError::Missing`] if there is none to be had, [`FqError::Taken`] if somebody has
    /// installed another one, which stays; another without CAP_NET_ADMIN, or if the kernel refuses.
    /// What was there before is there again.
    pub fn install(ifindex: u32) -> Result<Self, FqError> {
        let device = status_by_index(ifindex)?;
        let found = match Found::at(ifindex) {
            // It queues nothing at all.
            Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => {
                return Err(FqError::Missing);
            }
            found => found?,
        };
        match found {
            Found::Holds(_) => {}
            Found::Bare(queues) => give_each(&device, &queues)?,
            Found::Other(found) => return Err(FqError::Taken { device: device.name, found }),
            Found::Default => {
                let installed = from_default(&device).and_then(|()| check(&device));
                installed.inspect_err(|_| drop(Self::remove(ifindex)))?;
            }
        }
        Ok(Self { ifindex, device: device.name })
    }

    /// Reads whether it is still there.
    ///
    /// # Errors
    ///
    /// If the kernel does not answer.
    pub fn standing(&self) -> Result<Standing, LinkError> {
        Ok(match Found::at(self.ifindex)? {
            Found::Holds(_) => Standing::Holds,
            Found::Default => Standing::Gone,
            Found::Bare(queues) => Standing::Bare(queues.len()),
            Found::Other(found) => Standing::Replaced(found),
        })
    }

    /// Has Narrows' own `fq` release packets up to `slack` late, so that one timer releases several
    /// (`timer_slack`, 10 us by default). Those of others stay as they are.
    ///
    /// # Errors
    ///
    /// Without CAP_NET_ADMIN, or if the kernel refuses.
    pub fn set_slack(&self, slack: Duration) -> Result<(), LinkError> {
        let is_ours = |item: &Item| {
            item.handle == OURS || item.handle != 0 && item.parent >> 16 == OURS >> 16
        };
        for item in qdiscs(self.ifindex)? {
            if item.kind == "fq" && is_ours(&item) {
                let doing = format!("setting the timer slack of fq below {}", self.device);
                Item { options: Options::with_slack(slack), ..item }.change_qdisc(&doing)?;
            }
        }
        Ok(())
    }

    /// Installs it again where it is gone.
    ///
    /// # Errors
    ///
    /// As [`install`](Self::install).
    pub fn repair(&self) -> Result<(), FqError> {
        Self::install(self.ifindex).map(drop)
    }

    /// Removes what Narrows has installed, so that the device has what it had before. What others
    /// have installed stays.
    ///
    /// # Errors
    ///
    /// [`FqError::Taken`] if somebody has installed something below it: then all stays. Another
    /// without CAP_NET_ADMIN, or if the kernel refuses.
    pub fn restore(self) -> Result<(), FqError> {
        match Found::at(self.ifindex)? {
            Found::Default | Found::Holds(Whose::Theirs) => Ok(()),
            Found::Holds(Whose::Ours) | Found::Bare(_) => Ok(Self::remove(self.ifindex)?),
            Found::Other(found) => Err(FqError::Taken { device: self.device, found }),
        }
    }

    /// Removes Narrows' own root, and nothing else.
    fn remove(ifindex: u32) -> Result<(), LinkError> {
        let root = Item { ifindex, handle: OURS, parent: ROOT, ..Item::default() };
        root.delete_qdisc("removing fq")
    }
}

impl Found {
    fn at(ifindex: u32) -> Result<Self, LinkError> {
        Ok(Self::among(&qdiscs(ifindex)?))
    }
}

/// Installs it in place of what the kernel chose.
fn from_default(device: &LinkStatus) -> Result<(), FqError> {
    let LinkStatus { name, ifindex, .. } = device;
    // Some of the kernel's own choices take filters, which go with them.
    if !filters(*ifindex, 0)?.is_empty() {
        let found = "with filters at its root".to_owned();
        return Err(FqError::Taken { device: name.clone(), found });
    }
    if !is_in_kernel(*ifindex)? {
        return Err(FqError::Missing);
    }
    if device.allocated.tx <= 1 {
        return Ok(fq(*ifindex, OURS, ROOT).add_qdisc(&format!("installing fq below {name}"))?);
    }
    let (handle, parent, kind) = (OURS, ROOT, "mq".to_owned());
    let root = Item { ifindex: *ifindex, handle, parent, kind, ..Item::default() };
    root.add_qdisc(&format!("installing mq below {name}"))?;
    match Found::at(*ifindex)? {
        Found::Bare(queues) => give_each(device, &queues),
        _ => Ok(()),
    }
}

/// Whether the kernel has `fq`, which it may load for that. It is asked for one that it refuses
/// to make, so that nothing changes.
fn is_in_kernel(ifindex: u32) -> Result<bool, LinkError> {
    let impossible = Item { options: Options::impossible(), ..fq(ifindex, OURS, ROOT) };
    match impossible.add_qdisc("asking for fq") {
        Err(error) if error.errno() == Some(libc::ENOENT) => Ok(false),
        Err(error) if error.errno() == Some(libc::EINVAL) => Ok(true),
        // A kernel that makes one all the same has it, too.
        answer => answer.and_then(|()| Held::remove(ifindex)).map(|()| true),
    }
}

/// Gives each of these queues an `fq`.
fn give_each(device: &LinkStatus, queues: &[u32]) -> Result<(), FqError> {
    for queue in queues {
        let doing = format!("installing fq below queue {:x} of {}", queue & 0xffff, device.name);
        fq(device.ifindex, 0, *queue).add_qdisc(&doing)?;
    }
    Ok(())
}

/// Reads back what was installed.
fn check(device: &LinkStatus) -> Result<(), FqError> {
    let found = match Found::at(device.ifindex)? {
        Found::Holds(_) => return Ok(()),
        Found::Other(found) => found,
        Found::Default | Found::Bare(_) => "what it had before".to_owned(),
    };
    Err(FqError::Unlike { device: device.name.clone(), found })
}

fn fq(ifindex: u32, handle: u32, parent: u32) -> Item {
    let (kind, options) = ("fq".to_owned(), Options::request());
    Item { ifindex, handle, parent, kind, options, ..Item::default() }
}
