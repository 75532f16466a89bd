//! Taking stacks: the tables shared by all threads, and the loop that fills a thread's frames.

use core::sync::atomic::{
    AtomicPtr,
    Ordering::{AcqRel, Acquire, Relaxed},
};

use msmemscope_event::{LossReason, ModuleId, StackId};
use msmemscope_intern::{Hasher, InternTable, Interned, Key};

use crate::dynamic_linker::ObjectFinder;
use crate::modules::{Module, ModuleRegistry};
use crate::registers::Registers;
use crate::registers::architecture::SIGNAL_TRAMPOLINE;
use crate::rule::{ModuleIndex, PackedRule, Rule, RuleKind};
use crate::rule_table::{RuleTable, rule_key};
use crate::stack_memory::{StackMemory, copy_own_memory};
use crate::walk::{Position, Step, step, step_simply};
use crate::walked::Walked;

/// Most frames a stack may have.
pub const LARGEST_DEPTH: usize = 1000;

/// The frame that stands for "further frames could not be found".
pub const UNKNOWN_OUTER_FRAMES: u64 = 0;

/// Frames of the recorder itself that may lie between its entry and the walk, and never more.
const LARGEST_OWN_DEPTH: usize = 64;
/// How many modules of the current walk are remembered as still loaded.
const CHECKED_MODULES: usize = 8;
/// Where the linker cannot be asked cheaply, every how many stacks it is asked.
const POLLING_INTERVAL: u32 = 64;
/// Room for 393,216 stacks in 8 MiB, touched as needed; 28 million more in larger tables once these are full.
const STACK_SLOT_BITS: u32 = 19;
/// Index of the gaps between modules.
const GAP: ModuleIndex = 0;

/// Where new stacks and modules are written down.
pub trait StackSink {
    /// A stack that later events refer to. False if it could not be stored. Threads that meet a new
    /// stack at the same time may define it twice, in the same way.
    fn define_stack(&mut self, id: StackId, frames: &[u64]) -> bool;
    /// A module that stacks defined from now on refer to.
    fn define_module(&mut self, module: &ModuleDescription<'_>);
    /// The module was unloaded.
    fn module_gone(&mut self, id: ModuleId);
}

/// A module as it is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuleDescription<'a> {
    /// Its id.
    pub id: ModuleId,
    /// Lowest mapped address.
    pub start_address: u64,
    /// End of the mapping.
    pub end_address: u64,
    /// What to subtract from a run-time address to get an address of the file.
    pub load_bias: u64,
    /// Path.
    pub path: &'a [u8],
    /// Build id, empty if the file has none.
    pub build_id: &'a [u8],
}

/// A stack that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capture {
    /// The stack, or none.
    pub stack: StackId,
    /// What is missing, to be counted.
    pub loss: Option<LossReason>,
}

/// What one thread needs to take stacks. About 70 KiB, touched as far as stacks are deep.
pub struct ThreadState {
    memory: StackMemory,
    /// The last walk and the one before, which take turns.
    walks: [Walked; 2],
    /// Which one is the last.
    last: usize,
    /// What the last walk was called.
    named: NamedWalk,
    stacks_until_poll: u32,
}

/// The id of a walk; whoever sees the same frames again need not look it up.
struct NamedWalk {
    /// Zero if it has no id.
    generation: u64,
    signature: u64,
    stack: StackId,
}

impl ThreadState {
    /// The state of a thread that has taken no stack yet.
    pub const fn new() -> Self {
        Self {
            memory: StackMemory::new(),
            walks: [const { Walked::new() }; 2],
            last: 0,
            named: NamedWalk { generation: 0, signature: 0, stack: StackId::NONE },
            stacks_until_poll: 0,
        }
    }

    /// The same in memory of its own, never on the stack of the thread.
    pub fn boxed() -> Box<Self> {
        // SAFETY: all fields are numbers, arrays of numbers or false, for which zero is valid. A place
        // in a piece of foreign memory is forgotten at the start of every walk.
        unsafe { Box::<Self>::new_zeroed().assume_init() }
    }

    /// The frames of the last stack, innermost first.
    pub fn frames(&self) -> &[u64] {
        self.walks.get(self.last).map_or(&[], Walked::frames)
    }
}

impl Default for ThreadState {
    fn default() -> Self {
        Self::new()
    }
}

/// Takes stacks of the calling thread. Shared by all threads of the process.
pub struct Unwinder {
    rules: RuleTable,
    /// Ids of stacks; empty again in the child of a fork, whose trace lacks them.
    stacks: InternTable,
    modules: ModuleRegistry,
    /// The module this code is in, whose innermost frames are not reported.
    own_module: ModuleIndex,
}

