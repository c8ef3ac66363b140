//! Gates in libxdp's dispatchers, and the process that keeps them.
//!
//! Where other XDP programs run on a port, or are to, Narrows' programs stand behind a gate in
//! libxdp's dispatcher ([`narrows_bpf::Place`]). Placing and removing gates needs CAP_SYS_ADMIN and
//! writes below `/sys/fs/bpf`, both of which this process [gives up](crate::confine). So it starts
//! a *keeper* before: the same binary, which does this and nothing else, on request. The keeper
//! removes its gates when asked to, and when the connection ends: when the last process of the
//! instance has ended, however it did. If the keeper is killed as well, its gates let all frames
//! pass, and the next start removes them.
//!
//! *When.* A port whose program is libxdp's dispatcher at the start, or each port if asked. Later
//! starts of the same process's sessions do as the first.
//!
//! *Upgrades.* The new process gets the connection.
//!
//! Non-goals: programs that are attached without a dispatcher.

use crate::upgrade::{Channel, Kind, Message};
use narrows_bpf::{Entry, Libxdp, Place, XdpMode, place, remove};
use narrows_forwarding::{DeviceId, PerDevice};
use narrows_link::doctor;
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The command that is the keeper.
pub const KEEPER: &str = "keep-gates";
/// The priority of the gates if none is given: behind programs with libxdp's default of 50.
pub const PRIORITY: u32 = 100;

/// How long the keeper may take: other tools may hold libxdp's lock, and the kernel verifies.
const PLACING_TIME: Duration = Duration::from_secs(20);
/// How long it may take to remove them.
const REMOVING_TIME: Duration = Duration::from_secs(5);
/// How often the keeper looks up from waiting.
const WAIT: Duration = Duration::from_secs(3600);

/// A port gets no place in libxdp's dispatcher.
#[derive(Debug, thiserror::Error)]
#[error("{port}: {why}")]
pub struct NoGate {
    /// The port.
    pub port: String,
    /// Why, and what to do.
    pub why: String,
}

/// A request for a gate.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Wanted {
    ifindex: u32,
    native: bool,
    multi_buffer: bool,
    priority: u32,
}

/// How the programs of the ports are attached: behind gates of libxdp's dispatcher, or by
/// themselves.
pub(crate) struct Gates {
    keeper: Option<RefCell<Channel>>,
    /// Whether each device is shared.
    shared: PerDevice<bool>,
    priority: u32,
}

impl Gates {
    /// No device is shared.
    pub(crate) fn none() -> Self {
        Self { keeper: None, shared: PerDevice::new(), priority: PRIORITY }
    }

    /// Starts a keeper if one of `devices` is to be shared: each of them with `priority`, otherwise
    /// those that have a dispatcher.
    ///
    /// # Errors
    /// If it does not start.
    pub(crate) fn start(devices: &PerDevice<String>, priority: Option<u32>) -> io::Result<Self> {
        let is_shared = |device: &String| priority.is_some() || doctor::has_dispatcher(device);
        let shared: PerDevice<bool> = devices.iter().map(is_shared).collect();
        if !shared.contains(&true) {
            return Ok(Self::none());
        }
        let (channel, its_end) = Channel::pair()?;
        Command::new(std::env::current_exe()?)
            .arg(KEEPER)
            .stdin(Stdio::from(OwnedFd::from(its_end)))
            .stdout(Stdio::null())
            // Ctrl-C is not for it: it ends when the connection does.
            .process_group(0)
            .spawn()?;
        let keeper = Some(RefCell::new(channel));
        Ok(Self { keeper, shared, priority: priority.unwrap_or(PRIORITY) })
    }

    /// The gates of another process, whose connection to the keeper is `keeper`.
    pub(crate) fn take_over(
        shared: PerDevice<bool>,
        keeper: OwnedFd,
        priority: Option<u32>,
    ) -> Self {
        let keeper = Channel::new(UnixStream::from(keeper));
        let priority = priority.unwrap_or(PRIORITY);
        Self { keeper: Some(RefCell::new(keeper)), shared, priority }
    }

