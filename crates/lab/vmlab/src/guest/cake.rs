//! Linux's CAKE beside Narrows': the same load through each, one after the other.
//!
//! ```text
//!   client ══ port-a │ bridge, cake on port-b │ port-b ══ server: 20 ms before it sends
//!   client ══ port-a │ narrows, 1 queue       │ port-b ══ server
//!   client ══ port-a │ narrows, 4 queues      │ port-b ══ server
//! ```
//!
//! All three exist for the whole time, each in namespaces of its own, and one of them has traffic.
//! The destination port determines the queue of a frame, at the client's device for Narrows, and
//! also at port B for the bridge: port modulo 4. So `cake_mq` and Narrows have the same flows on
//! the same queues.

mod load;
mod netlink;
mod path;
mod round_trips;

use crate::cake::{Load, ROUNDS, Rows, Sample, shown};
use anyhow::{Context, Result};
use path::Paths;

/// Measures `rows`, and passes each sample to `said`.
pub fn run(rows: &Rows, mut said: impl FnMut(Sample) -> Result<()>) -> Result<()> {
    let beds = path::beds()?;
    let paths = Paths::over(&beds)?;
    for round in 0..ROUNDS {
        for load in Load::ALL.into_iter().filter(|load| round < load.rounds()) {
            for limit in load.limits().iter().filter(|limit| rows.have(load, **limit)) {
                for system in load.systems().iter().filter(|system| rows.want(**system)) {
                    let what = || format!("{}, {}, {}", load.name(), shown(*limit), system.name());
                    let bed = paths.shape(*system, *limit, load).with_context(what)?;
                    let figures = load::measure(bed, load, *limit, round).with_context(what)?;
                    said(Sample { load, limit: *limit, system: *system, round, figures })?;
                }
            }
        }
    }
    Ok(())
}
