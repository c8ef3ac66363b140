//! `user_front`: a user's own XDP program, which sees the frames of a port before all others.
//!
//! A program of ours calls it, counts its verdict, and continues after `XDP_PASS`. The call is a
//! tail call in a function: the user's program takes the place of the function, not of the program,
//! and returns to it (Linux 5.10 on x86-64, 6.0 on arm64).
//!
//! *Why not through libxdp's dispatcher*, which calls several programs in a row: it counts no
//! verdicts, so what it drops before Narrows' [gate](crate::Place) no counter of Narrows has; it
//! takes `libxdp.so.1` and CAP_SYS_ADMIN; and its way to call a program (type EXT, in the place of
//! an empty function) is not allowed for a program in an array since Linux 6.12, as ours is behind
//! a gate. Here the program may be behind one, too: it is first in Narrows then.
//!
//! *Loaded once in the life of an instance*, before that gives up its privileges. Sessions come and
//! go, and processes are upgraded; the program, its maps and its global variables stay.
//!
//! *Frames in several buffers.* The kernel wants all programs that call each other so to be alike.
//! A program that takes such frames makes all of the port's programs take them.
//!
//! *Failing open.* It is called by a program that ends with this process, as all others do.
//!
//! Non-goals: several such programs, for which libxdp's dispatcher is there; pins, but for maps
//! that ask for one; XDP metadata from the device (kfuncs), which binds programs to a device, where
//! no tail call leads on.

use crate::attach::Entry;
use crate::gate;
use crate::load::{LoadError, Tries, heard, keep, verifier_s_lines};
use crate::maps::sums_in;
use crate::named::named;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapHandle, MapType, ObjectBuilder, OpenObject, ProgramType};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

#[allow(missing_docs, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/user_front.skel.rs"));
}

/// The sections that say that a program is XDP's, and that it copes with frames in several buffers.
const SECTION: &str = "xdp";
const SECTION_FRAGS: &str = "xdp.frags";
/// The longest object, in bytes: far more than the instructions that the kernel takes.
const OBJECT_MAX: u64 = 16 << 20;
/// `EM_BPF` of `linux/elf-em.h`.
const EM_BPF: u16 = 247;
/// How many of the verifier's last lines an error has.
const LINES: usize = 8;
/// How many of libbpf's.
const LIBBPF_LINES: usize = 3;
/// A user's program cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UserFrontError {
    /// The file cannot be read.
    #[error("it cannot be read: {0}")]
    Read(io::Error),
    /// It is longer than any object.
    #[error("it is longer than {} MiB: name the object that clang makes", OBJECT_MAX >> 20)]
    Long,
    /// It is no object of BPF.
    #[error("it is no BPF object: make one with clang -O2 -g -target bpf -c NAME.c -o NAME.o")]
    NoObject,
    /// It has no types.
    #[error(
        "it has no types (BTF), by which the kernel compares functions: compile it with clang -g"
    )]
    NoTypes,
    /// It has no program for XDP.
    #[error("it has no program for XDP: mark one with SEC(\"xdp\") or SEC(\"xdp.frags\")")]
    NoProgram,
    /// It has no such program.
    #[error("it has no XDP program \"{asked}\": it has {}", present.join(", "))]
    NoSuchProgram {
        /// The name that was asked for.
        asked: String,
        /// Those of its programs.
        present: Vec<String>,
    },
    /// It has several programs.
    #[error("it has several XDP programs, {}: name one behind a colon, as FILE:{}", .0.join(", "), .0[0])]
    Several(Vec<String>),
    /// The verifier refuses it.
    #[error("the kernel's verifier refuses it:\n  {}", .0.join("\n  "))]
    Refused(Vec<String>),
    /// Libbpf refuses the object, or the kernel what it asks for.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// As [`Load`](Self::Load), with libbpf's last words.
    #[error("{0}")]
    Libbpf(String),
    /// Frames of the port are in several buffers.
    #[error(
        "its frames are in several buffers at this MTU, which the front does not take: compile it \
         with SEC(\"xdp.frags\"), or make the MTU smaller"
    )]
    OneBuffer,
    /// The port's programs are at tcx.
    #[error("a front needs XDP, and this port's program is at tcx: say --xdp native or generic")]
    NoXdp,
    /// There are no descriptors left.
    #[error("no descriptor is left: {0}")]
    Descriptors(io::Error),
    /// What another process has passed on does not fit.
    #[error("the running process has no front that this one understands")]
    Inherited,
}

