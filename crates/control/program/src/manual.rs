//! Man pages and completions, generated from the definition of the command line.
//!
//! Packages call the hidden command `manual` of each program when they are built; users find its
//! results in the usual places. The pages are `NAME(8)` and one for each command,
//! `NAME-COMMAND(8)`. Their text is that of `--help`; the part after "Examples:" becomes the
//! section of that name.

use anyhow::Context as _;
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

/// What a program has beside its command line.
#[derive(Clone, Copy)]
pub struct Extras<'a> {
    /// Commands that are programs of their own. Their packages have their pages.
    pub elsewhere: &'a [&'a str],
    /// The section about files, indented; none if it is empty.
    pub files: &'a str,
    /// Related pages of other programs.
    pub see: &'a [&'a str],
    /// What is changed in the script of a shell.
    pub script: fn(Shell, String) -> String,
}

/// Those of a program beside `narrows`.
pub const BESIDE: Extras<'static> =
    Extras { elsewhere: &[], files: "", see: &["narrows"], script: |_, script| script };

/// The manual section for system administration programs.
const SECTION: &str = "8";
/// Marks the start of the examples in a help text.
const EXAMPLES: &str = "Examples:";

impl Manual {
    /// Into `directory`.
    pub fn into(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Writes everything for `command`, the whole program.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn execute(self, command: Command, extras: Extras<'_>) -> anyhow::Result<ExitCode> {
        let pages = self.directory.join("share/man/man8");
        make(&pages)?;
        let mut built = command.clone().disable_help_subcommand(true);
        built.build();
        let name = built.get_name().to_owned();
        let shown: Vec<&Command> =
            built.get_subcommands().filter(|command| !command.is_hide_set()).collect();
        let see: Vec<String> =
            shown.iter().map(|one| format!("{name}-{}", one.get_name())).collect();
        write(&pages.join(format!("{name}.{SECTION}")), &page(&built, &name, &see, extras)?)?;
        let own =
            shown.iter().zip(&see).filter(|(one, _)| !extras.elsewhere.contains(&one.get_name()));
        for (command, title) in own {
            write_pages(&pages, command, title, &name, extras)?;
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
            write(&folder.join(file), (extras.script)(shell, text).as_bytes())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes the page of `command`, and those of its subcommands.
fn write_pages(
    folder: &Path,
    command: &Command,
    title: &str,
    above: &str,
    extras: Extras<'_>,
) -> anyhow::Result<()> {
    let shown = command.get_subcommands().filter(|below| !below.is_hide_set());
    let below: Vec<(&Command, String)> =
        shown.map(|below| (below, format!("{title}-{}", below.get_name()))).collect();
    let names = below.iter().map(|(_, title)| title.clone());
    let see: Vec<String> = std::iter::once(above.to_owned()).chain(names).collect();
    write(&folder.join(format!("{title}.{SECTION}")), &page(command, title, &see, extras)?)?;
    below.iter().try_for_each(|(command, below)| write_pages(folder, command, below, title, extras))
}

fn make(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}

fn write(file: &Path, text: &[u8]) -> anyhow::Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// The page of `command`, with the names of related pages.
fn page(
    command: &Command,
    title: &str,
    see: &[String],
    extras: Extras<'_>,
) -> anyhow::Result<Vec<u8>> {
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
    if !extras.files.is_empty() {
        section("FILES", extras.files).to_writer(&mut text)?;
    }
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]);
    let pages = see.iter().map(String::as_str).chain(extras.see.iter().copied());
    let mut inlines = Vec::new();
    for (index, page) in pages.enumerate() {
        inlines.extend([roman(if index == 0 { "" } else { ", " }), bold(page)]);
        inlines.push(roman(format!("({SECTION})")));
    }
    roff.text(inlines);
    roff.to_writer(&mut text)?;
    Ok(text)
}

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

    #[test]
    fn indented_lines_stay_as_they_are() {
        let text = section("X", "One\ntwo.\n\n  a  b\n\n  c\nend").to_roff();
        assert_eq!(text, ".SH X\nOne\ntwo.\n.PP\n.PP\n.nf\n  a  b\n.sp\n  c\n.fi\n.PP\nend\n");
    }
}
