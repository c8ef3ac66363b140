//! `narrows set`.

use super::answer::{Output, ask, instance, print, read};
use anyhow::{Context, bail};
use clap::Args;
use narrows_control::{Client, Request};
use narrows_tc::Outcome;
use std::process::ExitCode;

/// How much of a text to restore goes into one request, in bytes; a request has at most 16 MiB.
const PART: usize = 6 << 20;

/// The longest file to restore, in MiB: ten million addresses take half.
const FILE_MAX_MIB: u64 = 1024;

/// Change the sets of addresses that filters look up.
///
/// The syntax is that of ipset(8): what `ipset save` prints can be restored, and the other way
/// round. Sets are hash:ip, hash:net, hash:net,port and hash:mac, of IPv4 or IPv6, with timeouts,
/// counters and comments. A filter names a set; it runs in the driver, before any queue. A new list
/// takes the place of the old one between two packets (swap).
///
/// Commands: create, add, del, test, destroy, flush, list, save, restore, rename, swap, help,
/// version; `narrows set help` prints their words. Options: -exist, -quiet, -name, -terse,
/// -output plain|save, -file FILE.
///
/// Exit codes: 0; 1 if a command failed, and if `test` finds nothing; 2 for an unknown
/// command.
///
/// Sets belong to a running instance. A reload of the policy and an upgrade keep them;
/// `narrows run --state FILE` keeps them in FILE.sets, and `--sets FILE` begins with a file that
/// `ipset save` wrote. See docs/sets.md.
///
/// Examples:
///
///   narrows set create blocklist hash:net
///   narrows set add blocklist 192.0.2.0/24
///   narrows tc qdisc add dev eth1 clsact
///   narrows tc filter add dev eth1 ingress basic match 'ipset(blocklist src)' action drop
///
///   narrows set create next hash:net maxelem 1000000
///   narrows set restore -file next.ipset
///   narrows set swap blocklist next
///   narrows set destroy next
#[derive(Args)]
#[command(verbatim_doc_comment, disable_help_flag = true)]
pub struct Set {
    /// The ports of the instance, if several run.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    ports: Vec<String>,

    /// Print help.
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,

    /// The command, as ipset takes it.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORDS")]
    words: Vec<String>,
}

impl Set {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let (words, file) = without_file(&self.words)?;
        let said = match command(&words) {
            Some(at) if ["restore", "-R", "--restore"].contains(&words[at].as_str()) => {
                let exist = ["-exist", "-!", "--exist"];
                let may_exist = words.iter().any(|word| exist.contains(&word.as_str()));
                let others = words[..at].iter().chain(&words[at + 1..]);
                if let Some(word) = others.clone().find(|word| !FLAGS.contains(&word.as_str())) {
                    bail!("unknown argument \"{word}\" of restore: it takes -exist and -file FILE");
                }
                restore(&instance(&self.ports)?, file.as_deref(), may_exist)?
            }
            _ => {
                let request = Request::Set { args: words.clone() };
                let said = ask(&instance(&self.ports)?, &request)?;
                match file {
                    Some(file) if said.code == 0 => {
                        std::fs::write(&file, &said.stdout)
                            .with_context(|| format!("cannot write file \"{file}\""))?;
                        Outcome { stdout: String::new(), ..said }
                    }
                    _ => said,
                }
            }
        };
        let output = if is_saved(&words) { Output::Saved } else { Output::Text };
        Ok(print(&said, output))
    }
}

/// Options of ipset without a value, which may stand in front of the command.
const FLAGS: [&str; 18] = [
    "-exist",
    "-!",
    "--exist",
    "-quiet",
    "-q",
    "--quiet",
    "-sorted",
    "-s",
    "--sorted",
    "-resolve",
    "-r",
    "--resolve",
    "-name",
    "-n",
    "--name",
    "-terse",
    "-t",
    "--terse",
];

/// Which of `words`, without `-file`, is the command. A set may be called as a command is.
fn command(words: &[String]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += match words.get(at)?.as_str() {
            "-output" | "-o" | "--output" => 2,
            word if FLAGS.contains(&word) => 1,
            _ => return Some(at),
        };
    }
}

/// Whether `words` print lines that make sets again.
fn is_saved(words: &[String]) -> bool {
    let is_save = |at: usize| ["save", "s", "-S", "--save"].contains(&words[at].as_str());
    command(words).is_some_and(is_save)
}

/// `words` without `-file FILE`, and the file.
fn without_file(words: &[String]) -> anyhow::Result<(Vec<String>, Option<String>)> {
    let mut rest = words.to_vec();
    let is_file = |at: &usize| {
        let is_comment = *at > 0 && rest[*at - 1] == "comment";
        ["-file", "-f", "--file"].contains(&rest[*at].as_str()) && !is_comment
    };
    let Some(at) = (0..rest.len()).find(is_file) else { return Ok((rest, None)) };
    rest.remove(at);
    if at == rest.len() {
        bail!("missing mandatory argument FILE of -file");
    }
    let file = rest.remove(at);
    Ok((rest, Some(file)))
}

/// Sends the commands in `file`, or of standard input, part by part.
fn restore(client: &Client, file: Option<&str>, may_exist: bool) -> anyhow::Result<Outcome> {
    let text = read(file, FILE_MAX_MIB)?;
    let mut first = 1;
    for part in parts(&text) {
        let request = Request::RestoreSets { first, may_exist, text: part.to_owned() };
        let said = ask(client, &request)?;
        if said.code != 0 {
            return Ok(said);
        }
        first += part.lines().count();
    }
    Ok(Outcome::default())
}

/// `text` in parts of whole lines.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = match rest.as_bytes().get(PART..) {
            None => rest.len(),
            Some(behind) => {
                let line = behind.iter().position(|byte| *byte == b'\n');
                line.map_or(rest.len(), |line| PART + line + 1)
            }
        };
        let (part, behind) = rest.split_at(end);
        rest = behind;
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_file_may_stand_anywhere_but_behind_a_comment() {
        for line in ["restore -file x -exist", "-f x restore -exist", "restore -exist --file x"] {
            let (rest, file) = without_file(&words(line)).unwrap();
            assert_eq!((rest, file.as_deref()), (words("restore -exist"), Some("x")), "{line}");
        }
        let (rest, file) = without_file(&words("add a 1.2.3.4 comment -file")).unwrap();
        assert_eq!((rest.len(), file), (5, None));
        assert!(without_file(&words("save -file")).is_err());
    }

    #[test]
    fn a_set_may_be_called_as_a_command_is() {
        for (line, at) in [
            ("restore", Some(0)),
            ("-! -q restore", Some(2)),
            ("-o save list restore", Some(2)),
            ("add restore 1.2.3.4", Some(0)),
            ("-exist", None),
        ] {
            assert_eq!(command(&words(line)), at, "{line}");
        }
        assert!(is_saved(&words("-t save")) && !is_saved(&words("list save")));
    }

    #[test]
    fn parts_are_whole_lines_and_all_of_the_text() {
        let text = "add a 192.0.2.1\n".repeat(1_000_000);
        let parts: Vec<&str> = parts(&text).collect();
        assert_eq!(parts.concat(), text);
        assert!(parts.len() > 2 && parts.iter().all(|part| part.ends_with('\n')));
        assert_eq!(super::parts("no end").collect::<Vec<_>>(), ["no end"]);
    }
}
