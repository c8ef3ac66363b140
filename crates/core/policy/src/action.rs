//! Actions of filters, with the rules of the kernel's `tcf_idr_check_alloc()`.
//!
//! An action belongs to the instance, not to a port: filters on any port may refer to the same
//! action. An action exists as long as a filter refers to it. One that was added by itself exists
//! until it is deleted.

use crate::{Policy, PolicyError, Verb, reuse};
use narrows_classify::{Action, ActionId, ActionKind, PaceRate, PersistentMap, SetName};

/// Words of an action that change nothing here, and are shown again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ActionFlags {
    /// `no_percpu`: the kernel counts its packets for all processors together.
    pub no_percpu: bool,
    /// `skip_hw`: it is not to be given to hardware.
    pub skips_hardware: bool,
    /// Whether the mark of a `skbedit` was given with a mask.
    pub has_mask: bool,
}

/// The operator's note on an action: 1 to 16 bytes that Narrows does not interpret.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cookie {
    bytes: [u8; 16],
    len: u8,
}

impl Cookie {
    /// A cookie of these bytes; `None` if there are none or more than 16.
    pub fn new(from: &[u8]) -> Option<Self> {
        let mut bytes = [0; 16];
        bytes.get_mut(..from.len()).filter(|_| !from.is_empty())?.copy_from_slice(from);
        Some(Self { bytes, len: from.len() as u8 })
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// An action as a command describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ActionDraft {
    /// The kind.
    pub kind: ActionKind,
    /// The index; `None` for a free one.
    pub index: Option<u32>,
    /// The parameters; `None` to keep those of the existing action.
    pub action: Option<Action>,
    /// The note.
    pub cookie: Option<Cookie>,
    /// What is shown again.
    pub flags: ActionFlags,
}

/// An action of a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BoundAction {
    /// Kind and index.
    pub id: ActionId,
    /// The parameters.
    pub action: Action,
    /// The note.
    pub cookie: Option<Cookie>,
    /// What is shown again.
    pub flags: ActionFlags,
    /// How many filters refer to it.
    pub filters: u32,
    /// Whether it stays when no filter refers to it.
    pub stays: bool,
}

/// All actions of a policy.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ActionSet {
    all: PersistentMap<BoundAction>,
    /// How many of them are per-key policers.
    per: usize,
    /// How many of them redirect.
    redirects: usize,
}

impl ActionSet {
    pub(crate) fn get(&self, id: ActionId) -> Option<&BoundAction> {
        self.all.get(id.key())
    }

    /// Whether any of them is a per-key policer.
    pub(crate) fn has_per(&self) -> bool {
        self.per > 0
    }

    /// Whether any of them redirects.
    pub(crate) fn has_redirects(&self) -> bool {
        self.redirects > 0
    }

    fn put(&mut self, bound: BoundAction) {
        self.remove(bound.id);
        self.per += usize::from(bound.action.per().is_some());
        self.redirects += usize::from(bound.id.kind == ActionKind::Mirred);
        self.all.insert(bound.id.key(), bound);
    }

    fn remove(&mut self, id: ActionId) {
        let is_per = self.get(id).is_some_and(|bound| bound.action.per().is_some());
        self.per -= usize::from(is_per);
        let is_redirect = id.kind == ActionKind::Mirred && self.get(id).is_some();
        self.redirects -= usize::from(is_redirect);
        self.all.remove(id.key());
    }

    /// Takes over the memory of `before` for equal actions.
    pub(crate) fn reuse(&mut self, before: &Self) {
        self.all = reuse::persistent_map(&before.all, &self.all);
    }

    /// All actions, by their keys.
    pub(crate) fn all(&self) -> &PersistentMap<BoundAction> {
        &self.all
    }

    /// Adds one reference to each action of `drafts`, for a filter that `skips_hardware` or not.
    /// Actions that do not exist are created.
    pub(crate) fn bind(
        &mut self,
        drafts: &[ActionDraft],
        skips_hardware: bool,
    ) -> Result<Vec<ActionId>, PolicyError> {
        let bind = |draft: &ActionDraft| {
            let index = draft.index.map_or_else(|| self.free(draft.kind), Ok)?;
            let id = ActionId { kind: draft.kind, index };
            check_index(id)?;
            // As in the kernel, an existing action keeps its parameters.
            let bound = match (self.get(id), draft.action) {
                (Some(bound), _) if bound.stays && bound.flags.skips_hardware != skips_hardware => {
                    return Err(PolicyError::Action(
                        "Mismatch between action and filter offload flags: give skip_hw to both or \
                         to neither",
                    ));
                }
                (Some(bound), _) => BoundAction { filters: bound.filters + 1, ..*bound },
                (None, Some(action)) => {
                    let ActionDraft { cookie, flags, .. } = *draft;
                    BoundAction { id, action, cookie, flags, filters: 1, stays: false }
                }
                (None, None) => return Err(PolicyError::NoSuchAction(id.kind.name(), index)),
            };
            check_served(&bound)?;
            self.put(bound);
            Ok(id)
        };
        drafts.iter().map(bind).collect()
    }

