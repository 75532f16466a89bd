//! What is watched in a process: blocks that somebody named, a hunt, and the operators that are under way.

use std::collections::HashMap;

use msmemscope_control::Recorder;
use msmemscope_event::{ByteRange, Device};
use msmemscope_settings::{Watch, WatchTarget};

use crate::automatic::{Hunt, HuntBudget};
use crate::explicit::{Explicit, Selection};
use crate::launches::HeldLooks;
use crate::live_blocks::LiveBlocks;
use crate::operator_name::OperatorPattern;
use crate::process::Process;
use crate::surroundings::{OperatorCall, Output};

/// Everything that is watched in a process, and what is under way meanwhile.
pub struct Session {
    /// Where it happens.
    pub process: Process,
    /// Blocks that somebody named.
    pub explicit: Explicit,
    /// The hunt, if one is on.
    pub hunt: Option<Hunt>,
    calls: HashMap<String, u64>,
    /// Whether looks are taken around operators.
    pub at_operators: bool,
    /// Whether looks are taken around kernels.
    pub at_kernels: bool,
    /// Operators under way on any thread, in the order in which they began.
    pub open: Vec<OpenOperator>,
    /// What was seen before launches that are under way, by thread.
    pub(crate) before_launches: HashMap<u32, HeldLooks>,
}

/// An operator that has begun.
pub struct OpenOperator {
    /// Thread that runs it.
    pub thread_id: u32,
    /// Its name.
    pub name: String,
    /// Memory it declares to write.
    pub writes: Vec<ByteRange>,
    /// The newest block that was alive when it began.
    pub newest_generation: u64,
    /// Whether the device may be waited for meanwhile.
    pub can_wait: bool,
}

impl Session {
    /// What the settings ask for, if anything.
    pub fn new(watch: Option<&Watch>, recorder: Option<Recorder>) -> Self {
        let full_content = watch.is_some_and(|watch| watch.full_content);
        let mut selection = Selection { full_content, ..Selection::default() };
        let mut hunt = None;
        match watch.map(|watch| &watch.target) {
            Some(WatchTarget::Operators { start, output_index, end }) => {
                selection.start = start.as_deref().map(OperatorPattern::new);
                selection.end = Some(OperatorPattern::new(end));
                selection.output_index = *output_index;
            }
            Some(WatchTarget::Automatic { size_limit_bytes, owner }) => {
                hunt = Some(Hunt::new(HuntBudget::new(*size_limit_bytes), owner.clone()));
            }
            None => {}
        }
        Self {
            process: Process::new(recorder),
            explicit: Explicit::new(selection),
            hunt,
            calls: HashMap::new(),
            at_operators: true,
            at_kernels: false,
            open: Vec::new(),
            before_launches: HashMap::new(),
        }
    }

    /// Whether something is looked at now.
    pub fn is_watching(&self) -> bool {
        self.explicit.is_watching() || self.hunt.as_ref().is_some_and(Hunt::is_on)
    }

    /// The thread's innermost operator has ended.
    pub fn close(&mut self, thread_id: u32) {
        if let Some(position) = self.open.iter().rposition(|operator| operator.thread_id == thread_id) {
            self.open.remove(position);
        }
        if self.open.is_empty() && !self.at_operators {
            self.explicit.settle();
            if let Some(hunt) = &mut self.hunt {
                hunt.settle();
            }
        }
    }

    /// The operator that launches what this thread launches: its own, or the only one there is, since frameworks have
    /// threads that launch for others.
    pub fn launcher(&self, thread_id: u32) -> Option<&OpenOperator> {
        let own = self.open.iter().rfind(|operator| operator.thread_id == thread_id);
        own.or(if let [only] = &self.open[..] { Some(only) } else { None })
    }

    /// Looks before an operator, or only takes down what it declares.
    pub fn before(&mut self, call: &OperatorCall<'_>, can_look: bool, blocks: &LiveBlocks) {
        let Session { process, explicit, hunt, at_operators, .. } = self;
        if can_look && *at_operators {
            explicit.before(call, blocks, process);
            if let Some(hunt) = hunt {
                hunt.before(call, blocks, process);
            }
        } else {
            explicit.declare(call.writes);
            if let Some(hunt) = hunt {
                hunt.declare(call.writes, blocks);
            }
        }
    }

    /// Looks after an operator, or only takes down what it declares.
    pub fn after(&mut self, call: &OperatorCall<'_>, outputs: &[Output], can_look: bool, blocks: &LiveBlocks) {
        let Session { process, explicit, hunt, at_operators, .. } = self;
        if can_look && *at_operators {
            explicit.after(call, outputs, blocks, process);
            if let Some(hunt) = hunt {
                hunt.after(call, blocks, process);
            }
        } else if can_look {
            explicit.pass(call, outputs, blocks, process);
            if let Some(hunt) = hunt {
                hunt.pass(call.writes, blocks);
            }
        } else {
            explicit.declare(call.writes);
            if let Some(hunt) = hunt {
                hunt.blind(call.is_active && call.device != Device::Host, call.writes, blocks);
            }
        }
    }

    /// Which call of an operator this is, counted from one.
    pub fn next_call(&mut self, operator: &str) -> u64 {
        let number = match self.calls.get_mut(operator) {
            Some(number) => number,
            None => self.calls.entry(operator.to_owned()).or_default(),
        };
        *number += 1;
        *number
    }
}
