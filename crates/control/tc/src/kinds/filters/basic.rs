//! The expressions of `basic`.
//!
//! Parentheses may be part of a word or alone: `not u32(u16 0x1122 0xffff at 4)` is one word or
//! many, depending on the shell's quoting.

use super::selector;
use crate::complaint::Complaint;
use crate::number;
use crate::words::Words;
use narrows_classify::{
    EXPRESSION_DEPTH_MAX, End, Expression, Layer, Meta, Relation, Selector, SetMatch, Spot,
};
use std::fmt::Write;

/// The most comparisons in a list.
const LIST_MAX: usize = 64;

const METAS: [(&str, Meta); 7] = [
    ("nf_mark", Meta::Mark),
    ("fwmark", Meta::Mark),
    ("pkt_len", Meta::Length),
    ("protocol", Meta::Protocol),
    ("vlan", Meta::Vlan),
    ("vlan_tag", Meta::Vlan),
    ("priority", Meta::Priority),
];

const RELATIONS: [(&str, Relation); 3] =
    [("eq", Relation::Equal), ("lt", Relation::Less), ("gt", Relation::Greater)];

/// Parses an expression. It ends before the first word that cannot continue it.
pub(super) fn parse(words: &mut Words) -> Result<Expression, Complaint> {
    let mut tokens = Tokens { words, open: Vec::new() };
    let expression = tokens.any(0)?;
    match tokens.open.is_empty() {
        true => Ok(expression),
        false => Err(illegal("a parenthesis too many")),
    }
}

fn illegal(why: &str) -> Complaint {
    Complaint::wrong(format!(
        "Illegal \"ematch\": {why}. An expression is cmp(u16 at 0 layer 1 eq 5), \
         u32(u16 0x1122 0xffff at 4), nbyte(\"abc\" at 0 layer 2), meta(nf_mark gt 24), \
         ipset(blocklist src), joined by and, or, not and parentheses."
    ))
}

/// Words, split at blanks and parentheses.
struct Tokens<'w, 'a> {
    words: &'w mut Words<'a>,
    /// The rest of a word, the next part last.
    open: Vec<String>,
}

impl Tokens<'_, '_> {
    fn peek(&mut self) -> Option<&str> {
        if self.open.is_empty() {
            let mut parts: Vec<String> = vec![String::new()];
            for letter in self.words.peek()?.chars() {
                match letter {
                    '(' | ')' => parts.extend([letter.to_string(), String::new()]),
                    // The shell passes a quoted string as one word.
                    letter if letter.is_whitespace() => parts.push(String::new()),
                    letter => parts.last_mut()?.push(letter),
                }
            }
            parts.retain(|part| !part.is_empty());
            self.words.next();
            self.open = parts.into_iter().rev().collect();
        }
        self.open.last().map(String::as_str)
    }

    fn next(&mut self) -> Option<String> {
        self.peek()?;
        self.open.pop()
    }

    /// Whether the next token is `token`; if so, skips it.
    fn passes(&mut self, token: &str) -> bool {
        let is = match self.open.is_empty() {
            // A word that does not belong to the expression stays whole for the next parser.
            true => {
                self.words.peek().is_some_and(|word| word.starts_with(token))
                    && self.peek() == Some(token)
            }
            false => self.peek() == Some(token),
        };
        if is {
            self.open.pop();
        }
        is
    }

    fn expect(&mut self, token: &str) -> Result<(), Complaint> {
        match self.passes(token) {
            true => Ok(()),
            false => Err(illegal(&format!("a {token} is missing"))),
        }
    }

    fn any(&mut self, depth: usize) -> Result<Expression, Complaint> {
        if depth > EXPRESSION_DEPTH_MAX {
            return Err(illegal("too many parentheses"));
        }
        let mut items = vec![self.one(depth)?];
        let mut joints = Vec::new();
        loop {
            match () {
                () if self.passes("and") => joints.push(false),
                () if self.passes("or") => joints.push(true),
                () => break,
            }
            items.push(self.one(depth)?);
            if items.len() > LIST_MAX {
                return Err(illegal("too many comparisons"));
            }
        }
        // As in the kernel, `and` and `or` have the same precedence: each joins only the next
        // comparison.
        let last = items.pop().ok_or_else(|| illegal("nothing to match"))?;
        let earlier = items.into_iter().zip(joints).rev();
        Ok(earlier.fold(last, |rest, (item, is_or)| match (rest, is_or) {
            (Expression::And(mut all), false) if all.len() > 1 => {
                all.insert(0, item);
                Expression::And(all)
            }
            (Expression::Or(mut any), true) if any.len() > 1 => {
                any.insert(0, item);
                Expression::Or(any)
            }
            (rest, false) => Expression::And(vec![item, rest]),
            (rest, true) => Expression::Or(vec![item, rest]),
        }))
    }

