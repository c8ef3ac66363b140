//! How sessions are run, as their operator wants it.

use narrows_bpf::Hook;
use narrows_xsk::CopyMode;

/// How sessions are run.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Frames of each worker for queued packets, half of them for each direction. Frames for
    /// reception are extra.
    pub frames: u32,
    /// Entries of each ring of a socket.
    pub ring: u32,
    /// The cores to pin workers to, in turn.
    pub cpus: Vec<usize>,
    /// Workers never sleep.
    pub busy_poll: bool,
    /// Only this hook for programs, instead of the best that works.
    pub hook: Option<Hook>,
    /// Only this copy mode, instead of the best that works.
    pub copy_mode: Option<CopyMode>,
    /// The CPUs whose stack receives what a host's port gets; none for the CPU where it arrives.
    pub receive_on: Vec<u32>,
    /// Workers measure round trips beyond the ports.
    pub round_trips: bool,
}
