//! What the program prints, escaped: names come from other systems.

use narrows_escape::lines;
use std::fmt::Display;
use std::io::{self, Write as _};

/// Prints text on standard output. A reader that has seen enough (`| head`) is no error.
///
/// # Errors
/// If standard output cannot be written.
pub fn text(text: impl Display) -> io::Result<()> {
    written(lines(&text.to_string()).as_bytes())
}

/// Prints text that another program reads, as it is.
///
/// # Errors
/// If standard output cannot be written.
pub fn data(text: &str) -> io::Result<()> {
    written(text.as_bytes())
}

fn written(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// Prints a report beside the data: what was done, and what is worth knowing.
pub fn report(text: impl Display) {
    // Nobody is left to be told if this fails, too.
    let _ = write!(io::stderr(), "{}", lines(&text.to_string()));
}

/// Prints an error of the program itself.
pub fn complain(what: impl Display) {
    // Nobody is left to be told if this fails, too.
    let _ = writeln!(io::stderr(), "narrows-sync: {}", lines(&what.to_string()));
}
