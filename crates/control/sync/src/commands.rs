//! The subcommands, a module each, and what they have in common.

pub mod apply;
pub mod common;
pub mod csv;
pub mod http;
pub mod json;
pub mod leases;
pub mod libreqos;
pub mod netbox;
pub mod radius;
pub mod show;
