//! Runs the kernel's own test cases for `tc` against Narrows' front end.
//!
//! The cases are JSON files in `tools/testing/selftests/tc-testing/tc-tests` of the Linux source
//! (Debian's package `linux-source-6.12` has them; they are not part of this repository). Each has
//! setup commands, a command, its expected exit code, and a pattern with the number of its matches
//! in the output of another command. Nothing here needs root or a kernel: ports exist only in
//! memory, as for a policy file. With `--live` and the program, as root, two instances run in a
//! network namespace of their own, and the commands of each case run in a shell there whose `tc` is
//! `narrows tc`.
//!
//! ```text
//! cargo run -p narrows-tc --example tc_testing -- TC_TESTS [WORDS...]
//! cargo run -p narrows-tc --example tc_testing -- --live target/release/narrows TC_TESTS
//! [WORDS...]
//! ```
//!
//! `WORDS` select cases whose file or id contains one of them. A case that does not pass is printed
//! with its difference. In memory, cases that run a shell or other programs are skipped.

mod live;
mod paper;

use narrows_tc::Outcome;
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

/// The result of a case.
enum Verdict {
    Passed,
    Failed(String),
    /// Why it was skipped.
    Skipped(&'static str),
}

const NEEDS_MORE: &str = "needs a shell or another program";

/// What runs the commands of a case.
trait Bench {
    /// Makes everything as it was before the first case.
    fn start_over(&mut self) -> Result<(), String>;

    /// Runs a command of a case; `None` if that is impossible here.
    fn run(&mut self, line: &str) -> Option<Outcome>;
}

/// The number of queues that `line` gives to the device of netdevsim, if it does so.
fn queues(line: &str) -> Option<u16> {
    // Its syntax: a bus address, the number of ports, the number of queues.
    let numbers = line.strip_prefix("echo \"")?.split('"').next()?;
    Some(numbers.split(' ').nth(2).and_then(|word| word.parse().ok()).unwrap_or(1))
}

fn text<'a>(case: &'a Value, key: &str) -> &'a str {
    case[key].as_str().unwrap_or_default()
}

fn judge(case: &Value, bench: &mut dyn Bench) -> Verdict {
    if let Err(why) = bench.start_over() {
        return Verdict::Failed(why);
    }
    for step in case["setup"].as_array().into_iter().flatten() {
        let (line, codes) = match step {
            Value::Array(step) => (step[0].as_str().unwrap_or_default(), &step[1..]),
            step => (step.as_str().unwrap_or_default(), &[][..]),
        };
        let Some(outcome) = bench.run(line) else { return Verdict::Skipped(NEEDS_MORE) };
        if outcome.code != 0 && !codes.contains(&outcome.code.into()) {
            return Verdict::Failed(format!(
                "{line}\n      {}: {}",
                outcome.code,
                outcome.stderr.trim()
            ));
        }
    }
    let line = text(case, "cmdUnderTest");
    let Some(outcome) = bench.run(line) else { return Verdict::Skipped(NEEDS_MORE) };
    if outcome.code.to_string() != text(case, "expExitCode") {
        let (code, said) = (outcome.code, outcome.stderr.trim());
        let wanted = text(case, "expExitCode");
        return Verdict::Failed(format!("{line}\n      {code} instead of {wanted}: {said}"));
    }
    let (look, pattern) = (text(case, "verifyCmd"), text(case, "matchPattern"));
    let Some(seen) = bench.run(look) else { return Verdict::Skipped(NEEDS_MORE) };
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
    let mut arguments = std::env::args().skip(1).peekable();
    let mut bench: Box<dyn Bench> = Box::new(paper::Paper::default());
    if arguments.next_if(|word| word == "--live").is_some() {
        match live::Live::new(&arguments.next().unwrap_or_default()) {
            Ok(live) => bench = Box::new(live),
            Err(why) => {
                eprintln!("tc_testing: {why}");
                return ExitCode::FAILURE;
            }
        }
    }
    let Some(folder) = arguments.next().map(PathBuf::from) else {
        eprintln!("usage: tc_testing [--live NARROWS] TC_TESTS [WORDS...]");
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
            let kind = match judge(case, bench.as_mut()) {
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
