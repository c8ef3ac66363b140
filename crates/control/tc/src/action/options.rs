//! The options that every action takes: its number, a cookie, and some without effect.

use crate::complaint::Complaint;
use crate::number;
use crate::words::{Words, abbreviates};
use narrows_classify::{Action, ActionKind};
use narrows_policy::{ActionDraft, ActionFlags, Cookie};

/// The complaint about an action of `kind`, in `tc`'s form.
pub(super) fn bad(kind: &str, why: &str) -> Complaint {
    Complaint::wrong(format!("{why}\nbad action parsing\nparse_action: bad value ({kind})!"))
}

/// Options of all actions.
#[derive(Clone, Copy, Default)]
pub(super) struct Common {
    /// Its number among the actions of its kind.
    pub(super) index: Option<u32>,
    /// What its owner notes at it.
    pub(super) cookie: Option<Cookie>,
    /// The options without effect that were given.
    pub(super) flags: ActionFlags,
}

impl Common {
    /// An action of `kind` with these options; without an `action` it names an existing one.
    pub(super) fn draft(self, kind: ActionKind, action: Option<Action>) -> ActionDraft {
        let Self { index, cookie, flags } = self;
        ActionDraft { kind, index, action, cookie, flags }
    }
}

/// Decodes pairs of hexadecimal digits.
fn cookie(word: &str) -> Option<Cookie> {
    let pair = |at| u8::from_str_radix(word.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..word.len()).step_by(2).map(pair).collect();
    let is_hexadecimal = word.bytes().all(|digit| digit.is_ascii_hexdigit());
    Cookie::new(&bytes.filter(|_| is_hexadecimal)?)
}

/// Parses `index N`, `cookie C` and options without effect. False if the next word is none of
/// these.
pub(super) fn common(words: &mut Words, common: &mut Common) -> Result<bool, Complaint> {
    match words.peek() {
        Some(word) if abbreviates(word, "index") => {
            words.next();
            let value = words.value("index", "1")?;
            let number = number::mask(value).filter(|number| *number != 0);
            common.index = Some(number.ok_or_else(|| {
                Complaint::wrong(format!("Illegal \"index\" {value}: a number from 1."))
            })?);
        }
        Some("cookie") => {
            words.next();
            let value = words.value("cookie", "a1b2")?;
            common.cookie = Some(cookie(value).ok_or_else(|| {
                Complaint::unreadable(format!(
                    "Error: argument \"{value}\" is wrong: cookie: 1 to 16 bytes, two hexadecimal digits each."
                ))
            })?);
        }
        // How the kernel counts, and that hardware is not to be used: no choice here.
        Some("no_percpu") => {
            words.next();
            common.flags.no_percpu = true;
        }
        Some("skip_hw") => {
            words.next();
            common.flags.skips_hardware = true;
        }
        Some("hw_stats") => {
            words.next();
            words.value("hw_stats", "disabled")?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}
