//! Filters as terms: what keys under masks cannot say, and actions.
//!
//! *Expressions.* Each comparison becomes a test, which says what comes next if it holds and if it
//! does not. `and`, `or` and `not` are only a matter of where these lead, so an expression has as
//! many tests as comparisons. It is walked from its end, as a test leads to what is behind it.

use crate::{Numbers, Refusal, headers};
use narrows_bpf::tree::term::{
    ACTIONS_MAX, Does, Layer, Next, Number, Relation, TERMS_MAX, TESTS_MAX, Term, Test,
};
use narrows_classify::{self as classify, Action, Control, Expression, Filter, Flower, Matches, Sheaf};
use narrows_policy::BoundAction;

/// The actions of filters.
pub(crate) struct Acting<'a> {
    pub(crate) actions: &'a Sheaf<BoundAction>,
    /// The numbers under which they count.
    pub(crate) numbers: &'a Numbers,
}

/// The terms of `filters`; `class` gives the number of the class that a filter assigns.
pub(crate) fn terms(
    filters: &[&Filter],
    acting: &Acting<'_>,
    class: impl Fn(u32) -> u32,
) -> Result<Vec<Term>, Refusal> {
    let what = "filters that have actions, or ask for more than mark, protocols, addresses, ports and \
                ip_tos";
    at_most(what, TERMS_MAX, filters.len())?;
    filters.iter().map(|filter| term(filter, acting, &class)).collect()
}

fn at_most(what: &'static str, room: usize, needed: usize) -> Result<(), Refusal> {
    if needed > room { Err(Refusal::Room { what, room, needed }) } else { Ok(()) }
}

fn term(
    filter: &Filter,
    acting: &Acting<'_>,
    class: impl Fn(u32) -> u32,
) -> Result<Term, Refusal> {
    let (mut flower, mut tests) = (Flower::default(), Tests::default());
    let first = match &filter.matches {
        Matches::All | Matches::Basic(None) => Next::Matches,
        Matches::Flower(of) => {
            flower = *of;
            Next::Matches
        }
        Matches::Words(words) => tests.all(words.iter().map(word)),
        Matches::Mark(mark) => tests.all([Question {
            mask: mark.mask,
            value: mark.value & mark.mask,
            ..Question::whether(Number::Mark)
        }]),
        Matches::Basic(Some(expression)) => tests.add(expression, Next::Matches, Next::Fails)?,
    };
    let Tests(tests) = tests;
    at_most("comparisons in a filter", TESTS_MAX, tests.len())?;
    let (does, actions) = acted(filter, acting, class)?;
    let headers = headers(filter.protocol, &flower);
    Ok(Term { order: filter.order(), headers, first, tests, does, actions })
}

/// What `filter` does, and the numbers of the actions that a packet meets.
fn acted(
    filter: &Filter,
    acting: &Acting<'_>,
    class: impl Fn(u32) -> u32,
) -> Result<(Does, Vec<u32>), Refusal> {
    let mut met = Vec::new();
    let mut end = Control::Pipe;
    for id in &filter.actions {
        let Some(bound) = acting.actions.get(id.key()) else { continue };
        let control = match bound.action {
            Action::Gact { control: Control::Reclassify, .. } => {
                return refused("reclassify", "write drop, pass, continue or pipe");
            }
            Action::Gact { random: Some(_), .. } => {
                return refused("random drops", "say what happens to each packet");
            }
            Action::Gact { control, random: None } => control,
            Action::Police(_) | Action::Skbedit { .. } => {
                let instead = "give them to a filter at ingress of the other port";
                return refused("police and skbedit at a qdisc", instead);
            }
        };
        if end == Control::Pipe {
            met.extend(acting.numbers.action(*id));
            end = control;
        }
    }
    at_most("actions of a filter", ACTIONS_MAX, met.len())?;
    let does = match end {
        Control::Drop => Does::Drops,
        Control::Continue => Does::Continues,
        _ if filter.class == 0 => Does::Defaults,
        _ => Does::Assigns(class(filter.class)),
    };
    Ok((does, met))
}

fn refused<T>(what: &'static str, instead: &'static str) -> Result<T, Refusal> {
    Err(Refusal::Filter { what, instead })
}

/// A comparison: the part of a [`Test`] that is not about others.
#[derive(Clone, Copy)]
struct Question {
    number: Number,
    shift: u8,
    mask: u32,
    relation: Relation,
    value: u32,
}

impl Question {
    /// Whether `number` is 0.
    fn whether(number: Number) -> Self {
        Self { number, shift: 0, mask: u32::MAX, relation: Relation::Equal, value: 0 }
    }
}

/// Tests in the order in which they were added: each behind those to which it leads.
#[derive(Default)]
struct Tests(Vec<Test>);

