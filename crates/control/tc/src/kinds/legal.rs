//! The values of parameters: one that cannot be read gets a complaint with what it should be.

use crate::complaint::Complaint;

/// The value of a parameter, or a complaint with what it should be.
pub(super) fn legal<T>(
    kind: &str,
    name: &str,
    value: &str,
    read: impl Fn(&str) -> Option<T>,
    hint: &str,
) -> Result<T, Complaint> {
    read(value).ok_or_else(|| {
        Complaint::wrong(format!("{kind}: illegal value for \"{name}\": \"{value}\": {hint}."))
    })
}
