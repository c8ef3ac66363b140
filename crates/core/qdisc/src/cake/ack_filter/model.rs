//! Whatever is dropped, the sender of the data ends up knowing the same: beside naive models
//! of both ends of a connection.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Where numbers and time stamps begin, so that both wrap.
const BASE: u32 = u32::MAX - 12;
/// Bytes of a connection that are ever spoken of.
const BYTES: u32 = 48;
const PSH: u16 = 0x08;
/// ECE, CWR and the bit beside them.
const SIGNAL_BITS: [u16; 3] = [0x40, 0x80, 0x100];

/// The end that acknowledges.
#[derive(Default)]
struct Receiver {
    arrived: BTreeSet<u32>,
    /// The range that it reports first, and a duplicate before that.
    latest: Option<u32>,
    duplicate: Option<(u32, u32)>,
    echo: u32,
    signals: u16,
}

impl Receiver {
    /// Bytes `from` to `to` arrive, sent at `time`.
    fn receive(&mut self, from: u32, to: u32, time: u32) {
        if from <= self.number() {
            self.echo = time;
        }
        if (from..to).all(|byte| self.arrived.contains(&byte)) {
            self.duplicate = Some((from, to));
        }
        self.arrived.extend(from..to);
        self.latest = Some(from);
    }

    fn number(&self) -> u32 {
        (0..).find(|byte| !self.arrived.contains(byte)).unwrap()
    }

    /// The range around `byte`.
    fn range(&self, byte: u32) -> (u32, u32) {
        let has = |byte: &u32| self.arrived.contains(byte);
        let from = (0..=byte).rev().take_while(has).last().unwrap();
        (from, (byte..).find(|byte| !has(byte)).unwrap())
    }

    /// Its acknowledgement now, at its own `time`.
    fn say(&mut self, connection: u64, time: Option<u32>) -> Acknowledgement {
        let number = self.number();
        let mut ranges: Vec<(u32, u32)> = self.duplicate.take().into_iter().collect();
        let reported = ranges.len();
        let latest = self.latest.filter(|&byte| byte > number);
        for byte in latest.into_iter().chain((number..BYTES).rev()) {
            if self.arrived.contains(&byte) && !ranges[reported..].contains(&self.range(byte)) {
                ranges.push(self.range(byte));
            }
        }
        ranges.truncate(if time.is_some() { 3 } else { 4 });
        let mut blocks = [(0, 0); 4];
        for (block, (from, to)) in blocks.iter_mut().zip(&ranges) {
            *block = (BASE.wrapping_add(*from), BASE.wrapping_add(*to));
        }
        Acknowledgement {
            connection,
            number: BASE.wrapping_add(number),
            flags: ACK | self.signals,
            is_empty: true,
            has_plain_options: true,
            time_stamp: time.map(|time| (BASE.wrapping_add(time), BASE.wrapping_add(self.echo))),
            block_count: ranges.len() as u8,
            blocks,
        }
    }
}

/// The knowledge of the data's sender.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Sender {
    highest: u32,
    acknowledged: BTreeSet<u32>,
    /// How often each duplicate was reported.
    duplicates: BTreeMap<(u32, u32), u32>,
    /// Each run of equal signals, once.
    signals: Vec<u16>,
    time_stamp: Option<(u32, u32)>,
    /// Everything besides the acknowledgement.
    others: Vec<Acknowledgement>,
    /// The highest number that it has received, and how often.
    received: BTreeMap<BTreeSet<u32>, u32>,
    last: BTreeSet<u32>,
}

impl Sender {
    fn hear(&mut self, packet: &Acknowledgement) {
        let place = |number: u32| number.wrapping_sub(BASE);
        let number = place(packet.number);
        let blocks = packet.blocks().iter().map(|&(from, to)| (place(from), place(to)));
        let blocks: Vec<_> = blocks.collect();
        let mut said: BTreeSet<u32> = (0..number).collect();
        for (index, &(from, to)) in blocks.iter().enumerate() {
            let is_within = blocks.get(1).is_some_and(|next| next.0 <= from && to <= next.1);
            if index == 0 && (from < number || is_within) {
                *self.duplicates.entry((from, to)).or_default() += 1;
            }
            said.extend(from..to);
        }
        if number > self.highest {
            self.highest = number;
            self.received.clear();
        }
        if number == self.highest {
            *self.received.entry(said.clone()).or_default() += 1;
            self.last.clone_from(&said);
        }
        self.acknowledged.extend(&said);
        let signals = packet.flags & 0xfc0;
        if self.signals.last() != Some(&signals) {
            self.signals.push(signals);
        }
        self.time_stamp = self.time_stamp.max(packet.time_stamp.map(|(a, b)| (place(a), place(b))));
        if !packet.is_empty || !packet.has_plain_options || packet.flags & !0xfd0 != 0 {
            self.others.push(*packet);
        }
    }
}

