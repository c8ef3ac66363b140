//! A shell in a network namespace, which runs one line after the other.
//!
//! To enter a namespace and to start a shell takes longer than most commands of the cases, so one
//! shell runs them all. Each line runs in a subshell, whose output goes to files.

use narrows_tc::Outcome;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub struct Shell {
    process: Child,
    input: ChildStdin,
    /// The exit codes, a line each.
    codes: BufReader<ChildStdout>,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Shell {
    /// Starts one in `namespace` and `folder`, which is the first place to look for programs, too.
    pub fn new(namespace: &str, folder: &Path) -> Result<Self, String> {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace, "bash"]);
        command.env("PATH", format!("{}:{path}", folder.display())).current_dir(folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().map_err(|error| format!("ip: {error}"))?;
        let (Some(input), Some(codes)) = (process.stdin.take(), process.stdout.take()) else {
            return Err("no pipe to the shell".to_owned());
        };
        let (stdout, stderr) = (folder.join("stdout"), folder.join("stderr"));
        Ok(Self { process, input, codes: BufReader::new(codes), stdout, stderr })
    }

    /// Runs `line` to its end. What it leaves running is not waited for.
    pub fn run(&mut self, line: &str) -> Result<Outcome, String> {
        let failed = |error: std::io::Error| format!("{line}: {error}");
        let quoted = shlex::try_quote(line).map_err(|error| format!("{line}: {error}"))?;
        let (stdout, stderr) = (self.stdout.display(), self.stderr.display());
        writeln!(self.input, "(eval {quoted}) >{stdout} 2>{stderr} </dev/null; echo $?")
            .map_err(failed)?;
        let mut code = String::new();
        self.codes.read_line(&mut code).map_err(failed)?;
        let code = code.trim().parse().map_err(|_| format!("{line}: the shell has ended"))?;
        let text = |path: &Path| {
            fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).map_err(failed)
        };
        Ok(Outcome { code, stdout: text(&self.stdout)?, stderr: text(&self.stderr)? })
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
