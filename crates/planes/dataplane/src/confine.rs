//! The privileges that the process keeps once it joins ports, and no others.
//!
//! It confines itself before it joins the ports for the first time. So the start needs the same
//! privileges as everything after it: ports that disappear and come back, bridges, programs,
//! reloads. A missing privilege shows at once and not a week later.
//!
//! In this order, each on its own, so that a kernel without one still has the others:
//!
//! * *capabilities*: all but those of [`capabilities::KEPT`], from the bounding set, too;
//! * *`no_new_privs`*: no program that this one starts gains any;
//! * *files* (Landlock): reads what it needs to, writes its control socket and its state file;
//! * *calls* (seccomp): only the system calls that it needs.
//!
//! *Upgrades.* A process that takes over is started by this one and inherits all of it. It needs
//! the same privileges: capabilities are kept ambient, so it gets them as any user; starting
//! programs is allowed, in any directory. A version that needs more needs a restart.
//!
//! Non-goals: protection from the operator, and from what CAP_BPF and CAP_NET_ADMIN can do
//! themselves.

mod calls;
mod capabilities;
mod files;

pub(crate) use files::Needs;

/// Confines the calling thread, and all threads that it starts later. Must be called while it is
/// the only one. Returns the confinements that failed, a line each.
pub(crate) fn confine(needs: Needs) -> Vec<String> {
    let mut missing = Vec::new();
    missing.extend(capabilities::drop_others().err());
    missing.extend(no_new_privileges().err());
    missing.extend(files::restrict(needs).err());
    missing.extend(calls::restrict().err());
    missing
}

fn no_new_privileges() -> Result<(), String> {
    rustix::thread::set_no_new_privs(true)
        .map_err(|error| format!("programs that it starts may gain privileges: {error}"))
}