// In the order of `enum xdp_action` of `linux/bpf.h`.
named! {
    /// What a user's program says of a frame.
    Verdict {
        /// It failed, and the frame is dropped.
        Aborted "aborted",
        /// The frame is dropped.
        Drop "drop",
        /// The frame continues to the port's own programs.
        Pass "pass",
        /// The frame leaves where it came from.
        Tx "tx",
        /// The frame leaves elsewhere, or goes to a socket or another CPU.
        Redirect "redirect",
        /// No verdict that the kernel knows: the frame is dropped.
        Invalid "invalid",
    }
}

/// Frames of one verdict.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Judged {
    /// Frames.
    pub packets: u64,
    /// Their bytes, as they came.
    pub bytes: u64,
}

/// A user's program, loaded.
pub struct UserFront {
    /// The program of ours that calls it.
    program: OwnedFd,
    /// The array with what is behind both.
    plane: OwnedFd,
    /// The arrays with the user's program, and those that are its own. The kernel empties an array
    /// of programs once no process has it open.
    arrays: Vec<OwnedFd>,
    verdicts: MapHandle,
    multi_buffer: bool,
}

/// The program at a port.
pub(crate) struct FirstProgram {
    program: OwnedFd,
    plane: OwnedFd,
}

impl FirstProgram {
    /// Makes frames that pass continue to `program`.
    ///
    /// # Errors
    /// If the kernel refuses; the former program stays.
    pub(crate) fn lead_to(&self, program: BorrowedFd<'_>) -> Result<(), libbpf_rs::Error> {
        Ok(gate::lead_to(self.plane.as_fd(), 0, program)?)
    }

    pub(crate) fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}

