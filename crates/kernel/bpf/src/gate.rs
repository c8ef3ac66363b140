//! `gate`: a place in libxdp's dispatcher, among the programs of others.
//!
//! Libxdp runs several programs on an interface: a dispatcher calls each in the order of their
//! priorities, and is built anew when one comes or goes. What Narrows has there is only a gate: a
//! program that does nothing but continue in the program behind it, by a tail call. So filters,
//! look-ups and upgrades replace a program behind the gate, in one step, and the dispatcher stays
//! as it is.
//!
//! *Failing open.* Libxdp pins its programs, so a gate outlives this process. What is behind it
//! does not: the kernel empties an array of programs once no process has it open. Then the gate
//! lets all frames pass. The next start removes it.
//!
//! *Programs behind a gate* are loaded in another way, see [`Entry`](crate::Entry).
//!
//! Non-goals: building dispatchers. `libxdp.so.1` does that, which is there wherever a tool uses
//! it; where its dispatcher takes no tail call, with one that does (`dispatcher.bpf.c`).
#![allow(unsafe_code)]

use crate::attach::XdpMode;
use libbpf_rs::libbpf_sys;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::Duration;

mod libxdp;

pub use libxdp::{CannotOpen, Libxdp};

/// The gate's name, by which others see it (`xdp-loader status`).
const NAME: &str = "narrows_gate";
/// The compiled program.
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/gate.bpf.o"));
/// A dispatcher for where libxdp's own takes no gate.
const DISPATCHER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/dispatcher.bpf.o"));
/// The most programs of a dispatcher.
pub const PLACES: usize = 10;

/// There is no gate at an interface.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// The dispatcher has no room.
    #[error(
        "all {PLACES} places of libxdp's dispatcher are taken: `xdp-loader unload` one of them"
    )]
    Full,
    /// Another process uses a gate there.
    #[error("another Narrows has a place in libxdp's dispatcher")]
    Another,
    /// A program is attached without a dispatcher.
    #[error("another XDP program (id {0}) is attached, without libxdp's dispatcher")]
    Foreign(u32),
    /// The dispatcher of the others runs elsewhere.
    #[error(
        "the other programs of libxdp's dispatcher run in {there} mode, and Narrows needs {wanted} \
         mode there: load them in that one (`-m {}`)",
        if *.wanted == XdpMode::Generic { "skb" } else { "native" }
    )]
    Mode {
        /// Where they run.
        there: XdpMode,
        /// Where they would have to.
        wanted: XdpMode,
    },
    /// Libxdp attaches programs only alone.
    #[error(
        "libxdp makes no dispatcher here{0}: it needs a BPF file system at /sys/fs/bpf, and a kernel \
         that takes programs in place of functions (type EXT)"
    )]
    NoDispatcher(String),
    /// Libxdp failed.
    #[error("libxdp cannot {attempt}: {source}{said}{}", hint(.source))]
    Libxdp {
        /// What it was to do.
        attempt: &'static str,
        /// Its error.
        source: io::Error,
        /// Its words, in parentheses.
        said: String,
    },
    /// The gate cannot be opened.
    #[error("the gate in libxdp's dispatcher cannot be used: {0}")]
    Unusable(io::Error),
}

fn hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "; it needs root: CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_BPF, and /sys/fs/bpf writable"
        }
        Some(libc::ENOENT) => "; is a BPF file system mounted at /sys/fs/bpf?",
        _ => "",
    }
}

/// A gate in a dispatcher.
#[derive(Debug)]
pub struct Placed {
    /// For [`Steer::take_over`](crate::Steer::take_over),
    /// [`Tree::take_over`](crate::tree::Tree::take_over) and
    /// [`Vlans::take_over`](crate::Vlans::take_over). All descriptors of it together keep the gate
    /// open.
    pub behind: OwnedFd,
    /// The number of its program, to remove it.
    pub id: u32,
}

/// The place of a gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The interface.
    pub ifindex: u32,
    /// Where the dispatcher runs.
    pub mode: XdpMode,
    /// Whether frames may be in several buffers.
    pub multi_buffer: bool,
    /// Programs of a lower one run earlier. What is redirected or dropped no later one sees.
    pub priority: u32,
}

/// Puts a gate into the dispatcher of an interface, which is made if there is none. Gates that
/// were left behind are removed. May set variables of the environment, so the process must have one
/// thread.
///
/// # Errors
/// If another program is in the way, or libxdp or the kernel refuse; others' programs stay.
pub fn place(libxdp: &Libxdp, place: Place) -> Result<Placed, GateError> {
    let mut mode = None;
    let mut taken = 0;
    let mut left_behind = Vec::new();
    if let Some(there) = libxdp.programs(place.ifindex) {
        if there.is_legacy {
            return Err(GateError::Foreign(there.main));
        }
        for (id, name) in &there.programs {
            if name == NAME {
                match is_used(*id).map_err(GateError::Unusable)? {
                    true => return Err(GateError::Another),
                    false => left_behind.push(*id),
                }
            }
        }
        taken = there.programs.len() - left_behind.len();
        mode = (taken > 0).then_some(there.mode).flatten();
    }
    for id in left_behind {
        remove(libxdp, place.ifindex, id)?;
    }
    if taken >= PLACES {
        return Err(GateError::Full);
    }
    if let Some(there) = mode.filter(|mode| *mode != place.mode) {
        return Err(GateError::Mode { there, wanted: place.mode });
    }
    let (object, path) = object().map_err(GateError::Unusable)?;
    let id = with_either_dispatcher(|| libxdp.attach(&path, place))?;
    drop(object);
    let said = libxdp.said();
    if libxdp.programs(place.ifindex).is_none_or(|there| there.is_legacy) {
        remove(libxdp, place.ifindex, id)?;
        return Err(GateError::NoDispatcher(said));
    }
    match array_of(id) {
        Ok(behind) => Ok(Placed { behind, id }),
        Err(error) => {
            remove(libxdp, place.ifindex, id)?;
            Err(GateError::Unusable(error))
        }
    }
}

