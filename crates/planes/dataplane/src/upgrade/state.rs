//! The state that the old process sends and the new process must understand, with a version.
//!
//! Two messages: the [`Manifest`] while the old process still forwards (the policy, and the
//! descriptors that come with it), and the [`Contents`] once it has stopped (counters, limits,
//! packets). Both begin in JSON; [classes](super::spent) and [packets](super::queued) follow in
//! binary.
//!
//! The programs of the XDP plane keep plans, credit and counters in maps of the kernel, which the
//! new process gets and continues with. So of these only the descriptors are passed on.

pub use super::binary::StateError;
use super::binary::read_u32;
use super::queued::WorkerQueued;
use super::spent::{self, SpentClass};
use narrows_balance::ServicesState;
use narrows_forwarding::{PORTS_MAX, PerDevice, PerPort};
use narrows_shares::SharesState;
use narrows_snapshot::KernelDrops;
use narrows_units::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of the state. Raise it with any change of its form, its meaning, the new process's
/// handling of sockets and frames, or the maps of the XDP plane's program (`programs/tree.h`): a
/// new process with another version is refused.
pub const FORMAT: u32 = 14;

/// The state that can be prepared before the workers pause.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// The ports and how they are joined, as [`Forwarding::words`].
    ///
    /// [`Forwarding::words`]: narrows_forwarding::Forwarding::words
    pub forwarding: String,
    /// The policy, as a batch of `tc` commands.
    pub policy: String,
    /// The parts of limits that a fleet shares.
    pub shares: SharesState,
    /// The sets, as commands of `narrows set restore`.
    pub sets: String,
    /// The services of a balancer. Its descriptors follow those of the gates.
    pub balance: BalanceManifest,
    /// A user's own program, if there is one. Its descriptors follow those of the services.
    pub user_front: Option<UserFrontManifest>,
    /// The number of the upgrade.
    pub attempt: u64,
    /// The old process's version.
    pub version: String,
    /// When the first process of the instance began, in nanoseconds of the monotonic clock.
    pub began: u64,
    /// The key of hosts' and flows' hashes.
    pub hash_key: u64,
    /// The seal of the steering programs' metadata.
    pub seal: u32,
    /// What joins the ports; none while the old process waits for them.
    pub plane: Option<PlaneManifest>,
    /// The number of descriptors of the control socket: itself, and its locks.
    pub control: usize,
    /// Which devices are behind gates, if any: then the connection to their keeper follows the
    /// control socket's descriptors.
    pub gates: Option<PerDevice<bool>>,
}

/// The services of a balancer. Its maps are descriptors.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BalanceManifest {
    /// The services, and where their connections are.
    pub services: ServicesState,
    /// The secret of the hash of connections.
    pub key: [u64; 2],
    /// How many descriptors there are; none before the first service was balanced.
    pub descriptors: usize,
}

/// A user's own program, which is descriptors.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UserFrontManifest {
    /// How many there are: [`UserFront::descriptors`](narrows_bpf::UserFront::descriptors).
    pub descriptors: usize,
    /// Whether it takes frames in several buffers.
    pub multi_buffer: bool,
}

/// A plane.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PlaneManifest {
    /// That of AF_XDP.
    Xsk(SessionManifest),
    /// The XDP plane.
    Xdp(DriverManifest),
}

impl PlaneManifest {
    /// Its devices.
    pub fn devices(&self) -> &PerDevice<DeviceManifest> {
        match self {
            Self::Xsk(SessionManifest { devices, .. })
            | Self::Xdp(DriverManifest { devices, .. }) => devices,
        }
    }
}

/// The XDP plane. Its descriptors, for each device: the link of its program or the array of its
/// gate, the link of what charges the slow path, if it is charged, and the counters of what is in
/// front of all ports, if something is; and for each port its program's maps
/// ([`Tree::maps`](narrows_bpf::tree::Tree::maps)), and where filters in front count drops, if
/// there are any. The host plane's come last: for each port the maps at its egress.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DriverManifest {
    /// Its devices.
    pub devices: PerDevice<DeviceManifest>,
    /// Whether what the kernel itself sends is charged.
    pub charges_slow_path: bool,
    /// By port, whether there are filters in front, which have a counter behind its tree's maps.
    pub has_front: PerPort<bool>,
    /// In the host plane: the maps at the egress of each port.
    pub egress: PerPort<EgressManifest>,
}