impl UserFront {
    /// Loads the program `wanted` of the object `file`, or the only one in it, for a port whose
    /// programs are attached as `entry` says. Other XDP programs of the object are loaded with it,
    /// as targets of its tail calls. Maps that ask to be pinned by name are pinned below
    /// `/sys/fs/bpf`, or are those that are pinned there.
    ///
    /// # Errors
    /// If it is no such object, or the kernel refuses it.
    pub fn load(file: &Path, wanted: Option<&str>, entry: Entry) -> Result<Self, UserFrontError> {
        if entry == Entry::Tcx {
            return Err(UserFrontError::NoXdp);
        }
        let bytes = read(file)?;
        let name = file.file_stem().map(|stem| stem.to_string_lossy()).unwrap_or_default();
        let open = heard(|| ObjectBuilder::default().name(name)?.open_memory(&bytes));
        let mut open = told(open)?;
        let Chosen { name, multi_buffer } = choose(&open, wanted)?;
        for mut program in open.progs_mut() {
            if !is_first(&program.section().to_string_lossy()) {
                // Those for maps of devices and CPUs stay as they are.
                program.set_autoload(program.prog_type() == ProgramType::Xdp);
                continue;
            }
            // Another type makes libbpf forget what the section says of several buffers: behind a
            // gate the kernel wants programs that say nothing of it.
            program.set_prog_type(ProgramType::SocketFilter);
            program.set_prog_type(ProgramType::Xdp);
            entry.set_up(&mut program, multi_buffer);
        }
        let object = told(heard(|| open.load()))?;
        let its = object.progs().find(|program| program.name().to_string_lossy() == name);
        let its = its.ok_or(UserFrontError::NoProgram)?;
        let mut tries = Tries::new();
        let ours = tries.explained(|storage| {
            let mut open = skeleton::UserFrontSkelBuilder::default().open(storage)?;
            if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
                rodata.multi_buffer = multi_buffer.into();
            }
            entry.set_up(&mut open.progs.user_front, multi_buffer);
            open.load()
        })?;
        let own = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().map_err(UserFrontError::Descriptors);
        let users = own(ours.maps.users.as_fd())?;
        gate::lead_to(users.as_fd(), 0, its.as_fd())
            .map_err(|error| LoadError::Other(error.into()))?;
        let its_own = object.maps().filter(|map| map.map_type() == MapType::ProgArray);
        let mut arrays = its_own.map(|map| own(map.as_fd())).collect::<Result<Vec<_>, _>>()?;
        arrays.push(users);
        Ok(Self {
            program: keep(&ours.progs.user_front)?,
            plane: own(ours.maps.plane.as_fd())?,
            arrays,
            verdicts: MapHandle::try_from(&ours.maps.verdicts).map_err(LoadError::Other)?,
            multi_buffer,
        })
    }

    /// Whether it takes frames in several buffers: then all programs of its port have to.
    pub fn is_multi_buffer(&self) -> bool {
        self.multi_buffer
    }

    /// The program for a port with programs that are attached as `entry` says; `multi_buffer` if
    /// they take frames in several buffers.
    ///
    /// # Errors
    /// If it is not for such a port, or no descriptor is left.
    pub(crate) fn for_port(
        &self,
        multi_buffer: bool,
        entry: Entry,
    ) -> Result<FirstProgram, UserFrontError> {
        if entry == Entry::Tcx {
            return Err(UserFrontError::NoXdp);
        }
        if multi_buffer != self.multi_buffer {
            return Err(UserFrontError::OneBuffer);
        }
        let [program, plane] = [&self.program, &self.plane].map(OwnedFd::try_clone);
        let failed = UserFrontError::Descriptors;
        Ok(FirstProgram { program: program.map_err(failed)?, plane: plane.map_err(failed)? })
    }

    /// Each verdict, and its frames on all CPUs.
    ///
    /// # Errors
    /// If the kernel does not say.
    pub fn verdicts(&self) -> Result<Vec<(Verdict, Judged)>, libbpf_rs::Error> {
        let judged = |verdict: &Verdict| {
            let [packets, bytes] = sums_in(&self.verdicts, *verdict as u32)?;
            Ok((*verdict, Judged { packets, bytes }))
        };
        Verdict::ALL.iter().map(judged).collect()
    }

    /// What another process needs to go on with it, for [`inherit`](Self::inherit).
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn descriptors(&self) -> io::Result<Vec<OwnedFd>> {
        let first = [self.verdicts.as_fd(), self.program.as_fd(), self.plane.as_fd()];
        let all = first.into_iter().chain(self.arrays.iter().map(OwnedFd::as_fd));
        all.map(|fd| fd.try_clone_to_owned()).collect()
    }

    /// Goes on with the program of another process, whose [`descriptors`](Self::descriptors) these
    /// are, and which [takes](Self::is_multi_buffer) frames in several buffers or not.
    ///
    /// # Errors
    /// If they are others, or the kernel does not let them be read.
    pub fn inherit(descriptors: Vec<OwnedFd>, multi_buffer: bool) -> Result<Self, UserFrontError> {
        let mut all = descriptors.into_iter();
        let [Some(verdicts), Some(program), Some(plane)] = [all.next(), all.next(), all.next()]
        else {
            return Err(UserFrontError::Inherited);
        };
        // A map is read through an object that has it.
        let mut tries = Tries::new();
        let verdicts = tries.explained(|storage| {
            let mut open = skeleton::UserFrontSkelBuilder::default().open(storage)?;
            open.maps.verdicts.reuse_fd(verdicts.as_fd())?;
            MapHandle::try_from(&open.load()?.maps.verdicts)
        })?;
        Ok(Self { program, plane, arrays: all.collect(), verdicts, multi_buffer })
    }
}

