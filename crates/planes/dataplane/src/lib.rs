//! The data plane: real time, real packets.
//!
//! Two ports are joined over AF_XDP. Each queue pair has a [`Worker`](narrows_shaper::Worker) on a
//! core of its own, which owns its packets, qdiscs and timers; workers share only the limits of the
//! `coordination` layer. An [`Instance`] holds the ports, the policy and the workers together and
//! answers the control socket.
//!
//! From the inside out: `owners` and `frames` (which frames a worker has, and where they are),
//! `xdp_io` (its I/O over AF_XDP), `sizing` (how many frames, and how large), `runner` (a worker in
//! real time), with its `heartbeat` and its `mailbox`, `worker_loop` (a thread that serves one or
//! several), `workers` (all of them), `plane` (what joins two ports, whatever way), `session` (the
//! plane of AF_XDP), `instance` (policy, events, counters), `watch` (reports workers that hang),
//! [`run`] (the process), [`supervisor`] (a process that keeps one for each device of a pattern),
//! `control` (how it serves commands), [`gates`] (ports that it shares with
//! other XDP programs).
//!
//! Non-goals: payload (the kernel side classifies), policy (the layer below), words (`tc`).

mod addresses;
mod bare;
mod bell;
mod beside;
mod carrier;
mod clock;
mod confine;
mod control;
mod counters;
mod descriptors;
mod device;
mod echoes;
mod error;
mod events;
mod frames;
mod front;
mod handoff;
mod heartbeat;
mod ifbs;
mod in_driver;
mod instance;
mod keeper;
mod kept_file;
mod look_ups;
mod mailbox;
mod meter;
mod notify;
mod offloads;
mod options;
mod owners;
mod pause;
mod plane;
mod policy_file;
mod priority;
mod queue;
#[cfg(test)]
mod random;
mod record;
mod refused;
mod reload;
mod routes;
mod routing;
mod runner;
mod seen;
mod services_file;
mod session;
mod sets_file;
mod signals;
mod sizing;
mod slow_path;
mod standby;
mod state;
mod switching;
mod tc_host;
mod upgrades;
mod warnings;
mod watch;
mod ways;
mod work;
mod worker_loop;
mod worker_report;
mod worker_thread;
mod workers;
mod xdp_io;

pub mod gates;
pub mod run;
pub mod supervisor;
pub mod upgrade;

pub use control::PlaceError;
pub use error::{InstanceError, SessionError};
pub use heartbeat::SilentWorker;
pub use instance::{Instance, InstanceOptions};
pub use kept_file::KeptFileError;
pub use options::SessionOptions;
pub use plane::PlaneKind;
pub use policy_file::PolicyFileError;
pub use standby::FailMode;
