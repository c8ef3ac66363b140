//! The traces of a scenario: files, or the model of bursty traffic, each read once.

use narrows_trace::{Bursty, Trace};
use narrows_units::{Nanos, Rate};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

/// The name of the model.
const BURSTY: &str = "bursty";

/// All that a scenario has named.
#[derive(Default)]
pub(super) struct Traces(RefCell<BTreeMap<String, Arc<Trace>>>);

impl Traces {
    /// The trace `name`, to be played at `load` for `length`. The model follows from `seed` and has
    /// that rate; a file has its own where none is given.
    ///
    /// # Errors
    /// There is none, or no rate for the model; and what to write instead.
    pub(super) fn get(
        &self,
        name: &str,
        load: Option<Rate>,
        length: Nanos,
        seed: u64,
    ) -> Result<(Arc<Trace>, Rate), String> {
        let made = |key: String, make: &dyn Fn() -> Result<Trace, String>| {
            if let Some(known) = self.0.borrow().get(&key) {
                return Ok(Arc::clone(known));
            }
            let trace = Arc::new(make()?);
            self.0.borrow_mut().insert(key, Arc::clone(&trace));
            Ok::<_, String>(trace)
        };
        if name == BURSTY {
            let load = load.ok_or("it needs a rate: write load = \"90%\"")?;
            let trace = made(format!("{name} {load:?} {length:?} {seed}"), &|| {
                Trace::bursty(Bursty { rate: load, length, seed })
                    .map_err(|why| format!("at {load} within {length}: {why}"))
            })?;
            return Ok((trace, load));
        }
        let trace = made(name.to_owned(), &|| {
            let file = File::open(name).map_err(|why| {
                format!("{name}: {why}: write the name of a capture file, or \"{BURSTY}\"")
            })?;
            Trace::read(file).map_err(|why| format!("{name}: {why}"))
        })?;
        let rate = load.unwrap_or_else(|| trace.rate());
        Ok((trace, rate))
    }
}
