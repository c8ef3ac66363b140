//! nginx in a namespace: a web server as sites run it.
//!
//! It reads our configuration, has its files in a folder of ours, and is in one namespace. It has
//! nothing to do with the service that Debian's package brings.
//!
//! It is one process, so that it ends as a whole when it is killed. It ends a connection after as
//! many requests as it is told, and says so in its answer: so clients come back to the balancer
//! while they send requests.
//!
//! Non-goals: pages, TLS.

use crate::collect::Collector;
use crate::namespace::Namespace;
use crate::process::Process;
use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use std::fs;
use std::net::{SocketAddrV4, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long it may take until it answers.
const START: Duration = Duration::from_secs(5);
/// How often that is tried.
const LOOK: Duration = Duration::from_millis(5);

/// A running server; stopped when dropped.
#[derive(Debug)]
pub struct Nginx {
    process: Process,
}

/// In nginx's words, with its files in `folder`.
fn config(folder: &Path, listens: SocketAddrV4, requests: u32) -> String {
    let folder = folder.display();
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let files: String =
        kinds.iter().map(|kind| format!("  {kind}_temp_path {folder}/{kind};\n")).collect();
    format!(
        "daemon off;\n\
         master_process off;\n\
         pid {folder}/pid;\n\
         error_log stderr;\n\
         events {{ worker_connections 1024; }}\n\
         http {{\n\
         {files}\
         \x20 access_log off;\n\
         \x20 keepalive_requests {requests};\n\
         \x20 server {{ listen {listens} backlog=1024; location / {{ return 200 \"hello\\n\"; }} }}\n\
         }}\n"
    )
}

impl Nginx {
    /// Starts one that listens at `address` of `namespace`, with its files in `folder`, which it
    /// makes if it is not there. It ends a connection after so many requests.
    pub fn start(
        namespace: &Namespace,
        folder: &Path,
        address: SocketAddrV4,
        requests: u32,
    ) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let file = folder.join("conf");
        fs::write(&file, config(folder, address, requests))
            .with_context(|| format!("cannot write {}", file.display()))?;
        let mut command = namespace.command("nginx");
        command.args(["-e", "stderr", "-c"]).arg(&file).stdin(Stdio::null());
        let log = Collector::over_both(&mut command)?;
        let mut process = Process::start(&mut command)?;
        drop(command);
        let deadline = Instant::now() + START;
        while namespace.enter(|| Ok(TcpStream::connect(address)?)).is_err() {
            if !process.is_running() || Instant::now() >= deadline {
                bail!("nginx does not answer at {address}:\n{}", log.text());
            }
            sleep(LOOK);
        }
        Ok(Self { process })
    }

    /// Kills it: its connections end at once.
    pub fn kill(mut self) -> Result<()> {
        self.process.stop(Signal::SIGKILL).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_its_files_are_in_its_folder() {
        let text = config(Path::new("/tmp/web"), "192.0.2.1:80".parse().unwrap(), 7);
        assert_eq!(text.matches("/tmp/web/").count(), 6, "{text}");
        assert!(text.contains("listen 192.0.2.1:80 ") && text.contains("keepalive_requests 7;"));
        assert_eq!(text.matches('{').count(), text.matches('}').count());
    }
}