/// The knowledge of each of two senders after all of `packets`.
fn heard<'a>(packets: impl IntoIterator<Item = &'a Acknowledgement>) -> [Sender; 2] {
    let mut senders = [Sender::default(), Sender::default()];
    for packet in packets {
        senders[packet.connection as usize - 1].hear(packet);
    }
    for Sender { received, last, .. } in &mut senders {
        // Repetitions that a later, larger acknowledgement covers do not count.
        received.retain(|said, _| said == last);
    }
    senders
}

#[derive(Clone, Debug)]
enum Step {
    /// A segment arrives at the receiver, which acknowledges it or waits for the next.
    Arrive { from: u32, len: u32, acknowledged: bool },
    /// The next segment in order.
    Next { len: u32 },
    /// The receiver repeats its acknowledgement.
    Repeat,
    /// It also carries something else.
    Speak { flags: u16, is_empty: bool, has_plain_options: bool },
    /// It starts or stops a signal.
    Signal { bit: u16 },
    /// An earlier packet comes late.
    Late { ago: usize },
    /// The link takes packets from the head.
    Leave { packets: usize },
}

fn step() -> impl Strategy<Value = (usize, Step)> {
    let flag = prop::sample::select(vec![0, 0, 0x01, 0x02, 0x04, PSH, 0x20, 0x200]);
    let step = prop_oneof![
        6 => (0..BYTES - 8, 1u32..8, any::<bool>())
            .prop_map(|(from, len, acknowledged)| Step::Arrive { from, len, acknowledged }),
        8 => (1u32..4).prop_map(|len| Step::Next { len }),
        2 => Just(Step::Repeat),
        2 => (flag, any::<bool>(), any::<bool>()).prop_map(|(flags, is_empty, has_plain_options)| {
            Step::Speak { flags, is_empty, has_plain_options }
        }),
        2 => prop::sample::select(SIGNAL_BITS.to_vec()).prop_map(|bit| Step::Signal { bit }),
        1 => (0usize..6).prop_map(|ago| Step::Late { ago }),
        2 => (0usize..4).prop_map(|packets| Step::Leave { packets }),
    ];
    (0usize..2, step)
}

/// The packet that a step sends, if it does.
fn play(
    step: Step,
    receiver: &mut Receiver,
    connection: u64,
    stamp: Option<u32>,
    time: u32,
    history: &[Acknowledgement],
) -> Option<Acknowledgement> {
    match step {
        Step::Arrive { from, len, acknowledged } => {
            receiver.receive(from, from + len, time);
            acknowledged.then(|| receiver.say(connection, stamp))
        }
        Step::Next { len } => {
            let from = receiver.number().min(BYTES - len);
            receiver.receive(from, from + len, time);
            Some(receiver.say(connection, stamp))
        }
        Step::Repeat => Some(receiver.say(connection, stamp)),
        Step::Speak { flags, is_empty, has_plain_options } => {
            let said = receiver.say(connection, stamp);
            Some(Acknowledgement { flags: said.flags | flags, is_empty, has_plain_options, ..said })
        }
        Step::Signal { bit } => {
            receiver.signals ^= bit;
            None
        }
        Step::Late { ago } => history.iter().rev().nth(ago).copied(),
        Step::Leave { .. } => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn drops_never_change_the_sender_s_knowledge(
        steps in prop::collection::vec(step(), 1..60),
        aggressive: bool,
        with_time_stamps: bool,
    ) {
        let mut receivers = [Receiver::default(), Receiver::default()];
        let mut queue: VecDeque<Acknowledgement> = VecDeque::new();
        let mut left = Vec::new();
        let mut history = Vec::new();
        for (time, (index, step)) in (1..).zip(steps) {
            if let Step::Leave { packets } = step {
                left.extend(queue.drain(..packets.min(queue.len())));
                continue;
            }
            let stamp = with_time_stamps.then_some(time);
            let receiver = &mut receivers[index];
            let Some(newest) = play(step, receiver, index as u64 + 1, stamp, time, &history) else {
                continue;
            };
            history.push(newest);
            let position = superfluous(queue.iter().copied(), &newest, aggressive);
            queue.push_back(newest);
            let Some(position) = position else { continue };
            let before = heard(left.iter().chain(&queue));
            let dropped = queue.remove(position);
            prop_assert_eq!(before, heard(left.iter().chain(&queue)), "without {:?}", dropped);
        }
    }
}
