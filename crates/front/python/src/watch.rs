//! Watches memory blocks around PyTorch's operators.
//!
//! The dispatch mode calls [`BlockWatch::before`] and [`BlockWatch::after`]. Both first ask Python for
//! everything they need: what the operator declares to write, whether tensors still have their memory,
//! that the device is done. Only then do they lock their state, and call no Python until it is
//! unlocked: another thread may get the interpreter's lock in between and want the state.
//!
//! Python is never called where the recorder tells of something by itself, on whichever thread that happens: launches of
//! kernels, and operators which libraries such as ATB run without PyTorch's dispatcher; see [`observers`].

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use msmemscope_config::{Watch, WatchTarget};
use msmemscope_control::Recorder;
use msmemscope_event::{ByteRange, Device, Pool};
use msmemscope_watch::observers::{self, blocks, thread_id};
use msmemscope_watch::session::{OpenOperator, Session};
use msmemscope_watch::{Hunt, OperatorCall, Output, Surroundings, Target};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::exceptions::AddressError;
use crate::facts;
use crate::labels;
use crate::operators::{Operator, Use, members};
use crate::panics::contained;
use crate::session::{kernels_are_recorded, operators_are_recorded, recorder, watch_setting};

/// The label to whose blocks the hunt keeps; zero if it is about all.
static OWNER: AtomicU32 = AtomicU32::new(ALL_OWNERS);
const ALL_OWNERS: u32 = 0;

/// Keeps a hunt to the blocks of an owner, if it is about one.
fn follow_owner(watch: Option<&Watch>) {
    if let Some(WatchTarget::Automatic { owner, .. }) = watch.map(|watch| &watch.target) {
        OWNER.store(owner.as_deref().map_or(ALL_OWNERS, facts::intern), Ordering::Relaxed);
    }
}

/// Whether a hunt is about a block that this thread allocates now.
fn is_hunted() -> bool {
    let owner = OWNER.load(Ordering::Relaxed);
    owner == ALL_OWNERS || labels::is_inside(owner)
}

/// The block at an address got a label.
pub fn labelled(address: u64, label: u32) {
    if label != ALL_OWNERS && label == OWNER.load(Ordering::Relaxed) {
        blocks().join_hunt(address);
    }
}

/// The recorder's news about blocks. Scratch memory is left out: every operator writes it.
unsafe extern "C" fn observe(begins: u32, pool: u32, device: u32, address: u64, size_bytes: u64) {
    if pool == Pool::PytorchCaching as u32 {
        contained((), || match begins {
            0 => blocks().end(address),
            _ => blocks().begin(Device::from_code(device), address, size_bytes, is_hunted()),
        });
    }
}

/// What an operator does with device memory, as far as its arguments or results tell.
#[derive(Default)]
struct Uses {
    writes: Vec<ByteRange>,
    outputs: Vec<Output>,
    /// The first NPU that occurs; operators without one need no look.
    device: Option<Device>,
}

/// When a look is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Before,
    After,
}

/// A tensor the user named, by which a change of its memory shows.
struct Named {
    address: u64,
    size_bytes: u64,
    /// Whether the pool tells when its block ends.
    is_in_pool: bool,
    reference: Py<PyAny>,
}

/// Looks at blocks before and after operators.
#[pyclass(frozen, module = "msmemscope._internal")]
pub struct BlockWatch {
    /// Waits until the device has nothing left to do.
    synchronise: Py<PyAny>,
    /// Waits only for the thread's own stream. Where watching begins, work of other streams that is still
    /// under way and hits the block must be seen, not waited for.
    synchronise_stream: Py<PyAny>,
    /// Whether the device must not be waited for now.
    is_capturing: Py<PyAny>,
    /// Whether a tensor's memory is larger than its shape says.
    has_own_layout: Py<PyAny>,
    state: Arc<Mutex<Session>>,
    named: Mutex<Vec<Named>>,
}

