//! Connections to a Unix socket, within a time.

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// How often a full queue of connections is tried again.
const TRY_EVERY: Duration = Duration::from_millis(20);

/// Connects to the socket at `path`. Waits no longer than `time`, even if so many others wait that
/// the kernel takes no more.
///
/// # Errors
/// `WouldBlock` if the time is over, and what the kernel says otherwise.
pub(crate) fn connect_within(path: &Path, time: Duration) -> io::Result<UnixStream> {
    let end = Instant::now() + time;
    loop {
        match connect(path) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < end => {
                thread::sleep(TRY_EVERY);
            }
            connected => return connected,
        }
    }
}

fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}
