//! The versions of CNI that are served.

use crate::CniError;

/// A version, in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Version {
    V0_3_0,
    V0_3_1,
    V0_4_0,
    V1_0_0,
    V1_1_0,
}

impl Version {
    pub(crate) const ALL: [Self; 5] =
        [Self::V0_3_0, Self::V0_3_1, Self::V0_4_0, Self::V1_0_0, Self::V1_1_0];
    /// The newest, which answers where the caller says none.
    pub(crate) const NEWEST: Self = Self::V1_1_0;

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V0_3_0 => "0.3.0",
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }

    /// The version called `name`. A configuration that names none is of the oldest CNI.
    pub(crate) fn parse(name: Option<&str>) -> Result<Self, CniError> {
        let name = name.unwrap_or("0.1.0");
        let found = Self::ALL.into_iter().find(|version| version.name() == name);
        found.ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            CniError::Version(format!(
                "cniVersion \"{name}\" is not served: write one of {known} into the configuration"
            ))
        })
    }

    /// Whether IP addresses of a result say their family.
    pub(crate) fn names_families(self) -> bool {
        self < Self::V1_0_0
    }
}