#[pymethods]
impl BlockWatch {
    #[new]
    fn new(
        synchronise: Py<PyAny>,
        synchronise_stream: Py<PyAny>,
        is_capturing: Py<PyAny>,
        has_own_layout: Py<PyAny>,
    ) -> Self {
        let watch = watch_setting();
        follow_owner(watch.as_ref());
        let state = Session::new(watch.as_ref(), recorder());
        if let Some(recorder) = recorder() {
            // SAFETY: the extension is never unloaded.
            unsafe { recorder.observe_blocks(observe) };
            // SAFETY: as above.
            unsafe { recorder.observe_operators(Some(observers::observe_operator)) };
        }
        let (state, named) = (Arc::new(Mutex::new(state)), Mutex::new(Vec::new()));
        observers::install(&state);
        Self { synchronise, synchronise_stream, is_capturing, has_own_layout, state, named }
    }

    /// Forgets what the settings asked for. Blocks that the user named in Python are watched on.
    fn forget_settings(&self) {
        let mut state = self.state();
        let Session { process, explicit, hunt, .. } = &mut *state;
        if let Some(hunt) = hunt.take() {
            hunt.record_coverage(process);
        }
        explicit.forget_operators(process);
    }

    /// Takes looks around operators, kernels or both, as the level says. Gives whether kernels are among them.
    fn follow_level(&self) -> bool {
        let (at_operators, at_kernels) = (operators_are_recorded(), kernels_are_recorded());
        let mut state = self.state();
        // Without any level the operators are what people know.
        state.at_operators = at_operators || !at_kernels;
        let has_changed = std::mem::replace(&mut state.at_kernels, at_kernels) != at_kernels;
        drop(state);
        if let Some(recorder) = recorder().filter(|_| has_changed) {
            // SAFETY: the extension is never unloaded.
            unsafe { recorder.observe_launches(at_kernels.then_some(observers::observe_launch)) };
        }
        at_kernels
    }

    /// Blocks that were alive before the recorder told about them: device, address, size.
    #[staticmethod]
    fn note_blocks(list: Vec<(i64, u64, u64)>) {
        let mut blocks = blocks();
        for (device, address, size_bytes) in list {
            blocks.note(Device::from_id(device), address, size_bytes, is_hunted());
        }
    }

    /// Whether launches wait for their work.
    fn is_blocking(&self) -> bool {
        self.state().process.is_blocking()
    }

    /// Watches a block from now on. The reference gives its tensor, or none when that is gone; an address
    /// without one must lie in a block of the pool, because nothing else is known to be readable. What
    /// reaches beyond the block is left out.
    fn add(
        &self,
        py: Python<'_>,
        name: String,
        place: (u64, u64),
        device: Option<i64>,
        most_dumps: Option<u64>,
        reference: Option<Py<PyAny>>,
    ) -> PyResult<Vec<String>> {
        let (address, size_bytes) = place;
        self.synchronise_stream.call1(py, (device,))?;
        let known = blocks().holding(address);
        if known.is_none() && reference.is_none() {
            return Err(AddressError::new_err(format!(
                "'{name}' cannot be watched: no block of PyTorch's pool on an NPU is alive at {address:#x}"
            )));
        }
        let readable_bytes = known.map_or(size_bytes, |block| size_bytes.min(block.range().end - address));
        let device = device.map(Device::from_id).or(known.map(|block| block.device)).unwrap_or(Device::Npu(0));
        let mut named = self.named();
        named.retain(|named| named.address != address);
        let is_in_pool = known.is_some();
        named.extend(reference.map(|reference| Named { address, size_bytes, is_in_pool, reference }));
        drop(named);
        let mut state = self.state();
        let Session { process, explicit, .. } = &mut *state;
        if readable_bytes < size_bytes {
            process.say(format!(
                "only {readable_bytes} of the {size_bytes} bytes of '{name}' are watched: there its block ends"
            ));
        }
        let target = Target { name, address, size_bytes: readable_bytes, device, most_dumps };
        explicit.add(target, &blocks(), process);
        Ok(process.take_said())
    }

