//! Test runs: the kernel runs a program on a frame from memory (`BPF_PROG_TEST_RUN`).
//!
//! For tests, and to measure the cost of a program. In [`test_run`] nothing is sent: redirected and
//! passed frames end there. In [`live_run`] they go where the program says.
#![allow(unsafe_code)]

use libbpf_rs::libbpf_sys;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `XDP_DROP` of `linux/bpf.h`.
pub const DROP: u32 = 1;
/// `XDP_PASS`
pub const PASS: u32 = 2;
/// `XDP_TX`
pub const TX: u32 = 3;
/// `XDP_REDIRECT`
pub const REDIRECT: u32 = 4;

/// The result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TestRun {
    /// The program's last verdict.
    pub verdict: u32,
    /// How long it took each time, in nanoseconds.
    pub ns: u32,
    /// The frame, as the program left it.
    pub frame: Vec<u8>,
}

/// Runs the XDP program `times` times on the same `frame`, on the CPU of the calling thread. The
/// program's changes to the frame stay from one run to the next.
///
/// # Errors
/// The kernel's error: missing privileges, or a frame shorter than an Ethernet header.
pub fn test_run(program: BorrowedFd<'_>, frame: &[u8], times: u32) -> io::Result<TestRun> {
    let mut out = vec![0; frame.len()];
    let mut options = libbpf_sys::bpf_test_run_opts {
        data_out: out.as_mut_ptr().cast(),
        data_size_out: out.len() as u32,
        ..options(frame, times)
    };
    // SAFETY: both buffers outlive the call and are as long as `options` says.
    unsafe { run(program, &mut options) }?;
    Ok(TestRun { verdict: options.retval, ns: options.duration, frame: out })
}

/// The size of `struct xdp_md` of `linux/bpf.h`, and where some of its fields are.
#[cfg(test)]
const XDP_MD_BYTES: usize = 24;
#[cfg(test)]
const DATA: usize = 0;
#[cfg(test)]
const DATA_END: usize = 4;
#[cfg(test)]
const INGRESS_IFINDEX: usize = 12;

/// Runs the XDP program on `frame` as if it had come in at the device `ifindex`, on its queue 0,
/// and another program had left the `before` in front of it. Returns also what this one leaves
/// there.
///
/// # Errors
/// As [`test_run`], and if there is no such device in the thread's network namespace.
#[cfg(test)]
pub(crate) fn run_arriving(
    program: BorrowedFd<'_>,
    before: &[u8],
    frame: &[u8],
    ifindex: u32,
) -> io::Result<(TestRun, Vec<u8>)> {
    /// The most that may be in front of a frame.
    const METADATA_MAX: usize = 256;
    let whole = [before, frame].concat();
    let mut context = [0; XDP_MD_BYTES];
    let fields =
        [(DATA, before.len()), (DATA_END, whole.len()), (INGRESS_IFINDEX, ifindex as usize)];
    for (at, value) in fields {
        context[at..at + 4].copy_from_slice(&(value as u32).to_ne_bytes());
    }
    let mut left = context;
    let mut out = vec![0; frame.len() + METADATA_MAX];
    let mut options = libbpf_sys::bpf_test_run_opts {
        data_out: out.as_mut_ptr().cast(),
        data_size_out: out.len() as u32,
        ctx_in: context.as_ptr().cast(),
        ctx_size_in: context.len() as u32,
        ctx_out: left.as_mut_ptr().cast(),
        ctx_size_out: left.len() as u32,
        ..options(&whole, 1)
    };
    // SAFETY: frame, contexts and buffer outlive the call, and are as long as `options` says.
    unsafe { run(program, &mut options) }?;
    let (verdict, ns) = (options.retval, options.duration);
    out.truncate(options.data_size_out as usize);
    let data = left[DATA..][..4].try_into().map_or(0, u32::from_ne_bytes);
    let frame = out.split_off(data as usize);
    Ok((TestRun { verdict, ns, frame }, out))
}

