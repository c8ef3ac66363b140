//! The filters that a packet meets on its way in: those of the port where it comes in, those of the
//! port across, and those of the qdisc there.
//!
//! Its headers are read once for all of them. A mark or a class that one sets is visible to the
//! next, as with an `skb`, and of several rates for its flow the lowest counts; dropped packets
//! reach no qdisc. Which route it takes the I/O is asked only if a filter asks.

use crate::io::Io;
use crate::worker::BATCH;
use narrows_classify::{
    AHEAD, Classification, Classifier, Found, MemberRates, Path, Subject, Verdict,
};
use narrows_packet::{Batch, DropReason, PaceId, PacketId, Packets};
use narrows_qdisc::Slot;
use narrows_units::Nanos;

/// Ingress, egress and qdisc.
const STAGES: usize = 3;

/// What look-ups ahead have found for a packet.
type Looks = [Found; STAGES];

/// The filters that a packet meets on its way in, in the order in which it meets them.
pub(crate) struct Filters<'a> {
    ingress: Option<&'a Classifier>,
    egress: Option<&'a Classifier>,
    qdisc: Option<&'a Classification>,
    /// Where members of sets have rates.
    members: Option<&'a dyn MemberRates>,
}

impl<'a> Filters<'a> {
    /// The filters for packets from the port of `here` to that of `across`.
    #[inline]
    pub(crate) fn of(here: &'a Slot, across: &'a Slot) -> Self {
        let [ingress, _] = here.ends();
        Self { ingress: ingress.map(AsRef::as_ref), ..Self::behind(across) }
    }

    /// The filters for packets to the port of `across` that came anywhere.
    #[inline]
    pub(crate) fn behind(across: &'a Slot) -> Self {
        let [_, egress] = across.ends();
        Self {
            ingress: None,
            egress: egress.map(AsRef::as_ref),
            qdisc: across.classification().map(AsRef::as_ref),
            members: None,
        }
    }

    /// These filters, with `members` of sets that have rates.
    #[inline]
    pub(crate) fn with_members(self, members: Option<&'a dyn MemberRates>) -> Self {
        Self { members, ..self }
    }

    /// Whether there are any.
    #[inline]
    pub(crate) fn are_any(&self) -> bool {
        self.ingress.is_some() || self.egress.is_some() || self.qdisc.is_some()
    }

    /// Whether one asks for the route that packets take. A packet takes it on its way out.
    #[inline]
    fn ask_route(&self) -> bool {
        self.egress.is_some_and(Classifier::asks_route)
            || self.qdisc.is_some_and(Classification::asks_route)
    }

    /// The rate of the flow of `id`, which another process received, whose actions ran there: by
    /// the filters alone. `io` has its frame.
    pub(crate) fn pace_again(&self, io: &impl Io, packets: &Packets, id: PacketId) -> PaceId {
        let mut subject = None;
        self.read(io, packets, id, self.ask_route(), &mut subject);
        let Some(subject) = &mut subject else { return PaceId::NONE };
        for filters in [self.ingress, self.egress].into_iter().flatten() {
            filters.retrace(subject);
        }
        if let Some(rules) = self.qdisc {
            rules.retrace(subject);
        }
        subject.pace_id()
    }

    /// Whether they are so many that packets should be looked up together.
    #[inline]
    fn are_far(&self) -> bool {
        let ends = [self.ingress, self.egress];
        ends.into_iter().flatten().any(Classifier::is_far)
            || self.qdisc.is_some_and(Classification::is_far)
    }

    /// Records the class of each of `arrivals`, or drops and removes it; `io` has its frame.
    #[inline]
    pub(crate) fn sort_all(
        &self,
        io: &impl Io,
        packets: &mut Packets,
        arrivals: &mut Batch,
        now: Nanos,
    ) {
        if self.are_far() && arrivals.len() > 1 {
            return self.sort_ahead(io, packets, arrivals, now);
        }
        let asks_route = self.ask_route();
        arrivals.retain_from(0, |id| {
            let mut subject = None;
            self.read(io, packets, id, asks_route, &mut subject);
            self.sort(io.bytes(id), subject.as_mut(), Looks::default(), packets, id, now)
        });
    }

