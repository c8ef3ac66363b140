//! The shared library `libxdp.so.1`, opened when it is first needed, so that neither the build nor
//! a machine without it depends on it.
//!
//! It comes with a libbpf of its own: nothing of it meets the libbpf of this program, and what
//! goes between them are paths and numbers.

use super::{GateError, Place};
use crate::attach::XdpMode;
use crate::load::verifier_s_reason;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_long, c_uint, c_void};
use std::io;
use std::ptr::NonNull;

/// The library's file name, which says its interface's version.
const FILE: &CStr = c"libxdp.so.1";

/// The library cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CannotOpen {
    /// It is not installed.
    #[error(
        "libxdp's dispatcher needs libxdp.so.1, which is not here ({0}): install libxdp1 (Debian) or \
         libxdp (Fedora)"
    )]
    Missing(String),
    /// A program without a dynamic loader cannot open it.
    #[error(
        "this binary is linked statically and cannot open libxdp.so.1: use the Debian package, or a \
         build of your own"
    )]
    Static,
    /// It is too old.
    #[error("libxdp has no {0}: libxdp's dispatcher needs libxdp 1.3 or newer")]
    TooOld(String),
}

/// `struct xdp_program` and `struct xdp_multiprog`.
type Opaque = *mut c_void;

/// The functions that are used, by their names in the library.
macro_rules! library {
    ($($field:ident: $name:literal = fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The library. Never closed: it keeps state of its own.
        pub struct Libxdp {
            $($field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Libxdp {
            /// Finds the functions in the open library.
            fn find(library: *mut c_void) -> Result<Self, CannotOpen> {
                Ok(Self {
                    $($field: {
                        let symbol = symbol(library, $name)?;
                        // SAFETY: the version of the library's interface, which is in its file
                        // name, has this function with these parameters.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($argument),*) $(-> $result)?,
                            >(symbol)
                        }
                    },)*
                })
            }
        }
    };
}

library! {
    open_file: c"xdp_program__open_file" = fn(*const c_char, *const c_char, *mut c_void) -> Opaque;
    close: c"xdp_program__close" = fn(Opaque);
    set_run_prio: c"xdp_program__set_run_prio" = fn(Opaque, c_uint) -> c_int;
    set_frags: c"xdp_program__set_xdp_frags_support" = fn(Opaque, bool) -> c_int;
    attach: c"xdp_program__attach" = fn(Opaque, c_int, c_int, c_uint) -> c_int;
    detach: c"xdp_program__detach" = fn(Opaque, c_int, c_int, c_uint) -> c_int;
    id: c"xdp_program__id" = fn(Opaque) -> u32;
    name: c"xdp_program__name" = fn(Opaque) -> *const c_char;
    all: c"xdp_multiprog__get_from_ifindex" = fn(c_int) -> Opaque;
    all_close: c"xdp_multiprog__close" = fn(Opaque);
    next: c"xdp_multiprog__next_prog" = fn(Opaque, Opaque) -> Opaque;
    main: c"xdp_multiprog__main_prog" = fn(Opaque) -> Opaque;
    mode: c"xdp_multiprog__attach_mode" = fn(Opaque) -> c_int;
    is_legacy: c"xdp_multiprog__is_legacy" = fn(Opaque) -> bool;
    listen: c"libxdp_set_print" = fn(Hearing) -> Hearing;
    // Of its libbpf.
    listen_below: c"libbpf_set_print" = fn(Hearing) -> Hearing;
}

/// What gets their messages: a level, a format, and its arguments.
type Hearing = unsafe extern "C" fn(c_int, *const c_char, *mut c_void) -> c_int;

thread_local! {
    /// The messages on this thread since the last attempt began.
    static SAID: RefCell<String> = const { RefCell::new(String::new()) };
}

unsafe extern "C" {
    /// The C library's; `arguments` is a `va_list`, which is a pointer where it is passed on.
    fn vsnprintf(
        text: *mut c_char,
        size: usize,
        format: *const c_char,
        arguments: *mut c_void,
    ) -> c_int;
}

/// Collects a message.
unsafe extern "C" fn hear(level: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
    /// The level of details, of both libraries.
    const DEBUG: c_int = 2;
    /// Longer than any message but the verifier's, of which the end counts.
    const LENGTH: usize = 8192;
    if level >= DEBUG {
        return 0;
    }
    let mut message = [0; LENGTH];
    // SAFETY: the text is as long as the call is told, and the libraries pass a format with the
    // arguments that it names.
    unsafe { vsnprintf(message.as_mut_ptr(), LENGTH, format, arguments) };
    // SAFETY: the call ends the text with a zero byte.
    let message = unsafe { text(message.as_ptr()) };
    log::debug!("{}", message.trim_end());
    SAID.with_borrow_mut(|said| said.push_str(&message));
    0
}

/// Why the last attempt failed, in the libraries' words: the verifier's, or the last ones. In
/// parentheses, after a space.
fn reason() -> String {
    SAID.with_borrow(|said| reason_in(said))
}

fn reason_in(said: &str) -> String {
    // Consequences, not causes.
    let after = ["Falling back", "Couldn't", "Failed to attach dispatcher"];
    let is_cause = |line: &&str| {
        let words = line.trim_start_matches("libxdp: ");
        !words.is_empty() && !after.iter().any(|consequence| words.starts_with(consequence))
    };
    let last = said.lines().map(str::trim).rfind(is_cause);
    verifier_s_reason(said).or(last).map(|why| format!(" ({why})")).unwrap_or_default()
}

/// The function `name` of the open library.
fn symbol(library: *mut c_void, name: &CStr) -> Result<*mut c_void, CannotOpen> {
    // SAFETY: the library is open, and the name ends with a zero byte.
    let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
    let too_old = || CannotOpen::TooOld(name.to_string_lossy().into_owned());
    (!symbol.is_null()).then_some(symbol).ok_or_else(too_old)
}

/// The programs of an interface.
pub(super) struct Programs {
    /// There is only one, without a dispatcher.
    pub(super) is_legacy: bool,
    /// The number of that program, or of the dispatcher.
    pub(super) main: u32,
    /// Where it runs; `None` if that is neither driver nor stack.
    pub(super) mode: Option<XdpMode>,
    /// Those that the dispatcher calls, in order: numbers and names.
    pub(super) programs: Vec<(u32, String)>,
}

impl Libxdp {
    /// Opens the library.
    ///
    /// # Errors
    /// If it is not installed, or too old, or this program cannot open any.
    pub fn open() -> Result<Self, CannotOpen> {
        if cfg!(target_feature = "crt-static") {
            return Err(CannotOpen::Static);
        }
        // SAFETY: the name ends with a zero byte; the library's initialisation does nothing.
        let handle = unsafe { libc::dlopen(FILE.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            // SAFETY: called on the thread whose call failed; the text stays until the next one.
            let why = unsafe { text(libc::dlerror()) };
            return Err(CannotOpen::Missing(why));
        }
        let found = Self::find(handle)?;
        // SAFETY: the function stays, and is called with what it takes.
        unsafe {
            (found.listen)(hear);
            (found.listen_below)(hear);
        }
        Ok(found)
    }

    /// The programs of the interface `ifindex`; `None` without any.
    pub(super) fn programs(&self, ifindex: u32) -> Option<Programs> {
        let all = self.all_of(ifindex)?;
        // SAFETY: `all` is open until the end of this function, its programs live as long as it
        // does, and each call only reads them.
        unsafe {
            let main = (self.main)(all.as_ptr());
            let programs = Programs {
                is_legacy: (self.is_legacy)(all.as_ptr()),
                main: if main.is_null() { 0 } else { (self.id)(main) },
                mode: match (self.mode)(all.as_ptr()) {
                    NATIVE => Some(XdpMode::Native),
                    GENERIC => Some(XdpMode::Generic),
                    _ => None,
                },
                programs: self
                    .each(all)
                    .map(|program| ((self.id)(program), text((self.name)(program))))
                    .collect(),
            };
            (self.all_close)(all.as_ptr());
            Some(programs)
        }
    }

    /// The libraries' words about the last attempt, in parentheses.
    pub(super) fn said(&self) -> String {
        reason()
    }

    /// Loads the only program of the object at `path` and attaches it. Returns its number.
    pub(super) fn attach(&self, path: &CStr, place: Place) -> Result<u32, GateError> {
        SAID.take();
        let failed = |attempt| move |source| GateError::Libxdp { attempt, source, said: reason() };
        // SAFETY: the path ends with a zero byte, and null stands for the first program and for
        // defaults.
        let program =
            unsafe { (self.open_file)(path.as_ptr(), std::ptr::null(), std::ptr::null_mut()) };
        let program = opened(program).map_err(failed("open the gate"))?;
        // SAFETY: `program` is open until it is closed below, by the last call.
        unsafe {
            (self.set_run_prio)(program.as_ptr(), place.priority);
            (self.set_frags)(program.as_ptr(), place.multi_buffer);
            let outcome =
                (self.attach)(program.as_ptr(), place.ifindex as c_int, number(place.mode), 0);
            let id = (self.id)(program.as_ptr());
            (self.close)(program.as_ptr());
            outcome_of(outcome).map(|()| id).map_err(failed("put the gate into its dispatcher"))
        }
    }

    /// Removes the program with the number `id` from the interface `ifindex`, with the dispatcher
    /// if nothing else is in it. One that is not there is no error.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(super) fn remove(&self, ifindex: u32, id: u32) -> Result<(), GateError> {
        SAID.take();
        let Some(all) = self.all_of(ifindex) else { return Ok(()) };
        // SAFETY: as in `programs`. Detaching reads the number of the program.
        let outcome = unsafe {
            let main = (self.main)(all.as_ptr());
            let alone = Some(main).filter(|main| !main.is_null() && (self.is_legacy)(all.as_ptr()));
            let found = self.each(all).chain(alone).find(|program| (self.id)(*program) == id);
            let mode = (self.mode)(all.as_ptr());
            let outcome =
                found.map_or(0, |program| (self.detach)(program, ifindex as c_int, mode, 0));
            (self.all_close)(all.as_ptr());
            outcome
        };
        outcome_of(outcome).map_err(|source| GateError::Libxdp {
            attempt: "take the gate out of its dispatcher",
            source,
            said: reason(),
        })
    }

    fn all_of(&self, ifindex: u32) -> Option<NonNull<c_void>> {
        // SAFETY: the call takes a number.
        opened(unsafe { (self.all)(ifindex as c_int) }).ok()
    }

    /// The programs under a dispatcher.
    ///
    /// # Safety
    /// `all` must be open for as long as the iterator is used.
    unsafe fn each(&self, all: NonNull<c_void>) -> impl Iterator<Item = Opaque> {
        let next = self.next;
        let after = move |program: Opaque| {
            // SAFETY: by the caller, and a program of the list, or null, gives the next one.
            let next = unsafe { next(program, all.as_ptr()) };
            (!next.is_null()).then_some(next)
        };
        std::iter::successors(after(std::ptr::null_mut()), move |program| after(*program))
    }
}

/// `XDP_MODE_NATIVE` and `XDP_MODE_SKB` of `xdp/libxdp.h`.
const NATIVE: c_int = 1;
const GENERIC: c_int = 2;

fn number(mode: XdpMode) -> c_int {
    match mode {
        XdpMode::Native => NATIVE,
        XdpMode::Generic => GENERIC,
    }
}

/// A pointer of the library, or the error that it is in place of one: null with the error of the
/// thread, or one of the last addresses.
fn opened(pointer: Opaque) -> io::Result<NonNull<c_void>> {
    const FIRST: c_long = -4095;
    match NonNull::new(pointer) {
        None => Err(io::Error::last_os_error()),
        Some(pointer) => match pointer.as_ptr() as c_long {
            error @ FIRST..0 => Err(io::Error::from_raw_os_error(-error as i32)),
            _ => Ok(pointer),
        },
    }
}

fn outcome_of(outcome: c_int) -> io::Result<()> {
    if outcome < 0 { Err(io::Error::from_raw_os_error(-outcome)) } else { Ok(()) }
}

/// A text of the library.
///
/// # Safety
/// It is null, or ends with a zero byte and stays as it is during the call.
unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: by the caller.
    CString::from(unsafe { CStr::from_ptr(pointer) }).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_of_the_library_may_be_an_error() {
        let as_pointer = |number: isize| number as Opaque;
        assert_eq!(opened(as_pointer(-16)).unwrap_err().raw_os_error(), Some(libc::EBUSY));
        assert!(opened(as_pointer(4096)).is_ok());
        assert!(opened(std::ptr::null_mut()).is_err());
    }

    #[test]
    fn the_reason_is_a_cause_in_the_libraries_words() {
        let said = "libxdp: Compatibility check for dispatcher program failed: Operation not \
                    permitted\nlibxdp: Falling back to loading single prog without dispatcher\n";
        let why =
            "libxdp: Compatibility check for dispatcher program failed: Operation not permitted";
        assert_eq!(reason_in(said), format!(" ({why})"));
        let refused = "libbpf: prog 'narrows_gate': BPF program load failed: Invalid argument\n\
                       libbpf: prog 'narrows_gate': -- BEGIN PROG LOAD LOG --\n\
                       Extension program changes packet data, while original does not\n\
                       processed 0 insns (limit 1000000)\n\
                       -- END PROG LOAD LOG --\n\
                       libbpf: failed to load object\n";
        let why = "Extension program changes packet data, while original does not";
        assert_eq!(reason_in(refused), format!(" ({why})"));
        assert_eq!(reason_in(""), "");
    }

    #[test]
    fn an_interface_without_programs_has_none() {
        let Ok(libxdp) = Libxdp::open() else {
            println!("SKIPPED: there is no libxdp.so.1 here");
            return;
        };
        assert!(libxdp.programs(1).is_none(), "loopback");
        libxdp.remove(1, 1).unwrap();
    }
}
