//! The lists of a wheel's slots: packets side by side in memory, not scattered.
//!
//! A linked list of packets makes the reader wait for memory at every step: with many packets none
//! of them is in the cache, and no step can begin before the previous one has ended. Here a
//! [`Chain`] is made of [`Chunks`]: a cache line that names up to [`IDS`] packets, and a link to
//! the next line, which is prefetched while the packets of this one are processed. The line that
//! was freed last is used first, so it is usually still in the cache when a slot gets its first
//! packet.
//!
//! Cost: inserting a packet costs two loads and two stores, one of each in the slot; removing it is
//! part of a copy. Memory: a line for each slot that has packets, and one more for every 15.
//!
//! Non-goals: removing packets from the middle, joining chains.

use narrows_cpu::prefetch;
use narrows_packet::{PacketId, Packets};

/// Numbers in a chunk: a cache line of them.
const CELLS: u32 = 16;
/// Packets of a chunk; the number before them is the chunk behind it.
pub(super) const IDS: usize = CELLS as usize - 1;

/// One more packet, in a chain's number.
const ONE: u64 = 1 << 32;

/// The memory of all chains of one wheel.
pub(super) struct Chunks {
    /// The chunks, of which the first means none, and some bytes for alignment at the end.
    cells: Vec<u32>,
    /// Where the first chunk begins, so that each is a cache line.
    offset: usize,
    /// How many were ever used; the first one is.
    used: u32,
    /// The chunk that was freed last; those before it are linked.
    free: u32,
    /// How many chains there can be.
    chains: usize,
}

impl Chunks {
    /// For `chains` chains. Without any memory until there is a packet.
    pub(super) const fn new(chains: usize) -> Self {
        Self { cells: Vec::new(), offset: 0, used: 1, free: 0, chains }
    }

    /// Bytes that were ever used.
    pub(super) const fn memory(&self) -> usize {
        (self.used * CELLS) as usize * size_of::<u32>()
    }

    /// The number at `place`, counted over all chunks.
    #[inline]
    fn at(&mut self, place: u32) -> &mut u32 {
        &mut self.cells[place as usize + self.offset]
    }

    /// The numbers of the chunk `chunk` from `from` up to `to`.
    #[inline]
    fn part(&self, chunk: u32, from: u32, to: u32) -> &[u32] {
        let first = (chunk * CELLS) as usize + self.offset;
        &self.cells[first + from as usize..first + to as usize]
    }

    /// Takes a free chunk.
    #[inline]
    fn take(&mut self, packets: &Packets) -> u32 {
        match self.free {
            0 => self.make(packets),
            chunk => {
                self.free = *self.at(chunk * CELLS);
                chunk
            }
        }
    }

    /// Takes a new chunk. Memory for all that `packets` can ever need is reserved before the first
    /// one; unused memory is not touched.
    #[cold]
    fn make(&mut self, packets: &Packets) -> u32 {
        if self.cells.is_empty() {
            let packets = packets.capacity() as usize;
            // A chain's last chunk may be incomplete, and its first one partly used.
            let chunks = self.used as usize + packets / IDS + 2 * self.chains.min(packets);
            self.cells = vec![0; (chunks + 1) * CELLS as usize];
            let line = CELLS as usize * size_of::<u32>();
            self.offset = self.cells.as_ptr().align_offset(line) % CELLS as usize;
        }
        self.used += 1;
        self.used - 1
    }

    #[inline]
    fn give_back(&mut self, chunk: u32) {
        *self.at(chunk * CELLS) = self.free;
        self.free = chunk;
    }
}

/// Packets of which the first that came is taken first.
///
/// A number, so that a table of many is handed out zeroed by the system, untouched: the place of
/// the first packet, counted over all chunks, and above it that behind the last one. Where that
/// would be a chunk's link, the next packet needs a new chunk. Zero when empty. Two copies must
/// never both be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Chain(pub(super) u64);

impl Chain {
    #[inline]
    const fn new(head: u32, end: u32) -> Self {
        Self((end as u64) << 32 | head as u64)
    }

    #[inline]
    const fn head(self) -> u32 {
        self.0 as u32
    }

    #[inline]
    const fn end(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline]
    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether another packet needs a new chunk: [`Chain::extend`] comes before it then.
    #[inline]
    pub(super) const fn is_full(self) -> bool {
        self.end().is_multiple_of(CELLS)
    }

    /// Appends `id`, which is in no chain, to a chunk with room.
    #[inline]
    pub(super) fn append(&mut self, chunks: &mut Chunks, id: PacketId) {
        *chunks.at(self.end()) = id.0;
        self.0 += ONE;
    }

    /// Adds a chunk behind the last packet. It is full.
    #[inline]
    pub(super) fn extend(&mut self, chunks: &mut Chunks, packets: &Packets) {
        let chunk = chunks.take(packets);
        let first = chunk * CELLS + 1;
        if self.is_empty() {
            *self = Self::new(first, first);
        } else {
            *chunks.at(self.end() - CELLS) = chunk;
            *self = Self::new(self.head(), first);
        }
    }

    /// Appends `id`, which is in no chain.
    #[inline]
    pub(super) fn push_back(&mut self, chunks: &mut Chunks, packets: &Packets, id: PacketId) {
        if self.is_full() {
            self.extend(chunks, packets);
        }
        self.append(chunks, id);
    }

