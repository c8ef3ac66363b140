//! The interrupt key (Ctrl-C) during a long run: it ends after the measurement that runs, and
//! prints what there is.
//!
//! The first interrupt is noted, and a run in steps looks at it between them
//! ([`Progress::is_over`](crate::progress::Progress::is_over)). The second one ends the program as
//! it would without this, and the [guard](crate::guard) cleans up. Children are started in process
//! groups of their own, where the key does not reach them; otherwise it would ruin the measurement.

use anyhow::{Context, Result};
use signal_hook::consts::SIGINT;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Interrupts that are closer together count as one: `timeout` sends it to a program and to its
/// group.
const ONE: Duration = Duration::from_millis(200);

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// From now on the first interrupt is noted. To be called once, by a command that looks at it.
pub fn watch() -> Result<()> {
    let mut interrupts = Signals::new([SIGINT]).context("cannot watch for SIGINT")?;
    thread::spawn(move || {
        let mut first: Option<Instant> = None;
        for interrupt in &mut interrupts {
            match first {
                None => {
                    first = Some(Instant::now());
                    REQUESTED.store(true, Ordering::Relaxed);
                    eprintln!("\nending after this measurement; Ctrl-C again ends at once");
                }
                Some(first) if first.elapsed() < ONE => {}
                Some(_) => drop(emulate_default_handler(interrupt)),
            }
        }
    });
    Ok(())
}

/// Whether there was an interrupt.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}