/// The object in `file`.
fn read(file: &Path) -> Result<Vec<u8>, UserFrontError> {
    let mut bytes = Vec::new();
    let opened = File::open(file).map_err(UserFrontError::Read)?;
    opened.take(OBJECT_MAX + 1).read_to_end(&mut bytes).map_err(UserFrontError::Read)?;
    if bytes.len() as u64 > OBJECT_MAX {
        return Err(UserFrontError::Long);
    }
    check(&bytes)?;
    Ok(bytes)
}

/// Whether `bytes` are an object for BPF. Libbpf reads the rest.
fn check(bytes: &[u8]) -> Result<(), UserFrontError> {
    /// Where `e_ident` says which byte is first, and where `e_machine` is.
    const ORDER: usize = 5;
    const MACHINE: std::ops::Range<usize> = 18..20;
    const BIG_END_FIRST: u8 = 2;
    let is_elf = bytes.starts_with(b"\x7fELF");
    let machine = bytes.get(MACHINE).and_then(|machine| <[u8; 2]>::try_from(machine).ok());
    let machine = machine.map(|machine| match bytes[ORDER] {
        BIG_END_FIRST => u16::from_be_bytes(machine),
        _ => u16::from_le_bytes(machine),
    });
    if !is_elf || machine != Some(EM_BPF) {
        return Err(UserFrontError::NoObject);
    }
    Ok(())
}

struct Chosen {
    name: String,
    multi_buffer: bool,
}

/// Whether a program of this section sees frames that arrive at a port: those for a map of devices
/// or CPUs do not.
fn is_first(section: &str) -> bool {
    section == SECTION || section == SECTION_FRAGS
}

/// The program `wanted` of `object`, or its only one.
fn choose(object: &OpenObject, wanted: Option<&str>) -> Result<Chosen, UserFrontError> {
    let all: Vec<_> = object
        .progs()
        .map(|program| {
            [program.name(), program.section()].map(|text| text.to_string_lossy().into_owned())
        })
        .filter(|[_, section]| is_first(section))
        .collect();
    let names = || all.iter().map(|[name, _]| name.clone()).collect();
    let chosen = match (wanted, &all[..]) {
        (_, []) => return Err(UserFrontError::NoProgram),
        (Some(wanted), _) => all.iter().find(|[name, _]| name == wanted).ok_or_else(|| {
            UserFrontError::NoSuchProgram { asked: wanted.to_owned(), present: names() }
        })?,
        (None, [only]) => only,
        (None, _) => return Err(UserFrontError::Several(names())),
    };
    let [name, section] = chosen;
    Ok(Chosen { name: name.clone(), multi_buffer: section == SECTION_FRAGS })
}

/// What libbpf made, or why not, in its words or the verifier's.
fn told<T>((made, said): (Result<T, libbpf_rs::Error>, String)) -> Result<T, UserFrontError> {
    made.map_err(|error| match LoadError::judge(&said, error) {
        LoadError::Refused { .. } => UserFrontError::Refused(verifier_s_lines(&said, LINES)),
        LoadError::Other(_) if said.contains("BTF is required") => UserFrontError::NoTypes,
        LoadError::Other(error) => {
            let lines = said.lines().map(|line| line.trim_start_matches("libbpf: ").trim());
            // One failure follows from another, and the last says least.
            let words =
                lines.filter(|line| !line.is_empty() && !line.starts_with("failed to load"));
            let last: Vec<&str> = words.rev().take(LIBBPF_LINES).collect();
            let last: Vec<&str> = last.into_iter().rev().collect();
            match last.is_empty() {
                true => UserFrontError::Libbpf(error.to_string()),
                false => UserFrontError::Libbpf(format!("{error} ({})", last.join("; "))),
            }
        }
        other => UserFrontError::Load(other),
    })
}

#[cfg(test)]
mod tests;
