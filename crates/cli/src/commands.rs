//! One module for each command, and what they share.

pub mod bench;
pub mod chaos;
pub mod demo;
pub mod doctor;
pub mod reconfigure;
mod report;
pub mod run;
pub mod show;
pub mod sim;
pub mod tc;
pub mod upgrade;
