//! Checks the figures of `docs/reproduction.md`, `docs/fleet.md`, `docs/autorate.md` and the README
//! against the simulator.
//!
//! They have blocks that consist of a command, as in a terminal, and its output. The simulator
//! prints the same on every machine, so each block can be reproduced. `--check` fails at the first
//! block that differs from its command's output, with the lines that differ; `--write` renews the
//! blocks. Names of scenarios behind it choose those scenarios' blocks; without names it is all.
//!
//! *Principles.* Commands are parsed as `narrows sim` parses them and run by the same code. Every
//! built-in scenario has a block. Text between blocks is left alone.
//!
//! *Non-goals.* Other commands, other options than `--set` and `--seed`, quoting.

use anyhow::{Context, bail, ensure};
use narrows_sim::scenario::{self, Experiment, Override};
use std::path::Path;
use std::time::Instant;

/// The first line of a block, below the fence.
const PROMPT: &str = "$ narrows sim ";
/// The last line of a block.
const FENCE: &str = "```";

/// The documents, from the root of the repository.
const DOCUMENTS: [&str; 4] =
    ["docs/reproduction.md", "docs/fleet.md", "docs/autorate.md", "README.md"];

fn main() -> anyhow::Result<()> {
    let mut words = std::env::args().skip(1);
    let write = match words.next().as_deref() {
        Some("--check") => false,
        Some("--write") => true,
        Some(word) => bail!("\"{word}\" is neither --check nor --write"),
        None => bail!("say --check, or --write to renew the documents"),
    };
    let chosen: Vec<String> = words.collect();
    for name in &chosen {
        ensure!(scenario::embedded(name).is_some(), "there is no scenario \"{name}\"");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let mut texts = Vec::new();
    for name in DOCUMENTS {
        texts.push(std::fs::read_to_string(root.join(name)).with_context(|| name.to_owned())?);
    }
    let mut documents = Vec::new();
    for (name, text) in DOCUMENTS.into_iter().zip(&texts) {
        documents.push((name, split(text).with_context(|| name.to_owned())?));
    }
    every_scenario_is_in(documents.iter().flat_map(|(_, parts)| parts))?;
    for (name, parts) in &documents {
        let renewed = renew(name, parts, &chosen, write)?;
        if write {
            std::fs::write(root.join(name), renewed).with_context(|| (*name).to_owned())?;
        }
    }
    Ok(())
}

/// Renews the blocks of the document `name`: those of the `chosen` scenarios, or all if none is
/// chosen. Without writing, it only checks that they are up to date.
fn renew(name: &str, parts: &[Part<'_>], chosen: &[String], write: bool) -> anyhow::Result<String> {
    let mut renewed = String::new();
    for part in parts {
        match part {
            Part::Text(text) => renewed.push_str(text),
            Part::Block { line, command, output } => {
                let printed = if is_chosen(command, chosen) {
                    let started = Instant::now();
                    let printed = run(command).with_context(|| format!("{name}:{line}"))?;
                    println!("{:>6.1} s  {command}", started.elapsed().as_secs_f64());
                    printed
                } else {
                    (*output).to_owned()
                };
                ensure!(
                    write || printed == *output,
                    "{name}:{line}: `narrows sim {command}` prints something else; \
                     `make reproduction` renews the document:\n{}",
                    difference(output, &printed)
                );
                renewed.push_str(PROMPT);
                renewed.push_str(command);
                renewed.push('\n');
                renewed.push_str(&printed);
            }
        }
    }
    Ok(renewed)
}

/// A part of the document.
#[derive(Debug, PartialEq)]
enum Part<'a> {
    /// The text between blocks, fences included.
    Text(&'a str),
    /// A command with its output.
    Block {
        /// The number of the command's line, from 1.
        line: usize,
        /// The arguments of `narrows sim`.
        command: &'a str,
        /// Its output, in the document's form.
        output: &'a str,
    },
}

/// The parts of `text`, which together are all of it.
fn split(text: &str) -> anyhow::Result<Vec<Part<'_>>> {
    let mut parts = Vec::new();
    let mut line = 1;
    let mut rest = text;
    while let Some(start) = find_line(rest, |it| it.starts_with(PROMPT)) {
        let (before, block) = rest.split_at(start);
        line += before.lines().count();
        let (first, after) = block.split_once('\n').unwrap_or((block, ""));
        let end = find_line(after, |it| it.trim_end() == FENCE)
            .with_context(|| format!("the block of line {line} has no end: {FENCE}"))?;
        let (output, after) = after.split_at(end);
        let command = first[PROMPT.len()..].trim();
        parts.extend([Part::Text(before), Part::Block { line, command, output }]);
        line += 1 + output.lines().count();
        rest = after;
    }
    parts.push(Part::Text(rest));
    Ok(parts)
}

/// Where the first line begins that is `wanted`.
fn find_line(text: &str, wanted: impl Fn(&str) -> bool) -> Option<usize> {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        if wanted(line) {
            return Some(start);
        }
        start += line.len();
    }
    None
}

/// The scenario that `command` runs.
fn scenario_of(command: &str) -> Option<&str> {
    command.split_whitespace().next()
}