    /// Records the class of each of `arrivals` where packets are looked up together, some at a
    /// time.
    #[inline(never)]
    fn sort_ahead(&self, io: &impl Io, packets: &mut Packets, arrivals: &mut Batch, now: Nanos) {
        let mut ids = [PacketId(0); BATCH];
        let ids = &mut ids[..arrivals.len()];
        ids.copy_from_slice(arrivals.as_slice());
        let (mut subjects, mut at) = ([const { None }; AHEAD], 0);
        let asks_route = self.ask_route();
        let mut found = [[Found::default(); AHEAD]; STAGES];
        arrivals.retain_from(0, |id| {
            let place = at % AHEAD;
            if place == 0 {
                let next = &ids[at..(at + AHEAD).min(ids.len())];
                for (into, id) in subjects.iter_mut().zip(next) {
                    self.read(io, packets, *id, asks_route, into);
                }
                self.look_ahead(&subjects[..next.len()], &mut found);
            }
            at += 1;
            let found = found.each_ref().map(|found| found[place]);
            self.sort(io.bytes(id), subjects[place].as_mut(), found, packets, id, now)
        });
    }

    /// Looks up `subjects` at each stage.
    #[inline]
    fn look_ahead(&self, subjects: &[Option<Subject<'_>>], found: &mut [[Found; AHEAD]; STAGES]) {
        let [at_ingress, at_egress, at_qdisc] = found;
        if let Some(filters) = self.ingress {
            *at_ingress = filters.look_ahead(subjects);
        }
        if let Some(filters) = self.egress {
            *at_egress = filters.look_ahead(subjects);
        }
        if let Some(rules) = self.qdisc {
            *at_qdisc = rules.look_ahead(subjects);
        }
    }

    /// Records the class of `id`, whose frame is `frame`, or drops it. `found` is the result of a
    /// look-up ahead. Returns whether it was kept.
    #[inline]
    fn sort(
        &self,
        frame: &[u8],
        subject: Option<&mut Subject<'_>>,
        [ingress, egress, qdisc]: Looks,
        packets: &mut Packets,
        id: PacketId,
        now: Nanos,
    ) -> bool {
        let Some(subject) = subject else {
            self.qdisc
                .map_or(Path::default(), |rules| rules.path(frame, None))
                .write(packets.meta_mut(id));
            return true;
        };
        for (filters, found) in [(self.ingress, ingress), (self.egress, egress)] {
            let Some(filters) = filters else { continue };
            if filters.classify(found, subject, now) == Verdict::Drop {
                packets.discard(id, DropReason::Filter);
                return false;
            }
        }
        let path =
            self.qdisc.map_or(Some(Path::default()), |rules| rules.classify(qdisc, subject, now));
        let Some(path) = path else {
            packets.discard(id, DropReason::Filter);
            return false;
        };
        path.write(packets.meta_mut(id));
        if subject.mark() != 0 {
            packets.headers_mut(id).mark = subject.mark();
        }
        if subject.pace_id() != PaceId::NONE {
            packets.headers_mut(id).pace = subject.pace_id();
        }
        true
    }

    /// Makes `into` the packet `id`, whose frame `io` has, as filters see it, with its route if one
    /// asks for that; `None` if its Ethernet header is incomplete.
    #[inline]
    fn read<'f>(
        &self,
        io: &'f impl Io,
        packets: &Packets,
        id: PacketId,
        asks_route: bool,
        into: &mut Option<Subject<'f>>,
    ) where
        'a: 'f,
    {
        Subject::read(io.bytes(id), into);
        if let Some(subject) = into {
            subject.set_len(packets.meta(id).len.0);
            subject.set_members(self.members);
            if asks_route && let Some(route) = io.route_of(id) {
                subject.set_route(route);
            }
        }
    }
}
