//! What the processes say of themselves, as to a service manager (`sd_notify(3)`): that they are
//! ready, and which process has taken over.
//!
//! The socket is in a folder that only its owner may enter, and the kernel says which process has
//! sent a message, so none speaks for another.

use super::children::Notice;
use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, RecvMsg, ReturnFlags, recvmsg,
};
use rustix::process::Pid;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// The longest message that is read, in bytes: a status line is of no interest.
const LONGEST: usize = 4096;

/// Receives messages.
pub(super) struct Notices(UnixDatagram);

impl Notices {
    /// Receives at `path`.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::bind(path)?;
        socket.set_nonblocking(true)?;
        set_socket_passcred(&socket, true)?;
        Ok(Self(socket))
    }

    /// Readable when there is a message.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// The next message: who has sent it, and what of it matters. `None` if there is none.
    pub(super) fn next(&self) -> Option<(Pid, Vec<Notice>)> {
        let mut text = [0; LONGEST];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        loop {
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [IoSliceMut::new(&mut text)];
            let received = recvmsg(&self.0, &mut parts, &mut control, RecvFlags::DONTWAIT);
            let RecvMsg { bytes, flags, .. } = match received {
                Err(rustix::io::Errno::INTR) => continue,
                received => received.ok()?,
            };
            let sender = control.drain().find_map(|message| match message {
                RecvAncillaryMessage::ScmCredentials(sender) => Some(sender.pid),
                _ => None,
            });
            if let Some(sender) = sender {
                let whole = &text[..bytes.min(LONGEST)];
                // A long status may be cut off; what is before it is whole.
                let is_cut = flags.contains(ReturnFlags::TRUNC);
                let end = whole.iter().rposition(|&byte| byte == b'\n').filter(|_| is_cut);
                return Some((sender, read(&whole[..end.unwrap_or(whole.len())])));
            }
        }
    }
}

fn read(text: &[u8]) -> Vec<Notice> {
    let text = String::from_utf8_lossy(text);
    let notice = |line: &str| match line.split_once('=')? {
        ("READY", "1") => Some(Notice::Ready),
        ("MAINPID", id) => id.parse().ok().and_then(Pid::from_raw).map(Notice::ReplacedBy),
        _ => None,
    };
    text.lines().filter_map(notice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_a_line_for_each_fact() {
        let new = Pid::from_raw(77).unwrap();
        assert_eq!(read(b"READY=1\nSTATUS=joined READY=1\n"), [Notice::Ready]);
        assert_eq!(read(b"MAINPID=77\n"), [Notice::ReplacedBy(new)]);
        for nothing in ["", "READY=0", "MAINPID=0", "MAINPID=-", "WATCHDOG=1\n\n=", "\u{fffd}"] {
            assert_eq!(read(nothing.as_bytes()), [], "{nothing}");
        }
    }

    #[test]
    fn the_kernel_says_who_has_sent_a_message() {
        let path = std::env::temp_dir().join(format!("nrw-notices-{}", std::process::id()));
        let notices = Notices::open(&path).unwrap();
        assert!(notices.next().is_none());
        let sender = UnixDatagram::unbound().unwrap();
        let long = format!("READY=1\n{}MAINPID=77", "x".repeat(LONGEST - 17));
        for message in ["READY=1\n", &long, "STATUS=x"] {
            sender.send_to(message.as_bytes(), &path).unwrap();
        }
        std::fs::remove_file(&path).unwrap();
        let own = rustix::process::getpid();
        for expected in [vec![Notice::Ready], vec![Notice::Ready], Vec::new()] {
            assert_eq!(notices.next(), Some((own, expected)));
        }
        assert!(notices.next().is_none());
    }
}