impl DriverManifest {
    /// Whether it is the host plane.
    pub fn is_host(&self) -> bool {
        !self.egress.is_empty()
    }
}

/// How many maps there are at the egress of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EgressManifest {
    /// Those of its tree.
    pub maps: usize,
    /// Those in which departure times are kept, behind them.
    pub kept: usize,
}

/// A device of joined ports.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeviceManifest {
    /// Its name.
    pub name: String,
    /// Its index.
    pub ifindex: u32,
    /// Its address.
    pub mac: [u8; 6],
    /// Its MTU in bytes.
    pub mtu: u32,
    /// Its queue pairs.
    pub queues: u32,
    /// Where its program runs: the [name](narrows_bpf::Hook::name) of the hook.
    pub hook: String,
    /// Whether it is behind a gate.
    pub shared: bool,
}

/// A session of AF_XDP. Its descriptors, in order: the memory of the frames, the link of each
/// device's program or the array of its gate, if the slow path is charged the link of what does so
/// and its map, for each port, and for each worker its socket on each device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SessionManifest {
    /// Its devices.
    pub devices: PerDevice<DeviceManifest>,
    /// The size of the frames, in bytes.
    pub frame_size: u32,
    /// Whether a packet may take several frames.
    pub multi_buffer: bool,
    /// Whether the device reads and writes frames itself.
    pub zero_copy: bool,
    /// Whether what the kernel itself sends is charged.
    pub charges_slow_path: bool,
    /// Frames of each worker for reception by the kernel, by device,
    pub receive: PerDevice<u32>,
    /// and for queued packets, by the port of arrival.
    pub wait: PerPort<u32>,
    /// Each worker.
    pub workers: Vec<WorkerManifest>,
}

/// A worker of a session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WorkerManifest {
    /// The entries of its rings on each device: of fill and RX ring, of TX and completion ring.
    pub rings: PerDevice<[u32; 2]>,
}

/// The state of an old process that has paused.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Contents {
    /// When the first worker was asked to stop, in nanoseconds of the monotonic clock.
    pub stopped: u64,
    /// The parts of limits that a fleet shares, since the [`Manifest`].
    pub shares: SharesState,
    /// What limits that follow a line have found, by the name that the policy has for their port.
    pub lines: BTreeMap<String, LineState>,
    /// All counters so far, of each port.
    pub counted: PerPort<PortCounted>,
    /// The latest events.
    pub events: Vec<String>,
    /// By port: the time up to which each limit of a whole qdisc is used, by its major number.
    pub spent: PerPort<BTreeMap<u32, u64>>,
    /// Of the XDP plane's programs, by the port where frames leave.
    pub programs: PerPort<ProgramState>,
    /// By port: the classes that do not have their whole credit.
    #[serde(skip)]
    pub classes: PerPort<Vec<SpentClass>>,
    /// The state of each worker.
    #[serde(skip)]
    pub workers: Vec<WorkerQueued>,
}

/// What a limit that follows a line has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LineState {
    /// The rate in force, in bits per second.
    pub rate: u64,
    /// The rate at which the line was full last, likewise.
    pub full_at: Option<u64>,
}

/// What maps do not say of a program of the XDP plane.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ProgramState {
    /// The number of each class, under which its credit and counters are kept: the major number of
    /// its qdisc, its own number there, and the number.
    pub numbers: Vec<[u32; 3]>,
    /// The number of each action: the number of its kind, its index, and the number.
    pub actions: Vec<[u32; 3]>,
    /// The packets that had left when the root qdisc was installed:
    /// [words](narrows_bpf::tree::Totals::words).
    pub before_root: [u64; 10],
    /// What qdiscs counted that were in a class and are gone: the class, as above, and
    /// [words](narrows_bpf::tree::ClassCounters::words).
    pub inherited: Vec<([u32; 2], [u64; 6])>,
}

/// The counters of a port.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PortCounted {
    /// At each queue.
    pub queues: Vec<QueueCounted>,
    /// By its steering program: handed to workers, for this box, left to the kernel, stalled, in no
    /// VLAN that is a port.
    pub verdicts: [u64; 5],
    /// In a router and a switch: what became of frames, by the name of the outcome.
    pub routes: BTreeMap<String, u64>,
    /// What the kernel itself sent, in earlier sessions, where a program charges it:
    /// [words](narrows_bpf::SlowPathCounters::words).
    pub slow_path: Option<[u64; 4]>,
    /// Lost by its device: received and dropped, with an error, missed; not sent, with an error,
    /// for lack of a carrier.
    pub losses: [u64; 6],
}