impl Tests {
    /// Adds the tests of `expression`, which lead to `then` where it holds and to `otherwise` where
    /// not. Returns where it begins.
    fn add(&mut self, expression: &Expression, then: Next, otherwise: Next) -> Result<Next, Refusal> {
        Ok(match expression {
            Expression::And(all) => {
                all.iter().rev().try_fold(then, |next, one| self.add(one, next, otherwise))?
            }
            Expression::Or(any) => {
                any.iter().rev().try_fold(otherwise, |next, one| self.add(one, then, next))?
            }
            Expression::Not(not) => self.add(not, otherwise, then)?,
            Expression::Word(selector) => self.ask(word(selector), then, otherwise),
            Expression::Number { at, size, mask, is_little_endian, relation, value } => {
                let (offset, size) = (at.offset, *size);
                let is_little_endian = *is_little_endian;
                let number = Number::At { layer: layer(at.layer), offset, size, is_little_endian };
                let (shift, mask, relation) = (0, all_or(*mask), self::relation(*relation));
                let value = *value;
                self.ask(Question { number, shift, mask, relation, value }, then, otherwise)
            }
            Expression::Bytes { at, bytes } => {
                let pieces: Vec<Question> = pieces(at, bytes).collect();
                let ask = |next, piece: &Question| self.ask(*piece, next, otherwise);
                pieces.iter().rev().fold(then, ask)
            }
            Expression::Meta { what, shift, mask, relation, value } => {
                let number = match what {
                    classify::Meta::Mark => Number::Mark,
                    classify::Meta::Length => Number::Length,
                    classify::Meta::Protocol => Number::EtherType,
                    classify::Meta::Vlan => Number::Tag,
                    classify::Meta::Priority => Number::Priority,
                };
                let (mask, relation) = (all_or(*mask), self::relation(*relation));
                let (shift, value) = (*shift, *value);
                self.ask(Question { number, shift, mask, relation, value }, then, otherwise)
            }
            Expression::Set(_) => {
                let instead = "look the set up at ingress of the other port";
                return refused("ipset() at a qdisc", instead);
            }
        })
    }

    /// Adds those for all of `questions`.
    fn all(&mut self, questions: impl IntoIterator<Item = Question>) -> Next {
        let ask = |next, question| self.ask(question, next, Next::Fails);
        questions.into_iter().fold(Next::Matches, ask)
    }

    fn ask(&mut self, question: Question, then: Next, otherwise: Next) -> Next {
        let Question { number, shift, mask, relation, value } = question;
        self.0.push(Test { number, shift, mask, relation, value, then, otherwise });
        // An index that does not fit is of more tests than a term has, which is refused.
        Next::Test(u8::try_from(self.0.len() - 1).unwrap_or(u8::MAX))
    }
}

fn word(selector: &classify::Selector) -> Question {
    let classify::Selector { value, mask, offset, is_behind_ip } = *selector;
    let layer = if is_behind_ip { Layer::Transport } else { Layer::Network };
    let number = Number::At { layer, offset, size: 4, is_little_endian: false };
    Question { mask, value: value & mask, ..Question::whether(number) }
}

/// The numbers of 4, 2 and 1 bytes that `bytes` are.
fn pieces(at: &classify::Spot, bytes: &[u8]) -> impl Iterator<Item = Question> {
    let (from, layer) = (at.offset, layer(at.layer));
    let mut left = bytes;
    let mut place = 0_usize;
    std::iter::from_fn(move || {
        let size = [4, 2, 1].into_iter().find(|size| *size <= left.len())?;
        let (piece, behind) = left.split_at(size);
        let value = piece.iter().fold(0, |value, byte| value << 8 | u32::from(*byte));
        // What is beyond any offset is beyond any frame.
        let offset = from.saturating_add(i16::try_from(place).unwrap_or(i16::MAX));
        (left, place) = (behind, place + size);
        let number = Number::At { layer, offset, size: size as u8, is_little_endian: false };
        Some(Question { value, ..Question::whether(number) })
    })
}

fn layer(layer: classify::Layer) -> Layer {
    match layer {
        classify::Layer::Link => Layer::Link,
        classify::Layer::Network => Layer::Network,
        classify::Layer::Transport => Layer::Transport,
    }
}

fn relation(relation: classify::Relation) -> Relation {
    match relation {
        classify::Relation::Equal => Relation::Equal,
        classify::Relation::Less => Relation::Less,
        classify::Relation::Greater => Relation::Greater,
    }
}

/// As in the kernel, a mask of 0 means all bits.
fn all_or(mask: u32) -> u32 {
    if mask == 0 { u32::MAX } else { mask }
}
