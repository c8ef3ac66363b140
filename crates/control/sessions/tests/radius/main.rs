//! Accounting, CoA and Disconnect, from the datagram to the subscriber.

mod common;
mod configuration;
mod model;
mod packets;
mod radclient;