/// The counters of a queue.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct QueueCounted {
    /// Packets that arrived here, and their bytes.
    pub arrived: [u64; 2],
    /// Packets that leave, or were to leave, here.
    pub outward: PathCounted,
    /// System calls made to send them.
    pub tx_kicks: u64,
    /// Packets lost by the kernel in earlier sessions; the sockets count those of this one.
    pub kernel_drops: KernelDrops,
}

/// The counters of one direction.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PathCounted {
    /// Packets received, and their bytes.
    pub received: [u64; 2],
    /// Packets sent, and their bytes.
    pub sent: [u64; 2],
    /// Copies of packets that a qdisc made.
    pub copied: u64,
    /// Packets dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
}

impl Contents {
    /// As a message.
    pub fn write(&self) -> Vec<u8> {
        // Structs of numbers and strings can always be JSON.
        let words = serde_json::to_vec(self).unwrap_or_default();
        let mut bytes = (words.len() as u32).to_le_bytes().to_vec();
        bytes.extend(words);
        self.classes.iter().for_each(|classes| spent::write(classes, &mut bytes));
        bytes.extend((self.workers.len() as u32).to_le_bytes());
        for worker in &self.workers {
            worker.write(&mut bytes);
        }
        bytes
    }

    /// Reads a message.
    ///
    /// # Errors
    /// If it is none. Whether its frames are the session's is for [`WorkerQueued::fits`] to say.
    pub fn read(bytes: &[u8]) -> Result<Self, StateError> {
        let words = StateError::Malformed("the length of its words");
        let (len, rest) = bytes.split_first_chunk().ok_or(words)?;
        let len = u32::from_le_bytes(*len) as usize;
        let (json, mut rest) =
            rest.split_at_checked(len).ok_or(StateError::Malformed("its words"))?;
        let mut contents: Self = serde_json::from_slice(json)?;
        let ports = contents.counted.len();
        if ports > PORTS_MAX || contents.spent.len() != ports {
            return Err(StateError::Malformed("its ports"));
        }
        for _ in 0..ports {
            contents.classes.push(spent::read_all(&mut rest)?);
        }
        for _ in 0..read_u32(&mut rest)? {
            contents.workers.push(WorkerQueued::read(&mut rest)?);
        }
        if contents.programs.len() > ports {
            return Err(StateError::Malformed("its programs"));
        }
        if rest.is_empty() { Ok(contents) } else { Err(StateError::Malformed("its end")) }
    }

    /// How many packets are queued.
    pub fn packets(&self) -> u64 {
        self.workers.iter().map(|worker| worker.packets() as u64).sum()
    }

    /// The time at which the old process paused.
    pub fn stopped(&self) -> Nanos {
        Nanos(self.stopped)
    }
}

#[cfg(test)]
mod tests {
    use super::super::queued::{Frame, Queued, tests::worker};
    use super::super::spent::tests::class;
    use super::*;
    use narrows_coordination::Spent;
    use narrows_policy::FleetName;
    use narrows_shares::Shares;
    use narrows_snapshot::{FleetOrder, FleetShare};
    use proptest::prelude::*;

    /// Those of a box that lends.
    fn shares() -> SharesState {
        let mut shares = Shares::default();
        shares.add(&FleetName::new("site").unwrap(), 1);
        let lent = FleetShare { name: "site".into(), lent_bps: 8, borrowed_bps: 0 };
        shares.order(&FleetOrder { shares: vec![lent], deadline_ns: 5, since: 0 }, 2);
        shares.advance(5);
        shares.state()
    }

