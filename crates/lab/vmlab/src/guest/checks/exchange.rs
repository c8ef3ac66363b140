//! Another program or process takes the place of the present one while pings pass.

use super::{HEADERS, Lab, MTU, new_process};
use crate::guest::shaper::narrows;
use crate::guest::traffic::answers;
use anyhow::{Context, Result, ensure};
use std::thread;
use std::time::Duration;

/// How many echo requests are sent while a program or a process comes or goes, in 5 s.
pub(super) const REQUESTS: u32 = 50;
/// When the queues of a flood have drained.
const DRAINED: Duration = Duration::from_secs(1);

/// Does `act` while pings pass. Returns its outcome, and how many were answered.
pub(super) fn under_pings<T>(lab: &Lab, act: impl FnOnce() -> Result<T>) -> Result<(T, u32)> {
    let [client, server] = [lab.client(), lab.server()];
    thread::scope(|scope| {
        let pings = scope.spawn(|| answers(client, server.ip, MTU - HEADERS, REQUESTS));
        let outcome = act();
        let answered = pings.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((outcome?, answered))
    })
}

/// `narrows upgrade`, which loses no ping. Returns the process that has taken over.
///
/// # Errors
/// What the command said if none has.
pub(super) fn take_over(lab: &Lab) -> Result<i32> {
    thread::sleep(DRAINED);
    let (said, answered) = under_pings(lab, || narrows(&["upgrade"]))?;
    ensure!(answered == REQUESTS, "{answered} of {REQUESTS} pings pass an upgrade");
    new_process(&said).with_context(|| format!("no process has taken over: {said}"))
}