    /// Drops one reference to each of `ids`.
    pub(crate) fn release(&mut self, ids: &[ActionId]) {
        for id in ids {
            let Some(bound) = self.get(*id).copied() else { continue };
            let filters = bound.filters - 1;
            match filters == 0 && !bound.stays {
                true => self.remove(*id),
                false => self.put(BoundAction { filters, ..bound }),
            }
        }
    }

    /// The index after the last one of `kind`.
    fn free(&self, kind: ActionKind) -> Result<u32, PolicyError> {
        let behind = ActionId { kind, index: u32::MAX }.key() + 1;
        let last = self.all.before(behind).filter(|(_, bound)| bound.id.kind == kind);
        let last = last.map_or(0, |(_, bound)| bound.id.index);
        last.checked_add(1).ok_or(PolicyError::Action("no number is left: give one with index"))
    }
}

/// Checks that packets can have the number of `id`, if it is a `pace`.
fn check_index(id: ActionId) -> Result<(), PolicyError> {
    let is_beyond = id.kind == ActionKind::Pace && id.pace().is_none();
    if is_beyond {
        return Err(PolicyError::Action(
            "a pace has an index from 1 to 65535: give one with index",
        ));
    }
    Ok(())
}

/// Checks that filters which refer to `bound` can run it.
fn check_served(bound: &BoundAction) -> Result<(), PolicyError> {
    let why = bound.action.why_idle().filter(|_| bound.filters > 0);
    why.map_or(Ok(()), |why| Err(PolicyError::Action(why)))
}

impl Policy {
    /// Gives each port the current actions.
    pub(crate) fn share_actions(&mut self) {
        let actions = Some(&self.actions).filter(|actions| !actions.all.is_empty());
        self.ports.values_mut().for_each(|port| port.actions = actions.cloned());
    }

    /// Drops one reference to each of the actions `gone`, whose filters were removed with their
    /// qdisc or class, and gives each port the current actions.
    pub(crate) fn settle_actions(&mut self, gone: &[ActionId]) {
        if !self.actions.all.is_empty() {
            self.actions.release(gone);
            self.share_actions();
        }
    }

    /// All actions, by kind and number.
    pub fn actions(&self) -> impl Iterator<Item = &BoundAction> {
        self.actions.all().iter().map(|(_, bound)| bound)
    }

    /// The action `id`.
    pub fn action(&self, id: ActionId) -> Option<&BoundAction> {
        self.actions.get(id)
    }

    /// The sets whose members have the rates of its actions, each as often as it is used.
    pub fn rate_sets(&self) -> impl Iterator<Item = &SetName> {
        self.actions().flat_map(|bound| {
            let set = match &bound.action {
                Action::Pace { rate: PaceRate::Member { set, .. }, .. } => Some(set),
                _ => None,
            };
            let uses = bound.filters.max(1) as usize;
            set.into_iter().flat_map(move |set| std::iter::repeat_n(set, uses))
        })
    }

    /// This policy with `draft` added, changed, replaced or deleted.
    ///
    /// # Errors
    /// What the kernel would refuse. This policy does not change.
    pub fn edit_action(&self, verb: Verb, draft: &ActionDraft) -> Result<Self, PolicyError> {
        let mut next = self.clone();
        let kind = draft.kind;
        let index = match draft.index {
            Some(index) => index,
            None if verb == Verb::Delete => {
                return Err(PolicyError::Action("say which one: index N"));
            }
            None => next.actions.free(kind)?,
        };
        let id = ActionId { kind, index };
        if verb != Verb::Delete {
            check_index(id)?;
        }
        let present = next.actions.get(id).copied();
        let missing = || PolicyError::NoSuchAction(kind.name(), index);
        let bound = match (verb, present) {
            (Verb::Add, Some(_)) => return Err(PolicyError::ActionExists),
            (Verb::Delete | Verb::Change, None) => return Err(missing()),
            (Verb::Delete, Some(bound)) => {
                if bound.filters > 0 {
                    return Err(PolicyError::Action("Operation not permitted: filters have it"));
                }
                next.actions.remove(id);
                next.share_actions();
                return Ok(next);
            }
            (_, present) => {
                let action = draft.action.ok_or_else(missing)?;
                let filters = present.map_or(0, |bound| bound.filters);
                let stays = present.is_none_or(|bound| bound.stays);
                let ActionDraft { cookie, flags, .. } = *draft;
                BoundAction { id, action, cookie, flags, filters, stays }
            }
        };
        check_served(&bound)?;
        next.actions.put(bound);
        next.share_actions();
        next.check_place(id)?;
        next.check_redirects()?;
        next.ports.keys().try_for_each(|dev| next.check_front(dev))?;
        Ok(next)
    }

    /// This policy without the actions of `kind` that no filter refers to.
    #[must_use]
    pub fn flush_actions(&self, kind: ActionKind) -> Self {
        let mut next = self.clone();
        for bound in self.actions().filter(|bound| bound.id.kind == kind && bound.filters == 0) {
            next.actions.remove(bound.id);
        }
        next.share_actions();
        next
    }
}
