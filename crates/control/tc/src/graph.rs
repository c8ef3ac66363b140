//! `tc -g class show`: the classes of a device as a tree.
//!
//! As `tc` draws it, with two exceptions: classes are in the order of their numbers, not in the
//! kernel's; and the line that `tc` prints after each branch is missing, because `tc` prints it
//! from freed memory.

use std::fmt::Write;

/// A class, and its children.
pub(crate) struct Node {
    /// Its number.
    pub(crate) id: String,
    /// Its kind.
    pub(crate) kind: &'static str,
    /// Its parameters.
    pub(crate) options: String,
    /// Its statistics, one line each, if wanted.
    pub(crate) figures: Vec<String>,
    pub(crate) below: Vec<Self>,
}

/// Draws all roots, one below the other.
pub(crate) fn draw(roots: &[Node]) -> String {
    let mut text = String::new();
    branch(roots, "", &mut text);
    text
}

/// Draws the siblings `nodes`, indented by `indent`.
fn branch(nodes: &[Node], indent: &str, text: &mut String) {
    for (number, node) in nodes.iter().enumerate() {
        let is_last = number + 1 == nodes.len();
        let Node { id, kind, options, .. } = node;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{indent}+---({id}) {kind} {options}");
        figures(node, is_last, indent, text);
        let further = format!("{indent}{}", if is_last { "     " } else { "|    " });
        branch(&node.below, &further, text);
    }
}

fn figures(node: &Node, is_last: bool, indent: &str, text: &mut String) {
    if node.figures.is_empty() {
        return;
    }
    let bar = match (is_last, node.below.is_empty()) {
        (false, false) => "|    |",
        (false, true) => "|     ",
        (true, false) => "     |",
        (true, true) => "      ",
    };
    // Aligned below the kind.
    let spaces = " ".repeat((node.kind.len() + node.id.len()).saturating_sub(2));
    for line in &node.figures {
        let _ = writeln!(text, "{indent}{bar}{spaces}{line}");
    }
    if !is_last || !node.below.is_empty() {
        let _ = writeln!(text, "{indent}{bar}");
    }
}
