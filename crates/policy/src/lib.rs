//! What the operator asked for, as a typed and validated tree.