    fn contents() -> Contents {
        let counted = PortCounted {
            queues: vec![QueueCounted {
                arrived: [1, 60],
                outward: PathCounted {
                    received: [1, 60],
                    sent: [2, 120],
                    copied: 1,
                    dropped: [("limit".to_owned(), 3)].into(),
                },
                tx_kicks: 4,
                ..QueueCounted::default()
            }],
            verdicts: [5, 6, 7, 8, 9],
            routes: [("routed".to_owned(), 4)].into(),
            slow_path: Some([5, 300, 6, 360]),
            losses: [9, 0, 0, 0, 0, 0],
        };
        let spent = Spent { class: 16, rate: Nanos(2), ceil: Nanos(3) };
        let spent = SpentClass { major: 1, spent };
        let mut queued = Queued::default();
        queued.push(Nanos(8), [Frame { addr: 2048, len: 60 }].into_iter());
        Contents {
            stopped: 9,
            shares: shares(),
            lines: [("eth1".to_owned(), LineState { rate: 8, full_at: Some(9) })].into(),
            counted: vec![counted, PortCounted::default()].into(),
            events: vec!["joined".into()],
            spent: vec![[(1, 10)].into(), BTreeMap::new()].into(),
            classes: vec![vec![spent], vec![]].into(),
            programs: vec![ProgramState {
                numbers: vec![[1, 16, 2]],
                actions: vec![[2, 5, 1]],
                before_root: [7; 10],
                inherited: vec![([1, 16], [6; 6])],
            }]
            .into(),
            workers: vec![WorkerQueued {
                free: vec![1, 2],
                sending: vec![vec![3], vec![]].into(),
                partial: vec![Queued::default(); 2].into(),
                queued: vec![queued, Queued::default()].into(),
            }],
        }
    }

    proptest! {
        #[test]
        fn state_survives_a_round_trip(
            workers in prop::collection::vec(worker(), 0..4),
            classes in prop::array::uniform2(prop::collection::vec(class(), 0..4)),
        ) {
            let classes = Vec::from(classes).into();
            let said = Contents { workers, classes, ..contents() };
            prop_assert_eq!(Contents::read(&said.write()).unwrap(), said);
        }

        #[test]
        fn truncated_or_overlong_state_is_refused(cut in 0usize..100) {
            let said = contents().write();
            prop_assert!(Contents::read(&said[..said.len().saturating_sub(cut + 1)]).is_err());
            prop_assert!(Contents::read(&[&said[..], &vec![0; cut + 1]].concat()).is_err());
        }

        #[test]
        fn no_bytes_are_trusted(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Contents::read(&bytes);
        }
    }

    /// Fails when the state changes. Then raise [`FORMAT`].
    #[test]
    fn a_change_of_the_state_raises_the_format() {
        let expected = concat!(
            r#"{"stopped":9,"shares":{"deadline":5,"held":"Loans","parts":[["site",{"lent":8,"#,
            r#""borrowed":0,"unset_since":null,"at_floor":false,"rejoins":false}]]},"lines":{"eth1":{"rate":8,"full_at":9}},"counted":[{"queues":[{"arrived":[1,60],"outward":{"received":[1,60],"#,
            r#""sent":[2,120],"copied":1,"dropped":{"limit":3}},"#,
            r#""tx_kicks":4,"kernel_drops":{"rx_ring_full":0,"rx_dropped":0,"fill_ring_empty":0,"#,
            r#""rx_invalid":0,"tx_invalid":0}}],"verdicts":[5,6,7,8,9],"routes":{"routed":4},"slow_path":[5,300,6,360],"losses":[9,0,0,0,0,0]},{"queues":[],"#,
            r#""verdicts":[0,0,0,0,0],"routes":{},"slow_path":null,"losses":[0,0,0,0,0,0]}],"events":["joined"],"spent":[{"1":10},{}],"#,
            r#""programs":[{"numbers":[[1,16,2]],"actions":[[2,5,1]],"before_root":[7,7,7,7,7,7,7,7,7,7],"#,
            r#""inherited":[[[1,16],[6,6,6,6,6,6]]]}]}"#
        );
        let said = contents().write();
        let (words, packets) = said[4..].split_at(expected.len());
        assert_eq!(String::from_utf8_lossy(words), expected);
        let numbers: &[&[u8]] = &[
            &[1, 0, 0, 0, 1, 0, 0, 0, 16, 0, 0, 0], // one class, 1:10
            &[2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0],
            &[0, 0, 0, 0],                            // none at the other port
            &[1, 0, 0, 0],                            // one worker
            &[2, 2],                                  // of two ports on two devices
            &[2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0],    // two free frames
            &[1, 0, 0, 0, 3, 0, 0, 0],                // one that is sent
            &[0, 0, 0, 0],                            // and none of the other port
            &[0, 0],                                  // no partial packets
            &[1, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1], // a packet of one frame
            &[0, 8, 0, 0, 0, 0, 0, 0, 60, 0, 0, 0],
            &[0, 0, 0, 0], // nothing the other way
        ];
        assert_eq!((packets, FORMAT), (&numbers.concat()[..], 14));
    }
}