    /// Takes the first packets, as many as are adjacent and there are `places`. Returns their
    /// number. Their metadata is prefetched.
    #[inline]
    pub(super) fn take(
        &mut self,
        chunks: &mut Chunks,
        packets: &Packets,
        places: &mut [PacketId],
    ) -> usize {
        if self.is_empty() {
            return 0;
        }
        let (head, last) = (self.head(), self.end() - 1);
        let (chunk, from) = (head / CELLS, head % CELLS);
        let to = if chunk == last / CELLS { last % CELLS + 1 } else { CELLS };
        let link = *chunks.at(chunk * CELLS);
        prefetch(chunks.at(link * CELLS));
        let mut count = 0;
        for (place, &id) in places.iter_mut().zip(chunks.part(chunk, from, to)) {
            *place = PacketId(id);
            packets.prefetch(Some(PacketId(id)));
            count += 1;
        }
        if count > 0 {
            self.advance(chunks, head + count);
        }
        count as usize
    }

    /// Takes the first packet.
    #[inline]
    pub(super) fn pop_front(&mut self, chunks: &mut Chunks) -> Option<PacketId> {
        if self.is_empty() {
            return None;
        }
        let head = self.head();
        let id = *chunks.at(head);
        self.advance(chunks, head + 1);
        Some(PacketId(id))
    }

    /// All before the place `head` have been taken, and some since the last time, all of one chunk.
    #[inline]
    fn advance(&mut self, chunks: &mut Chunks, head: u32) {
        let end = self.end();
        if head != end && !head.is_multiple_of(CELLS) {
            *self = Self::new(head, end);
            return;
        }
        let chunk = (head - 1) / CELLS;
        let link = *chunks.at(chunk * CELLS);
        *self = if head == end { Self::default() } else { Self::new(link * CELLS + 1, end) };
        chunks.give_back(chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const CHAINS: usize = 5;
    const PACKETS: u32 = 100;

    #[derive(Clone, Debug)]
    enum Step {
        Push { chain: usize, packets: usize },
        Take { chain: usize, places: usize },
        Pop { chain: usize },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..CHAINS, 1_usize..40).prop_map(|(chain, packets)| Step::Push { chain, packets }),
            (0..CHAINS, 0_usize..40).prop_map(|(chain, places)| Step::Take { chain, places }),
            (0..CHAINS).prop_map(|chain| Step::Pop { chain }),
        ]
    }

    proptest! {
        /// The oracles are `VecDeque`s. Chains share all memory, taken packets return, and the
        /// memory reserved for them is enough.
        #[test]
        fn chains_are_queues(steps in prop::collection::vec(step(), 1..200)) {
            let packets = Packets::new(PACKETS);
            let mut chunks = Chunks::new(CHAINS);
            let mut chains = [Chain::default(); CHAINS];
            let mut models = vec![VecDeque::new(); CHAINS];
            let mut free: Vec<PacketId> = (0..PACKETS).map(PacketId).collect();
            for step in steps {
                match step {
                    Step::Push { chain, packets: count } => {
                        for _ in 0..count.min(free.len()) {
                            let id = free.swap_remove(free.len() / 2);
                            chains[chain].push_back(&mut chunks, &packets, id);
                            models[chain].push_back(id);
                        }
                    }
                    Step::Take { chain, places } => {
                        let mut left = vec![PacketId(PACKETS); places];
                        let count = chains[chain].take(&mut chunks, &packets, &mut left);
                        prop_assert_eq!(count == 0, places == 0 || models[chain].is_empty());
                        let model: Vec<PacketId> = models[chain].drain(..count).collect();
                        prop_assert_eq!(&left[..count], &model);
                        free.extend(model);
                    }
                    Step::Pop { chain } => {
                        let popped = chains[chain].pop_front(&mut chunks);
                        prop_assert_eq!(popped, models[chain].pop_front());
                        free.extend(popped);
                    }
                }
                for (chain, model) in chains.iter().zip(&models) {
                    prop_assert_eq!(chain.is_empty(), model.is_empty());
                }
            }
            let most = PACKETS as usize / IDS + 2 * CHAINS + 1;
            prop_assert!(chunks.memory() <= most * 64);
            prop_assert!(chunks.cells.is_empty() || chunks.cells.len() >= (most + 1) * 16);
        }
    }

    #[test]
    fn a_chunk_is_a_cache_line() {
        let packets = Packets::new(PACKETS);
        let mut chunks = Chunks::new(CHAINS);
        let mut chain = Chain::default();
        chain.push_back(&mut chunks, &packets, PacketId(1));
        let link: *const u32 = chunks.at(chain.head() - 1);
        assert_eq!(link.addr() % 64, 0);
    }

    #[test]
    fn the_chunk_freed_last_is_used_first() {
        let packets = Packets::new(PACKETS);
        let mut chunks = Chunks::new(CHAINS);
        for round in 0..1_000 {
            let mut chain = Chain::default();
            chain.push_back(&mut chunks, &packets, PacketId(round % PACKETS));
            assert_eq!(chain.pop_front(&mut chunks), Some(PacketId(round % PACKETS)));
        }
        assert_eq!(chunks.memory(), 2 * 64);
    }
}
