//! Hashes of hosts and flows.
//!
//! The building block is a 64 by 64 bit multiplication whose upper half is folded onto the lower
//! one, as in wyhash and its descendants: two instructions, after which every bit of the input
//! affects nearly every bit of the output. Two of them in a row are a good hash. Hosts are hashed
//! first, and the flow from their hashes. So three hashes cost six multiplications, four of which
//! run in parallel.
//!
//! It is written here because the inputs have a fixed size. Behind the `Hasher` interface of the
//! existing crates (foldhash, rapidhash), each would be a stream that is buffered and finished by
//! itself, and their hashes may change between versions.
//!
//! Non-goals: secrecy against an observer of hashes; no outsider can observe them.

use super::bytes::chunk;
use super::network::Packet;

/// The key that makes the hashes of two processes differ.
#[derive(Clone, Copy)]
pub(super) struct Key {
    v4: [u64; 2],
    v6: [u64; 3],
    mac: [u64; 2],
    tail: [u64; 2],
    short: [u64; 2],
}

/// The product of both, its upper half folded onto the lower one.
#[inline]
const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    (product as u64) ^ ((product >> 64) as u64)
}

impl Key {
    /// Derives all constants from one number with SplitMix64.
    pub(super) fn new(key: u64) -> Self {
        let mut state = key;
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            // Odd, so that no multiplication loses bits.
            (z ^ (z >> 31)) | 1
        };
        Self {
            v4: [next(), next()],
            v6: [next(), next(), next()],
            mac: [next(), next()],
            tail: [next(), next()],
            short: [next(), next()],
        }
    }

    /// The hashes of both hosts of `packet`, to be shortened or combined into a flow.
    #[inline]
    pub(super) fn hosts(&self, frame: &[u8], packet: &Packet) -> [u64; 2] {
        // A parsed packet has its addresses within the frame, so this never hashes missing bytes.
        if packet.is_v6 {
            self.hosts_v6(chunk(frame, packet.at + 8).unwrap_or(&[0; 32]))
        } else {
            self.hosts_v4(chunk(frame, packet.at + 12).unwrap_or(&[0; 8]))
        }
    }

    /// The hashes of two hosts whose addresses are adjacent, as in an IPv4 header.
    #[inline]
    pub(super) fn hosts_v4(&self, addresses: &[u8; 8]) -> [u64; 2] {
        let both = u64::from_be_bytes(*addresses);
        [self.v4((both >> 32) as u32), self.v4(both as u32)]
    }

    /// The hashes of two hosts whose addresses are adjacent, as in an IPv6 header.
    #[inline]
    pub(super) fn hosts_v6(&self, addresses: &[u8; 32]) -> [u64; 2] {
        let [a, b, c, d] = eights(addresses);
        [self.v6(a, b), self.v6(c, d)]
    }

    #[inline]
    fn v4(&self, address: u32) -> u64 {
        fold(u64::from(address) ^ self.v4[0], self.v4[1])
    }

    #[inline]
    fn v6(&self, upper: u64, lower: u64) -> u64 {
        let upper = fold(upper ^ self.v6[0], self.v6[1]);
        fold(lower ^ upper, self.v6[2])
    }

    /// The hash of a MAC address.
    #[inline]
    pub(super) fn station(&self, [a, b, c, d, e, f]: [u8; 6]) -> u64 {
        fold(u64::from_be_bytes([0, 0, a, b, c, d, e, f]) ^ self.mac[0], self.mac[1])
    }

    /// The short hash of a host.
    #[inline]
    pub(super) fn short(&self, host: u64) -> u32 {
        fold(host ^ self.short[0], self.short[1]) as u32
    }

    /// The hash of the flow from `source` to `destination`, which are hashes themselves.
    #[inline]
    pub(super) fn flow(&self, source: u64, destination: u64, protocol: u8, ports: u32) -> u64 {
        let tail = u64::from(protocol) << 32 | u64::from(ports);
        let tail = fold(tail ^ self.tail[0], self.tail[1]);
        // Rotated, so that the opposite direction is another flow.
        fold(source ^ self.short[1], destination.rotate_left(32) ^ tail)
    }
}

/// Four numbers of eight bytes.
#[inline]
fn eights(bytes: &[u8; 32]) -> [u64; 4] {
    let (eights, _) = bytes.as_chunks();
    [0, 1, 2, 3].map(|index| u64::from_be_bytes(eights[index]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often each of 32 bits of `hash` changes with one bit of the input: the minimum and
    /// maximum over all pairs, for 4096 consecutive inputs.
    fn avalanche(bits: u32, hash: impl Fn(u64) -> u32) -> (u32, u32) {
        let mut flips = vec![[0_u32; 32]; bits as usize];
        for input in 0..4096 {
            let before = hash(input);
            for (bit, flips) in (0..bits).zip(&mut flips) {
                let changed = before ^ hash(input ^ 1 << bit);
                for (place, count) in flips.iter_mut().enumerate() {
                    *count += changed >> place & 1;
                }
            }
        }
        let all = || flips.iter().flatten().copied();
        (all().min().unwrap(), all().max().unwrap())
    }

    fn mac(number: u64) -> [u8; 6] {
        let [_, _, mac @ ..] = number.to_be_bytes();
        mac
    }

    #[test]
    fn every_bit_of_the_input_changes_every_bit_of_the_hash_about_every_second_time() {
        for seed in [0, 1, 0xdead_beef, u64::MAX] {
            let key = Key::new(seed);
            let v4 = |input: u64| key.v4(input as u32);
            let host = v4(0x0a00_0001);
            let results = [
                avalanche(32, |input| key.short(v4(input))),
                avalanche(64, |input| key.short(key.v6(input, 1))),
                avalanche(64, |input| key.short(key.v6(1, input))),
                avalanche(48, |input| key.short(key.station(mac(input)))),
                avalanche(32, |input| key.flow(v4(input), host, 6, 80) as u32),
                avalanche(32, |input| key.flow(host, v4(input), 6, 80) as u32),
                avalanche(32, |ports| key.flow(host, host, 6, ports as u32) as u32),
            ];
            for (which, (least, most)) in results.into_iter().enumerate() {
                assert!(
                    least > 2048 - 250 && most < 2048 + 250,
                    "hash {which} of key {seed}: {least} to {most} times of 4096"
                );
            }
        }
    }

    #[test]
    fn addresses_of_different_sorts_hash_differently() {
        let key = Key::new(3);
        let hosts = [key.v4(1), key.v6(0, 1), key.v6(1, 0), key.station(mac(1))]
            .map(|host| key.short(host));
        for (index, host) in hosts.iter().enumerate() {
            assert!(!hosts[..index].contains(host), "{hosts:x?}");
        }
    }
}
