//! Filters as terms: what keys under masks cannot say, and actions.
//!
//! *Expressions.* Each comparison becomes a test, which says what comes next if it holds and if it
//! does not. `and`, `or` and `not` are only a matter of where these lead, so an expression has as
//! many tests as comparisons. It is walked from its end, as a test leads to what is behind it.

use crate::compile::room;
use crate::rules::Assigned;
use crate::{Numbers, Refusal, headers};
use narrows_bpf::tree::term::{
    ACTIONS_MAX, Comparison, Does, Layer, Next, Number, Relation, TERMS_MAX, TESTS_MAX, Term, Test,
};
use narrows_classify::{
    self as classify, Action, Control, Expression, Filter, Flower, Matches, Network, PersistentMap,
    Route,
};
use narrows_policy::BoundAction;

/// The actions of filters.
pub(crate) struct Acting<'a> {
    pub(crate) actions: &'a PersistentMap<BoundAction>,
    /// The numbers under which they count.
    pub(crate) numbers: &'a Numbers,
}

/// The terms of `filters`, those of a scope together.
pub(crate) fn terms(filters: &[Assigned<'_>], acting: &Acting<'_>) -> Result<Vec<Term>, Refusal> {
    let what = "filters that have actions, or ask for more than mark, protocols, addresses, ports and \
                ip_tos";
    room(what, TERMS_MAX, filters.len())?;
    let mut filters = filters.to_vec();
    filters.sort_by_key(|assigned| (assigned.scope, assigned.filter.order()));
    filters.into_iter().map(|assigned| term(assigned, acting)).collect()
}

fn term(assigned: Assigned<'_>, acting: &Acting<'_>) -> Result<Term, Refusal> {
    let Assigned { scope, filter, class } = assigned;
    let network = Network::of(filter.protocol);
    let (mut flower, mut tests) = (Flower::default(), Tests { network, tests: Vec::new() });
    let matches = match &filter.matches {
        Matches::All | Matches::Basic(None) => Next::Matches,
        Matches::Flower(of) => {
            flower = *of;
            Next::Matches
        }
        Matches::Words(words) => {
            tests.all(words.iter().map(|one| word(one, network)), Next::Matches)
        }
        Matches::Mark(mark) if mark.is_impossible() => Next::Fails,
        Matches::Mark(mark) => {
            let value = u64::from(mark.value);
            let mark = masked(Number::Mark, mark.mask, Relation::Equal, value);
            tests.all([mark], Next::Matches)
        }
        Matches::Route(route) => tests.all(route_comparisons(route), Next::Matches),
        Matches::Basic(Some(expression)) => tests.add(expression, Next::Matches, Next::Fails)?,
    };
    let first = tests.all(headers(filter.protocol, &flower).comparisons(), matches);
    let Tests { tests, .. } = tests;
    room("comparisons of a filter", TESTS_MAX, tests.len())?;
    let (does, actions) = acted(filter, acting, class)?;
    Ok(Term { scope, order: filter.order(), first, tests, does, actions })
}

/// What `filter` does, and the numbers of the actions that a packet meets.
fn acted(filter: &Filter, acting: &Acting<'_>, class: u32) -> Result<(Does, Vec<u32>), Refusal> {
    let mut met = Vec::new();
    let mut end = Control::Pipe;
    for id in &filter.actions {
        let Some(bound) = acting.actions.get(id.key()) else { continue };
        let control = match bound.action {
            Action::Gact { control: Control::Reclassify, .. } => {
                return refused("reclassify", "write drop, pass, continue or pipe");
            }
            Action::Gact { control: Control::Jump(_), .. } => {
                return refused("jump", "leave out the actions that it skips");
            }
            Action::Gact { random: Some(_), .. } => {
                return refused("random drops", "say what happens to each packet");
            }
            Action::Gact { control, random: None } => control,
            // Only at ingress.
            Action::Mirred(_) => Control::Pass,
            Action::Pace { .. } => {
                return refused("pace, for which packets have to wait", "give police a rate");
            }
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
    room("actions of a filter", ACTIONS_MAX, met.len())?;
    let does = match end {
        Control::Drop => Does::Drops,
        Control::Continue => Does::Continues,
        _ if filter.class == 0 => Does::Defaults,
        _ => Does::Assigns(class),
    };
    Ok((does, met))
}

fn refused<T>(what: &'static str, instead: &'static str) -> Result<T, Refusal> {
    Err(Refusal::Filter { what, instead })
}

/// Tests in the order in which they were added: each behind those to which it leads.
struct Tests {
    /// Where the network layer of their packets begins.
    network: Network,
    tests: Vec<Test>,
}

impl Tests {
    /// Adds the tests of `expression`, which lead to `then` where it holds and to `otherwise` where
    /// not. Returns where it begins.
    fn add(
        &mut self,
        expression: &Expression,
        then: Next,
        otherwise: Next,
    ) -> Result<Next, Refusal> {
        Ok(match expression {
            Expression::And(all) => {
                all.iter().rev().try_fold(then, |next, one| self.add(one, next, otherwise))?
            }
            Expression::Or(any) => {
                any.iter().rev().try_fold(otherwise, |next, one| self.add(one, then, next))?
            }
            Expression::Not(not) => self.add(not, otherwise, then)?,
            Expression::Word(selector) => self.ask(word(selector, self.network), then, otherwise),
            Expression::Number { at, size, mask, is_little_endian, relation, value } => {
                let (layer, offset) = (layer(at.layer, self.network), at.offset);
                let (size, is_little_endian) = (*size, *is_little_endian);
                let number = Number::At { layer, offset, size, is_little_endian };
                let (mask, value) = (all_or(*mask), (*value).into());
                self.ask(masked(number, mask, self::relation(*relation), value), then, otherwise)
            }
            Expression::Bytes { at, bytes } => {
                let pieces: Vec<Comparison> = pieces(at, bytes, self.network).collect();
                let ask = |next, piece: &Comparison| self.ask(*piece, next, otherwise);
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
                let (mask, value) = (all_or(*mask), (*value).into());
                let plain = masked(number, mask, self::relation(*relation), value);
                self.ask(Comparison { shift: *shift, ..plain }, then, otherwise)
            }
            Expression::Set(_) => {
                let instead = "look the set up at ingress of the other port";
                return refused("ipset() at a qdisc", instead);
            }
        })
    }

    /// Adds those that demand all of `comparisons`, and lead to `then`.
    fn all(&mut self, comparisons: impl IntoIterator<Item = Comparison>, then: Next) -> Next {
        let ask = |next, comparison| self.ask(comparison, next, Next::Fails);
        comparisons.into_iter().fold(then, ask)
    }

    fn ask(&mut self, comparison: Comparison, then: Next, otherwise: Next) -> Next {
        self.tests.push(Test { comparison, then, otherwise });
        // An index that does not fit is of more tests than a term has, which is refused.
        Next::Test(u8::try_from(self.tests.len() - 1).unwrap_or(u8::MAX))
    }
}

/// What `route` asks of the route that a packet takes. Behind a router each has one.
fn route_comparisons(route: &Route) -> impl Iterator<Item = Comparison> {
    let realm = |realm: Option<u8>, shift| {
        realm.map(|realm| Comparison {
            shift,
            ..masked(Number::Realms, 0xffff, Relation::Equal, realm.into())
        })
    };
    let metric =
        route.metric.map(|metric| Comparison::of(Number::Metric, Relation::Equal, metric.into()));
    [realm(route.to, 0), realm(route.from, 16), metric].into_iter().flatten()
}

/// A comparison of some bits of `number`.
fn masked(number: Number, mask: u32, relation: Relation, value: u64) -> Comparison {
    Comparison { mask: mask.into(), ..Comparison::of(number, relation, value) }
}

fn word(selector: &classify::Selector, network: Network) -> Comparison {
    let classify::Selector { value, mask, offset, is_behind_ip } = *selector;
    let from = if is_behind_ip { classify::Layer::Transport } else { classify::Layer::Network };
    let layer = layer(from, network);
    let number = Number::At { layer, offset, size: 4, is_little_endian: false };
    masked(number, mask, Relation::Equal, (value & mask).into())
}

/// The numbers of 4, 2 and 1 bytes that `bytes` are.
fn pieces(at: &classify::Spot, bytes: &[u8], network: Network) -> impl Iterator<Item = Comparison> {
    let (from, layer) = (at.offset, layer(at.layer, network));
    let mut left = bytes;
    let mut place = 0_usize;
    std::iter::from_fn(move || {
        let size = [4, 2, 1].into_iter().find(|size| *size <= left.len())?;
        let (piece, behind) = left.split_at(size);
        let value = piece.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
        // What is beyond any offset is beyond any frame.
        let offset = from.saturating_add(i16::try_from(place).unwrap_or(i16::MAX));
        (left, place) = (behind, place + size);
        let number = Number::At { layer, offset, size: size as u8, is_little_endian: false };
        Some(Comparison::of(number, Relation::Equal, value))
    })
}

fn layer(layer: classify::Layer, network: Network) -> Layer {
    match layer {
        classify::Layer::Link => Layer::Link,
        classify::Layer::Network => match network {
            Network::Ip => Layer::Network,
            Network::Carrier => Layer::Carrier,
        },
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
