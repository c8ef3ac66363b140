//! The memory of images that programs read: `programs/image.h`.
//!
//! A chunk is a map with one value, which this process has mapped. An image has adjacent ones in an
//! array of maps. It is laid out before anything leads to it, and goes back once nobody reads it.

use crate::mapped::{Mapped, Region};
use crate::maps::{map_of_maps, put};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use narrows_image::{CHUNK_WORDS, Memory};
use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// `CHUNKS_MAX` and `SPARE_WORDS` of `programs/image.h`.
const CHUNKS_MAX: u32 = 4096;
const SPARE_WORDS: usize = 512;
/// The bytes that all images together may take.
pub(crate) const IMAGES_BYTES_MAX: usize = CHUNKS_MAX as usize * CHUNK_WORDS * 8;
/// The free words of a new image, in addition to a quarter of its words.
const ROOM_WORDS: usize = 16_384;
/// The chunks per system call; each has a descriptor until then.
const CHUNKS_AT_ONCE: usize = 64;

/// Memory for images.
pub(crate) struct ChunkTable {
    map: MapHandle,
    /// Instead of a chunk that nothing leads to.
    blank: Mapped<AtomicU64>,
    /// Used chunks: how many from which on.
    used: BTreeMap<u32, u32>,
}

/// The memory of one image.
pub(crate) struct Chunks {
    /// The number of the first; the others follow.
    pub(crate) first: u32,
    chunks: Vec<Region<AtomicU64>>,
}

/// An image cannot be stored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChunkError {
    #[error(transparent)]
    Map(#[from] libbpf_rs::Error),
    #[error("all images together take more than {} MiB", IMAGES_BYTES_MAX >> 20)]
    TooLarge,
}

impl ChunkTable {
    /// Makes the map `name`.
    pub(crate) fn new(name: &str) -> Result<Self, libbpf_rs::Error> {
        let blank = chunk()?;
        let map = map_of_maps(name, blank.map(), CHUNKS_MAX)?;
        Ok(Self { map, blank, used: BTreeMap::new() })
    }

    /// The map, for programs.
    pub(crate) fn map(&self) -> &MapHandle {
        &self.map
    }

    /// Memory for an image of `words` words, and for changes.
    pub(crate) fn allocate(&mut self, words: usize) -> Result<Chunks, ChunkError> {
        let count = (words + words / 4 + ROOM_WORDS).div_ceil(CHUNK_WORDS);
        let first = self.room(count as u32).ok_or(ChunkError::TooLarge)?;
        let mut chunks = Chunks { first, chunks: Vec::with_capacity(count) };
        let numbers: Vec<u32> = (first..first + count as u32).collect();
        for numbers in numbers.chunks(CHUNKS_AT_ONCE) {
            let mapped: Vec<_> = numbers.iter().map(|_| chunk()).collect::<Result<_, _>>()?;
            put_all(&self.map, numbers, mapped.iter().map(Mapped::map))?;
            chunks.chunks.extend(mapped.into_iter().map(Mapped::into_region));
        }
        self.used.insert(first, count as u32);
        Ok(chunks)
    }

    /// Waits until no program reads what nothing leads to any more.
    pub(crate) fn wait_for_readers(&self) -> Result<(), libbpf_rs::Error> {
        // The kernel does so when it replaces a map. The last one is never used.
        put(&self.map, CHUNKS_MAX - 1, self.blank.map())
    }

    /// Takes `chunks` back, which nobody reads.
    pub(crate) fn free(&mut self, chunks: Chunks) -> Result<(), libbpf_rs::Error> {
        let numbers: Vec<u32> = chunks.numbers().collect();
        // All at once; the kernel would wait for readers after each deletion.
        put_all(&self.map, &numbers, numbers.iter().map(|_| self.blank.map()))?;
        self.used.remove(&chunks.first);
        Ok(())
    }

    /// The first of `count` adjacent chunks that are free.
    fn room(&self, count: u32) -> Option<u32> {
        let mut first = 0;
        for (begin, len) in &self.used {
            if begin - first >= count {
                break;
            }
            first = begin + len;
        }
        (first + count < CHUNKS_MAX).then_some(first)
    }
}

impl Chunks {
    fn numbers(&self) -> Range<u32> {
        self.first..self.first + self.chunks.len() as u32
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        &self.chunks[at / CHUNK_WORDS][at % CHUNK_WORDS]
    }
}

impl Memory for Chunks {
    fn len(&self) -> usize {
        self.chunks.len() * CHUNK_WORDS
    }

    fn read(&self, at: usize) -> u64 {
        self.word(at).load(Relaxed)
    }

    fn write(&mut self, at: usize, word: u64) {
        self.word(at).store(word, Relaxed);
    }

    fn publish(&mut self, at: usize, word: u64) {
        // After the words that it leads to. The program reads them through it (address dependency).
        self.word(at).store(word, Release);
    }
}

/// Replaces the maps `numbers` of `outer` by `inner`. Readers of the old ones are done on return.
fn put_all<'a>(
    outer: &MapHandle,
    numbers: &[u32],
    inner: impl Iterator<Item = &'a MapHandle>,
) -> Result<(), libbpf_rs::Error> {
    let keys: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    let fds: Vec<u8> = inner.flat_map(|map| map.as_fd().as_raw_fd().to_ne_bytes()).collect();
    outer.update_batch(&keys, &fds, numbers.len() as u32, MapFlags::ANY, MapFlags::ANY)
}

/// A chunk, `struct image_chunk` of `programs/image.h`.
fn chunk() -> Result<Mapped<AtomicU64>, libbpf_rs::Error> {
    // The name in older versions.
    Mapped::of_one_value("painting", CHUNK_WORDS + SPARE_WORDS)
}
