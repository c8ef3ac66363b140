//! What programs count, by kind.

/// Declares an enumeration of what becomes of frames, in the order in which a program counts them,
/// with the name of each.
macro_rules! named {
    (
        $(#[doc = $what:literal])*
        $kind:ident { $($(#[doc = $doc:literal])* $one:ident $name:literal,)* }
    ) => {
        $(#[doc = $what])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $kind {
            $($(#[doc = $doc])* $one,)*
        }

        impl $kind {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$one),*];

            /// Its name, as counters have it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$one => $name,)*
                }
            }
        }
    };
}

pub(crate) use named;