    /// What another process needs to take them over: which devices are shared, and the connection.
    pub(crate) fn offer(&self) -> io::Result<Option<(PerDevice<bool>, OwnedFd)>> {
        let Some(keeper) = &self.keeper else { return Ok(None) };
        Ok(Some((self.shared.clone(), keeper.borrow().as_fd().try_clone_to_owned()?)))
    }

    /// How the program of `device` is attached.
    pub(crate) fn entry(&self, device: DeviceId) -> Entry {
        if self.shared.get(device) == Some(&true) { Entry::Shared } else { Entry::Own }
    }

    /// Puts a gate into the dispatcher of the interface `ifindex`, which the port `port` is, in
    /// place of one of this process. Returns its array; nothing is behind it.
    ///
    /// # Errors
    /// If the keeper cannot.
    pub(crate) fn place(
        &self,
        port: &str,
        ifindex: u32,
        mode: XdpMode,
        multi_buffer: bool,
    ) -> Result<OwnedFd, NoGate> {
        let native = mode == XdpMode::Native;
        let wanted = Wanted { ifindex, native, multi_buffer, priority: self.priority };
        let failed = |why| NoGate { port: port.to_owned(), why };
        let bytes = serde_json::to_vec(&wanted).map_err(|error| failed(error.to_string()))?;
        let mut answer =
            self.ask(Kind::Place, &bytes, Kind::Placed, PLACING_TIME).map_err(failed)?;
        answer.descriptors.pop().ok_or_else(|| failed("there is no gate".to_owned()))
    }

    /// Does so in the first of `modes` that is possible. Returns that, too.
    ///
    /// # Errors
    /// Those of the first: later modes fail as a consequence.
    pub(crate) fn place_best(
        &self,
        port: &str,
        ifindex: u32,
        modes: &[XdpMode],
        multi_buffer: bool,
    ) -> Result<(XdpMode, OwnedFd), NoGate> {
        let mut refusal = None;
        for &mode in modes {
            match self.place(port, ifindex, mode, multi_buffer) {
                Ok(behind) => return Ok((mode, behind)),
                Err(error) => refusal = refusal.or(Some(error)),
            }
        }
        let none = || NoGate { port: port.to_owned(), why: "no XDP mode is left".to_owned() };
        Err(refusal.unwrap_or_else(none))
    }

    /// Removes all gates of this process.
    pub(crate) fn release(&self) {
        if self.keeper.is_some()
            && let Err(why) = self.ask(Kind::Release, &[], Kind::Released, REMOVING_TIME)
        {
            log::warn!("a gate may be left in libxdp's dispatcher, which lets all pass: {why}");
        }
    }

    fn ask(
        &self,
        kind: Kind,
        bytes: &[u8],
        expected: Kind,
        time: Duration,
    ) -> Result<Message, String> {
        let gone = |error: io::Error| match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
                "libxdp takes too long: another tool may hold its lock".to_owned()
            }
            _ => format!(
                "the process that keeps the place in libxdp's dispatcher has ended ({error}); start \
                 narrows again"
            ),
        };
        let keeper = self.keeper.as_ref().ok_or("nobody keeps gates")?;
        let mut keeper = keeper.borrow_mut();
        keeper.send(kind, bytes, &[], time).map_err(gone)?;
        loop {
            let answer = keeper.receive(time).map_err(gone)?;
            if answer.kind == expected {
                return Ok(answer);
            }
            if answer.kind == Kind::Refused {
                return Err(String::from_utf8_lossy(&answer.bytes).into_owned());
            }
            // A late answer to a request that took too long.
        }
    }
}

/// What a keeper does. Another one for tests.
trait Placer {
    /// Puts a gate there, and returns its array and number.
    fn place(&mut self, at: Place) -> Result<(OwnedFd, u32), String>;
    /// Removes the gate of this number.
    fn remove(&mut self, ifindex: u32, id: u32) -> Result<(), String>;
}

/// Libxdp, opened when it is first needed.
struct ByLibxdp(Option<Libxdp>);

