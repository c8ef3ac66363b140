//! Runs the kernel's own test cases for `tc` against Narrows' front end.
//!
//! The cases are JSON files in `tools/testing/selftests/tc-testing/tc-tests` of the Linux source
//! (Debian's package `linux-source-6.12` has them; they are not part of this repository). Each has
//! setup commands, a command, its expected exit code, and a pattern with the number of its matches
//! in the output of another command. Nothing here needs root or a kernel: ports exist only in
//! memory, as for a policy file.
//!
//! ```text
//! cargo run -p narrows-tc --example tc_testing -- TC_TESTS [WORDS...]
//! ```
//!
//! `WORDS` select cases whose file or id contains one of them. A case that does not pass is printed
//! with its difference. Cases that run a shell or other programs are counted as skipped.

use narrows_policy::{Policy, PortFacts};
use narrows_tc::{Host, Outcome, execute};
use regex::RegexBuilder;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The files about features that Narrows has.
const FILES: [&str; 24] = [
    "qdiscs/cake",
    "qdiscs/cake_mq",
    "qdiscs/codel",
    "qdiscs/drr",
    "qdiscs/ets",
    "qdiscs/fifo",
    "qdiscs/fq",
    "qdiscs/fq_codel",
    "qdiscs/htb",
    "qdiscs/ingress",
    "qdiscs/mq",
    "qdiscs/netem",
    "qdiscs/prio",
    "qdiscs/sfq",
    "qdiscs/tbf",
    "filters/basic",
    "filters/flower",
    "filters/fw",
    "filters/matchall",
    "filters/u32",
    "actions/gact",
    "actions/police",
    "actions/skbedit",
    "infra/actions",
];

/// The names of devices in the cases.
const DEVICES: [(&str, &str); 5] = [
    ("$DUMMY", "dummy1"),
    ("$DEV0", "v0p0"),
    ("$DEV1", "v0p1"),
    ("$DEV2", "v0p2"),
    ("$ETH", "eth0"),
];

/// Ports in memory.
struct Paper {
    policy: Policy,
    queues: u16,
}

impl Host for Paper {
    fn devices(&self) -> Vec<String> {
        DEVICES.map(|(_, name)| name.to_owned()).to_vec()
    }

    fn port(&self, dev: &str) -> Option<PortFacts> {
        let is_known = DEVICES.iter().any(|(_, name)| *name == dev);
        is_known.then_some(PortFacts { queues: Some(self.queues), ..PortFacts::ETHERNET })
    }

    fn policy(&self) -> Policy {
        self.policy.clone()
    }

    fn apply(&mut self, policy: Policy) -> Result<(), String> {
        self.policy = policy;
        Ok(())
    }
}

/// The result of a case.
enum Verdict {
    Passed,
    Failed(String),
    /// Why it was skipped.
    Skipped(&'static str),
}

const NEEDS_MORE: &str = "needs a shell or another program";

/// Runs a command of a case; `None` if it is not a `tc` command.
fn run(line: &str, host: &mut Paper) -> Option<Outcome> {
    if line.starts_with("$IP ") {
        return Some(Outcome::default());
    }
    if let Some(numbers) = line.strip_prefix("echo \"").and_then(|rest| rest.split('"').next()) {
        // netdevsim's syntax: a bus address, the number of ports, the number of queues.
        let queues = numbers.split(' ').nth(2).and_then(|word| word.parse().ok());
        host.queues = queues.unwrap_or(1);
        return Some(Outcome::default());
    }
    let words = line.strip_prefix("$TC ")?;
    let words = DEVICES.iter().fold(words.to_owned(), |line, (is, name)| line.replace(is, name));
    if words.contains('$') {
        return None;
    }
    Some(execute(&shlex::split(&words)?, host))
}

fn text<'a>(case: &'a Value, key: &str) -> &'a str {
    case[key].as_str().unwrap_or_default()
}

fn judge(case: &Value) -> Verdict {
    let mut host = Paper { policy: Policy::default(), queues: 1 };
    for step in case["setup"].as_array().into_iter().flatten() {
        let (line, codes) = match step {
            Value::Array(step) => (step[0].as_str().unwrap_or_default(), &step[1..]),
            step => (step.as_str().unwrap_or_default(), &[][..]),
        };
        let Some(outcome) = run(line, &mut host) else { return Verdict::Skipped(NEEDS_MORE) };
        if outcome.code != 0 && !codes.contains(&outcome.code.into()) {
            return Verdict::Failed(format!(
                "{line}\n      {}: {}",
                outcome.code,
                outcome.stderr.trim()
            ));
        }
    }
    let line = text(case, "cmdUnderTest");
    let Some(outcome) = run(line, &mut host) else { return Verdict::Skipped(NEEDS_MORE) };
    if outcome.code.to_string() != text(case, "expExitCode") {
        let (code, said) = (outcome.code, outcome.stderr.trim());
        let wanted = text(case, "expExitCode");
        return Verdict::Failed(format!("{line}\n      {code} instead of {wanted}: {said}"));
    }
    let (look, pattern) = (text(case, "verifyCmd"), text(case, "matchPattern"));
    let Some(seen) = run(look, &mut host) else { return Verdict::Skipped(NEEDS_MORE) };
    let regex = RegexBuilder::new(pattern).multi_line(true).dot_matches_new_line(true).build();
    let Ok(regex) = regex else { return Verdict::Skipped("its pattern is not understood") };
    let count = regex.find_iter(&seen.stdout).count();
    if count.to_string() == text(case, "matchCount") {
        return Verdict::Passed;
    }
    let wanted = text(case, "matchCount");
    Verdict::Failed(format!(
        "{line}\n      {look}: {count} instead of {wanted} of\n      {pattern}\n      {}{}",
        seen.stdout.trim_end().replace('\n', "\n      "),
        seen.stderr.trim_end()
    ))
}

fn cases(path: &Path) -> Result<Vec<Value>, String> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(folder) = arguments.next().map(PathBuf::from) else {
        eprintln!("usage: tc_testing TC_TESTS [WORDS...]");
        return ExitCode::FAILURE;
    };
    let chosen: Vec<String> = arguments.collect();
    let mut sum = [0; 3];
    for file in FILES {
        let path = folder.join(format!("{file}.json"));
        let cases = match cases(&path) {
            Ok(cases) => cases,
            Err(why) => {
                println!("{file}: {why}");
                continue;
            }
        };
        let mut of_file = [0; 3];
        for case in &cases {
            let name = format!("{file} {}", text(case, "id"));
            if !chosen.is_empty() && !chosen.iter().any(|word| name.contains(word)) {
                continue;
            }
            let kind = match judge(case) {
                Verdict::Passed => 0,
                Verdict::Failed(why) => {
                    println!("  {name}: {}\n    {why}", text(case, "name"));
                    1
                }
                Verdict::Skipped(why) => {
                    println!("  {name}: skipped, {why}");
                    2
                }
            };
            of_file[kind] += 1;
            sum[kind] += 1;
        }
        let [passed, failed, skipped] = of_file;
        println!("{file}: {passed} passed, {failed} failed, {skipped} skipped");
    }
    let [passed, failed, skipped] = sum;
    println!("tc-testing: {passed} passed, {failed} failed, {skipped} skipped");
    ExitCode::SUCCESS
}