    /// Ends watching of the block at an address.
    fn remove(&self, address: u64) -> bool {
        self.named().retain(|named| named.address != address);
        let mut state = self.state();
        let Session { process, explicit, .. } = &mut *state;
        explicit.remove(address, process)
    }

    /// Addresses that are watched because somebody named them.
    fn addresses(&self) -> Vec<u64> {
        self.state().explicit.targets().map(|target| target.address).collect()
    }

    /// An operator is about to run. Gives what `after` needs, the number of the call (zero if nothing
    /// was looked at) and the code of the device, and what to tell the user.
    fn before(
        &self,
        py: Python<'_>,
        operator: &Operator,
        arguments: &Bound<'_, PyTuple>,
        named_arguments: &Bound<'_, PyDict>,
    ) -> PyResult<((u64, u32), Vec<String>)> {
        self.open(operator);
        let uses = self.uses_of_arguments(py, operator, arguments, named_arguments)?;
        let resized = self.resized(py);
        let device = uses.device.unwrap_or(Device::Host);
        let can_look = device != Device::Host && self.prepare(py, operator, Moment::Before)?;
        let mut state = self.state();
        let number = state.next_call(operator.text());
        let own = thread_id();
        let Session { process, explicit, open, .. } = &mut *state;
        if let Some(open) = open.iter_mut().rfind(|open| open.thread_id == own) {
            open.writes.clone_from(&uses.writes);
            open.can_wait = can_look;
        }
        for address in resized {
            explicit.resized(address, process);
        }
        state.before(&call_of(operator, number, device, &uses.writes), can_look, &blocks());
        Ok(((if can_look { number } else { 0 }, device.code()), state.process.take_said()))
    }

    /// The operator has run, with this result unless it raised.
    fn after(
        &self,
        py: Python<'_>,
        operator: &Operator,
        call: (u64, u32),
        result: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Vec<String>> {
        let _closed = Closing(&self.state);
        let (number, device) = call;
        let mut uses = Uses::default();
        if let Some(result) = result {
            self.uses_of_results(py, operator, result, &mut uses)?;
        }
        let can_look = number != 0 && self.prepare(py, operator, Moment::After)?;
        let mut state = self.state();
        let call = call_of(operator, number, Device::from_code(device), &uses.writes);
        state.after(&call, &uses.outputs, can_look, &blocks());
        Ok(state.process.take_said())
    }

    /// Takes down how much was covered so far. Gives what to tell the user.
    fn record_coverage(&self) -> Vec<String> {
        let mut state = self.state();
        let Session { process, hunt, .. } = &mut *state;
        if let Some(hunt) = hunt {
            hunt.record_coverage(process);
        }
        process.take_said()
    }
}

/// Closes the thread's innermost operator in the end, whatever comes of it.
struct Closing<'a>(&'a Mutex<Session>);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).close(thread_id());
    }
}

fn call_of<'a>(operator: &'a Operator, number: u64, device: Device, writes: &'a [ByteRange]) -> OperatorCall<'a> {
    OperatorCall {
        name: operator.text(),
        number,
        device,
        thread_id: thread_id(),
        writes,
        is_active: operator.is_active(),
        launch: None,
    }
}

impl BlockWatch {
    fn state(&self) -> MutexGuard<'_, Session> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An operator begins; what it writes is found out next.
    fn open(&self, operator: &Operator) {
        let newest_generation = blocks().newest_generation();
        let name = operator.text().to_owned();
        let mut state = self.state();
        state.open.push(OpenOperator {
            thread_id: thread_id(),
            name,
            writes: Vec::new(),
            newest_generation,
            can_wait: false,
        });
    }

