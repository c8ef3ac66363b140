//! Standard output that cannot be written.
//!
//! A reader that has seen enough (`| head`) is no error: the program ends without a word and with
//! the exit code that a shell shows for SIGPIPE, as other tools do. A full disk is an error with a
//! sentence. Rust ignores SIGPIPE, and `println!` panics instead of returning an error, so both are
//! recognised where they arrive.
//!
//! Non-goals: processes that serve others; they go on without a reader of their log.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::panic::PanicHookInfo;

/// What a shell shows for a program that SIGPIPE has ended.
const READER_GONE: u8 = 128 + 13;

/// How `println!` begins to panic.
const PRINTING: &str = "failed printing to stdout: ";

/// Whether whoever reads standard output has closed it.
fn reader_is_gone() -> bool {
    let stdout = io::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::OUT)];
    poll(&mut polled, Some(&Timespec::default())).is_ok()
        && polled[0].revents().contains(PollFlags::ERR)
}

/// The exit code if `error` says only that nobody reads the output any more.
pub fn nobody_reads(error: &anyhow::Error) -> Option<u8> {
    let is_broken_pipe = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().map(io::Error::kind) == Some(io::ErrorKind::BrokenPipe)
    };
    (error.chain().any(is_broken_pipe) && reader_is_gone()).then_some(READER_GONE)
}

/// Ends the process if `panic` is one of `println!`: quietly if nobody reads, else with the reason.
pub fn end_if_unwritable(panic: &PanicHookInfo<'_>) {
    let Some(why) = panic.payload_as_str().and_then(|said| said.strip_prefix(PRINTING)) else {
        return;
    };
    if reader_is_gone() {
        std::process::exit(READER_GONE.into());
    }
    eprintln!("narrows: cannot write the output: {why}");
    std::process::exit(1);
}
