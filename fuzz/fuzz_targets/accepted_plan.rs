//! Any bytes as commands, packets and changes under load.
//!
//! What `tc` accepts of the commands must be in force: no panic, no recursion or memory without
//! bound, no class above its ceiling, and books that balance. `crates/lab/sim/src/accepted.rs` says
//! how bytes choose commands, and what is checked. With `COMMANDS=1` in the environment they are
//! printed.

#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_sim::accepted::{script, trial};

fuzz_target!(|bytes: &[u8]| {
    if std::env::var_os("COMMANDS").is_some() {
        eprintln!("{}", script(bytes));
    }
    trial(bytes);
});
