//! A packet as filters see it.

use crate::Layer;
use crate::fields::Fields;
use narrows_packet::dissect::Keys;

/// A packet that is classified: its frame, what that says, and what has been said of it since.
pub struct Subject<'a> {
    /// The frame.
    frame: &'a [u8],
    /// Where its network layer begins,
    network: u32,
    /// and its transport layer; 0 where there is none.
    transport: u32,
    /// What it is charged for, in bytes: more than the frame where that is cut or a chain.
    len: u32,
    /// Its mark; 0 until somebody sets one.
    mark: u32,
    /// The class that somebody has set, in words of a qdisc: major number above, minor below; 0 for
    /// none.
    pub priority: u32,
    /// What its headers say.
    fields: Fields,
}

impl<'a> Subject<'a> {
    /// `frame`, of which nothing has been said. `None` where not even its Ethernet header is whole.
    #[inline]
    pub fn new(frame: &'a [u8]) -> Option<Self> {
        match Keys::plain(frame) {
            Some(keys) => Some(Self::of(frame, &keys)),
            None => Self::walk(frame),
        }
    }

    #[inline(never)]
    fn walk(frame: &'a [u8]) -> Option<Self> {
        Keys::walk(frame).map(|keys| Self::of(frame, &keys))
    }

    #[inline(always)]
    fn of(frame: &'a [u8], keys: &Keys) -> Self {
        let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        // Headers stand at the beginning of a frame.
        let network = keys.network as u32;
        let transport = keys.ip.map_or(0, |ip| ip.transport as u32);
        Self { frame, network, transport, len, mark: 0, priority: 0, fields: Fields::of(keys) }
    }

    /// The same packet, of which `frame` is the beginning only: it is `len` bytes long.
    #[must_use]
    #[inline]
    pub fn of_len(self, len: u32) -> Self {
        Self { len, ..self }
    }

    /// Its length in bytes, Ethernet header included.
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        u64::from(self.len)
    }

    /// Its mark.
    pub fn mark(&self) -> u32 {
        self.mark
    }

    /// Marks it.
    pub fn set_mark(&mut self, mark: u32) {
        self.mark = mark;
        self.fields.set_mark(mark);
    }

    /// Which class of the qdisc `major` somebody has set; 0 for none.
    #[inline]
    pub(crate) fn class_of_qdisc(&self, major: u32) -> u32 {
        if self.priority >> 16 == major { self.priority & 0xffff } else { 0 }
    }

    /// Its priority, 0 to 15: the one that somebody has set, or else what its headers say. One that
    /// is a class of some other qdisc is none, as in the kernel.
    pub(crate) fn skb_priority(&self) -> u8 {
        match self.priority {
            0 => crate::priority(self.frame),
            set if set >> 16 != 0 => 0,
            set => set as u8 & crate::PRIORITY_MASK,
        }
    }

    /// What its headers say, read once more: for filters that are asked one by one.
    pub(crate) fn keys(&self) -> Keys {
        Keys::of(self.frame).unwrap_or_default()
    }

    /// One of the words that its headers are.
    #[inline(always)]
    pub(crate) fn field(&self, place: usize) -> u64 {
        self.fields.word(place)
    }

    /// The four bytes at `offset` from the network layer on, or from the transport layer on where
    /// `is_behind_ip`. `None` where the frame has none there.
    #[inline(always)]
    pub(crate) fn word(&self, offset: i16, is_behind_ip: bool) -> Option<u32> {
        let layer = if is_behind_ip { Layer::Transport } else { Layer::Network };
        let word = self.at(layer, offset)?.first_chunk()?;
        Some(u32::from_be_bytes(*word))
    }

    /// The frame from `offset` behind the beginning of `layer` on.
    #[inline(always)]
    pub(crate) fn at(&self, layer: Layer, offset: i16) -> Option<&'a [u8]> {
        let base = match layer {
            Layer::Link => 0,
            Layer::Network => self.network as usize,
            Layer::Transport if self.transport == 0 => return None,
            Layer::Transport => self.transport as usize,
        };
        self.frame.get(base.checked_add_signed(isize::from(offset))?..)
    }
}
