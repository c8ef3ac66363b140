//! A packet as filters see it.

use crate::fields::Fields;
use crate::{Layer, MemberRates, Network, SetName};
use narrows_packet::dissect::Keys;
use narrows_packet::{PaceId, RouteTaken};
use narrows_units::Rate;

/// A packet during classification: its frame, its parsed headers, and what actions have set.
pub struct Subject<'a> {
    /// The frame.
    frame: &'a [u8],
    /// The offsets of what is behind all tags,
    carrier: u32,
    /// of its network layer, which is IP if there is IP,
    network: u32,
    /// and of its transport layer; 0 if it has none.
    transport: u32,
    /// The length in bytes that it is charged: longer than the slice if the frame is truncated or a
    /// chain of buffers.
    len: u32,
    /// Its mark; 0 until an action sets it.
    mark: u32,
    /// The class that an action has set: major number in the upper half, minor in the lower; 0 for
    /// none.
    pub priority: u32,
    /// The rate of its flow that an action has set, and its number; zero for none.
    rate: Rate,
    pace: PaceId,
    /// Where members of sets have rates, if anywhere.
    members: Option<&'a dyn MemberRates>,
    /// The parsed headers.
    fields: Fields,
}

impl<'a> Subject<'a> {
    /// A packet that no action has touched. `None` if its Ethernet header is incomplete.
    #[inline]
    pub fn new(frame: &'a [u8]) -> Option<Self> {
        match Keys::plain(frame) {
            Some(keys) => Some(Self::of(frame, &keys)),
            None => Self::walk(frame),
        }
    }

    /// Writes a packet that no action has touched directly to its final place, as [`Self::new`]
    /// makes it. A copy through another place would be read back in different pieces than it was
    /// written, which stalls the processor (no store forwarding).
    #[inline]
    pub fn read(frame: &'a [u8], into: &mut Option<Self>) {
        match Keys::plain(frame) {
            Some(keys) => *into = Some(Self::of(frame, &keys)),
            None => Self::walk_into(frame, into),
        }
    }

    #[inline(never)]
    fn walk(frame: &'a [u8]) -> Option<Self> {
        Keys::walk(frame).map(|keys| Self::of(frame, &keys))
    }

    #[inline(never)]
    fn walk_into(frame: &'a [u8], into: &mut Option<Self>) {
        *into = Self::walk(frame);
    }

    #[inline(always)]
    fn of(frame: &'a [u8], keys: &Keys) -> Self {
        let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        // Headers are at the start of a frame, so the offsets fit.
        let carrier = keys.network as u32;
        let network = keys.ip.map_or(carrier, |ip| ip.at as u32);
        let transport = keys.ip.map_or(0, |ip| ip.transport as u32);
        let fields = Fields::of(keys);
        Self {
            frame,
            carrier,
            network,
            transport,
            len,
            mark: 0,
            priority: 0,
            rate: Rate::default(),
            pace: PaceId::NONE,
            members: None,
            fields,
        }
    }

    /// Sets the length in bytes, if the frame is only the beginning of the packet.
    #[inline]
    pub fn set_len(&mut self, len: u32) {
        self.len = len;
    }

    /// The length in bytes, Ethernet header included.
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        u64::from(self.len)
    }

    /// The mark.
    pub fn mark(&self) -> u32 {
        self.mark
    }

    /// Sets the mark.
    pub fn set_mark(&mut self, mark: u32) {
        self.mark = mark;
        self.fields.set_mark(mark);
    }

    /// An action gives it the rate `rate`, of which `id` is the number. The lowest counts.
    pub(crate) fn pace(&mut self, id: PaceId, rate: Rate) {
        if self.pace == PaceId::NONE || rate < self.rate {
            (self.pace, self.rate) = (id, rate);
        }
    }

    /// Says where members of sets have rates.
    #[inline]
    pub fn set_members(&mut self, members: Option<&'a dyn MemberRates>) {
        self.members = members;
    }

    /// An action gives it the rate of the member of `set` that covers its source, or its
    /// destination. The lowest rate counts.
    pub(crate) fn pace_by_member(&mut self, set: &SetName, is_source: bool) {
        let (Some(members), Some((address, is_v6))) =
            (self.members, self.fields.address(is_source))
        else {
            return;
        };
        if let Some(id) = members.rate_of(set.as_str(), address, is_v6)
            && let Some(rate) = id.rate()
        {
            self.pace(id, rate);
        }
    }

    /// The number of the rate of its flow; [`PaceId::NONE`] until an action gives one.
    #[inline]
    pub fn pace_id(&self) -> PaceId {
        self.pace
    }

    /// The route that it takes, if that is known.
    pub(crate) fn route(&self) -> Option<RouteTaken> {
        self.fields.route()
    }

    /// Says which route it takes. Once, before it is looked up.
    #[inline]
    pub fn set_route(&mut self, route: RouteTaken) {
        self.fields.set_route(route);
    }

    /// Whether no action has set anything that a filter may test.
    #[inline]
    pub(crate) fn is_untouched(&self) -> bool {
        (self.mark, self.priority) == (0, 0)
    }

    /// The class of the qdisc `major` that an action has set; 0 for none.
    #[inline]
    pub(crate) fn class_of_qdisc(&self, major: u32) -> u32 {
        if self.priority >> 16 == major { self.priority & 0xffff } else { 0 }
    }

    /// The priority, 0 to 15: the one that an action has set, otherwise the one from the headers.
    /// As in the kernel, a priority that names a class of another qdisc does not count.
    pub(crate) fn skb_priority(&self) -> u8 {
        match self.priority {
            0 => crate::priority(self.frame),
            set if set >> 16 != 0 => 0,
            set => set as u8 & crate::PRIORITY_MASK,
        }
    }

    /// Parses the headers again, for filters that are tested one by one.
    pub(crate) fn keys(&self) -> Keys {
        Keys::of(self.frame).unwrap_or_default()
    }

    /// One of the words of the parsed headers.
    #[inline(always)]
    pub(crate) fn field(&self, place: usize) -> u64 {
        self.fields.word(place)
    }

    /// The four bytes at `offset` from the network layer, or from the transport layer if
    /// `is_behind_ip`. `None` if they are outside the frame.
    #[inline(always)]
    pub(crate) fn word(&self, offset: i16, is_behind_ip: bool, network: Network) -> Option<u32> {
        let layer = if is_behind_ip { Layer::Transport } else { Layer::Network };
        let word = self.at(layer, offset, network)?.first_chunk()?;
        Some(u32::from_be_bytes(*word))
    }

    /// The frame from `offset` after the beginning of `layer`.
    #[inline(always)]
    pub(crate) fn at(&self, layer: Layer, offset: i16, network: Network) -> Option<&'a [u8]> {
        let base = match layer {
            Layer::Link => 0,
            Layer::Network => match network {
                Network::Ip => self.network as usize,
                Network::Carrier => self.carrier as usize,
            },
            Layer::Transport if self.transport == 0 => return None,
            Layer::Transport => self.transport as usize,
        };
        self.frame.get(base.checked_add_signed(isize::from(offset))?..)
    }
}