/// What code outside of all modules is: signal trampolines can be told from the rest.
#[cold]
fn kind_of_gap(address: u64) -> RuleKind {
    let mut code = [0_u64; 2];
    let is_trampoline = copy_own_memory(address, &mut code)
        && code.iter().flat_map(|word| word.to_le_bytes()).zip(SIGNAL_TRAMPOLINE).all(|(one, other)| one == *other);
    if is_trampoline { RuleKind::SignalFrame } else { RuleKind::NoInformation }
}

/// What a stack is recognised by: its frames, and a number that sums up their modules.
#[inline]
fn stack_key(frames: &[u64], signature: u64) -> Key {
    let mut hasher = Hasher::new();
    hasher.add([signature, 0, 0, 0]);
    let (groups, rest) = frames.as_chunks::<4>();
    for group in groups {
        hasher.add(*group);
    }
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    hasher.add(last);
    hasher.finish(frames.len() as u64)
}

/// The modules a walk came through.
struct ModulesOfWalk {
    current: ModuleIndex,
    /// Sums up all of them in their order.
    signature: u64,
    /// The last ones that were found to be loaded.
    checked: [ModuleIndex; CHECKED_MODULES],
    next: usize,
}

impl ModulesOfWalk {
    #[inline(always)]
    fn new() -> Self {
        Self { current: ModuleIndex::MAX, signature: 0, checked: [ModuleIndex::MAX; CHECKED_MODULES], next: 0 }
    }

    #[inline(always)]
    fn enter(&mut self, module: ModuleIndex) {
        self.current = module;
        self.signature = (self.signature.rotate_left(7) ^ u64::from(module)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if !self.checked.contains(&module) {
            self.checked[self.next % CHECKED_MODULES] = module;
            self.next += 1;
        }
    }
}

impl Unwinder {
    /// The unwinder of the process, made on first use. Nothing if there is no memory for it.
    ///
    /// Making it looks two names up in the dynamic linker, so a recorder does it before it is
    /// called from strange places.
    #[inline]
    pub fn global() -> Option<&'static Self> {
        static GLOBAL: AtomicPtr<Unwinder> = AtomicPtr::new(core::ptr::null_mut());
        // SAFETY: the pointer is null or a leaked box.
        unsafe { GLOBAL.load(Acquire).as_ref() }.or_else(|| Self::make_global(&GLOBAL))
    }