impl Placer for ByLibxdp {
    fn place(&mut self, at: Place) -> Result<(OwnedFd, u32), String> {
        let libxdp = match self.0.take() {
            Some(libxdp) => libxdp,
            None => Libxdp::open().map_err(|error| error.to_string())?,
        };
        let placed = place(self.0.insert(libxdp), at).map_err(|error| error.to_string())?;
        Ok((placed.behind, placed.id))
    }

    fn remove(&mut self, ifindex: u32, id: u32) -> Result<(), String> {
        let Some(libxdp) = &self.0 else { return Ok(()) };
        remove(libxdp, ifindex, id).map_err(|error| error.to_string())
    }
}

/// Keeps gates for the process at the other end of standard input, until it ends.
///
/// # Errors
/// If standard input is no such connection.
pub fn keep() -> Result<(), String> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // They are for the process that it serves.
        let ignored = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal, ignored).map_err(|error| error.to_string())?;
    }
    let stdin = rustix::stdio::stdin();
    if rustix::net::getsockname(stdin).is_err() {
        return Err(format!("{KEEPER} is for `narrows run`, which starts it itself"));
    }
    let stream = stdin.try_clone_to_owned().map_err(|error| error.to_string())?;
    let nothing = std::fs::File::open("/dev/null").map_err(|error| error.to_string())?;
    rustix::stdio::dup2_stdin(nothing).map_err(|error| error.to_string())?;
    serve(Channel::new(UnixStream::from(stream)), &mut ByLibxdp(None));
    Ok(())
}

/// Serves `channel` until its other end is closed; then removes what is there.
fn serve(mut channel: Channel, placer: &mut impl Placer) {
    let mut placed = Vec::new();
    loop {
        let message = match channel.receive(WAIT) {
            Ok(message) => message,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::TimedOut
                        | io::ErrorKind::WouldBlock
                        | io::ErrorKind::Interrupted
                ) =>
            {
                continue;
            }
            Err(_) => break,
        };
        let sent = match answer(&message, placer, &mut placed) {
            Ok((kind, array)) => {
                let array: Vec<BorrowedFd<'_>> = array.iter().map(OwnedFd::as_fd).collect();
                channel.send(kind, &[], &array, REMOVING_TIME)
            }
            Err(why) => channel.send(Kind::Refused, why.as_bytes(), &[], REMOVING_TIME),
        };
        // The array is closed again: while it is open here, no end of that process would empty it.
        if sent.is_err() {
            break;
        }
    }
    if let Err(why) = remove_all(placer, &mut placed) {
        log::warn!("a gate is left in libxdp's dispatcher, which lets all pass: {why}");
    }
}

fn answer(
    message: &Message,
    placer: &mut impl Placer,
    placed: &mut Vec<(u32, u32)>,
) -> Result<(Kind, Option<OwnedFd>), String> {
    match message.kind {
        Kind::Place => {
            let wanted: Wanted =
                serde_json::from_slice(&message.bytes).map_err(|error| error.to_string())?;
            let Wanted { ifindex, native, multi_buffer, priority } = wanted;
            let mode = if native { XdpMode::Native } else { XdpMode::Generic };
            let (array, id) = placer.place(Place { ifindex, mode, multi_buffer, priority })?;
            placed.retain(|(other, _)| *other != ifindex);
            placed.push((ifindex, id));
            Ok((Kind::Placed, Some(array)))
        }
        Kind::Release => remove_all(placer, placed).map(|()| (Kind::Released, None)),
        other => Err(format!("it is asked for {other:?}")),
    }
}

