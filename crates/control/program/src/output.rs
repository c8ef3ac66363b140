//! What the program prints.
//!
//! *Everything goes through here*, escaped for the place where it goes (`narrows_escape`): names,
//! comments, and answers come from outside. Programs forbid `println!` elsewhere.
//!
//! *Standard output that cannot be written.*
//! A reader that has seen enough (`| head`) is no error: the program ends without a word and with
//! the exit code that a shell shows for SIGPIPE, as other tools do. A full disk is an error with a
//! sentence. Rust ignores SIGPIPE, and `println!` panics instead of returning an error, so both are
//! recognised where they arrive.
//!
//! Non-goals: processes that serve others; they go on without a reader of their log.

use narrows_escape::{json as escaped_json, lines};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write as _};
use std::panic::PanicHookInfo;
use std::sync::OnceLock;

/// What a shell shows for a program that SIGPIPE has ended.
const READER_GONE: u8 = 128 + 13;

/// How `println!` begins to panic.
const PRINTING: &str = "failed printing to stdout: ";

/// The name of the program, which its complaints begin with.
static NAME: OnceLock<&str> = OnceLock::new();

pub(crate) fn begin(name: &'static str) {
    NAME.get_or_init(|| name);
}

/// Prints text that ends with its last line.
#[expect(clippy::print_stdout)]
pub fn text(text: impl Display) {
    print!("{}", lines(&text.to_string()));
}

/// Prints a line.
pub fn say(said: impl Display) {
    text(format_args!("{said}\n"));
}

/// Prints text that another program may read back, which gets every letter as it is. A terminal
/// does not.
#[expect(clippy::print_stdout)]
pub fn data(data: &str) {
    if io::stdout().is_terminal() { text(data) } else { print!("{data}") }
}

/// Prints JSON that is text already.
#[expect(clippy::print_stdout)]
pub fn json_text(json: &str) {
    print!("{}", escaped_json(json));
}

/// Prints `value` as JSON.
///
/// # Errors
/// If it cannot be written as JSON.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    json_text(&format!("{}\n", serde_json::to_string_pretty(value)?));
    Ok(())
}

/// Prints text on standard error, as it ends.
pub fn report(text: impl Display) {
    // Nobody is left to be told if this fails, too.
    let _ = write!(io::stderr(), "{}", lines(&text.to_string()));
}

/// Prints an error or a warning of the program itself.
pub fn complain(what: impl Display) {
    report(format_args!("{}: {what}\n", NAME.get().unwrap_or(&"narrows")));
}

/// Whether the reader of standard output has closed it.
fn reader_is_gone() -> bool {
    let stdout = io::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::OUT)];
    poll(&mut polled, Some(&Timespec::default())).is_ok()
        && polled[0].revents().contains(PollFlags::ERR)
}

/// The exit code if `error` says only that nobody reads the output any more.
pub(crate) fn nobody_reads(error: &anyhow::Error) -> Option<u8> {
    let is_broken_pipe = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().map(io::Error::kind) == Some(io::ErrorKind::BrokenPipe)
    };
    (error.chain().any(is_broken_pipe) && reader_is_gone()).then_some(READER_GONE)
}

/// Ends the process if `panic` is one of `println!`: quietly if nobody reads, else with the reason.
pub(crate) fn end_if_unwritable(panic: &PanicHookInfo<'_>) {
    let Some(why) = panic.payload_as_str().and_then(|said| said.strip_prefix(PRINTING)) else {
        return;
    };
    if reader_is_gone() {
        std::process::exit(READER_GONE.into());
    }
    complain(format_args!("cannot write the output: {why}"));
    std::process::exit(1);
}
