//! What holds at the current event: live blocks, open operators, steps per device.
//!
//! Every analysis needs these, so they are kept once. Memory is bounded by live blocks and by threads
//! and devices.

use msmemscope_event::{AutogradPhase, BlockProperties, Device, Framework, KernelPhase, Pool, StackId, StringId};
use msmemscope_import::Recording;
use msmemscope_timeline::{BlockEvent, EventKind, TimelineEvent, UnplacedLabels};
use rustc_hash::FxHashMap;

use crate::holders::Holders;
use crate::module_frames::ModuleFrames;
use crate::names::Names;
use crate::operator_places::{OperatorPlaces, PlaceId};
use crate::owners::{OwnerFollower, OwnerId};
use crate::prepared_work::PreparedWork;
use crate::small_map::SmallMap;

/// A block that is alive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LiveBlock {
    /// Number of the allocation in its process.
    pub allocation_id: u64,
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub size_bytes: u64,
    /// Kind of memory.
    pub properties: BlockProperties,
    /// When it was allocated.
    pub timestamp_ns: u64,
    /// Number of the step it was allocated in or after; zero before the first.
    pub step: u64,
    /// The same counted on its device only.
    pub device_step: u64,
    /// Thread that allocated it.
    pub thread_id: u32,
    /// Native stack of the allocation.
    pub native_stack: StackId,
    /// Python stack of the allocation.
    pub python_stack: StackId,
    /// Python stack of who called for the backward pass it belongs to, if its own thread runs no Python.
    pub caller_stack: StackId,
    /// Operator that was running on that thread.
    pub operator: StringId,
    /// Where that is in a graph.
    pub operator_place: PlaceId,
    /// Module that was being called on that thread.
    pub module: StringId,
    /// Phase of training on its device, if anybody has said.
    pub phase: Option<AutogradPhase>,
    /// Kernels that the process had launched before.
    pub kernel_index: u64,
    /// The latest of them.
    pub kernel: StringId,
    /// It was alive before recording began, so nothing is known about its birth.
    pub shadow: bool,
    /// A small number that no other live block has.
    pub slot: u32,
    /// Its place among all blocks that came into being, from one.
    pub birth: u64,
    /// Who owns it, as far as known by now; at its end, for good.
    pub owner: OwnerId,
}

/// Steps of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceSteps {
    /// Number of the latest step, as the recording counts.
    pub number: u64,
    /// How many steps the device has begun.
    pub begun: u64,
    /// How many of them have ended.
    pub ended: u64,
    /// Whether one is open.
    pub is_open: bool,
    /// Whether the API says where steps end. The next one then begins at once, so that the time after
    /// the last step looks like a step.
    pub by_api: bool,
}

impl DeviceSteps {
    /// Whether a step is open that somebody has said will end.
    pub fn is_open_range(&self) -> bool {
        self.is_open && !self.by_api
    }

    /// Whether a number is that of what comes after the last step.
    pub fn is_after_last(&self, number: u64) -> bool {
        self.by_api && self.ended > 0 && number == self.number
    }
}

/// A step of a device began or ended with the current event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepChange {
    /// The device; unknown means all of them.
    pub device: Device,
    /// Number of the step.
    pub number: u64,
    /// True when it starts.
    pub begins: bool,
}

/// An operator that is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOperator {
    /// Its name.
    pub name: StringId,
    /// Whose operator.
    pub framework: Framework,
    /// Where it is in a graph.
    pub place: PlaceId,
}

/// What an event did to a block.
#[derive(Clone, Copy, Debug)]
pub enum BlockChange<'a> {
    /// It came into being.
    Begins(&'a LiveBlock, &'a BlockEvent),
    /// It ended.
    Ends(&'a LiveBlock, &'a BlockEvent),
}

