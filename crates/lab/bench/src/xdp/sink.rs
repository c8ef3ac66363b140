//! Where live frames arrive: a program that counts them and drops them.

use super::object::{map, opened};
use super::shape::Shape;
use anyhow::{Context, Result, ensure};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};
use std::thread::sleep;
use std::time::Duration;

pub(super) const SINK: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sink.bpf.o"));
/// How long frames may take that are on their way when the last one has left.
const LINGERS: Duration = Duration::from_millis(20);

/// The maps of the one program in `object`, and its link, at an interface.
pub(super) fn attached(object: &[u8], interface: u32) -> Result<(Vec<MapHandle>, Link)> {
    attached_with(object, &[], interface, |_| Ok(()))
}

/// The same with `constants`, and with maps that `fill` fills in before frames arrive.
pub(super) fn attached_with(
    object: &[u8],
    constants: &[u64],
    interface: u32,
    fill: impl FnOnce(&[MapHandle]) -> Result<()>,
) -> Result<(Vec<MapHandle>, Link)> {
    let object = opened(object, constants)?.load()?;
    let maps: Vec<MapHandle> =
        object.maps().map(|map| MapHandle::try_from(&map)).collect::<Result<_, _>>()?;
    fill(&maps)?;
    let program = object.progs_mut().next().context("no program")?;
    Ok((maps, program.attach_xdp(i32::try_from(interface)?)?))
}

/// A program at the receiving port that counts frames and drops them.
pub(super) struct Sink {
    maps: Vec<MapHandle>,
    _link: Link,
}

impl Sink {
    /// Attaches it to an interface.
    pub(super) fn attach(interface: u32) -> Result<Self> {
        let (maps, link) = attached(SINK, interface).context("the sink")?;
        Ok(Self { maps, _link: link })
    }

    /// How many frames have arrived.
    pub(super) fn frames(&self) -> Result<u64> {
        let frames = map(&self.maps, "frames")?;
        let slots = frames.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY)?;
        let slots = slots.unwrap_or_default();
        let of = |slot: &Vec<u8>| slot.as_slice().try_into().map_or(0, u64::from_ne_bytes);
        Ok(slots.iter().map(of).sum())
    }

    /// Demands that of `sent` frames on each CPU all have arrived since there were `before`, or at
    /// least one where a rate is exceeded.
    pub(super) fn judge(&self, shape: Shape, before: u64, sent: u64) -> Result<()> {
        sleep(LINGERS);
        let arrived = self.frames()? - before;
        let sent = sent * shape.cpus as u64;
        let is_right = if shape.bound { (1..sent).contains(&arrived) } else { arrived == sent };
        ensure!(is_right, "{shape}: {arrived} of {sent} frames have arrived");
        Ok(())
    }
}
