//! Which interface of which container a command is about: CNI's environment variables.

use crate::CniError;
use std::path::PathBuf;

/// The longest name of an interface, in bytes.
const NAME_MAX: usize = 15;

/// An interface in a container.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Attachment {
    /// The container's network namespace; none if the runtime knows of none any more.
    pub(crate) namespace: Option<PathBuf>,
    /// The interface's name there.
    pub(crate) interface: String,
}

impl Attachment {
    /// Reads it from variables. `DEL` needs no namespace: it may be gone.
    pub(crate) fn read(
        var: &dyn Fn(&str) -> Option<String>,
        needs_namespace: bool,
    ) -> Result<Self, CniError> {
        let value = |name: &str| var(name).filter(|value| !value.is_empty());
        let mut names = vec!["CNI_CONTAINERID", "CNI_IFNAME"];
        names.extend(needs_namespace.then_some("CNI_NETNS"));
        let missing: Vec<&str> = names.into_iter().filter(|name| value(name).is_none()).collect();
        if !missing.is_empty() {
            let missing = missing.join(", ");
            return Err(CniError::Environment(format!("these variables are not set: {missing}")));
        }
        let id = value("CNI_CONTAINERID").unwrap_or_default();
        if !is_id(&id) {
            return Err(CniError::Environment(format!(
                "CNI_CONTAINERID is \"{id}\": it is letters, digits, \"_\", \".\" and \"-\", and \
                 begins with a letter or a digit"
            )));
        }
        let interface = value("CNI_IFNAME").unwrap_or_default();
        if !is_interface(&interface) {
            return Err(CniError::Environment(format!(
                "CNI_IFNAME is \"{interface}\", which is no name of an interface: it has at most \
                 {NAME_MAX} bytes, no space, \"/\" or \":\""
            )));
        }
        Ok(Self { namespace: value("CNI_NETNS").map(PathBuf::from), interface })
    }
}

fn is_id(id: &str) -> bool {
    id.starts_with(|letter: char| letter.is_ascii_alphanumeric())
        && id.chars().all(|letter| letter.is_ascii_alphanumeric() || "_.-".contains(letter))
}

fn is_interface(name: &str) -> bool {
    let legal = |letter: char| !letter.is_whitespace() && !letter.is_control();
    name.len() <= NAME_MAX
        && !matches!(name, "." | "..")
        && name.chars().all(|letter| legal(letter) && !matches!(letter, '/' | ':'))
}
