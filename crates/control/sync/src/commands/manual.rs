//! `narrows-sync manual`: man pages and completions, which packages call when they are built.

use anyhow::Context as _;
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use std::fs;
use std::path::{Path, PathBuf};

/// Write man pages and completions for bash, zsh and fish below a directory.
#[derive(Args)]
pub struct Manual {
    /// The directory, such as /usr/local. It is created.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// The manual section for system administration programs.
const SECTION: &str = "8";

impl Manual {
    /// Writes everything for `command`, the whole program.
    pub fn execute(self, command: Command) -> anyhow::Result<()> {
        let pages = self.directory.join("share/man/man8");
        let mut built = command.clone().disable_help_subcommand(true);
        built.build();
        let name = built.get_name().to_owned();
        write_page(&pages, built.clone(), &name)?;
        for below in built.get_subcommands().filter(|below| !below.is_hide_set()) {
            write_page(&pages, below.clone(), &format!("{name}-{}", below.get_name()))?;
        }
        for (shell, folder, file) in [
            (Shell::Bash, "share/bash-completion/completions", name.clone()),
            (Shell::Zsh, "share/zsh/vendor-completions", format!("_{name}")),
            (Shell::Fish, "share/fish/vendor_completions.d", format!("{name}.fish")),
        ] {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut command.clone(), name.as_str(), &mut text);
            write(&self.directory.join(folder).join(file), &text)?;
        }
        Ok(())
    }
}

fn write_page(folder: &Path, command: Command, title: &str) -> anyhow::Result<()> {
    let man = Man::new(command)
        .title(title.to_uppercase())
        .section(SECTION)
        .source(format!("narrows {}", env!("CARGO_PKG_VERSION")))
        .manual("System Manager's Manual");
    let mut text = Vec::new();
    man.render(&mut text)?;
    write(&folder.join(format!("{title}.{SECTION}")), &text)
}

fn write(file: &Path, text: &[u8]) -> anyhow::Result<()> {
    let write = || {
        fs::create_dir_all(file.parent().unwrap_or(Path::new("/")))?;
        fs::write(file, text)
    };
    write().with_context(|| format!("cannot write {}", file.display()))
}
