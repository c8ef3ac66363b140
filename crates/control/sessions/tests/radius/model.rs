//! Random packets of two NASes, against a model that keeps lists and searches them.

use crate::common::{BASE, World};
use narrows_sessions::radius::attribute::{
    ACCT_SESSION_ID, ACCT_STATUS_TYPE, EVENT_TIMESTAMP, FILTER_ID, FRAMED_IP_ADDRESS,
    NAS_IP_ADDRESS, USER_NAME,
};
use narrows_sessions::radius::packet::Code;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// What happens.
#[derive(Clone, Debug)]
enum Step {
    Report {
        nas: u8,
        id: u8,
        who: u8,
        address: Option<u8>,
        plan: Option<bool>,
        back: u64,
        is_interim: bool,
    },
    Stop {
        nas: u8,
        id: u8,
        back: u64,
    },
    On {
        nas: u8,
    },
    Change {
        id: u8,
        who: Option<u8>,
        is_fast: bool,
    },
    Disconnect {
        address: u8,
    },
    Again {
        count: usize,
    },
    Wait {
        seconds: u64,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let nas = 1..=2_u8;
    let id = 0..3_u8;
    let who = 0..3_u8;
    let back = prop_oneof![3 => Just(0_u64), 1 => 0..40_u64];
    let report = (
        nas.clone(),
        id.clone(),
        who.clone(),
        prop::option::weighted(0.8, 1..4_u8),
        prop::option::weighted(0.5, any::<bool>()),
        back.clone(),
        any::<bool>(),
    )
        .prop_map(|(nas, id, who, address, plan, back, is_interim)| Step::Report {
            nas,
            id,
            who,
            address,
            plan,
            back,
            is_interim,
        });
    let stop =
        (nas.clone(), id.clone(), back).prop_map(|(nas, id, back)| Step::Stop { nas, id, back });
    let change = (id, prop::option::of(who), any::<bool>())
        .prop_map(|(id, who, is_fast)| Step::Change { id, who, is_fast });
    let step = prop_oneof![
        8 => report,
        4 => stop,
        1 => nas.prop_map(|nas| Step::On { nas }),
        2 => change,
        1 => (1..4_u8).prop_map(|address| Step::Disconnect { address }),
        2 => (0..5_usize).prop_map(|count| Step::Again { count }),
        3 => prop_oneof![1..20_u64, Just(400), Just(4_000), Just(90_000)]
            .prop_map(|seconds| Step::Wait { seconds }),
    ];
    prop::collection::vec(step, 1..60)
}

/// A session of the model.
#[derive(Clone, Debug)]
struct Session {
    nas: u8,
    id: u8,
    who: u8,
    begun: u64,
    event: u64,
    heard: u64,
    address: Option<u8>,
    said: Option<bool>,
}

/// A subscriber of the model: its plan, and since when it has no session.
#[derive(Clone, Debug)]
struct Known {
    is_fast: bool,
    vacant: Option<u64>,
}

#[derive(Default)]
struct Model {
    sessions: Vec<Session>,
    /// Which session has an address, or had it last.
    given: Vec<(u8, u8, u8)>,
    /// Ended sessions, by their NAS' clock and by ours.
    ended: Vec<(u8, u8, u64, u64)>,
    known: BTreeMap<u8, Known>,
    updating: BTreeSet<u8>,
}

impl Model {
    fn owner(&self, address: u8) -> Option<(u8, u8)> {
        let last = self.given.iter().rev().find(|(given, ..)| *given == address)?;
        let (nas, id) = (last.1, last.2);
        let claims = |session: &Session| {
            (session.nas, session.id, session.address) == (nas, id, Some(address))
        };
        self.sessions.iter().any(claims).then_some((nas, id))
    }

    fn end(&mut self, now: u64, nas: u8, id: u8) {
        let Some(at) = self.sessions.iter().position(|one| (one.nas, one.id) == (nas, id)) else {
            return;
        };
        let session = self.sessions.remove(at);
        self.given.retain(|(_, n, i)| (*n, *i) != (nas, id));
        if !self.sessions.iter().any(|other| other.who == session.who) {
            self.known.get_mut(&session.who).unwrap().vacant = Some(now);
        }
    }

    fn has_ended(&self, now: u64, nas: u8, id: u8, event: u64) -> bool {
        let last = self.ended.iter().rev().find(|(n, i, ..)| (*n, *i) == (nas, id));
        last.is_some_and(|(_, _, ended, when)| event <= *ended && now < *when + 600)
    }

    fn remember(&mut self, now: u64, nas: u8, id: u8, event: u64) {
        // The first end says how long it is remembered.
        let first =
            self.ended.iter().find(|(n, i, _, when)| (*n, *i) == (nas, id) && now < *when + 600);
        let when = first.map_or(now, |(.., when)| *when);
        self.ended.push((nas, id, event, when));
    }