/// Removes the gate with the number `id` from the interface `ifindex`, with the dispatcher if
/// nothing else is in it. One that is not there is no error. Otherwise as [`place`].
///
/// # Errors
/// If libxdp or the kernel refuses.
pub fn remove(libxdp: &Libxdp, ifindex: u32, id: u32) -> Result<(), GateError> {
    with_either_dispatcher(|| libxdp.remove(ifindex, id))
}

/// Tries with libxdp's dispatcher, and then with Narrows'. If both fail, the error is the first.
fn with_either_dispatcher<T>(attempt: impl Fn() -> Result<T, GateError>) -> Result<T, GateError> {
    attempt().or_else(|refused| {
        log::debug!("trying with a dispatcher of Narrows: {refused}");
        let own = OwnDispatcher::new();
        own.ok().and_then(|_own| attempt().ok()).ok_or(refused)
    })
}

/// The program as a file without a name, and the path to it.
fn object() -> io::Result<(File, CString)> {
    let file = rustix::fs::memfd_create("narrows_gate.o", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut file = File::from(file);
    file.write_all(OBJECT)?;
    let path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    Ok((file, path))
}

/// Makes libxdp use Narrows' dispatcher, until it is dropped.
struct OwnDispatcher {
    folder: PathBuf,
}

impl OwnDispatcher {
    /// Where libxdp looks for objects.
    const VARIABLE: &str = "LIBXDP_OBJECT_PATH";
    const FILE: &str = "xdp-dispatcher.o";

    fn new() -> io::Result<Self> {
        if fs::read_dir("/proc/self/task")?.count() != 1 {
            return Err(io::Error::other("a process with threads places no gates"));
        }
        let folder = PathBuf::from(format!("/run/narrows-dispatcher-{}", std::process::id()));
        // Only root writes there, so nothing but what an earlier one left can be in the way.
        let _ = fs::remove_dir_all(&folder);
        fs::DirBuilder::new().mode(0o700).create(&folder)?;
        let own = Self { folder };
        fs::write(own.folder.join(Self::FILE), DISPATCHER)?;
        // SAFETY: this is the only thread, and it starts none while this value exists.
        unsafe { std::env::set_var(Self::VARIABLE, &own.folder) };
        Ok(own)
    }
}

impl Drop for OwnDispatcher {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { std::env::remove_var(Self::VARIABLE) };
        // In a folder that is cleared at the next boot.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The array of the gate whose program has this number.
fn array_of(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes a number, and returns a new descriptor or an error.
    let program = owned(unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) })?;
    let mut maps = [0_u32; 4];
    let mut info = libbpf_sys::bpf_prog_info {
        nr_map_ids: maps.len() as u32,
        map_ids: maps.as_mut_ptr() as u64,
        ..Default::default()
    };
    let mut length = size_of_val(&info) as u32;
    // SAFETY: `program` is open, `info` is as long as `length` says, and names room for as many
    // numbers of maps as it says. Both outlive the call.
    let outcome =
        unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &mut info, &mut length) };
    if outcome < 0 {
        return Err(io::Error::from_raw_os_error(-outcome));
    }
    if info.nr_map_ids != 1 {
        return Err(io::Error::other("it is of another version"));
    }
    // SAFETY: as above.
    owned(unsafe { libbpf_sys::bpf_map_get_fd_by_id(maps[0]) })
}

/// The descriptor that a call of libbpf returned, or its error.
fn owned(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the call succeeded, so `fd` is a new descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether a process has something behind the gate whose program has this number. The kernel
/// takes a moment to notice that it has ended.
fn is_used(id: u32) -> io::Result<bool> {
    for _ in 0..20 {
        // Opened each time: an open array is not emptied.
        if !leads_on(&array_of(id)?) {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(true)
}

/// Whether something is behind the gate of the array `behind`.
fn leads_on(behind: &OwnedFd) -> bool {
    let (key, mut id) = (0_u32, 0_u32);
    // SAFETY: the map is open, its keys and values have four bytes, and both outlive the call.
    let outcome = unsafe {
        libbpf_sys::bpf_map_lookup_elem(
            behind.as_raw_fd(),
            (&raw const key).cast(),
            (&raw mut id).cast(),
        )
    };
    outcome == 0
}

/// Makes what calls the program at `place` of the array `behind` continue in `program`: a gate, at
/// place 0, for one. Each frame passes the former or the new one.
pub(crate) fn lead_to(
    behind: BorrowedFd<'_>,
    place: u32,
    program: BorrowedFd<'_>,
) -> io::Result<()> {
    let (key, fd) = (place, program.as_raw_fd());
    // SAFETY: both are open, keys and values of the map have four bytes, and they outlive the call.
    let outcome = unsafe {
        libbpf_sys::bpf_map_update_elem(
            behind.as_raw_fd(),
            (&raw const key).cast(),
            (&raw const fd).cast(),
            u64::from(libbpf_sys::BPF_ANY),
        )
    };
    if outcome < 0 { Err(io::Error::from_raw_os_error(-outcome)) } else { Ok(()) }
}

/// Takes the program at `place` of the array `behind` out: all frames pass a gate then.
pub(crate) fn open(behind: BorrowedFd<'_>, place: u32) {
    let key = place;
    // An error says that nothing is behind it.
    // SAFETY: as in `lead_to`.
    unsafe { libbpf_sys::bpf_map_delete_elem(behind.as_raw_fd(), (&raw const key).cast()) };
}

#[cfg(test)]
pub(crate) mod tests;
