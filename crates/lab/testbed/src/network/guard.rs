//! Removes namespaces however their owner ends.
//!
//! The guard is a shell that reads from a pipe whose other end the owner holds. It starts to work
//! when nothing holds that end any more: the owner dropped it, returned, panicked, aborted or was
//! killed. Only the kernel can guarantee that; a signal handler could not. The guard is in a
//! process group of its own, out of reach of the terminal's interrupt key.

use anyhow::{Context, Result};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};

/// Terminates, then kills, everything that runs in the namespaces given as arguments, and removes
/// them. `ip netns pids` lists only processes that were started inside.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
read -r _
inside() { for name; do ip netns pids "$name" 2>/dev/null; done; }
pids=$(inside "$@")
if [ -n "$pids" ]; then
    kill -TERM $pids 2>/dev/null
    sleep 0.5
    pids=$(inside "$@")
    [ -z "$pids" ] || kill -KILL $pids 2>/dev/null
fi
for name; do ip netns del "$name" 2>/dev/null; done
exit 0
"#;

/// A waiting guard. Dropping it makes it work, and waits until it has.
#[derive(Debug)]
pub struct Guard {
    shell: Child,
    lifeline: Option<ChildStdin>,
}

impl Guard {
    /// A guard over the namespaces `names`, which need not exist yet.
    pub fn over(names: &[&str]) -> Result<Self> {
        let mut shell = Command::new("sh")
            .args(["-c", SCRIPT, "narrows-testbed-guard"])
            .args(names)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot start sh, which would clean up")?;
        let lifeline = shell.stdin.take();
        Ok(Self { shell, lifeline })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.lifeline = None;
        // The guard ends on its own. If it has already ended, its work is done.
        let _ = self.shell.wait();
    }
}