fn is_chosen(command: &str, chosen: &[String]) -> bool {
    let is_of = |name: &String| scenario_of(command) == Some(name.as_str());
    chosen.is_empty() || chosen.iter().any(is_of)
}

fn every_scenario_is_in<'a>(
    parts: impl Iterator<Item = &'a Part<'a>> + Clone,
) -> anyhow::Result<()> {
    let shows = |part: &Part<'_>, name: &str| match part {
        Part::Block { command, .. } => scenario_of(command) == Some(name),
        Part::Text(_) => false,
    };
    let missing: Vec<&str> =
        scenario::all_names().filter(|name| !parts.clone().any(|part| shows(part, name))).collect();
    ensure!(
        missing.is_empty(),
        "no document has {}: add a block that begins with \"{PROMPT}NAME\"",
        missing.join(", ")
    );
    Ok(())
}

/// The output of `narrows sim COMMAND`.
fn run(command: &str) -> anyhow::Result<String> {
    let experiment = read(command)?;
    let jobs = std::thread::available_parallelism().map_or(1, Into::into);
    Ok(experiment.run(jobs, &|_| {})?.table())
}

fn read(command: &str) -> anyhow::Result<Experiment> {
    let mut words = command.split_whitespace();
    let name = words.next().context("which scenario? `narrows sim --list` lists all")?;
    let mut overrides = Vec::new();
    let mut seed = None;
    while let Some(option) = words.next() {
        let value = words.next().with_context(|| format!("a value is missing behind {option}"))?;
        match option {
            "--set" => overrides.push(Override::parse(value)?),
            "--seed" => seed = Some(value.to_owned()),
            _ => bail!("\"{option}\" cannot be checked: only --set and --seed can"),
        }
    }
    // Behind what was set, as in the command line.
    overrides.extend(seed.map(|value| Override { path: "run.seed".to_owned(), value }));
    let text = scenario::embedded(name).with_context(|| {
        format!("there is no scenario \"{name}\"; `narrows sim --list` lists all")
    })?;
    Ok(Experiment::read(name, text, &overrides)?)
}

/// The lines of `old` and `new` without those that both begin and end with.
fn difference(old: &str, new: &str) -> String {
    let (mut old, mut new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let alike = |(one, other): &(&&str, &&str)| one == other;
    let first = old.iter().zip(&new).take_while(alike).count();
    old.drain(..first);
    new.drain(..first);
    let last = old.iter().rev().zip(new.iter().rev()).take_while(alike).count();
    old.truncate(old.len() - last);
    new.truncate(new.len() - last);
    let lines = old.iter().map(|line| format!("-{line}"));
    lines.chain(new.iter().map(|line| format!("+{line}"))).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "# A\n\n```console\n$ narrows sim one --seed 2\na\nb\n```\n\nend\n";

    #[test]
    fn a_block_is_a_command_with_its_output() -> anyhow::Result<()> {
        let block = Part::Block { line: 4, command: "one --seed 2", output: "a\nb\n" };
        let expected = [Part::Text("# A\n\n```console\n"), block, Part::Text("```\n\nend\n")];
        assert_eq!(split(DOCUMENT)?, expected);
        Ok(())
    }

    #[test]
    fn a_block_without_an_end_is_refused() {
        assert!(split("```console\n$ narrows sim one\na\n").is_err());
    }

    #[test]
    fn only_the_lines_that_differ_are_shown() {
        assert_eq!(difference("a\nb\nc\nd\n", "a\nx\ny\nd\n"), "-b\n-c\n+x\n+y");
        assert_eq!(difference("a\na\n", "a\na\na\n"), "+a");
    }

    #[test]
    fn commands_are_read_as_the_command_line_reads_them() -> anyhow::Result<()> {
        let command = "mqcake-skew --seed 7 --set port.rate=1gbit,2gbit";
        let Experiment::Shaper(scenario) = read(command)? else { bail!("{command}") };
        assert_eq!(scenario.seed, 7);
        assert_eq!(scenario.cases.len(), 2 * scenario.strategies().len());
        for wrong in
            ["", "mqcake", "mqcake-skew --json", "mqcake-skew --jobs 2", "mqcake-skew --seed"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        Ok(())
    }

    #[test]
    fn names_choose_the_blocks_of_their_scenarios_and_no_name_chooses_all() {
        let chosen = ["fair-wake".to_owned()];
        assert!(is_chosen("fair-wake --seed 2", &chosen));
        assert!(!is_chosen("fair-share", &chosen));
        assert!(is_chosen("fair-share", &[]));
    }

    #[test]
    fn blocks_that_are_not_chosen_stay_as_they_are() -> anyhow::Result<()> {
        let chosen = ["another".to_owned()];
        assert_eq!(renew("a document", &split(DOCUMENT)?, &chosen, true)?, DOCUMENT);
        Ok(())
    }

    #[test]
    fn a_scenario_without_a_block_is_missed() -> anyhow::Result<()> {
        let all: String =
            scenario::all_names().map(|name| format!("{PROMPT}{name}\n{FENCE}\n")).collect();
        every_scenario_is_in(split(&all)?.iter())?;
        let first_cut = all.split_once(FENCE).map_or("", |(_, rest)| rest);
        assert!(every_scenario_is_in(split(first_cut)?.iter()).is_err());
        Ok(())
    }
}
