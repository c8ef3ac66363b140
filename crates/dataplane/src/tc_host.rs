//! A running instance as the host of `tc` commands.
