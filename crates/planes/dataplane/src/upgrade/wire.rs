//! Messages with descriptors between two processes, over a Unix stream: of an upgrade, or with the
//! keeper of [gates](crate::gates).
//!
//! A message is its kind (a byte), how many descriptors come with it and how many bytes follow (32
//! bits each, little-endian), and these bytes. Descriptors are sent with the bytes, as many at a
//! time as the kernel takes; the reader of the bytes gets them.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How many descriptors go with one call; the kernel takes 253.
const DESCRIPTORS_AT_ONCE: usize = 128;
/// The longest message, in bytes: some million packets.
const MESSAGE_MAX: usize = 64 << 20;
/// The most descriptors of a message: 256 queues of two ports, and some.
const DESCRIPTORS_MAX: usize = 1024;
/// How much is read at once.
const PIECE: usize = 64 << 10;
const HEADER: usize = 9;

/// The kind of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// The new process: this is what I am.
    Hello = 1,
    /// The old process: this is what there is.
    Manifest = 2,
    /// The new process: I can go on from there.
    Prepared = 3,
    /// The old process: I have stopped, and this is queued.
    Contents = 4,
    /// The new process: I have queued it.
    Ready = 5,
    /// The old process: it is yours.
    Go = 6,
    /// The new process, or the keeper of gates: I cannot, and why.
    Refused = 7,
    /// To the keeper of gates: put one there.
    Place = 8,
    /// The keeper: this is its array.
    Placed = 9,
    /// To the keeper: remove all.
    Release = 10,
    /// The keeper: they are removed.
    Released = 11,
}

impl Kind {
    const ALL: [Self; 11] = [
        Self::Hello,
        Self::Manifest,
        Self::Prepared,
        Self::Contents,
        Self::Ready,
        Self::Go,
        Self::Refused,
        Self::Place,
        Self::Placed,
        Self::Release,
        Self::Released,
    ];
}

/// A received message.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    pub(crate) bytes: Vec<u8>,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// One end.
pub(crate) struct Channel {
    stream: UnixStream,
    bytes: Vec<u8>,
    descriptors: VecDeque<OwnedFd>,
}

