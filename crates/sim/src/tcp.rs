//! Closed-loop traffic.