/// How long the program takes in nanoseconds, each of `times` times. The frame that it leaves may
/// be of any length.
///
/// # Errors
/// As [`test_run`].
#[cfg(test)]
pub(crate) fn duration(program: BorrowedFd<'_>, frame: &[u8], times: u32) -> io::Result<u32> {
    let mut options = options(frame, times);
    // SAFETY: `frame` outlives the call, which only reads it, and is as long as `options` says.
    unsafe { run(program, &mut options) }?;
    Ok(options.duration)
}

/// How many instructions the verifier went through until it accepted the loaded program
/// (`verified_insns` of `struct bpf_prog_info`), those of its functions included.
///
/// # Errors
/// The kernel's error.
#[cfg(test)]
pub(crate) fn verified(program: BorrowedFd<'_>) -> io::Result<u32> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut size = size_of_val(&info) as u32;
    let into: *mut libbpf_sys::bpf_prog_info = &raw mut info;
    // SAFETY: `into` points to as many bytes as `size` says, and outlives the call.
    let outcome = unsafe {
        libbpf_sys::bpf_obj_get_info_by_fd(program.as_raw_fd(), into.cast(), &raw mut size)
    };
    if outcome < 0 { Err(io::Error::from_raw_os_error(-outcome)) } else { Ok(info.verified_insns) }
}

/// To run a program `times` times on `frame`, as `run` does.
fn options(frame: &[u8], times: u32) -> libbpf_sys::bpf_test_run_opts {
    libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        repeat: i32::try_from(times).unwrap_or(i32::MAX),
        ..Default::default()
    }
}

/// # Safety
/// `options` says its own size, and each of its pointers is null, or to as many bytes as it says.
unsafe fn run(
    program: BorrowedFd<'_>,
    options: &mut libbpf_sys::bpf_test_run_opts,
) -> io::Result<()> {
    loop {
        // SAFETY: the program is an open descriptor; the caller vouches for the rest.
        let outcome = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), options) };
        match io::Error::from_raw_os_error(outcome.saturating_neg()) {
            _ if outcome >= 0 => return Ok(()),
            // By a signal, which the kernel looks for when it has run for a while.
            error if error.kind() == io::ErrorKind::Interrupted => {}
            error => return Err(error),
        }
    }
}

/// The size of `struct __sk_buff` of `linux/bpf.h`, and where some of its fields are.
#[cfg(test)]
const SK_BUFF_BYTES: usize = 192;
#[cfg(test)]
const FROM_IFINDEX: usize = 36;
#[cfg(test)]
const IFINDEX: usize = 40;
#[cfg(test)]
const CONTROL_BLOCK: usize = 48;
#[cfg(test)]
const DEPARTURE: usize = 152;
#[cfg(test)]
const GSO_SEGMENTS: usize = 164;
#[cfg(test)]
const GSO_SIZE: usize = 176;

/// What a packet for a program at tcx is, besides its bytes.
#[cfg(test)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Packet {
    /// The device where it came in; 0 for the loopback device.
    pub(crate) ifindex: u32,
    /// The bytes of payload of each frame that it stands for; 0 if it is one.
    pub(crate) segment_bytes: u32,
    /// How many these are.
    pub(crate) segments: u32,
    /// The device where the kernel has received it; 0 for none, as of the box's own.
    pub(crate) from: u32,
    /// The first words of its control block.
    pub(crate) control_block: [u32; 2],
    /// The departure that its sender asked for, by the monotonic clock in ns; 0 for none.
    pub(crate) departure: u64,
}

/// What a program at tcx leaves of a packet besides its bytes.
#[cfg(test)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Left {
    /// The first words of its control block.
    pub(crate) control_block: [u32; 2],
    /// When it departs, by the monotonic clock in ns; 0 for at once.
    pub(crate) departure: u64,
}

/// Runs the program for tcx on a packet, on the CPU of the calling thread.
///
/// # Errors
/// The kernel's error.
#[cfg(test)]
pub(crate) fn run_at_tcx(
    program: BorrowedFd<'_>,
    bytes: &[u8],
    packet: Packet,
) -> io::Result<TestRun> {
    Ok(run_at_tcx_leaving(program, bytes, packet)?.0)
}