/// What holds at the current event.
#[derive(Debug, Default)]
pub struct Situation {
    /// By slot; a slot whose block has ended keeps it until the next one comes.
    slots: Vec<Option<LiveBlock>>,
    births: u64,
    owners: OwnerFollower,
    operators: SmallMap<u32, Vec<OpenOperator>>,
    operator_places: OperatorPlaces,
    prepared_work: PreparedWork,
    /// Modules being called, by thread, outermost first.
    modules: SmallMap<u32, Vec<StringId>>,
    module_frames: ModuleFrames,
    /// The phase of training, and since when.
    phases: SmallMap<Device, Option<(AutogradPhase, u64)>>,
    /// Who called for the latest backward pass.
    backward_callers: SmallMap<Device, Option<StackId>>,
    steps: SmallMap<Device, DeviceSteps>,
    /// Steps begun and ended by ranges before the job had chosen a device. They are steps of every device.
    steps_without_device: (u64, u64),
    /// Ranges that are steps, with their device.
    step_ranges: FxHashMap<u64, (Device, u64)>,
    /// Kernels launched so far, on all devices.
    kernels: u64,
    /// The latest of them.
    latest_kernel: StringId,
    /// Kernels that a library has announced on a thread, as far as no launch was reported since.
    announced_kernels: SmallMap<u32, Option<StringId>>,
    holders: Holders,
    latest_ns: u64,
    acl_finalized: bool,
}

impl Situation {
    /// Blocks that are alive.
    pub fn live_blocks(&self) -> impl Iterator<Item = &LiveBlock> {
        self.slots.iter().flatten()
    }

    /// The live block in a slot.
    #[inline]
    pub fn block(&self, slot: u32) -> Option<&LiveBlock> {
        self.slots.get(slot as usize)?.as_ref()
    }

    /// How many kernels were launched so far, and the latest of them.
    pub fn kernels(&self) -> (u64, StringId) {
        (self.kernels, self.latest_kernel)
    }

    /// Blocks that have come into being so far.
    pub fn births(&self) -> u64 {
        self.births
    }

    /// What holds at the start of a recording.
    pub fn of(recording: &Recording) -> Self {
        let owners = match recording {
            Recording::Trace { .. } => OwnerFollower::default(),
            Recording::Process(_) => OwnerFollower::of_stated(),
        };
        Self { owners, ..Self::default() }
    }

    /// The owner in words.
    pub fn owner_text(&self, owner: OwnerId, names: &dyn Names) -> Option<String> {
        self.owners.text(owner, names)
    }

    /// Where in a graph the operator is that asked for a block; empty if it is in none.
    pub fn operator_place(&self, block: &LiveBlock) -> &str {
        self.operator_places.text(block.operator_place)
    }

    /// Operators running on a thread, outermost first.
    #[inline]
    pub fn operators(&self, thread_id: u32) -> &[OpenOperator] {
        self.operators.get(thread_id).map_or(&[], |stack| stack)
    }

    /// The innermost module that a thread is calling.
    #[inline]
    pub fn module_of(&self, thread_id: u32) -> StringId {
        self.modules.get(thread_id).and_then(|stack| stack.last()).copied().unwrap_or(StringId::NONE)
    }

    /// Whether it is known which modules are being called.
    pub fn knows_modules(&self) -> bool {
        self.modules.iter().next().is_some()
    }

    /// The phase of training on a device, if anybody has said.
    #[inline]
    pub fn phase(&self, device: Device) -> Option<AutogradPhase> {
        self.phase_since(device).map(|(phase, _)| phase)
    }

    /// The phase of training on a device and when it began, if anybody has said.
    pub fn phase_since(&self, device: Device) -> Option<(AutogradPhase, u64)> {
        self.phases.get(device).copied().flatten()
    }

    /// Who called for the backward pass that an event belongs to, if the event's own thread runs no Python: autograd has
    /// threads of its own.
    #[inline]
    pub fn caller_stack(&self, event: &TimelineEvent) -> StackId {
        let is_of_autograd = !event.python_stack.is_some() && self.phase(event.device) == Some(AutogradPhase::Backward);
        let caller = is_of_autograd.then(|| self.backward_callers.get(event.device).copied().flatten()).flatten();
        caller.unwrap_or(StackId::NONE)
    }

    /// Steps of a device. A device without steps of its own follows the process.
    #[inline]
    pub fn steps(&self, device: Device) -> DeviceSteps {
        let own = self.steps.get(device);
        own.or_else(|| self.steps.get(Device::Unknown)).copied().unwrap_or_default()
    }

    /// Who holds blocks, as far as anybody has looked.
    pub fn holders(&self) -> &Holders {
        &self.holders
    }

    /// How many labels of users came to nothing so far.
    pub fn unplaced_labels(&self) -> UnplacedLabels {
        self.owners.unplaced_labels()
    }

    /// Time of the latest event.
    pub fn latest_ns(&self) -> u64 {
        self.latest_ns
    }

    /// Whether aclFinalize was seen.
    pub fn is_acl_finalized(&self) -> bool {
        self.acl_finalized
    }

