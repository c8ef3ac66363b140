//! Objects that are compiled for benchmarks, loaded.

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapHandle, ObjectBuilder, OpenObject};
use std::os::fd::{AsFd, OwnedFd};

/// Loads the one program of an object, with its constants, and returns its maps, too.
pub(crate) fn with_maps(bytes: &[u8], constants: &[u64]) -> Result<(OwnedFd, Vec<MapHandle>)> {
    let loaded = opened(bytes, constants)?.load()?;
    let program = loaded.progs().next().context("no program")?;
    let maps = loaded.maps().map(|map| MapHandle::try_from(&map)).collect::<Result<_, _>>()?;
    Ok((program.as_fd().try_clone_to_owned()?, maps))
}

/// An object with its constants, which is not loaded yet.
pub(crate) fn opened(bytes: &[u8], constants: &[u64]) -> Result<OpenObject> {
    let mut open = ObjectBuilder::default().open_memory(bytes)?;
    if !constants.is_empty() {
        let mut maps = open.maps_mut();
        let rodata = maps.find(|map| map.name().to_string_lossy().ends_with(".rodata"));
        let bytes: Vec<u8> = constants.iter().flat_map(|it| it.to_ne_bytes()).collect();
        rodata.context("no constants")?.set_initial_value(&bytes)?;
    }
    Ok(open)
}

/// The map of that name.
pub(crate) fn map<'a>(maps: &'a [MapHandle], name: &str) -> Result<&'a MapHandle> {
    let found = maps.iter().find(|map| map.name() == name);
    found.with_context(|| format!("no map {name}"))
}
