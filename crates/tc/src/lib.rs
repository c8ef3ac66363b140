//! The tc grammar.