    fn one(&mut self, depth: usize) -> Result<Expression, Complaint> {
        if self.passes("not") {
            if depth > EXPRESSION_DEPTH_MAX {
                return Err(illegal("too many negations"));
            }
            return Ok(Expression::Not(Box::new(self.one(depth + 1)?)));
        }
        if self.passes("(") {
            let inner = self.any(depth + 1)?;
            self.expect(")")?;
            // A list of one represents parentheses.
            return Ok(Expression::And(vec![inner]));
        }
        let name = self.next().ok_or_else(|| illegal("nothing to match"))?;
        self.expect("(")?;
        let mut inner = Vec::new();
        while let Some(token) = self.next().filter(|token| token != ")") {
            inner.push(token);
        }
        let refused = |why: &str| {
            Err(Complaint::wrong(format!("Error: {name} is not supported here: {why}.")))
        };
        match name.as_str() {
            "canid" | "ipt" => refused("frames at a port pass no firewall"),
            "text" => refused("no filter searches a payload: nbyte compares at one place"),
            _ => {
                leaf(&name, &inner).ok_or_else(|| illegal(&format!("{name}({})", inner.join(" "))))
            }
        }
    }
}

fn leaf(name: &str, inner: &[String]) -> Option<Expression> {
    let inner: Vec<&str> = inner.iter().map(String::as_str).collect();
    let mut words = Words::new(&inner);
    let expression = match name {
        "u32" => {
            let size = words.next()?;
            Expression::Word(selector::placed(size, &mut words)?)
        }
        "cmp" => {
            let size = match words.next()? {
                "u8" => 1,
                "u16" => 2,
                "u32" => 4,
                _ => return None,
            };
            let mut at = spot(&mut words)?;
            let (mut mask, mut is_little_endian) = (0, false);
            let relation = loop {
                match words.next()? {
                    "layer" => at.layer = layer(words.next()?)?,
                    "mask" => mask = number::mask(words.next()?)?,
                    "trans" => is_little_endian = true,
                    word => break relation(word)?,
                }
            };
            let value = number::mask(words.next()?)?;
            Expression::Number { at, size, mask, is_little_endian, relation, value }
        }
        "nbyte" => {
            let bytes = words.next()?.trim_matches('"').as_bytes().to_vec();
            let mut at = spot(&mut words)?;
            if words.peek() == Some("layer") {
                words.next();
                at.layer = layer(words.next()?)?;
            }
            // Bytes that a file of commands can hold as they are.
            let is_plain = |byte: &u8| byte.is_ascii_graphic() && !b"#\"'\\".contains(byte);
            (!bytes.is_empty() && bytes.iter().all(is_plain)).then_some(())?;
            Expression::Bytes { at, bytes }
        }
        "meta" => {
            let word = words.next()?;
            let (_, what) = *METAS.iter().find(|(known, _)| *known == word)?;
            let (mut shift, mut mask) = (0, 0);
            let relation = loop {
                match words.next()? {
                    "shift" => shift = words.next()?.parse().ok().filter(|shift| *shift < 32)?,
                    "mask" => mask = number::mask(words.next()?)?,
                    word => break relation(word)?,
                }
            };
            let value = number::mask(words.next()?)?;
            Expression::Meta { what, shift, mask, relation, value }
        }
        "ipset" => {
            let set = words.next()?;
            let mut ends = words.next()?.split(',').map(end);
            let (address, port) = (ends.next()??, ends.next());
            (!set.is_empty() && ends.next().is_none()).then_some(())?;
            let port = port.map_or(Some(None), |port| port.map(Some))?;
            Expression::Set(SetMatch { set: set.into(), address, port })
        }
        _ => return None,
    };
    words.next().is_none().then_some(expression)
}

fn end(word: &str) -> Option<End> {
    match word {
        "src" => Some(End::Source),
        "dst" => Some(End::Destination),
        _ => None,
    }
}

fn end_name(end: End) -> &'static str {
    match end {
        End::Source => "src",
        End::Destination => "dst",
    }
}

fn spot(words: &mut Words) -> Option<Spot> {
    (words.next()? == "at").then_some(())?;
    // As in the kernel.
    Some(Spot { layer: Layer::Network, offset: words.next()?.parse().ok()? })
}

fn layer(word: &str) -> Option<Layer> {
    Some(match word {
        "link" | "0" => Layer::Link,
        "network" | "1" => Layer::Network,
        "transport" | "2" => Layer::Transport,
        _ => return None,
    })
}

fn relation(word: &str) -> Option<Relation> {
    RELATIONS.iter().find(|(name, _)| *name == word).map(|(_, relation)| *relation)
}

