//! The `narrows` command.
fn main() {}