    /// Takes an event in. A block that ended is given back, since it is no longer here.
    #[inline]
    pub fn update(&mut self, event: &TimelineEvent, names: &dyn Names) -> (Option<LiveBlock>, Option<StepChange>) {
        self.latest_ns = event.timestamp_ns;
        match &event.kind {
            EventKind::Malloc(block) => {
                if self.module_of(event.thread_id).is_some() {
                    self.leave_modules_without_frames(event, names);
                }
                let owner = self.owners.begin(event, block, names);
                self.begin_block(event, block, owner);
                (None, None)
            }
            EventKind::Free(block) => {
                let slot = self.slots.get_mut(block.slot as usize);
                let ended = slot.and_then(Option::take).filter(|live| live.allocation_id == block.allocation_id);
                ended.iter().for_each(|live| self.holders.ended(live));
                (ended, None)
            }
            EventKind::Access { .. } | EventKind::Label(_) => {
                if let Some((slot, owner)) = self.owners.change(event)
                    && let Some(Some(live)) = self.slots.get_mut(slot as usize)
                {
                    live.owner = live.owner.with_labels_of(owner);
                }
                (None, None)
            }
            EventKind::Holder { allocation_id, slot, path } => {
                if let Some(Some(live)) = self.slots.get(*slot as usize)
                    && live.allocation_id == *allocation_id
                {
                    self.holders.note(live, *path);
                }
                (None, None)
            }
            EventKind::Operator { framework, begins, name, place, detail } => {
                let stack = self.operators.entry(event.thread_id);
                if *begins {
                    let place = match place {
                        Some(place) => self.operator_places.of_path(&place.path),
                        // Rows of dumps tell it among their attributes.
                        None if *framework == Framework::Atb && detail.is_some() => {
                            self.operator_places.of_attributes(&names.text(*detail))
                        }
                        None => PlaceId::default(),
                    };
                    stack.push(OpenOperator { name: *name, framework: *framework, place });
                } else if let Some(position) =
                    stack.iter().rposition(|open| open.name == *name && open.framework == *framework)
                {
                    // What was opened inside and never closed ends with it.
                    stack.truncate(position);
                }
                (None, None)
            }
            EventKind::Kernel { phase, name, .. } => {
                self.kernel(event.thread_id, *phase, *name);
                (None, None)
            }
            EventKind::Work { phase, address } => {
                let operators = self.operators.entry(event.thread_id);
                self.prepared_work.follow(*phase, *address, event.thread_id, operators);
                (None, None)
            }
            EventKind::Module { begins, name } => {
                self.module(event.thread_id, *begins, *name);
                (None, None)
            }
            EventKind::Autograd { phase } => {
                let known = self.phases.entry(event.device);
                if known.is_none_or(|(known, _)| known != *phase) {
                    *known = Some((*phase, event.timestamp_ns));
                }
                if *phase == AutogradPhase::Backward {
                    *self.backward_callers.entry(event.device) = Some(event.python_stack);
                }
                self.autograd(event.device, *phase);
                (None, None)
            }
            _ => {
                let change = self.other(event);
                if let Some(change) = change {
                    self.owners.step_changes(change.device);
                }
                (None, change)
            }
        }
    }

    /// What operators have made in the forward pass of this step and is alive when its backward pass begins is an
    /// activation. What they made before, such as the buffers of a module that is moved to the device, is not.
    fn autograd(&mut self, device: Device, phase: AutogradPhase) {
        let Some(forward_births) = self.owners.begins_backward(device, phase, self.births) else { return };
        let step = self.steps(device).begun;
        for live in self.slots.iter_mut().flatten() {
            let is_activation = live.properties.pool == Pool::PytorchCaching
                && live.properties.device == device
                && live.operator.is_some()
                && live.device_step == step
                && live.birth > forward_births;
            if is_activation {
                live.owner = live.owner.of_activation();
            }
        }
    }

    fn module(&mut self, thread_id: u32, begins: bool, name: StringId) {
        let stack = self.modules.entry(thread_id);
        if begins {
            stack.push(name);
        } else if let Some(position) = stack.iter().rposition(|open| *open == name) {
            // What was called inside and never returned ends with it.
            stack.truncate(position);
        }
    }

    /// Modules that a thread is calling no longer, though nobody has said so, and the forward pass they were part of.
    #[inline]
    fn leave_modules_without_frames(&mut self, event: &TimelineEvent, names: &dyn Names) {
        if self.module_frames.is_outside(event.python_stack, names) {
            self.modules.entry(event.thread_id).clear();
            if self.phase(event.device) == Some(AutogradPhase::Forward) {
                *self.phases.entry(event.device) = Some((AutogradPhase::Other, event.timestamp_ns));
            }
        }
    }