/// As [`run_at_tcx`]. Returns also what is left of the packet.
#[cfg(test)]
pub(crate) fn run_at_tcx_leaving(
    program: BorrowedFd<'_>,
    bytes: &[u8],
    packet: Packet,
) -> io::Result<(TestRun, Left)> {
    let mut context = [0; SK_BUFF_BYTES];
    let fields = [
        (FROM_IFINDEX, packet.from),
        (IFINDEX, packet.ifindex),
        (CONTROL_BLOCK, packet.control_block[0]),
        (CONTROL_BLOCK + 4, packet.control_block[1]),
        (GSO_SEGMENTS, packet.segments),
        (GSO_SIZE, packet.segment_bytes),
    ];
    for (at, value) in fields {
        context[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }
    context[DEPARTURE..DEPARTURE + 8].copy_from_slice(&packet.departure.to_ne_bytes());
    let mut left = context;
    let mut out = vec![0; bytes.len()];
    let mut options = libbpf_sys::bpf_test_run_opts {
        data_out: out.as_mut_ptr().cast(),
        data_size_out: out.len() as u32,
        ctx_in: context.as_ptr().cast(),
        ctx_size_in: context.len() as u32,
        ctx_out: left.as_mut_ptr().cast(),
        ctx_size_out: left.len() as u32,
        ..options(bytes, 1)
    };
    // SAFETY: packet, contexts and buffer outlive the call, and are as long as `options` says.
    unsafe { run(program, &mut options) }?;
    let word = |at: usize| left[at..at + 4].try_into().map_or(0, u32::from_ne_bytes);
    let time = left[DEPARTURE..DEPARTURE + 8].try_into().map_or(0, u64::from_ne_bytes);
    let left =
        Left { control_block: [word(CONTROL_BLOCK), word(CONTROL_BLOCK + 4)], departure: time };
    Ok((TestRun { verdict: options.retval, ns: options.duration, frame: out }, left))
}

/// Runs the program for tcx on a packet that stands for `segments` frames with `segment_bytes` of
/// payload each, on the CPU of the calling thread. Returns its verdict.
///
/// # Errors
/// The kernel's error.
#[cfg(test)]
pub(crate) fn run_merged(
    program: BorrowedFd<'_>,
    packet: &[u8],
    segment_bytes: u32,
    segments: u32,
) -> io::Result<u32> {
    let merged = Packet { segment_bytes, segments, ..Packet::default() };
    Ok(run_at_tcx(program, packet, merged)?.verdict)
}

/// The verdict of a program that is entered by `entry`, as XDP's: of tcx `TC_ACT_SHOT`,
/// `TC_ACT_REDIRECT` and `TC_ACT_UNSPEC` of `linux/pkt_cls.h`.
#[cfg(test)]
pub(crate) fn as_xdp(entry: crate::Entry, verdict: u32) -> u32 {
    match (entry, verdict) {
        (crate::Entry::Tcx, 2) => DROP,
        (crate::Entry::Tcx, 7) => REDIRECT,
        (crate::Entry::Tcx, u32::MAX) => PASS,
        (_, verdict) => verdict,
    }
}

/// `BPF_F_TEST_XDP_LIVE_FRAMES` of `linux/bpf.h`.
const LIVE_FRAMES: u32 = 1 << 1;

/// Runs the XDP program on `times` frames like `frame`, on the CPU of the calling thread, as if
/// they had come in at the loopback device. Each goes where the program says.
///
/// # Errors
/// What the kernel says: the process may not, or it has no live frames (before Linux 5.18).
pub fn live_run(program: BorrowedFd<'_>, frame: &[u8], times: u32) -> io::Result<()> {
    let mut options = libbpf_sys::bpf_test_run_opts { flags: LIVE_FRAMES, ..options(frame, times) };
    // SAFETY: `frame` outlives the call, which only reads it, and is as long as `options` says.
    unsafe { run(program, &mut options) }
}
