//! `narrows manual`: what this program has beside its command line.

use clap_complete::Shell;
use narrows_program::manual::Extras;

/// For [`Manual`](narrows_program::manual::Manual).
pub const EXTRAS: Extras<'static> =
    Extras { elsewhere: &["fleet", "sync"], files: FILES, see: &["tc"], script: with_words };

const FILES: &str = "  /etc/narrows/NAME.conf      ports and options of narrows@NAME.service
  /etc/narrows/NAME.tc        its policy
  /run/narrows                the control sockets of running instances
  /usr/share/doc/narrows      the guide and the reference";

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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;
    use narrows_program::manual::Manual;
    use std::fs;

    #[test]
    fn every_command_has_a_page_with_examples() {
        let folder = std::env::temp_dir().join(format!("nrw-manual-{}", std::process::id()));
        let command = crate::Cli::command();
        Manual::into(folder.clone()).execute(command.clone(), EXTRAS).unwrap();
        let shown = command.get_subcommands().filter(|below| !below.is_hide_set());
        for below in shown.filter(|below| !EXTRAS.elsewhere.contains(&below.get_name())) {
            let name = below.get_name();
            let page = folder.join(format!("share/man/man8/narrows-{name}.8"));
            let text = fs::read_to_string(&page).unwrap();
            assert!(text.contains("SH EXAMPLES"), "{name} shows no example");
            assert!(text.contains(&format!("narrows {name}")), "{name}");
        }
        for name in EXTRAS.elsewhere {
            let page = folder.join(format!("share/man/man8/narrows-{name}.8"));
            assert!(!page.exists(), "the package narrows-{name} has {}, too", page.display());
        }
        for file in ["bash-completion/completions/narrows", "zsh/vendor-completions/_narrows"] {
            let text = fs::read_to_string(folder.join("share").join(file)).unwrap();
            assert!(text.contains("reconfigure"), "{file}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
