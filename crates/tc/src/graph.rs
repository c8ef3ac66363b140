//! `tc -g class show`: the classes of a device as a tree of lines.
//!
//! As `tc` draws it, but for two things: classes are in the order of their numbers, where `tc` has
//! the kernel's, and the line that `tc` leaves behind each branch is not there: it is made of what
//! stood in memory that it has given back.

use std::fmt::Write;

/// A class, and those below it.
pub(crate) struct Node {
    /// Its number.
    pub(crate) id: String,
    /// Its kind.
    pub(crate) kind: &'static str,
    /// Its parameters.
    pub(crate) options: String,
    /// Its figures, a line each, where asked for.
    pub(crate) figures: Vec<String>,
    pub(crate) below: Vec<Self>,
}

/// All of them, one below the other.
pub(crate) fn draw(roots: &[Node]) -> String {
    let mut text = String::new();
    branch(roots, "", &mut text);
    text
}

/// Draws `nodes`, which have the same parent, behind `indent`.
fn branch(nodes: &[Node], indent: &str, text: &mut String) {
    for (number, node) in nodes.iter().enumerate() {
        let is_last = number + 1 == nodes.len();
        let Node { id, kind, options, .. } = node;
        // Writing to a string does not fail.
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
    // Below the kind.
    let spaces = " ".repeat((node.kind.len() + node.id.len()).saturating_sub(2));
    for line in &node.figures {
        let _ = writeln!(text, "{indent}{bar}{spaces}{line}");
    }
    if !is_last || !node.below.is_empty() {
        let _ = writeln!(text, "{indent}{bar}");
    }
}
