//! One module for each command.

pub mod bench;
pub mod demo;
pub mod doctor;
pub mod run;
pub mod show;
pub mod tc;