    fn step(&mut self, now: u64, step: &Step) {
        // What is too old counts as never remembered.
        self.ended.retain(|(.., when)| now < *when + 600);
        match *step {
            Step::Report { nas, id, who, address, plan, back, is_interim } => {
                let event = (BASE + now).saturating_sub(back);
                if self.has_ended(now, nas, id, event) {
                    return;
                }
                let place = |sessions: &[Session]| {
                    sessions.iter().position(|one| (one.nas, one.id) == (nas, id))
                };
                if let Some(at) = place(&self.sessions) {
                    if event < self.sessions[at].event {
                        return;
                    }
                    if who != self.sessions[at].who {
                        self.end(now, nas, id);
                    }
                }
                let at = match place(&self.sessions) {
                    Some(at) => at,
                    None => {
                        self.sessions.push(Session {
                            nas,
                            id,
                            who,
                            begun: event,
                            event,
                            heard: now,
                            address: None,
                            said: None,
                        });
                        let new = Known { is_fast: false, vacant: None };
                        self.known.entry(who).or_insert(new).vacant = None;
                        self.sessions.len() - 1
                    }
                };
                if is_interim {
                    self.updating.insert(nas);
                }
                let claimed = self.sessions[at].address;
                if let Some(address) = address {
                    let is_new = claimed != Some(address);
                    self.sessions[at].address = Some(address);
                    if is_new {
                        self.given.retain(|(a, n, i)| (Some(*a), *n, *i) != (claimed, nas, id));
                    }
                    if is_new || self.owner(address).is_none() {
                        // Who had it does not get it back when the other one goes.
                        self.given.retain(|(given, ..)| *given != address);
                        self.given.push((address, nas, id));
                    }
                }
                let session = &mut self.sessions[at];
                session.event = event;
                session.heard = now;
                if plan.is_some() && plan != session.said {
                    session.said = plan;
                    self.known.get_mut(&session.who).unwrap().is_fast = plan == Some(true);
                }
            }
            Step::Stop { nas, id, back } => {
                let event = (BASE + now).saturating_sub(back);
                let begun = self.sessions.iter().find(|one| (one.nas, one.id) == (nas, id));
                let is_early = begun.is_some_and(|session| event < session.begun);
                if !self.has_ended(now, nas, id, event) && !is_early {
                    self.end(now, nas, id);
                    self.remember(now, nas, id, event);
                }
            }
            Step::On { nas } => {
                for session in self.sessions.clone() {
                    if session.nas == nas {
                        self.end(now, nas, session.id);
                    }
                }
            }
            Step::Change { id, who, is_fast } => {
                for session in &self.sessions {
                    if session.id == id && who.is_none_or(|who| who == session.who) {
                        self.known.get_mut(&session.who).unwrap().is_fast = is_fast;
                    }
                }
            }
            Step::Disconnect { address } => {
                if let Some((nas, id)) = self.owner(address) {
                    self.end(now, nas, id);
                    self.remember(now, nas, id, BASE + now);
                }
            }
            Step::Again { .. } => {}
            Step::Wait { .. } => {
                for session in self.sessions.clone() {
                    if now >= session.heard + 3_600 && self.updating.contains(&session.nas) {
                        self.end(now, session.nas, session.id);
                    }
                }
                let present: BTreeSet<u8> = self.sessions.iter().map(|one| one.nas).collect();
                self.updating.retain(|nas| present.contains(nas));
                self.known.retain(|_, known| known.vacant.is_none_or(|since| now < since + 86_400));
            }
        }
    }

