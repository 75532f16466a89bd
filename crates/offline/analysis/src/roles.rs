//! What blocks are for, in training: weights, gradients, states of optimizers.
//!
//! Their owner says so in jobs that were recorded with owners. In others the way in which variables hold them does.

use msmemscope_event::{AutogradPhase, StringId};
use rustc_hash::FxHashMap;

use crate::names::Names;
use crate::owners::OwnerId;
use crate::situation::{LiveBlock, Situation};

/// What a block is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Weight,
    Gradient,
    State,
    Other,
}

impl Role {
    /// What an owner says about its blocks.
    fn of_owner(text: &str) -> Self {
        let named = |role: &Role| role.word().is_some_and(|word| text.split('@').any(|part| part == word));
        [Role::State, Role::Gradient, Role::Weight].into_iter().find(named).unwrap_or(Role::Other)
    }

    /// What the way in which variables hold a block says about it, and the phase in which it was made.
    pub fn of_path(path: &str, phase: Option<AutogradPhase>) -> Self {
        let mut parts = path.split(" > ");
        match path.rsplit(" > ").next() {
            Some("gradient") => Role::Gradient,
            Some(last) if last.starts_with("parameters of ") => Role::Weight,
            // Any object may have something called state; an optimizer's was made by the optimizer.
            _ if phase == Some(AutogradPhase::Optimizer) && parts.any(|part| part.ends_with(".state")) => Role::State,
            _ => Role::Other,
        }
    }

    /// What owners call it.
    pub fn word(self) -> Option<&'static str> {
        match self {
            Role::Weight => Some("weight"),
            Role::Gradient => Some("gradient"),
            Role::State => Some("optimizer_state"),
            Role::Other => None,
        }
    }
}

/// Roles of blocks; every owner and every way of holding is looked at once.
#[derive(Debug, Default)]
pub(crate) struct Roles {
    by_owner: FxHashMap<OwnerId, Role>,
    by_path: FxHashMap<(StringId, Option<AutogradPhase>), Role>,
}

impl Roles {
    /// What a block is for: its owner says so, or else the way in which it is held.
    pub fn of(&mut self, block: &LiveBlock, situation: &Situation, names: &dyn Names) -> Role {
        let owner_text = || situation.owner_text(block.owner, names).unwrap_or_default();
        let stated = *self.by_owner.entry(block.owner).or_insert_with(|| Role::of_owner(&owner_text()));
        match situation.holders().path_of(block.allocation_id) {
            Some(path) if stated == Role::Other => {
                let of_path = || Role::of_path(&names.text(path), block.phase);
                *self.by_path.entry((path, block.phase)).or_insert_with(of_path)
            }
            _ => stated,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_and_ways_of_holding_say_what_blocks_are_for() {
        let owners = ["PTA", "PTA@model@weight", "PTA@model@gradient", "PTA@model@optimizer_state", "PTA@weights"];
        let roles = owners.map(Role::of_owner);
        assert_eq!(roles, [Role::Other, Role::Weight, Role::Gradient, Role::State, Role::Other]);
        let (optimizer, forward) = (Some(AutogradPhase::Optimizer), Some(AutogradPhase::Forward));
        let weights = "local 'model' of main (train.py:3) > parameters of GPT";
        assert_eq!(Role::of_path(weights, None), Role::Weight);
        assert_eq!(Role::of_path(&format!("{weights} > gradient"), None), Role::Gradient);
        let state = "local 'optimizer' of main (train.py:4) > AdamW.state > dict of 12";
        assert_eq!(Role::of_path(state, optimizer), Role::State);
        assert_eq!(Role::of_path(state, forward), Role::Other, "anything may have something called state");
    }
}
