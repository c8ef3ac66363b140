//! Sets of addresses: what is in one is dropped in the driver, before any worker sees it.

use crate::setup::{NARROWS, Turns as _, assert_balanced, run, shared_turn, show};
