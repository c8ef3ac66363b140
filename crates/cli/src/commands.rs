//! One module for each command, and what they share. Commands that demonstrate and measure need the
//! feature `lab`, which packages leave out.

mod answer;
pub mod balance;
#[cfg(feature = "lab")]
pub mod bench;
pub mod beside;
#[cfg(feature = "lab")]
pub mod chaos;
pub mod complete;
mod cpu_list;
#[cfg(feature = "lab")]
pub mod demo;
pub mod doctor;
pub mod health;
pub mod import;
pub mod joined;
pub mod keep_gates;
pub mod manual;
pub mod reconfigure;
#[cfg(feature = "lab")]
mod report;
pub mod route;
pub mod run;
pub mod set;
pub mod setup;
pub mod show;
#[cfg(feature = "lab")]
pub mod sim;
pub mod status;
pub mod tc;
pub mod top;
pub mod upgrade;