    /// Libraries of operators say when they start and end a kernel, inside of which the runtime reports its launch. It is
    /// one kernel, and counts when it is launched. Where the runtime has reported nothing, it counts when it has ended, or
    /// another starts.
    fn kernel(&mut self, thread_id: u32, phase: KernelPhase, name: StringId) {
        let announced = self.announced_kernels.entry(thread_id);
        let counted = match phase {
            KernelPhase::Launch => {
                *announced = None;
                Some(name)
            }
            KernelPhase::Start => announced.replace(name),
            KernelPhase::End => announced.take(),
            _ => None,
        };
        if let Some(name) = counted {
            self.kernels += 1;
            self.latest_kernel = name;
        }
    }

    fn begin_block(&mut self, event: &TimelineEvent, block: &BlockEvent, owner: OwnerId) {
        let steps = self.steps(event.device);
        self.births += 1;
        let operator = self.operators(event.thread_id).last();
        let live = LiveBlock {
            allocation_id: block.allocation_id,
            address: block.address,
            size_bytes: block.size_bytes,
            properties: block.properties,
            timestamp_ns: event.timestamp_ns,
            step: steps.number,
            device_step: steps.begun,
            thread_id: event.thread_id,
            native_stack: event.native_stack,
            python_stack: event.python_stack,
            caller_stack: self.caller_stack(event),
            operator: operator.map_or(StringId::NONE, |operator| operator.name),
            operator_place: operator.map_or(PlaceId::default(), |operator| operator.place),
            module: self.module_of(event.thread_id),
            phase: self.phase(event.device),
            kernel_index: self.kernels,
            kernel: self.latest_kernel,
            shadow: block.shadow,
            slot: block.slot,
            birth: self.births,
            owner,
        };
        let index = block.slot as usize;
        if self.slots.len() <= index {
            self.slots.resize(index + 1, None);
        }
        self.slots[index] = Some(live);
    }

    fn other(&mut self, event: &TimelineEvent) -> Option<StepChange> {
        match &event.kind {
            EventKind::RangeBegin { range_id, is_step: true, .. } => {
                if self.steps.get(event.device).is_none() {
                    let (begun, ended) = self.steps_without_device;
                    *self.steps.entry(event.device) = DeviceSteps { begun, ended, ..DeviceSteps::default() };
                }
                let steps = self.steps.entry(event.device);
                *steps = DeviceSteps { number: event.step, begun: steps.begun + 1, is_open: true, ..*steps };
                self.step_ranges.insert(*range_id, (event.device, event.step));
                if event.device != Device::Unknown {
                    let process = self.steps.entry(Device::Unknown);
                    *process = DeviceSteps { number: event.step, begun: process.begun + 1, ..*process };
                } else {
                    self.steps_without_device.0 += 1;
                }
                Some(StepChange { device: event.device, number: event.step, begins: true })
            }
            EventKind::RangeEnd { range_id, .. } => {
                let (device, number) = self.step_ranges.remove(range_id)?;
                let steps = self.steps.entry(device);
                (steps.ended, steps.is_open) = (steps.begun, false);
                if device != Device::Unknown {
                    self.steps.entry(Device::Unknown).ended += 1;
                } else {
                    self.steps_without_device.1 += 1;
                }
                Some(StepChange { device, number, begins: false })
            }
            EventKind::StepEnd { number } if event.step == *number => {
                let steps = self.steps.entry(Device::Unknown);
                if !steps.by_api && steps.begun > 0 {
                    // Ranges came first; the recording has no steps of two kinds.
                    return None;
                }
                steps.by_api = true;
                steps.begun = steps.begun.max(steps.ended + 1);
                steps.ended = steps.begun;
                // The next step begins with the same call.
                steps.begun += 1;
                steps.number = number + 1;
                Some(StepChange { device: Device::Unknown, number: *number, begins: false })
            }
            EventKind::AclFinalize { .. } => {
                self.acl_finalized = true;
                None
            }
            _ => None,
        }
    }

    /// The API counts the step in which recording began; it is known only once the first one ends.
    pub fn begin_with_step(&mut self, number: u64) {
        *self.steps.entry(Device::Unknown) = DeviceSteps { number, begun: 1, ended: 0, is_open: true, by_api: true };
    }
}