/// Removes all that are `placed`, and returns the first error. An interface that is gone has taken
/// its gate along.
fn remove_all(placer: &mut impl Placer, placed: &mut Vec<(u32, u32)>) -> Result<(), String> {
    let outcomes: Vec<_> =
        placed.drain(..).map(|(ifindex, id)| placer.remove(ifindex, id)).collect();
    outcomes.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::sync::Mutex;
    use std::thread;

    /// Remembers what it is told. Refuses ports with an even number.
    #[derive(Clone, Default)]
    struct Calls(Arc<Mutex<Vec<String>>>);

    impl Placer for Calls {
        fn place(&mut self, at: Place) -> Result<(OwnedFd, u32), String> {
            self.0.lock().unwrap().push(format!("place {} {}", at.ifindex, at.mode));
            match at.ifindex % 2 {
                0 => Err("all places are taken".to_owned()),
                _ => Ok((File::open("/dev/null").unwrap().into(), 100 + at.ifindex)),
            }
        }

        fn remove(&mut self, ifindex: u32, id: u32) -> Result<(), String> {
            self.0.lock().unwrap().push(format!("remove {ifindex} {id}"));
            Ok(())
        }
    }

    /// Gates of two shared ports, what their keeper is told, and the keeper.
    fn kept() -> (Gates, Calls, thread::JoinHandle<()>) {
        let (channel, its_end) = Channel::pair().unwrap();
        let calls = Calls::default();
        let mut placer = calls.clone();
        let keeper = thread::spawn(move || serve(Channel::new(its_end), &mut placer));
        let keeping = Some(RefCell::new(channel));
        (Gates { keeper: keeping, shared: vec![true; 2].into(), priority: 7 }, calls, keeper)
    }

    fn calls(calls: &Calls) -> Vec<String> {
        std::mem::take(&mut *calls.0.lock().unwrap())
    }

    #[test]
    fn gates_are_placed_and_all_removed_together() {
        let (gates, what, keeper) = kept();
        gates.place("a", 3, XdpMode::Native, false).unwrap();
        gates.place("b", 5, XdpMode::Native, false).unwrap();
        // In another mode, in place of the first.
        gates.place("a", 3, XdpMode::Generic, false).unwrap();
        gates.release();
        let all =
            ["place 3 native", "place 5 native", "place 3 generic", "remove 5 105", "remove 3 103"];
        assert_eq!(calls(&what), all);
        drop(gates);
        keeper.join().unwrap();
        assert!(calls(&what).is_empty(), "nothing is left to be removed");
    }

    #[test]
    fn a_keeper_removes_its_gates_when_the_last_process_ends() {
        let (gates, what, keeper) = kept();
        gates.place("a", 3, XdpMode::Native, false).unwrap();
        let (shared, connection) = gates.offer().unwrap().unwrap();
        // As after an upgrade.
        let inherited = Gates::take_over(shared, connection, None);
        drop(gates);
        inherited.place("b", 5, XdpMode::Native, false).unwrap();
        calls(&what);
        drop(inherited);
        keeper.join().unwrap();
        assert_eq!(calls(&what), ["remove 3 103", "remove 5 105"]);
    }

    #[test]
    fn a_refusal_names_the_port_and_changes_nothing() {
        let (gates, what, keeper) = kept();
        let refused = gates.place("eth1", 4, XdpMode::Native, false).unwrap_err();
        assert_eq!(refused.to_string(), "eth1: all places are taken");
        drop(gates);
        keeper.join().unwrap();
        assert_eq!(calls(&what), ["place 4 native"]);
    }

    #[test]
    fn a_keeper_that_has_ended_is_missed() {
        let (channel, its_end) = Channel::pair().unwrap();
        drop(its_end);
        let gates = Gates {
            keeper: Some(RefCell::new(channel)),
            shared: vec![true; 2].into(),
            priority: PRIORITY,
        };
        let missed = gates.place("eth1", 3, XdpMode::Native, false).unwrap_err().to_string();
        assert!(missed.contains("start narrows again"), "{missed}");
        gates.release();
    }

    #[test]
    fn without_a_dispatcher_nothing_is_shared_or_started() {
        let ports = ["nrw-none-a", "nrw-none-b"].map(str::to_owned).into_iter().collect();
        let gates = Gates::start(&ports, None).unwrap();
        assert_eq!(gates.entry(DeviceId::FIRST), Entry::Own);
        assert!(gates.offer().unwrap().is_none());
    }
}
