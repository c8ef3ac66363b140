//! `narrows manual`: man pages and completions, generated from the definition of the command line.
//!
//! Packages call it when they are built. It is hidden, because users find its results in the usual
//! places. The pages are `narrows(8)` and one for each command, `narrows-NAME(8)`. Their text is
//! that of `--help`; the part after "Examples:" becomes the section of that name.

use anyhow::Context;
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Write man pages and completions for bash, zsh and fish below a directory.
///
/// They go to their places below /usr: share/man/man8, share/bash-completion/completions,
/// share/zsh/vendor-completions and share/fish/vendor_completions.d.
#[derive(Args)]
pub struct Manual {
    /// The directory, such as /usr/local. It is created.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// The manual section for system administration programs.
const SECTION: &str = "8";
/// A command that is another program. The package of that has its page.
const ELSEWHERE: &str = "fleet";
/// Marks the start of the examples in a help text.
const EXAMPLES: &str = "Examples:";

impl Manual {
    /// Writes everything for `command`, the whole program.
    pub fn execute(self, command: Command) -> anyhow::Result<ExitCode> {
        let pages = self.directory.join("share/man/man8");
        make(&pages)?;
        let mut built = command.clone().disable_help_subcommand(true);
        built.build();
        let name = built.get_name().to_owned();
        let shown: Vec<&Command> =
            built.get_subcommands().filter(|command| !command.is_hide_set()).collect();
        let see: Vec<String> =
            shown.iter().map(|one| format!("{name}-{}", one.get_name())).collect();
        write(&pages.join(format!("{name}.{SECTION}")), &page(&built, &name, &see)?)?;
        let own = shown.iter().zip(&see).filter(|(one, _)| one.get_name() != ELSEWHERE);
        for (command, title) in own {
            write_pages(&pages, command, title, &name)?;
        }
        for (shell, folder, file) in [
            (Shell::Bash, "share/bash-completion/completions", name.clone()),
            (Shell::Zsh, "share/zsh/vendor-completions", format!("_{name}")),
            (Shell::Fish, "share/fish/vendor_completions.d", format!("{name}.fish")),
        ] {
            let folder = self.directory.join(folder);
            make(&folder)?;
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut command.clone(), name.as_str(), &mut text);
            let text = String::from_utf8(text).context("the script is text")?;
            write(&folder.join(file), with_words(shell, text).as_bytes())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// `script` so that it asks `narrows complete` first, whose words depend on this host. Where that
/// has no answer, it goes on as before.
fn with_words(shell: Shell, script: String) -> String {
    match shell {
        Shell::Bash => script + include_str!("complete/words.bash"),
        // It ends with what registers it, or completes at once: ours does so instead.
        Shell::Zsh => {
            let end = script.rfind("if [ \"$funcstack[1]\"").unwrap_or(script.len());
            script[..end].to_owned() + include_str!("complete/words.zsh")
        }
        Shell::Fish => script + include_str!("complete/words.fish"),
        _ => script,
    }
}

/// Writes the page of `command`, and those of its subcommands.
fn write_pages(folder: &Path, command: &Command, title: &str, above: &str) -> anyhow::Result<()> {
    let shown = command.get_subcommands().filter(|below| !below.is_hide_set());
    let below: Vec<(&Command, String)> =
        shown.map(|below| (below, format!("{title}-{}", below.get_name()))).collect();
    let names = below.iter().map(|(_, title)| title.clone());
    let see: Vec<String> = std::iter::once(above.to_owned()).chain(names).collect();
    write(&folder.join(format!("{title}.{SECTION}")), &page(command, title, &see)?)?;
    below.iter().try_for_each(|(command, below)| write_pages(folder, command, below, title))
}

fn make(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}

fn write(file: &Path, text: &[u8]) -> anyhow::Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// The page of `command`, with the names of related pages.
fn page(command: &Command, title: &str, see: &[String]) -> anyhow::Result<Vec<u8>> {
    let program = format!("narrows {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone())
        .title(title.to_uppercase())
        .section(SECTION)
        .source(program)
        .manual("System Manager's Manual");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    named(command, title).to_writer(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    let (prose, examples) = description(command);
    section("DESCRIPTION", &prose).to_writer(&mut text)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut text)?;
    }
    if command.get_subcommands().any(|below| !below.is_hide_set()) {
        man.render_subcommands_section(&mut text)?;
    }
    if !examples.is_empty() {
        section("EXAMPLES", &examples).to_writer(&mut text)?;
    }
    section("FILES", FILES).to_writer(&mut text)?;
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]);
    let pages = see.iter().map(String::as_str).chain(["tc"]);
    let mut inlines = Vec::new();
    for (index, page) in pages.enumerate() {
        inlines.extend([roman(if index == 0 { "" } else { ", " }), bold(page)]);
        inlines.push(roman(format!("({SECTION})")));
    }
    roff.text(inlines);
    roff.to_writer(&mut text)?;
    Ok(text)
}

const FILES: &str = "  /etc/narrows/NAME.conf      ports and options of narrows@NAME.service
  /etc/narrows/NAME.tc        its policy
  /run/narrows                the control sockets of running instances
  /usr/share/doc/narrows      the guide and the reference";

fn named(command: &Command, title: &str) -> Roff {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let mut roff = Roff::new();
    roff.control("SH", ["NAME"]);
    roff.text([roman(format!("{title} - {}", about.trim_end_matches('.')))]);
    roff
}

/// The text of the help without its first line, which is the page's name; and its examples.
fn description(command: &Command) -> (String, String) {
    let about = command.get_long_about().or(command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    let after = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let whole = format!("{about}\n\n{after}");
    let (prose, examples) = whole.split_once(EXAMPLES).unwrap_or((whole.as_str(), ""));
    (prose.trim().to_owned(), examples.trim_matches('\n').trim_end().to_owned())
}

/// A section with `text`: paragraphs; indented lines stay as they are.
fn section(title: &str, text: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", [title]);
    let mut verbatim = false;
    for line in text.lines() {
        let indented = line.starts_with("  ");
        if indented != verbatim && !line.is_empty() {
            if indented {
                roff.control("PP", []).control("nf", []);
            } else {
                roff.control("fi", []).control("PP", []);
            }
            verbatim = indented;
        }
        match line {
            "" if verbatim => roff.control("sp", []),
            "" => roff.control("PP", []),
            line => roff.text([roman(line)]),
        };
    }
    if verbatim {
        roff.control("fi", []);
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_command_has_a_page_with_examples() {
        let folder = std::env::temp_dir().join(format!("nrw-manual-{}", std::process::id()));
        let command = crate::Cli::command();
        Manual { directory: folder.clone() }.execute(command.clone()).unwrap();
        let shown = command.get_subcommands().filter(|below| !below.is_hide_set());
        for below in shown.filter(|below| below.get_name() != ELSEWHERE) {
            let name = below.get_name();
            let page = folder.join(format!("share/man/man8/narrows-{name}.8"));
            let text = fs::read_to_string(&page).unwrap();
            assert!(text.contains("SH EXAMPLES"), "{name} shows no example");
            assert!(text.contains(&format!("narrows {name}")), "{name}");
        }
        for file in ["bash-completion/completions/narrows", "zsh/vendor-completions/_narrows"] {
            let text = fs::read_to_string(folder.join("share").join(file)).unwrap();
            assert!(text.contains("reconfigure"), "{file}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn indented_lines_stay_as_they_are() {
        let text = section("X", "One\ntwo.\n\n  a  b\n\n  c\nend").to_roff();
        assert_eq!(text, ".SH X\nOne\ntwo.\n.PP\n.PP\n.nf\n  a  b\n.sp\n  c\n.fi\n.PP\nend\n");
    }
}