    fn named(&self) -> MutexGuard<'_, Vec<Named>> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the device ready to be looked at; false if there is nothing to look at, or it must not be
    /// waited for.
    fn prepare(&self, py: Python<'_>, operator: &Operator, moment: Moment) -> PyResult<bool> {
        let (is_waiting, is_watching) = {
            let state = self.state();
            let is_hunting = state.hunt.as_ref().is_some_and(Hunt::is_on) && operator.is_active();
            let is_watching = state.explicit.is_watching() || is_hunting;
            (is_watching || state.explicit.is_waiting(), is_watching)
        };
        if !is_waiting || self.is_capturing.call0(py)?.is_truthy(py)? {
            return Ok(false);
        }
        let begins = moment == Moment::After && {
            let state = self.state();
            let may_begin = state.at_kernels && state.explicit.may_start_with_a_kernel();
            may_begin || state.explicit.may_start_with_a_path() || state.explicit.starts_with(operator.text())
        };
        if is_watching || (begins && operator.is_collective()) {
            self.synchronise.call1(py, (None::<i64>,))?;
        } else if begins {
            self.synchronise_stream.call1(py, (None::<i64>,))?;
        }
        Ok(true)
    }

    /// Addresses whose tensors have other memory by now.
    fn resized(&self, py: Python<'_>) -> Vec<u64> {
        let named: Vec<Named> =
            self.named().iter().map(|named| Named { reference: named.reference.clone_ref(py), ..*named }).collect();
        let has_moved = |named: &Named| -> PyResult<bool> {
            let tensor = named.reference.bind(py).call0()?;
            if tensor.is_none() {
                // A block of the pool may live on; its end is told. Of other memory nothing more is known.
                return Ok(!named.is_in_pool);
            }
            let now: u64 = tensor.call_method0(intern!(py, "data_ptr"))?.extract()?;
            let size_now: u64 = tensor.getattr(intern!(py, "nbytes"))?.extract()?;
            Ok(now != named.address || size_now != named.size_bytes)
        };
        let moved: Vec<u64> =
            named.iter().filter(|named| has_moved(named).unwrap_or(true)).map(|named| named.address).collect();
        if !moved.is_empty() {
            self.named().retain(|named| !moved.contains(&named.address));
        }
        moved
    }

    fn uses_of_arguments(
        &self,
        py: Python<'_>,
        operator: &Operator,
        arguments: &Bound<'_, PyTuple>,
        named_arguments: &Bound<'_, PyDict>,
    ) -> PyResult<Uses> {
        let mut uses = Uses::default();
        for (index, argument) in arguments.iter_borrowed().enumerate() {
            let (name, how) = operator.argument(py, index)?;
            let is_written = how == Use::WRITTEN || operator.writes_unannounced(&name);
            self.use_all(py, &argument, is_written, &mut uses)?;
        }
        for (name, argument) in named_arguments.iter() {
            let name = name.cast::<PyString>()?.to_cow()?.into_owned();
            let how = operator.argument_named(py, &name)?;
            let is_written = how == Use::WRITTEN || operator.writes_unannounced(&name);
            self.use_all(py, &argument, is_written, &mut uses)?;
            if name == "device" && uses.device.is_none() {
                uses.device = npu(py, &argument)?;
            }
        }
        Ok(uses)
    }

    fn uses_of_results(
        &self,
        py: Python<'_>,
        operator: &Operator,
        result: &Bound<'_, PyAny>,
        uses: &mut Uses,
    ) -> PyResult<()> {
        let is_written = |index: usize| operator.result(index) == Use::WRITTEN;
        match result.cast::<PyTuple>() {
            Ok(results) if operator.result_count() > 1 => {
                for (index, result) in results.iter_borrowed().enumerate() {
                    self.use_all(py, &result, is_written(index), uses)?;
                }
            }
            _ => self.use_all(py, result, is_written(0), uses)?,
        }
        // Position among all results.
        let mut outputs = Vec::new();
        for (index, tensor) in members(result).into_iter().enumerate() {
            if let Some((device, _)) = self.place(py, &tensor, false)? {
                let address: u64 = tensor.call_method0(intern!(py, "data_ptr"))?.extract()?;
                let size_bytes: u64 = tensor.getattr(intern!(py, "nbytes"))?.extract()?;
                outputs.push(Output { index: index as u32, address, size_bytes, device });
            }
        }
        uses.outputs = outputs;
        Ok(())
    }