    #[cold]
    fn make_global(global: &AtomicPtr<Self>) -> Option<&'static Self> {
        // Threads that come here at the same time do not wait for each other: the first one wins.
        let made = Box::into_raw(Box::new(Self::new()?));
        let winner = match global.compare_exchange(core::ptr::null_mut(), made, AcqRel, Acquire) {
            Ok(_) => made,
            Err(winner) => winner,
        };
        // SAFETY: a leaked box.
        unsafe { winner.as_ref() }
    }

    /// An unwinder of its own. The tables are never freed.
    pub fn new() -> Option<Self> {
        Self::with_finder(ObjectFinder::new())
    }

    /// An unwinder that finds modules as on C libraries before glibc 2.35: by walking all of them now
    /// and then.
    pub fn with_linker_walk() -> Option<Self> {
        Self::with_finder(None)
    }

    fn with_finder(finder: Option<ObjectFinder>) -> Option<Self> {
        let modules = ModuleRegistry::new(finder);
        let here = Registers::here().program_counter;
        let own_module = modules.find_or_load(here, |_| ()).map_or(GAP, |module| module.index);
        Some(Self { rules: RuleTable::new()?, stacks: InternTable::new(STACK_SLOT_BITS)?, modules, own_module })
    }

    /// Takes the stack of the caller. Frames of the library this code is linked into are left out at
    /// the inner end. errno may change.
    #[inline(always)]
    pub fn capture(&self, depth: usize, thread: &mut ThreadState, sink: &mut dyn StackSink) -> Capture {
        let registers = Registers::here();
        // SAFETY: these are the registers of this thread at this place, and this call returns before
        // the frame is left.
        unsafe { self.capture_from(&registers, depth, thread, sink) }
    }

    /// Takes the stack from given registers.
    ///
    /// # Safety
    /// The registers are those of the calling thread at a place it has not returned from, and
    /// `thread` is used by this thread only.
    pub unsafe fn capture_from(
        &self,
        registers: &Registers,
        depth: usize,
        thread: &mut ThreadState,
        sink: &mut dyn StackSink,
    ) -> Capture {
        if depth == 0 {
            return Capture { stack: StackId::NONE, loss: None };
        }
        if self.modules.needs_polling() {
            self.poll(thread, sink);
        }
        let (cut, signature) = self.walk(*registers, depth.min(LARGEST_DEPTH), thread, sink);
        let missing = |reason| Capture { stack: StackId::NONE, loss: Some(reason) };
        if thread.frames().is_empty() {
            return missing(LossReason::StackMissing);
        }
        let generation = self.stacks.generation();
        let [one, other] = &thread.walks;
        let is_known = thread.named.generation == generation
            && thread.named.signature == signature
            && one.frames() == other.frames();
        if !is_known {
            thread.named.generation = 0;
            let stack = match self.stacks.intern(stack_key(thread.frames(), signature)) {
                Interned::Known(id) => StackId(id),
                Interned::New { id, slot } => {
                    if !sink.define_stack(StackId(id), thread.frames()) {
                        return missing(LossReason::StackMissing);
                    }
                    self.stacks.publish(slot);
                    StackId(id)
                }
                Interned::Full => return missing(LossReason::StackTableFull),
            };
            thread.named = NamedWalk { generation, signature, stack };
        }
        Capture { stack: thread.named.stack, loss: cut.then_some(LossReason::StackCut) }
    }

    /// Fills the frames of the thread. Returns whether frames were left out and a number that sums up
    /// the modules the frames lie in.
    #[inline]
    fn walk(
        &self,
        registers: Registers,
        depth: usize,
        thread: &mut ThreadState,
        sink: &mut dyn StackSink,
    ) -> (bool, u64) {
        let ThreadState { memory, walks: [one, other], last, .. } = thread;
        let (walked, earlier) = if *last == 0 { (other, &*one) } else { (one, &*other) };
        *last = 1 - *last;
        walked.clear();
        memory.begin(registers.stack_pointer);
        let mut position = Position::new(registers);
        let mut modules = ModulesOfWalk::new();
        let (mut rule, mut module) = self.current_rule(&position, &mut modules, sink);
        let mut own_depth = 0;
        while module == self.own_module && module != GAP {
            own_depth += 1;
            if own_depth > LARGEST_OWN_DEPTH || step(&rule, &mut position, memory) != Step::Next {
                return (false, 0);
            }
            if !position.exact {
                self.skip_simple_frames(&mut position.registers, self.own_module, memory);
            }
            (rule, module) = self.current_rule(&position, &mut modules, sink);
        }
        // Where in the earlier walk this one is.
        let mut place = 0;
        // Frames found by guessing count only once a real frame is found behind them.
        let mut guessed = false;
        let mut confirmed = 0;
        let outcome = loop {
            if !position.exact {
                // Most frames are simple; this loop is where the time goes.
                let before = walked.length();
                let registers = &mut position.registers;
                self.walk_simple_frames(registers, modules.current, memory, walked, depth, earlier, &mut place);
                if walked.length() > before {
                    confirmed = walked.length();
                    guessed = false;
                    let left = modules.current;
                    (rule, _) = self.current_rule(&position, &mut modules, sink);
                    if modules.current != left {
                        continue;
                    }
                }
            }
            if walked.length() >= depth {
                break None;
            }
            walked.push_any(&position.registers);
            let (was_exact, module) = (position.exact, modules.current);
            let length = walked.length();
            let is_guess = rule.kind == RuleKind::NoInformation;
            if !(guessed && is_guess) {
                confirmed = length;
            }
            guessed = is_guess;
            let outcome = step(&rule, &mut position, memory);
            if outcome != Step::Next {
                break Some(outcome);
            }
            if !was_exact {
                walked.was_left(&rule, module, position.registers.stack_pointer);
            }
            (rule, _) = self.current_rule(&position, &mut modules, sink);
        };
        match outcome {
            None => {}
            // There is room: depth is at most one less than there is room for.
            Some(Step::Lost) if confirmed > 0 => walked.end_with(confirmed, Some(UNKNOWN_OUTER_FRAMES)),
            Some(_) => walked.end_with(confirmed, None),
        }
        (outcome.is_none(), modules.signature)
    }

    /// Leaves simple frames of one module.
    #[inline(always)]
    fn skip_simple_frames(&self, registers: &mut Registers, module: ModuleIndex, memory: &StackMemory) {
        for _ in 0..LARGEST_OWN_DEPTH {
            match self.rules.get(rule_key(registers.program_counter, false)).map(PackedRule) {
                Some(rule) if rule.module() == module && step_simply(&rule, registers, memory) => {}
                _ => break,
            }
        }
    }

    /// Goes outwards as long as frames are simple and lie in one module, up to a depth.
    #[expect(clippy::too_many_arguments, reason = "the state of a walk, in registers where possible")]
    #[inline(always)]
    fn walk_simple_frames(
        &self,
        registers: &mut Registers,
        module: ModuleIndex,
        memory: &StackMemory,
        walked: &mut Walked,
        depth: usize,
        earlier: &Walked,
        place: &mut usize,
    ) {
        let mut current = *registers;
        while walked.length() < depth {
            if walked.follow(earlier, place, &mut current, module, depth, memory) {
                continue;
            }
            let Some(rule) = self.rules.get(rule_key(current.program_counter, false)).map(PackedRule) else { break };
            let inner = current;
            if rule.module() != module || !step_simply(&rule, &mut current, memory) {
                break;
            }
            walked.push_common(&inner, &rule, current.stack_pointer);
        }
        *registers = current;
    }

    /// The rule for where a walk is, and the module it belongs to.
    #[inline(never)]
    fn current_rule(
        &self,
        position: &Position,
        modules: &mut ModulesOfWalk,
        sink: &mut dyn StackSink,
    ) -> (Rule, ModuleIndex) {
        let (address, exact) = (position.registers.program_counter, position.exact);
        let (rule, module) = match self.rules.get(rule_key(address, exact)) {
            Some(packed) => Rule::unpack(packed),
            None => self.work_out(address, exact, sink),
        };
        if module == modules.current {
            return (rule, module);
        }
        let (rule, module) = if module != GAP && modules.checked.contains(&module) {
            (rule, module)
        } else {
            self.check(rule, module, address, exact, sink)
        };
        modules.enter(module);
        (rule, module)
    }

    /// Works out a rule that is not in the table.
    #[cold]
    fn work_out(&self, address: u64, exact: bool, sink: &mut dyn StackSink) -> (Rule, ModuleIndex) {
        let (rule, module) = match self.modules.find_or_load(address, |module| self.report_gone(module, sink)) {
            Some(module) => (module.rule(address, exact), module.index),
            None => (Rule::plain(kind_of_gap(address)), GAP),
        };
        // A gap may be filled by a module that is not known yet, which only a cheap linker would tell.
        if (module != GAP || !self.modules.needs_polling())
            && let Some(packed) = rule.pack(module)
        {
            self.rules.put(rule_key(address, exact), packed);
        }
        (rule, module)
    }

    /// Makes sure that a rule belongs to what is loaded at an address now.
    #[inline]
    fn check(
        &self,
        rule: Rule,
        index: ModuleIndex,
        address: u64,
        exact: bool,
        sink: &mut dyn StackSink,
    ) -> (Rule, ModuleIndex) {
        if index == GAP && self.modules.is_gap(address) {
            return (rule, index);
        }
        match self.modules.get(index) {
            Some(module) if self.modules.is_current(module, address) => {
                if module.defined_in.load(Relaxed) != self.stacks.generation() {
                    self.define(module, sink);
                }
                (rule, index)
            }
            stale => self.replace(stale, address, exact, sink),
        }
    }

    /// Works a rule out anew because its module was unloaded.
    #[cold]
    fn replace(
        &self,
        stale: Option<&'static Module>,
        address: u64,
        exact: bool,
        sink: &mut dyn StackSink,
    ) -> (Rule, ModuleIndex) {
        if let Some(module) = stale.filter(|module| module.mark_gone()) {
            self.report_gone(module, sink);
        }
        let (rule, index) = self.work_out(address, exact, sink);
        if let Some(module) = self.modules.get(index) {
            self.define(module, sink);
        }
        (rule, index)
    }

    /// Writes a module down, once per process.
    #[cold]
    fn define(&self, module: &Module, sink: &mut dyn StackSink) {
        let generation = self.stacks.generation();
        if module.defined_in.swap(generation, AcqRel) != generation {
            sink.define_module(&ModuleDescription {
                id: ModuleId(u32::from(module.index)),
                start_address: module.start,
                end_address: module.end,
                load_bias: module.load_bias,
                path: &module.path,
                build_id: &module.build_id,
            });
        }
    }

    fn report_gone(&self, module: &Module, sink: &mut dyn StackSink) {
        if module.defined_in.load(Relaxed) == self.stacks.generation() {
            sink.module_gone(ModuleId(u32::from(module.index)));
        }
    }

    /// Looks for unloaded modules now and then.
    fn poll(&self, thread: &mut ThreadState, sink: &mut dyn StackSink) {
        match thread.stacks_until_poll.checked_sub(1) {
            Some(left) => thread.stacks_until_poll = left,
            None => {
                thread.stacks_until_poll = POLLING_INTERVAL;
                self.modules.changed_modules(|module| self.report_gone(module, sink));
            }
        }
    }
}
