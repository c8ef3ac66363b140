//! Routes as programs look them up: `programs/fib.h`.
//!
//! All programs of a router share one [`RouteTables`], which follows a [`Mirror`] of the kernel's
//! routes. A change of a few prefixes is made in place. What needs more room is laid out anew
//! beside the old image, and replaces it with one word. So no packet meets half of a change.
//!
//! *Order.* A next hop is written before an image leads to it. An image that is not
//! [sure](Mirror::is_sure) is said to be in doubt first: the programs ask the kernel then, and take
//! nothing from it but realms.
//!
//! Non-goals: the meaning of routes (`crates/core/routes`); listening to the kernel.

use crate::chunks::{ChunkError, ChunkTable, Chunks};
use crate::load::{LoadError, explained};
use crate::mapped::{Mapped, SharedHop};
use narrows_forwarding::{Tag, TagProtocol};
use narrows_image::{Full, Memory};
use narrows_routes::image::Layout;
use narrows_routes::{Attributes, Changed, Family, Hop, Mirror, Number};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Of the first word of `struct hop` of `programs/fib.h`.
const HOP_IS_KNOWN: u64 = 1 << 63;
const HOP_PORT_SHIFT: u32 = 32;
/// 16 bits of it count changes.
const HOP_CHANGES_SHIFT: u32 = 40;

/// Of a root.
const ROOT_BITS_SHIFT: u32 = 32;
/// `IS_IN_DOUBT` of `programs/fib.h`.
const IS_IN_DOUBT: u64 = 1 << 63;

/// Routes cannot be put where programs look them up.
#[derive(Debug, thiserror::Error)]
pub enum RoutesError {
    /// The kernel does not make the maps.
    #[error("the kernel offers no room for routes: {0}")]
    Load(LoadError),
    /// One of them cannot be made or written.
    #[error("the routes cannot be put where packets are looked up: {0}")]
    Map(#[from] libbpf_rs::Error),
    /// All of them together are too large.
    #[error("there are too many routes: {0}")]
    TooMany(String),
}

impl From<ChunkError> for RoutesError {
    fn from(error: ChunkError) -> Self {
        match error {
            ChunkError::Map(error) => Self::Map(error),
            error @ ChunkError::TooLarge => Self::TooMany(error.to_string()),
        }
    }
}

/// The maps in which the programs of a router look up routes.
pub struct RouteTables {
    roots: Mapped<AtomicU64>,
    chunks: ChunkTable,
    hops: Mapped<SharedHop>,
    /// By family.
    images: [Option<(Layout, Chunks)>; 2],
}

impl RouteTables {
    /// Makes the maps. Programs ask the kernel until [`follow`](Self::follow).
    ///
    /// # Errors
    /// If the kernel refuses them: for lack of privileges or memory.
    pub fn new() -> Result<Self, RoutesError> {
        let make = || {
            Ok(Self {
                roots: Mapped::new("fib_roots", Family::ALL.len())?,
                chunks: ChunkTable::new("fib_chunks")?,
                hops: Mapped::new("fib_hops", Number::COUNT)?,
                images: [None, None],
            })
        };
        explained(make).map_err(RoutesError::Load)
    }

    /// The maps, in the order in which `programs/fib.h` has them: for programs that look routes up.
    pub fn maps(&self) -> [BorrowedFd<'_>; 3] {
        [self.roots.map().as_fd(), self.chunks.map().as_fd(), self.hops.map().as_fd()]
    }

    /// Makes look-ups find what `mirror` has.
    ///
    /// # Errors
    /// If there is no room. Then the programs ask the kernel for all routes of that family.
    pub fn follow(&mut self, mirror: &mut Mirror) -> Result<(), RoutesError> {
        for family in Family::ALL.into_iter().filter(|family| !mirror.is_sure(*family)) {
            self.lead(family, mirror);
        }
        let Changed { hops, prefixes } = mirror.take_changed();
        for (number, hop, attributes) in hops {
            self.hops[number.index()].set(hop, attributes);
        }
        let mut outcome = Ok(());
        for (family, prefixes) in Family::ALL.into_iter().zip(prefixes) {
            let image = self.images[family as usize].as_mut();
            let followed = match (image, prefixes) {
                (Some(_), Some(prefixes)) if prefixes.is_empty() => Ok(()),
                (Some((layout, chunks)), Some(prefixes)) => {
                    mirror.update(layout, &prefixes, chunks)
                }
                // It is laid out once it is listed.
                (None, Some(_)) => Ok(()),
                (_, None) => Err(Full),
            };
            if followed == Err(Full)
                && let Err(error) = self.renew(family, mirror)
            {
                outcome = Err(error);
            }
            self.lead(family, mirror);
        }
        outcome
    }

    /// What a program finds for `address`, whose bits are those from the highest of 128 on: the
    /// number in the array of next hops, and the next hop. None while there is no image.
    pub fn find(&self, family: Family, address: u128) -> Option<(Number, Option<Hop>)> {
        let (layout, chunks) = self.images[family as usize].as_ref()?;
        let root = self.roots[family as usize].load(Relaxed);
        if root == 0 || root & IS_IN_DOUBT != 0 {
            return None;
        }
        let number = match (layout.find(chunks, address), family) {
            (Number::DEFAULT, Family::V6) => Number::DEFAULT_V6,
            (number, _) => number,
        };
        Some((number, self.hops[number.index()].get()))
    }