    fn use_all(&self, py: Python<'_>, object: &Bound<'_, PyAny>, is_written: bool, uses: &mut Uses) -> PyResult<()> {
        for tensor in members(object) {
            if let Some((device, range)) = self.place(py, &tensor, is_written)? {
                uses.device = uses.device.or(Some(device));
                uses.writes.extend(is_written.then_some(range).filter(|range| !range.is_empty()));
            }
        }
        Ok(())
    }

    /// Device and addresses of a tensor on an NPU. The addresses are those from the first to the last
    /// element, or all of its memory if that is arranged in a way of its own; empty if not wanted.
    fn place(
        &self,
        py: Python<'_>,
        tensor: &Bound<'_, PyAny>,
        wants_range: bool,
    ) -> PyResult<Option<(Device, ByteRange)>> {
        let nowhere = ByteRange { start: 0, end: 0 };
        let Ok(device) = tensor.getattr(intern!(py, "device")) else { return Ok(None) };
        let Some(device) = npu(py, &device)? else { return Ok(None) };
        if !wants_range {
            return Ok(Some((device, nowhere)));
        }
        let start: u64 = tensor.call_method0(intern!(py, "data_ptr"))?.extract()?;
        let shape: Vec<u64> = tensor.getattr(intern!(py, "shape"))?.extract()?;
        if start == 0 || shape.contains(&0) {
            return Ok(Some((device, nowhere)));
        }
        if self.has_own_layout.call1(py, (tensor,))?.is_truthy(py)? {
            let storage = tensor.call_method0(intern!(py, "untyped_storage"))?;
            let start: u64 = storage.call_method0(intern!(py, "data_ptr"))?.extract()?;
            let size_bytes: u64 = storage.call_method0(intern!(py, "nbytes"))?.extract()?;
            return Ok(Some((device, ByteRange::sized(start, size_bytes))));
        }
        let strides: Vec<u64> = tensor.call_method0(intern!(py, "stride"))?.extract()?;
        let element_bytes: u64 = tensor.call_method0(intern!(py, "element_size"))?.extract()?;
        let last: u64 = shape.iter().zip(&strides).map(|(size, stride)| (size - 1) * stride).sum();
        Ok(Some((device, ByteRange::sized(start, (last + 1) * element_bytes))))
    }
}

/// The NPU that a `torch.device` means, if it means one.
fn npu(py: Python<'_>, device: &Bound<'_, PyAny>) -> PyResult<Option<Device>> {
    let Ok(kind) = device.getattr(intern!(py, "type")) else { return Ok(None) };
    if !matches!(&*kind.cast::<PyString>()?.to_cow()?, "npu" | "privateuseone") {
        return Ok(None);
    }
    let index: Option<i64> = device.getattr(intern!(py, "index"))?.extract()?;
    Ok(Some(match index {
        Some(index) => Device::from_id(index),
        // Without a number it is the thread's device.
        None => recorder().map_or(Device::Npu(0), Recorder::current_device),
    }))
}

/// Whether the settings ask for watching.
#[pyfunction]
fn wants_watch() -> bool {
    watch_setting().is_some()
}

/// Whether the settings ask for a hunt through the blocks of an owner, so that labels are needed.
#[pyfunction]
fn watches_an_owner() -> bool {
    let target = watch_setting().map(|watch| watch.target);
    matches!(target, Some(WatchTarget::Automatic { owner: Some(_), .. }))
}

/// Adds what is here to the extension.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(wants_watch, module)?)?;
    module.add_function(wrap_pyfunction!(watches_an_owner, module)?)?;
    module.add_class::<BlockWatch>()
}
