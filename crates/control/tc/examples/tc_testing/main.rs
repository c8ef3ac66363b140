//! Runs the kernel's own test cases for `tc` against Narrows' front end.
//!
//! The cases are JSON files in `tools/testing/selftests/tc-testing/tc-tests` of the Linux source
//! (Debian's packages `linux-source-*` have them; they are not part of this repository). Each has
//! setup commands, a command, its expected exit code, and a pattern with the number of its matches
//! in the output of another command, or the JSON that this must contain. Nothing here needs root or
//! a kernel: ports exist only in memory, as for a policy file. With `--live` and the program, as
//! root, two instances run in a network namespace of their own, and the commands of each case run
//! in a shell there whose `tc` is `narrows tc`. SIGTERM and SIGINT end the run after the present
//! case; instances and namespaces are gone then.
//!
//! ```text
//! cargo run -p narrows-tc --example tc_testing -- TC_TESTS [WORDS...]
//! cargo run -p narrows-tc --example tc_testing -- --live target/release/narrows TC_TESTS
//! [WORDS...]
//! ```
//!
//! `WORDS` select cases whose file or id contains one of them. A case that does not pass is printed
//! with its difference. In memory, cases that run a shell or other programs are skipped.

mod json;
mod live;
mod paper;
mod shell;
mod world;

use narrows_tc::Outcome;
use regex::RegexBuilder;
use serde_json::Value;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The files about features that Narrows has.
const FILES: [&str; 31] = [
    "qdiscs/cake",
    "qdiscs/cake_mq",
    "qdiscs/codel",
    "qdiscs/drr",
    "qdiscs/ets",
    "qdiscs/fifo",
    "qdiscs/fq",
    "qdiscs/fq_codel",
    "qdiscs/hfsc",
    "qdiscs/htb",
    "qdiscs/ingress",
    "qdiscs/mq",
    "qdiscs/netem",
    "qdiscs/pfifo_fast",
    "qdiscs/prio",
    "qdiscs/red",
    "qdiscs/sfq",
    "qdiscs/tbf",
    "filters/basic",
    "filters/flower",
    "filters/fw",
    "filters/matchall",
    "filters/u32",
    "actions/gact",
    "actions/gact-rollback",
    "actions/mirred",
    "actions/police",
    "actions/skbedit",
    "infra/actions",
    "infra/filter",
    MIXED.0,
];

/// A file of which only the cases with that category run. The others are about packets in kinds
/// that have cases of their own, or that Narrows has not.
const MIXED: (&str, &str) = ("infra/qdiscs", "hfsc");

/// The names of devices in the cases.
const DEVICES: [(&str, &str); 6] = [
    ("$DUMMY", "dummy1"),
    ("$DEV0", "v0p0"),
    ("$DEV1", "v0p1"),
    ("$DEV2", "v0p2"),
    ("$IFB", "ifb0"),
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

/// The command of a step of a case, and the exit codes that it may have; 0 alone if none are
/// listed.
fn step(step: &Value) -> (&str, &[Value]) {
    match step {
        Value::Array(words) => (words[0].as_str().unwrap_or_default(), &words[1..]),
        step => (step.as_str().unwrap_or_default(), &[]),
    }
}

fn steps<'a>(case: &'a Value, key: &str) -> impl Iterator<Item = (&'a str, &'a [Value])> {
    case[key].as_array().into_iter().flatten().map(step)
}

fn judge(case: &Value, bench: &mut dyn Bench) -> Verdict {
    if let Err(why) = bench.start_over() {
        return Verdict::Failed(why);
    }
    let verdict = compare(case, bench);
    // What Narrows has is gone faster at once; devices and files remain as the case left them.
    for (line, _) in steps(case, "teardown").filter(|(line, _)| !line.contains("$TC ")) {
        bench.run(line);
    }
    verdict
}

fn compare(case: &Value, bench: &mut dyn Bench) -> Verdict {
    let needs = &case["plugins"]["requires"];
    if needs.as_array().is_some_and(|needs| needs.iter().any(|need| need == "scapyPlugin")) {
        return Verdict::Skipped("needs packets made by scapy");
    }
    let lines = steps(case, "setup").map(|(line, _)| line);
    let mut lines = lines.chain([text(case, "cmdUnderTest"), text(case, "verifyCmd")]);
    if !lines.any(|line| line.contains("$TC")) {
        return Verdict::Skipped("asks the kernel alone");
    }
    if let Some(probe) = case["dependsOn"].as_str()
        && bench.run(probe).is_none_or(|outcome| outcome.code != 0)
    {
        return Verdict::Skipped("needs what is not there");
    }
    for (line, codes) in steps(case, "setup") {
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
    let look = text(case, "verifyCmd");
    let Some(seen) = bench.run(look) else { return Verdict::Skipped(NEEDS_MORE) };
    // The output of a command that fails is its complaint.
    let failed = seen.code != 0 && !seen.stderr.is_empty();
    let seen = if failed { seen.stderr } else { seen.stdout };
    let shown = seen.trim_end().replace('\n', "\n      ");
    if let Some(wanted) = case.get("matchJSON").filter(|_| !seen.is_empty()) {
        let output = serde_json::from_str(&seen).map_err(|error| error.to_string());
        return match output.map(|output| json::difference(&output, wanted)) {
            Ok(None) => Verdict::Passed,
            Ok(Some(why)) | Err(why) => {
                Verdict::Failed(format!("{line}\n      {look}: {why}\n      {shown}"))
            }
        };
    }
    let (pattern, wanted) = (text(case, "matchPattern"), text(case, "matchCount"));
    let regex = RegexBuilder::new(pattern).multi_line(true).dot_matches_new_line(true).build();
    let Ok(regex) = regex else { return Verdict::Skipped("its pattern is not understood") };
    let count = if seen.is_empty() { 0 } else { regex.find_iter(&seen).count() };
    // A case may leave out how often nothing is to be found.
    if count.to_string() == wanted || (count == 0 && wanted.is_empty()) {
        return Verdict::Passed;
    }
    Verdict::Failed(format!(
        "{line}\n      {look}: {count} instead of {wanted} of\n      {pattern}\n      {shown}"
    ))
}

fn cases(path: &Path) -> Result<Vec<Value>, String> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

fn main() -> ExitCode {
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        if let Err(error) = signal_hook::flag::register(signal, Arc::clone(&is_over)) {
            eprintln!("tc_testing: {error}");
            return ExitCode::FAILURE;
        }
    }
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
            let is_of = |category: &Value| category == MIXED.1;
            if file == MIXED.0
                && !case["category"].as_array().is_some_and(|of| of.iter().any(is_of))
            {
                continue;
            }
            if !chosen.is_empty() && !chosen.iter().any(|word| name.contains(word)) {
                continue;
            }
            if is_over.load(Ordering::Relaxed) {
                break;
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
    match is_over.load(Ordering::Relaxed) {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}