fn relation_name(relation: Relation) -> &'static str {
    RELATIONS.iter().find(|(_, of)| *of == relation).map_or("eq", |(name, _)| name)
}

/// The expression as `tc` prints it, at nesting depth `depth`: one comparison per line.
pub(super) fn text(expression: &Expression, depth: usize) -> String {
    let (list, joint) = match expression {
        Expression::And(all) if all.len() > 1 => (all.as_slice(), "AND"),
        Expression::Or(any) if any.len() > 1 => (any.as_slice(), "OR"),
        one => return member(one, depth),
    };
    let mut text = String::new();
    for (index, one) in list.iter().enumerate() {
        if index > 0 {
            // Writing to a string cannot fail.
            let _ = write!(text, "{:width$}{joint} ", "", width = 2 * depth);
        }
        text += &if index + 1 < list.len() { member(one, depth) } else { self::text(one, depth) };
    }
    text
}

fn member(expression: &Expression, depth: usize) -> String {
    match expression {
        Expression::Not(not) => format!("NOT {}", member(not, depth)),
        Expression::And(list) | Expression::Or(list) => {
            let inner: String = list.iter().map(|one| text(one, depth + 1)).collect();
            let width = 2 * depth;
            format!("(\n{:inside$}{inner}{:width$})\n", "", "", inside = width + 2)
        }
        one => shown(one) + "\n",
    }
}

/// One comparison.
fn shown(expression: &Expression) -> String {
    let layer = |layer: &Layer| match layer {
        Layer::Link => 0,
        Layer::Network => 1,
        Layer::Transport => 2,
    };
    match expression {
        Expression::Word(Selector { value, mask, offset, is_behind_ip }) => {
            let from = if *is_behind_ip { "nexthdr+" } else { "" };
            format!("u32({value:08x}/{mask:08x} at {from}{offset})")
        }
        Expression::Number { at, size, mask, is_little_endian, relation, value } => {
            let mask = if *mask == 0 { String::new() } else { format!("mask {mask:#x} ") };
            let trans = if *is_little_endian { "trans " } else { "" };
            let (bits, offset, layer) = (size * 8, at.offset, layer(&at.layer));
            let relation = relation_name(*relation);
            format!("cmp(u{bits} at {offset} layer {layer} {mask}{trans}{relation} {value})")
        }
        Expression::Bytes { at, bytes } => {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x} ")).collect();
            let letter = |byte: &u8| if (b' '..=b'~').contains(byte) { *byte as char } else { '.' };
            let letters: String = bytes.iter().map(letter).collect();
            format!("nbyte({digits}\"{letters}\" at {} layer {})", at.offset, layer(&at.layer))
        }
        Expression::Meta { what, shift, mask, relation, value } => {
            let name = METAS.iter().find(|(_, of)| of == what).map_or("nf_mark", |(name, _)| name);
            let shift = if *shift == 0 { String::new() } else { format!(" shift {shift}") };
            let mask = if *mask == 0 { String::new() } else { format!(" mask {mask:#010x}") };
            format!("meta({name}{shift}{mask} {} {value})", relation_name(*relation))
        }
        Expression::Set(SetMatch { set, address, port }) => {
            let port = port.map_or(String::new(), |port| format!(",{}", end_name(port)));
            format!("ipset({set} {}{port})", end_name(*address))
        }
        // The caller prints lists and negations.
        Expression::And(_) | Expression::Or(_) | Expression::Not(_) => String::new(),
    }
}

/// The words that create it.
pub(super) fn save(expression: &Expression) -> String {
    let (list, joint) = match expression {
        Expression::And(all) if all.len() > 1 => (all.as_slice(), " and "),
        Expression::Or(any) if any.len() > 1 => (any.as_slice(), " or "),
        one => return part(one),
    };
    let last = list.len() - 1;
    let parts = list.iter().enumerate();
    let parts = parts.map(|(index, one)| if index < last { part(one) } else { save(one) });
    parts.collect::<Vec<_>>().join(joint)
}

fn part(expression: &Expression) -> String {
    match expression {
        Expression::Not(not) => format!("not {}", part(not)),
        Expression::And(list) | Expression::Or(list) => {
            let inner: Vec<_> = list.iter().map(save).collect();
            format!("( {} )", inner.join(" "))
        }
        Expression::Word(Selector { value, mask, offset, is_behind_ip }) => {
            let from = if *is_behind_ip { "nexthdr+" } else { "" };
            format!("u32( u32 {value:#x} {mask:#x} at {from}{offset} )")
        }
        Expression::Bytes { at, bytes } => {
            let layer = ["link", "network", "transport"][at.layer as usize];
            let bytes = String::from_utf8_lossy(bytes);
            format!("nbyte( {bytes} at {} layer {layer} )", at.offset)
        }
        one => shown(one),
    }
}