    /// The bytes that the image of `family` takes.
    pub fn bytes(&self, family: Family) -> usize {
        let image = self.images[family as usize].as_ref();
        image.map_or(0, |(_, chunks)| chunks.len() * size_of::<u64>())
    }

    /// Lays the routes of `family` out anew, out of packets' sight.
    fn renew(&mut self, family: Family, mirror: &Mirror) -> Result<(), RoutesError> {
        // A failure leaves none.
        let before = self.images[family as usize].take();
        let renewed = self.laid_out(family, mirror);
        // It leads to the new one.
        let root = renewed.as_ref().map_or(0, |image| root_of(image, mirror.is_sure(family)));
        self.root(family, root);
        if let Some((_, chunks)) = before {
            self.chunks.wait_for_readers()?;
            self.chunks.free(chunks)?;
        }
        self.images[family as usize] = Some(renewed?);
        Ok(())
    }

    fn laid_out(
        &mut self,
        family: Family,
        mirror: &Mirror,
    ) -> Result<(Layout, Chunks), RoutesError> {
        let mut chunks = self.chunks.allocate(mirror.size(family))?;
        match mirror.lay_out(family, &mut chunks) {
            Ok(layout) => Ok((layout, chunks)),
            // It has just been measured.
            Err(Full) => {
                self.chunks.free(chunks)?;
                let error = io::Error::from(io::ErrorKind::OutOfMemory);
                Err(RoutesError::Map(error.into()))
            }
        }
    }

    /// Leads programs to the image of `family`, if there is one.
    fn lead(&self, family: Family, mirror: &Mirror) {
        let image = self.images[family as usize].as_ref();
        self.root(family, image.map_or(0, |image| root_of(image, mirror.is_sure(family))));
    }

    /// Leads programs to the image of `family` with that [root](root_of); to none with 0.
    fn root(&self, family: Family, root: u64) {
        self.roots[family as usize].store(root, Release);
    }
}

/// What leads programs to an image: its first chunk, and one more, and the bits of an address that
/// the first read takes; then whether it is sure.
fn root_of((layout, chunks): &(Layout, Chunks), is_sure: bool) -> u64 {
    let doubt = if is_sure { 0 } else { IS_IN_DOUBT };
    doubt | u64::from(layout.first_bits()) << ROOT_BITS_SHIFT | u64::from(chunks.first + 1)
}

impl SharedHop {
    /// What a program reads.
    fn get(&self) -> Option<Hop> {
        let how = self.how.load(Relaxed);
        let words = self.words.each_ref().map(|word| word.load(Relaxed).to_ne_bytes());
        let bytes = words.concat();
        Some(Hop {
            port: (how >> HOP_PORT_SHIFT) as u8,
            tag: tag_of(*bytes.last_chunk()?),
            destination: *bytes.first_chunk()?,
            source: *bytes[6..].first_chunk()?,
            mtu: how as u32,
        })
        .filter(|_| how & HOP_IS_KNOWN != 0)
    }

    /// Becomes `hop`, none if the kernel has to be asked, for routes with `attributes`.
    fn set(&self, hop: Option<Hop>, Attributes { realms, metric }: Attributes) {
        let attributes = u64::from(metric) << 32 | u64::from(realms);
        if self.attributes.load(Relaxed) != attributes {
            self.attributes.store(attributes, Release);
        }
        let now = self.how.load(Relaxed);
        let changes = u64::from((now >> HOP_CHANGES_SHIFT) as u16);
        let changed = u64::from((changes as u16).wrapping_add(1)) << HOP_CHANGES_SHIFT;
        let Some(Hop { port, tag, destination, source, mtu }) = hop else {
            if now & HOP_IS_KNOWN != 0 {
                self.how.store(changed, Release);
            }
            return;
        };
        let how = HOP_IS_KNOWN | u64::from(port) << HOP_PORT_SHIFT | u64::from(mtu);
        let bytes = [&destination[..], &source, &tag.map_or([0; 4], bytes_of)].concat();
        let words = [0, 8]
            .map(|at| bytes[at..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes)));
        let before = self.words.each_ref().map(|word| word.load(Relaxed));
        if (now, before) == (how | changes << HOP_CHANGES_SHIFT, words) {
            return;
        }
        // No program begins with one that is half written, and one that has begun sees another
        // number of changes at its end.
        self.how.store(changed, Release);
        for (word, new) in self.words.iter().zip(words) {
            word.store(new, Release);
        }
        self.how.store(how | changed, Release);
    }
}

/// `struct tag` of `programs/tag.h`.
pub(crate) fn bytes_of(tag: Tag) -> [u8; 4] {
    let [[a, b], [c, d]] = [tag.protocol().ethertype(), tag.vid()].map(u16::to_be_bytes);
    [a, b, c, d]
}

fn tag_of([a, b, c, d]: [u8; 4]) -> Option<Tag> {
    let protocols = [TagProtocol::Customer, TagProtocol::Service];
    let is_it = |protocol: &TagProtocol| protocol.ethertype().to_be_bytes() == [a, b];
    Tag::new(protocols.into_iter().find(is_it)?, u16::from_be_bytes([c, d]))
}