impl Channel {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self { stream, bytes: Vec::new(), descriptors: VecDeque::new() }
    }

    /// Both ends.
    pub(crate) fn pair() -> io::Result<(Self, UnixStream)> {
        let (one, other) = UnixStream::pair()?;
        Ok((Self::new(one), other))
    }

    /// Sends a message, within `time`.
    pub(crate) fn send(
        &self,
        kind: Kind,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
        time: Duration,
    ) -> io::Result<()> {
        let end = Instant::now() + time;
        let mut message = vec![kind as u8];
        message.extend((descriptors.len() as u32).to_le_bytes());
        message.extend((bytes.len() as u32).to_le_bytes());
        // Each call sends at least one byte: the header has enough bytes for all possible calls.
        debug_assert!(descriptors.len() <= DESCRIPTORS_MAX);
        let mut chunks = descriptors.chunks(DESCRIPTORS_AT_ONCE);
        for byte in &message {
            self.send_some(std::slice::from_ref(byte), chunks.next().unwrap_or_default(), end)?;
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = &rest[self.send_some(rest, &[], end)?..];
        }
        Ok(())
    }

    fn send_some(
        &self,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
        end: Instant,
    ) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(left(end)?))?;
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_AT_ONCE))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let sent =
            sendmsg(&self.stream, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(sent)
    }

    /// Waits for the next message, at most for `time`.
    pub(crate) fn receive(&mut self, time: Duration) -> io::Result<Message> {
        let end = Instant::now() + time;
        loop {
            if let Some(message) = self.take()? {
                return Ok(message);
            }
            self.stream.set_read_timeout(Some(left(end)?))?;
            self.read(RecvFlags::empty())?;
        }
    }

    /// The next message, if all of it has arrived.
    pub(crate) fn poll(&mut self) -> io::Result<Option<Message>> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            match self.read(RecvFlags::DONTWAIT) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                other => other?,
            }
        }
    }

    fn read(&mut self, flags: RecvFlags) -> io::Result<()> {
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_AT_ONCE))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let before = self.bytes.len();
        self.bytes.resize(before + PIECE, 0);
        let received = recvmsg(
            &self.stream,
            &mut [IoSliceMut::new(&mut self.bytes[before..])],
            &mut ancillary,
            flags | RecvFlags::CMSG_CLOEXEC,
        );
        self.bytes.truncate(before + received.as_ref().map_or(0, |received| received.bytes));
        let received = received?;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        if received.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    /// The next message, if it has been received.
    fn take(&mut self) -> io::Result<Option<Message>> {
        let nonsense = |what: &'static str| io::Error::new(io::ErrorKind::InvalidData, what);
        let Some(&[kind, d0, d1, d2, d3, b0, b1, b2, b3]) = self.bytes.first_chunk::<HEADER>()
        else {
            return Ok(None);
        };
        let known = Kind::ALL.into_iter().find(|known| *known as u8 == kind);
        let kind = known.ok_or_else(|| nonsense("it speaks otherwise"))?;
        let descriptors = u32::from_le_bytes([d0, d1, d2, d3]) as usize;
        let len = u32::from_le_bytes([b0, b1, b2, b3]) as usize;
        if descriptors > DESCRIPTORS_MAX || len > MESSAGE_MAX {
            return Err(nonsense("it says too much at once"));
        }
        if self.bytes.len() < HEADER + len {
            return Ok(None);
        }
        if self.descriptors.len() < descriptors {
            return Err(nonsense("descriptors are missing"));
        }
        let bytes = self.bytes[HEADER..HEADER + len].to_vec();
        self.bytes.drain(..HEADER + len);
        let descriptors = self.descriptors.drain(..descriptors).collect();
        Ok(Some(Message { kind, bytes, descriptors }))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Write};

    const SOON: Duration = Duration::from_secs(5);

    fn channels() -> [Channel; 2] {
        let (one, other) = Channel::pair().unwrap();
        [one, Channel::new(other)]
    }

    #[test]
    fn messages_arrive_as_sent_with_their_descriptors() {
        let [one, mut other] = channels();
        let file = File::open("/dev/zero").unwrap();
        let files = vec![file.as_fd(); 300];
        let long = vec![7; 1 << 20];
        let sender = std::thread::spawn(move || {
            one.send(Kind::Contents, &long, &[], SOON).unwrap();
            one
        });
        assert_eq!(other.receive(SOON).unwrap().bytes, vec![7; 1 << 20]);
        let one = sender.join().unwrap();
        one.send(Kind::Manifest, b"abc", &files, SOON).unwrap();
        one.send(Kind::Go, b"", &files[..1], SOON).unwrap();
        let first = other.receive(SOON).unwrap();
        assert_eq!((first.kind, &first.bytes[..]), (Kind::Manifest, &b"abc"[..]));
        assert_eq!(first.descriptors.len(), 300);
        let mut byte = [1];
        File::from(first.descriptors.into_iter().last().unwrap()).read_exact(&mut byte).unwrap();
        assert_eq!(byte, [0]);
        let second = other.poll().unwrap().unwrap();
        assert_eq!((second.kind, second.descriptors.len()), (Kind::Go, 1));
        assert!(other.poll().unwrap().is_none());
    }

    #[test]
    fn silence_and_an_end_differ() {
        let [one, mut other] = channels();
        let waited = other.receive(Duration::from_millis(20)).unwrap_err().kind();
        assert!(matches!(waited, io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock), "{waited}");
        drop(one);
        assert_eq!(other.receive(SOON).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(other.poll().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn nonsense_is_refused() {
        for bytes in [&b"HTTP/1.1 200 OK"[..], &[1, 255, 255, 0, 0, 0, 0, 0, 0], &[4; 9]] {
            let (mut channel, mut stream) = Channel::pair().unwrap();
            stream.write_all(bytes).unwrap();
            let kind = channel.receive(SOON).unwrap_err().kind();
            assert_eq!(kind, io::ErrorKind::InvalidData, "{bytes:?}");
        }
        let (mut channel, mut stream) = Channel::pair().unwrap();
        stream.write_all(&[2, 1, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        assert_eq!(channel.receive(SOON).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