    /// Each subscriber's addresses, and whether it is fast.
    fn subscribers(&self) -> BTreeMap<String, (Vec<String>, bool)> {
        let one = |(who, known): (&u8, &Known)| {
            let addresses = (1..4).filter(|address| {
                let owner = self.owner(*address);
                self.sessions.iter().any(|one| one.who == *who && owner == Some((one.nas, one.id)))
            });
            let addresses = addresses.map(|address| format!("10.0.0.{address}")).collect();
            (format!("who{who}"), (addresses, known.is_fast))
        };
        self.known.iter().map(one).collect()
    }
}

/// A packet that was sent: when, from where, its bytes, and the answer.
type Sent = (u64, [u8; 4], Vec<u8>, Option<Vec<u8>>);

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn sessions_are_those_of_a_list_that_is_searched(steps in steps()) {
        let mut world = World::new("");
        let mut model = Model::default();
        let mut sent: Vec<Sent> = Vec::new();
        for step in steps {
            let stamp = |back: u64, world: &World| {
                u32::try_from((BASE + world.second).saturating_sub(back)).unwrap().to_be_bytes()
            };
            let packet = match &step {
                Step::Report { nas, id, who, address, plan, back, is_interim } => {
                    let (id, who) = (format!("s{id}"), format!("who{who}"));
                    let stamp = stamp(*back, &world);
                    let nas_ip = [192, 0, 2, *nas];
                    let status = [0, 0, 0, if *is_interim { 3 } else { 1 }];
                    let framed = address.map(|address| Ipv4Addr::new(10, 0, 0, address).octets());
                    let mut attributes: Vec<(_, &[u8])> = vec![
                        (ACCT_STATUS_TYPE, &status),
                        (ACCT_SESSION_ID, id.as_bytes()),
                        (USER_NAME, who.as_bytes()),
                        (EVENT_TIMESTAMP, &stamp),
                        (NAS_IP_ADDRESS, &nas_ip),
                    ];
                    if let Some(framed) = &framed {
                        attributes.push((FRAMED_IP_ADDRESS, framed));
                    }
                    if let Some(is_fast) = plan {
                        let name: &[u8] = if *is_fast { b"fast" } else { b"basic" };
                        attributes.push((FILTER_ID, name));
                    }
                    Some((nas_ip, world.signed(Code::Accounting, &attributes)))
                }
                Step::Stop { nas, id, back } => {
                    let (id, nas_ip, stamp) = (format!("s{id}"), [192, 0, 2, *nas], stamp(*back, &world));
                    let attributes: [(_, &[u8]); 4] = [
                        (ACCT_STATUS_TYPE, &[0, 0, 0, 2]),
                        (ACCT_SESSION_ID, id.as_bytes()),
                        (EVENT_TIMESTAMP, &stamp),
                        (NAS_IP_ADDRESS, &nas_ip),
                    ];
                    Some((nas_ip, world.signed(Code::Accounting, &attributes)))
                }
                Step::On { nas } => {
                    let nas_ip = [192, 0, 2, *nas];
                    let attributes: [(_, &[u8]); 2] =
                        [(ACCT_STATUS_TYPE, &[0, 0, 0, 7]), (NAS_IP_ADDRESS, &nas_ip)];
                    Some((nas_ip, world.signed(Code::Accounting, &attributes)))
                }
                Step::Change { id, who, is_fast } => {
                    let (id, who) = (format!("s{id}"), who.map(|who| format!("who{who}")));
                    let name: &[u8] = if *is_fast { b"fast" } else { b"basic" };
                    let mut attributes: Vec<(_, &[u8])> =
                        vec![(ACCT_SESSION_ID, id.as_bytes()), (FILTER_ID, name)];
                    if let Some(who) = &who {
                        attributes.push((USER_NAME, who.as_bytes()));
                    }
                    Some(([192, 0, 2, 65], world.signed(Code::ChangeOfAuthorization, &attributes)))
                }
                Step::Disconnect { address } => {
                    let framed = [10, 0, 0, *address];
                    let attributes: [(_, &[u8]); 1] = [(FRAMED_IP_ADDRESS, &framed)];
                    Some(([192, 0, 2, 65], world.signed(Code::Disconnect, &attributes)))
                }
                Step::Again { count } => {
                    // The same datagram within half a minute has the same answer.
                    if let Some((when, from, datagram, answer)) = sent.iter().rev().nth(*count).cloned()
                        && world.second < when + 30
                    {
                        prop_assert_eq!(world.send(from, &datagram), answer);
                    }
                    None
                }
                Step::Wait { seconds } => {
                    world.wait(*seconds);
                    None
                }
            };
            if let Some((from, datagram)) = packet {
                let answer = world.send(from, &datagram);
                prop_assert!(answer.is_some());
                sent.push((world.second, from, datagram, answer));
            }
            model.step(world.second, &step);
            let stored: BTreeMap<String, (Vec<String>, bool)> = (world.stored.iter())
                .map(|(identity, subscriber)| {
                    let addresses = subscriber.addresses.iter().map(|one| one.ip.to_string());
                    let is_fast = subscriber.plan.name.as_deref() == Some("fast");
                    (identity.clone(), (addresses.collect(), is_fast))
                })
                .collect();
            prop_assert_eq!(stored, model.subscribers(), "after {:?}", step);
        }

        // A listener that starts again knows the same, and a Stop still ends it.
        let before = world.stored.clone();
        world.restart();
        for (index, session) in model.sessions.iter().enumerate() {
            let (id, nas_ip) = (format!("s{}", session.id), [192, 0, 2, session.nas]);
            let attributes: [(_, &[u8]); 3] = [
                (ACCT_STATUS_TYPE, &[0, 0, 0, 2]),
                (ACCT_SESSION_ID, id.as_bytes()),
                (NAS_IP_ADDRESS, &nas_ip),
            ];
            world.request(nas_ip, Code::Accounting, &attributes);
            prop_assert_eq!(world.sessions.count(), model.sessions.len() - 1 - index);
        }
        for (identity, subscriber) in &world.stored {
            prop_assert!(subscriber.addresses.is_empty());
            prop_assert_eq!(&subscriber.plan, &before[identity].plan);
        }
        prop_assert_eq!(world.stored.len(), before.len());
    }
}
