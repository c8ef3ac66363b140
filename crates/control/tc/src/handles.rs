//! The handles and parents that commands name.

use crate::complaint::Complaint;
use crate::number;
use narrows_policy::{Handle, Parent};

/// The handle of a qdisc: `1:`. `None` for the word that means none.
pub(crate) fn handle(word: &str) -> Result<Option<Handle>, Complaint> {
    number::handle(word).ok_or_else(|| {
        Complaint::unreadable(format!(
            "Error: argument \"{word}\" is wrong: a handle is a hexadecimal number up to 7fffffff and a colon, as 1:."
        ))
    })
}

/// The place of a qdisc or class: `root` or `1:2`. `None` for the word that means none.
pub(crate) fn parent(word: &str) -> Result<Option<Parent>, Complaint> {
    number::parent(word).ok_or_else(|| {
        Complaint::unreadable(format!(
            "Error: argument \"{word}\" is wrong: a parent is two hexadecimal numbers up to 7fffffff with a colon between, as 1:2, or root."
        ))
    })
}
