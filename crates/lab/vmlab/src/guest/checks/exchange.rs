//! Another program or process takes the place of the present one while pings pass.

use super::{HEADERS, MTU, new_process};
use crate::guest::bed::End;
use crate::guest::shaper::{self, Shaper, narrows};
use crate::guest::traffic::answers;
use anyhow::{Context, Result, ensure};
use std::thread;
use std::time::Duration;

/// How many echo requests are sent while a program or a process comes or goes, in 5 s.
pub(super) const REQUESTS: u32 = 50;
/// When the queues of a flood have drained.
const DRAINED: Duration = Duration::from_secs(1);

/// Does `act` while pings pass between `ends`. Returns its outcome, and how many were answered.
pub(super) fn under_pings<T>(ends: &[End; 2], act: impl FnOnce() -> Result<T>) -> Result<(T, u32)> {
    let [from, to] = ends;
    thread::scope(|scope| {
        let pings = scope.spawn(|| answers(from, to.ip, MTU - HEADERS, REQUESTS));
        let outcome = act();
        let answered = pings.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((outcome?, answered))
    })
}

/// `narrows upgrade`, which loses no ping between `ends`. Returns the process that has taken over.
///
/// # Errors
/// What the command said if none has.
pub(super) fn take_over(ends: &[End; 2]) -> Result<i32> {
    thread::sleep(DRAINED);
    let (said, answered) = under_pings(ends, || narrows(&["upgrade"]))?;
    ensure!(answered == REQUESTS, "{answered} of {REQUESTS} pings pass an upgrade");
    new_process(&said).with_context(|| format!("no process has taken over: {said}"))
}

/// Checks that `refusal` is that of a kernel on which no process with sockets can take over.
pub(super) fn too_old(refusal: &anyhow::Error) -> Result<()> {
    let refusal = format!("{refusal:#}");
    ensure!(refusal.contains("kernels before Linux 6.4 cannot"), "{refusal}");
    Ok(())
}

/// Lets the same program take over, where it can, and stops it. `pings` pass before and after, and
/// the limit at `port` stays.
pub(super) fn upgrade_or_stop(
    ends: &[End; 2],
    shaper: Shaper,
    port: &str,
    pings: impl Fn() -> Result<()>,
) -> Result<&'static str> {
    let log = shaper.log();
    match take_over(ends).context(log) {
        Ok(new_process) => {
            let checked = pings().context("after the upgrade");
            let policy = narrows(&["tc", "qdisc", "show", "dev", port]);
            // Whatever comes out, so that the next check finds the ports free.
            shaper.ended()?;
            shaper::end(new_process)?;
            checked?;
            let policy = policy?;
            ensure!(policy.contains("tbf"), "the policy is not what it was: {policy}");
            Ok("upgraded without a lost ping")
        }
        Err(error) => {
            too_old(&error)?;
            pings().context("after the refusal")?;
            shaper.stop()?;
            Ok("no upgrade before Linux 6.4")
        }
    }
}
