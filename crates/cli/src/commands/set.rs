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
        let is_restore = |word: &String| ["restore", "-R", "--restore"].contains(&word.as_str());
        let said = match words.iter().position(is_restore) {
            Some(_) => {
                let may_exist = words.iter().any(|word| ["-exist", "-!"].contains(&word.as_str()));
                let options = ["-exist", "-!", "-quiet", "-q"];
                let mut others = words
                    .iter()
                    .filter(|word| !is_restore(word) && !options.contains(&word.as_str()));
                if let Some(word) = others.next() {
                    bail!("unknown argument \"{word}\" of restore: it takes -exist and -file FILE");
                }
                restore(&instance(&self.ports)?, file.as_deref(), may_exist)?
            }
            None => {
                let said = ask(&instance(&self.ports)?, &Request::Set { args: words })?;
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
        let output = if is_saved(&self.words) { Output::Saved } else { Output::Text };
        Ok(print(&said, output))
    }
}

/// Whether `words` print lines that make sets again.
fn is_saved(words: &[String]) -> bool {
    words.iter().any(|word| ["save", "s", "-S", "--save"].contains(&word.as_str()))
}

/// `words` without `-file FILE`, and the file.
fn without_file(words: &[String]) -> anyhow::Result<(Vec<String>, Option<String>)> {
    let mut rest = words.to_vec();
    let is_file = |word: &String| ["-file", "-f", "--file"].contains(&word.as_str());
    // The first word is a command, and `-f` is one.
    let Some(at) = rest.iter().skip(1).position(is_file).map(|at| at + 1) else {
        return Ok((rest, None));
    };
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
    fn a_file_may_stand_anywhere_behind_the_command() {
        let (rest, file) = without_file(&words("restore -file x -exist")).unwrap();
        assert_eq!((rest, file.as_deref()), (words("restore -exist"), Some("x")));
        let (rest, file) = without_file(&words("-f a")).unwrap();
        assert_eq!((rest, file), (words("-f a"), None), "the command flush");
        assert!(without_file(&words("save -file")).is_err());
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
