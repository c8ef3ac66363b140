//! The census as qdiscs see it: beside a slow model, and with real threads.

use narrows_coordination::{Coordination, Limit};
use narrows_qdisc::{Census, HostKey, TINS_MAX, TinCensus};
use narrows_units::{Bytes, Rate};
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;
use std::thread;

const HANDLES: usize = 4;
const HOSTS: u64 = 12;

fn coordination() -> Arc<Coordination> {
    let rate = Rate::from_bits_per_sec(1_000_000_000);
    let limit = Limit { rate, burst: Bytes(30_000), peak: None, backlog: Bytes(150_000) };
    Coordination::new(narrows_coordination::Strategy::EQUAL, limit, HANDLES)
}

/// Few hosts, of which no two share a cell: with all bits of the key different, as a hash has it.
fn host(number: u64) -> HostKey {
    HostKey(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn tin(weight: u64, sent: u64) -> TinCensus {
    TinCensus { weight, sent }
}

fn sum(handle: &dyn Census) -> [TinCensus; TINS_MAX] {
    let mut tins = [TinCensus::default(); TINS_MAX];
    handle.sum(&mut tins);
    tins
}

/// A slow census.
#[derive(Default)]
struct Model {
    standing: HashMap<(usize, u64), u32>,
    published: HashMap<(usize, usize), TinCensus>,
    /// By handles that are gone.
    sent: [u64; TINS_MAX],
}

impl Model {
    fn flows(&self, host: u64) -> u32 {
        let here = self.standing.iter().filter(|((_, other), _)| *other == host);
        here.map(|(_, &flows)| flows).sum()
    }

    fn sum(&self) -> [TinCensus; TINS_MAX] {
        let mut tins = self.sent.map(|sent| tin(0, sent));
        for (&(_, number), published) in &self.published {
            tins[number].weight += published.weight;
            tins[number].sent += published.sent;
        }
        tins
    }

    fn drop_handle(&mut self, handle: usize) {
        self.standing.retain(|&(at, _), _| at != handle);
        for (&(at, number), published) in &self.published {
            self.sent[number] += if at == handle { published.sent } else { 0 };
        }
        self.published.retain(|&(at, _), _| at != handle);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Begin { handle: usize, host: u64, flows: u32 },
    End { handle: usize, host: u64 },
    Tell { handle: usize, tins: Vec<(u64, u64)> },
    Drop { handle: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let tins = prop::collection::vec((0u64..1 << 40, 0u64..1 << 30), 0..=TINS_MAX);
    prop_oneof![
        4 => (0..HANDLES, 0..HOSTS, 1u32..5)
            .prop_map(|(handle, host, flows)| Step::Begin { handle, host, flows }),
        3 => (0..HANDLES, 0..HOSTS).prop_map(|(handle, host)| Step::End { handle, host }),
        2 => (0..HANDLES, tins).prop_map(|(handle, tins)| Step::Tell { handle, tins }),
        1 => (0..HANDLES).prop_map(|handle| Step::Drop { handle }),
    ]
}

proptest! {
    #[test]
    fn the_census_is_the_sum_of_its_handles(
        steps in prop::collection::vec(step(), 1..100),
    ) {
        let coordination = coordination();
        let mut handles: Vec<_> = (0..HANDLES).map(|_| coordination.census()).collect();
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Begin { handle, host: number, flows } => {
                    *model.standing.entry((handle, number)).or_default() += flows;
                    handles[handle].count(host(number), flows as i32);
                }
                Step::End { handle, host: number } => {
                    let flows = model.standing.remove(&(handle, number)).unwrap_or_default();
                    handles[handle].count(host(number), -(flows as i32));
                }
                Step::Tell { handle, tins } => {
                    let mut list = Vec::new();
                    for (number, (weight, more)) in tins.into_iter().enumerate() {
                        let published = model.published.entry((handle, number)).or_default();
                        *published = tin(weight, published.sent + more);
                        list.push(*published);
                    }
                    handles[handle].tell(&list);
                }
                Step::Drop { handle } => {
                    model.drop_handle(handle);
                    handles[handle] = coordination.census();
                }
            }
            for handle in &handles {
                for number in 0..HOSTS {
                    prop_assert_eq!(handle.flows(host(number)), model.flows(number));
                }
                prop_assert_eq!(sum(handle.as_ref()), model.sum());
            }
        }
    }
}

#[test]
fn a_sum_is_of_as_many_tins_as_there_is_room_for() {
    let coordination = coordination();
    let (mut one, mut other) = (coordination.census(), coordination.census());
    one.tell(&[tin(1, 10), tin(2, 20), tin(3, 30)]);
    other.tell(&[tin(100, 1_000)]);
    let mut tins = [TinCensus::default(); 2];
    one.sum(&mut tins);
    assert_eq!(tins, [tin(101, 1_010), tin(2, 20)]);
    let mut tins = [tin(7, 7); TINS_MAX + 1];
    one.sum(&mut tins);
    assert_eq!(tins[2], tin(3, 30));
    assert_eq!(tins[TINS_MAX], tin(7, 7), "there is no such tin");
}

/// Counts and subtracts at random, and publishes it. Returns the bytes sent in the first tin.
fn work(coordination: &Coordination, number: u64) -> u64 {
    let mut handle = coordination.census();
    let mut random = number + 1;
    let mut standing = [0i32; HOSTS as usize];
    let (mut sent, mut sent_before) = (0, 0);
    for _ in 0..20_000 {
        // Xorshift: any sequence will do.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let index = (random % HOSTS) as usize;
        let change = ((random >> 16) as i32 % 8 - 3).max(-standing[index]);
        standing[index] += change;
        handle.count(host(index as u64), change);
        let flows = handle.flows(host(index as u64));
        assert!(flows >= standing[index] as u32, "a handle sees at least what is its own");
        assert!(flows < 1 << 24, "{flows}: a sum was below zero");
        sent += random >> 50;
        handle.tell(&[tin(random >> 40, sent)]);
        let seen = sum(handle.as_ref())[0];
        assert!(seen.sent >= sent_before + sent, "a handle sees at least what is its own");
        assert!(seen.weight < HANDLES as u64 * (1 << 24), "{}: a sum was below zero", seen.weight);
        if random.is_multiple_of(500) {
            handle = coordination.census();
            standing.fill(0);
            sent_before += sent;
            sent = 0;
        }
    }
    sent_before + sent
}

#[test]
fn after_all_threads_have_ended_only_sent_bytes_remain() {
    let coordination = coordination();
    let sent: u64 = thread::scope(|scope| {
        let worker = |number| {
            let coordination = &coordination;
            scope.spawn(move || work(coordination, number))
        };
        let workers: Vec<_> = (0..HANDLES as u64).map(worker).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    let handle = coordination.census();
    for number in 0..HOSTS {
        assert_eq!(handle.flows(host(number)), 0);
    }
    let mut expected = [TinCensus::default(); TINS_MAX];
    expected[0].sent = sent;
    assert_eq!(sum(handle.as_ref()), expected);
}
