//! The kernel's maps: how they are made, and how what CPUs count in them is read.
//!
//! Non-goals: maps whose values this process has in its memory ([`Mapped`](crate::mapped::Mapped));
//! what is in them.

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, libbpf_sys};
use std::os::fd::{AsFd, AsRawFd};

/// A map with keys and values of so many bytes, for so many entries.
pub(crate) fn map(
    kind: MapType,
    name: &str,
    sizes: [u32; 3],
    flags: u32,
) -> libbpf_rs::Result<MapHandle> {
    create(kind, name, sizes, flags, None)
}

/// An array of `max` maps like `inner`.
pub(crate) fn map_of_maps(name: &str, inner: &MapHandle, max: u32) -> libbpf_rs::Result<MapHandle> {
    create(MapType::ArrayOfMaps, name, [4, 4, max], 0, Some(inner))
}

fn create(
    kind: MapType,
    name: &str,
    [key, value, entries]: [u32; 3],
    map_flags: u32,
    inner: Option<&MapHandle>,
) -> libbpf_rs::Result<MapHandle> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        map_flags,
        inner_map_fd: inner.map_or(0, |inner| inner.as_fd().as_raw_fd() as u32),
        ..Default::default()
    };
    MapHandle::create(kind, Some(name), key, value, entries, &options)
}

/// Replaces the map `number` of `outer` by `inner`. Readers of the old one are done on return.
pub(crate) fn put(outer: &MapHandle, number: u32, inner: &MapHandle) -> libbpf_rs::Result<()> {
    let fd = inner.as_fd().as_raw_fd();
    outer.update(&number.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
}

/// The value `number` of `map` on each CPU: on all that there may be.
pub(crate) fn by_cpu(map: &impl MapCore, number: u32) -> libbpf_rs::Result<Vec<Vec<u8>>> {
    Ok(map.lookup_percpu(&number.to_ne_bytes(), MapFlags::ANY)?.unwrap_or_default())
}

/// The sums over all CPUs of the 64-bit words of the value `number` of `map`.
pub(crate) fn sums_in<const N: usize>(
    map: &impl MapCore,
    number: u32,
) -> libbpf_rs::Result<[u64; N]> {
    Ok(sums(&by_cpu(map, number)?))
}

/// The sums of the 64-bit words of values, one of each CPU. Missing words are 0.
pub(crate) fn sums<const N: usize>(per_cpu: &[Vec<u8>]) -> [u64; N] {
    let mut sums = [0u64; N];
    for value in per_cpu {
        for (sum, word) in sums.iter_mut().zip(value.as_chunks().0) {
            *sum = sum.wrapping_add(u64::from_ne_bytes(*word));
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_all_cpus_are_added_up() {
        let cpu = |a: u64, b: u64| [a.to_ne_bytes(), b.to_ne_bytes()].concat();
        assert_eq!(sums::<2>(&[cpu(1, 2), cpu(10, 20)]), [11, 22]);
        assert_eq!(sums::<2>(&[]), [0, 0]);
    }
}
