//! Facts about one PyTorch operator: that it began and ended, and which memory it touched.
//!
//! What the schema says is worked out once per operator ([`Operator`]). Per call only numbers cross the
//! door; texts of element types and shapes are looked up by the objects PyTorch keeps for them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use msmemscope_control::{AccessFact, Recorder};
use msmemscope_event::{AccessKind, Device, Framework};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple, PyType};
use rustc_hash::FxHashMap;

use crate::facts::intern as intern_text;
use crate::labels::{enter_inherited, leave_inherited};
use crate::panics::as_error;
use crate::session::{note_devices, operator_device, recorder, records_operators};

/// Distinct shapes remembered before the memory of them starts afresh.
const MOST_SHAPES: usize = 1 << 16;
/// PyTorch's own limit.
const MOST_DIMENSIONS: usize = 64;
/// Stands for tensors without memory in the table of devices.
const NO_MEMORY: u32 = u32::MAX;
/// Stands for the device of an operator whose begin was not recorded.
const NOT_RECORDED: u32 = u32::MAX;

/// How an argument or a result counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Its memory is not touched, or it is no tensor.
    None,
    /// Its memory is touched this way.
    Touched(AccessKind),
}

impl Use {
    /// Its memory is written.
    pub(crate) const WRITTEN: Self = Self::Touched(AccessKind::Write);

    fn from_code(code: u64) -> Self {
        match code {
            0 => Use::None,
            1 => Use::Touched(AccessKind::Read),
            2 => Use::Touched(AccessKind::Write),
            _ => Use::Touched(AccessKind::Unknown),
        }
    }
}

/// What the schema of an operator says. Uses are 0 not touched, 1 read, 2 written, 3 not known.
#[pyclass(frozen, module = "msmemscope._internal")]
pub struct Operator {
    name: u32,
    text: String,
    arguments: Vec<(Py<PyString>, Use)>,
    results: Vec<Use>,
}

#[pymethods]
impl Operator {
    #[new]
    fn new(name: &str, arguments: Vec<(Py<PyString>, u64)>, results: Vec<u64>) -> Self {
        Self {
            name: intern_text(name),
            text: name.to_owned(),
            arguments: arguments.into_iter().map(|(name, code)| (name, Use::from_code(code))).collect(),
            results: results.into_iter().map(Use::from_code).collect(),
        }
    }
}

impl Operator {
    /// Its name.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether it gives work to a device: views and forms touch no memory.
    pub(crate) fn is_active(&self) -> bool {
        self.arguments.iter().any(|(_, how)| *how != Use::None) || self.results.iter().any(|how| *how != Use::None)
    }

    /// Whether it exchanges data with other processes: that ends on a stream of its own, some time later.
    pub(crate) fn is_collective(&self) -> bool {
        self.text.contains("c10d")
    }

    /// Name and use of an argument by position.
    pub(crate) fn argument(&self, py: Python<'_>, index: usize) -> PyResult<(String, Use)> {
        match self.arguments.get(index) {
            Some((name, how)) => Ok((name.bind(py).to_cow()?.into_owned(), *how)),
            None => Ok((String::new(), Use::None)),
        }
    }

    /// Use of an argument by name.
    pub(crate) fn argument_named(&self, py: Python<'_>, wanted: &str) -> PyResult<Use> {
        for (name, how) in &self.arguments {
            if name.bind(py).to_cow()? == wanted {
                return Ok(*how);
            }
        }
        Ok(Use::None)
    }

    /// How many results the schema names.
    pub(crate) fn result_count(&self) -> usize {
        self.results.len()
    }

    /// Use of a result.
    pub(crate) fn result(&self, index: usize) -> Use {
        self.results.get(index).copied().unwrap_or(Use::None)
    }

    /// Whether an argument is written although the schema does not say so: collective communication
    /// writes what it is given, and normalisation keeps its running statistics.
    pub(crate) fn writes_unannounced(&self, argument: &str) -> bool {
        self.text.contains(".c10d.")
            || (self.text.contains("batch_norm") && matches!(argument, "running_mean" | "running_var"))
    }
}

/// The tensors of an argument or result: itself, or all that lists and tuples hold.
pub(crate) fn members<'py>(object: &Bound<'py, PyAny>) -> Vec<Bound<'py, PyAny>> {
    if let Ok(list) = object.cast::<PyList>() {
        return list.iter().flat_map(|member| members(&member)).collect();
    }
    if let Ok(tuple) = object.cast::<PyTuple>() {
        return tuple.iter().flat_map(|member| members(&member)).collect();
    }
    let is_tensor = object.hasattr(pyo3::intern!(object.py(), "data_ptr")).unwrap_or(false);
    if is_tensor { vec![object.clone()] } else { Vec::new() }
}

/// What is known about an operator, which is kept alive: its address is how it is found again.
struct Known {
    _function: Py<PyAny>,
    /// What runs it.
    callable: Py<PyAny>,
    /// None: not reported.
    operator: Option<Py<Operator>>,
}

impl Known {
    fn clone_ref(&self, py: Python<'_>) -> Option<(Py<Operator>, Py<PyAny>)> {
        self.operator.as_ref().map(|operator| (operator.clone_ref(py), self.callable.clone_ref(py)))
    }
}

/// An element type of PyTorch, of which there is one object for good.
#[derive(Clone, Copy)]
struct ElementType {
    text: u32,
    size_bytes: u64,
}

/// Records operators. Which facts are wanted is set from outside.
#[pyclass(frozen, module = "msmemscope._internal")]
pub struct OperatorRecorder {
    tensor_type: Py<PyType>,
    /// The type of operators that a plain call runs.
    overload_type: Py<PyAny>,
    /// The most common types of tensors that have no dispatch of their own.
    plain_types: Vec<Py<PyType>>,
    /// `__torch_dispatch__` of the types that have none of their own.
    no_dispatch: Py<PyAny>,
    /// Gives the [`Operator`] of a function of PyTorch, or nothing.
    describe: Py<PyAny>,
    /// Runs an operator on tensors that have a dispatch of their own.
    dispatch_elsewhere: Py<PyAny>,
    /// Gives an object whose end lets a mode leave that is still called although nothing is wanted.
    farewell: Py<PyAny>,
    /// Tells the user about a failure, once.
    warn: Py<PyAny>,
    devices: Py<PyDict>,
    element_types: Mutex<FxHashMap<usize, ElementType>>,
    shapes: Mutex<FxHashMap<Box<[u64]>, u32>>,
    known: Mutex<FxHashMap<usize, Known>>,
    launches: AtomicBool,
    accesses: AtomicBool,
    host: AtomicBool,
}

#[pymethods]
impl OperatorRecorder {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "one for each thing that Python knows better")]
    fn new(
        py: Python<'_>,
        tensor_type: Py<PyType>,
        overload_type: Py<PyAny>,
        plain_types: Vec<Py<PyType>>,
        describe: Py<PyAny>,
        dispatch_elsewhere: Py<PyAny>,
        farewell: Py<PyAny>,
        warn: Py<PyAny>,
    ) -> PyResult<Self> {
        let no_dispatch = tensor_type.getattr(py, intern!(py, "__torch_dispatch__"))?;
        Ok(Self {
            tensor_type,
            overload_type,
            plain_types,
            no_dispatch,
            describe,
            dispatch_elsewhere,
            farewell,
            warn,
            devices: PyDict::new(py).unbind(),
            element_types: Mutex::default(),
            shapes: Mutex::default(),
            known: Mutex::default(),
            launches: AtomicBool::new(false),
            accesses: AtomicBool::new(false),
            host: AtomicBool::new(false),
        })
    }

    /// Says what is recorded: begins and ends, accesses, accesses to host memory too.
    fn want(&self, launches: bool, accesses: bool, host: bool) {
        note_devices();
        self.launches.store(launches, Ordering::Relaxed);
        self.accesses.store(accesses, Ordering::Relaxed);
        self.host.store(host, Ordering::Relaxed);
    }

    /// `__torch_dispatch__` of a mode, its first argument: runs an operator and reports it.
    #[pyo3(signature = (_mode, func, types, args, kwargs=None))]
    fn dispatch<'py>(
        &self,
        _mode: &Bound<'py, PyAny>,
        func: &Bound<'py, PyAny>,
        types: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = func.py();
        let is_wanted = self.launches.load(Ordering::Relaxed) || self.accesses.load(Ordering::Relaxed);
        if !is_wanted {
            return self.pass_on_and_leave(func, types, args, kwargs);
        }
        if !self.are_plain(types)? {
            return self.dispatch_elsewhere.bind(py).call1((func, types, args, kwargs));
        }
        let Some((operator, callable)) = self.known(func) else { return func.call(args, kwargs) };
        let inherited = enter_inherited(py);
        let begun = as_error(PyRuntimeError::new_err, || self.begin(operator.get(), args, kwargs));
        let device = begun.unwrap_or_else(|error| self.complain(py, "arguments", &error, NOT_RECORDED));
        let result = callable.bind(py).call(args, kwargs);
        let ended = as_error(PyRuntimeError::new_err, || self.end(operator.get(), device, result.as_ref().ok()));
        ended.unwrap_or_else(|error| self.complain(py, "results", &error, ()));
        leave_inherited(inherited);
        result
    }

    /// Whether none of these types has a dispatch of its own.
    fn are_plain(&self, types: &Bound<'_, PyAny>) -> PyResult<bool> {
        match types.cast::<PyTuple>() {
            Ok(types) => Ok(types.iter_borrowed().all(|kind| self.is_plain(&kind))),
            Err(_) => {
                for kind in types.try_iter()? {
                    if !self.is_plain(&kind?) {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }

    /// What is known about a function of PyTorch, and how to call it; nothing if it is not reported.
    fn known(&self, func: &Bound<'_, PyAny>) -> Option<(Py<Operator>, Py<PyAny>)> {
        let (py, key) = (func.py(), func.as_ptr() as usize);
        if let Some(known) = locked(&self.known).get(&key) {
            return known.clone_ref(py);
        }
        let described = self.describe.bind(py).call1((func,)).and_then(|answer| Ok(answer.extract()?));
        let operator: Option<Py<Operator>> =
            described.unwrap_or_else(|error| self.complain(py, "description", &error, None));
        // An operator calls the function in it, which is native; called at once there is no frame of ours to be seen in
        // the stacks of users. Other kinds of operators do more than that.
        let is_plain = func.get_type().is(self.overload_type.bind(py));
        let native = func.getattr(intern!(py, "_op")).ok().filter(|_| is_plain);
        let known = Known {
            _function: func.clone().unbind(),
            callable: native.unwrap_or_else(|| func.clone()).unbind(),
            operator,
        };
        let answer = known.clone_ref(py);
        locked(&self.known).insert(key, known);
        answer
    }

    /// An operator begins; returns the device to pass to `end`.
    #[pyo3(signature = (operator, arguments, named_arguments=None))]
    fn begin(
        &self,
        operator: &Operator,
        arguments: &Bound<'_, PyTuple>,
        named_arguments: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<u32> {
        let Some(recorder) = recorder() else { return Ok(NOT_RECORDED) };
        let is_recorded = self.launches.load(Ordering::Relaxed)
            && (records_operators(recorder) || named_arguments.is_some_and(is_first_of_a_device));
        let device = if is_recorded { operator_device() } else { NOT_RECORDED };
        if device != NOT_RECORDED {
            recorder.begin_operator(Framework::Aten, device, operator.name);
        }
        if self.accesses.load(Ordering::Relaxed) {
            for ((_, how), argument) in operator.arguments.iter().zip(arguments.iter_borrowed()) {
                self.touch(recorder, operator, *how, &argument, 0)?;
            }
            for (name, argument) in named_arguments.into_iter().flat_map(|arguments| arguments.iter()) {
                let Ok(name) = name.cast::<PyString>() else { continue };
                let known = operator.arguments.iter().find(|(known, how)| *how != Use::None && same_text(known, name));
                if let Some((_, how)) = known {
                    self.touch(recorder, operator, *how, &argument, 0)?;
                }
            }
        }
        Ok(device)
    }

    /// The operator ended, with its result unless it raised.
    fn end(&self, operator: &Operator, device: u32, result: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let Some(recorder) = recorder() else { return Ok(()) };
        let touched = match result {
            Some(result) if self.accesses.load(Ordering::Relaxed) => self.touch_results(recorder, operator, result),
            _ => Ok(()),
        };
        if device != NOT_RECORDED {
            recorder.end_operator(Framework::Aten, device, operator.name);
        }
        touched
    }
}

impl OperatorRecorder {
    /// Whether a type of tensors has no dispatch of its own. Weights that get their shape later, for one,
    /// are announced by PyTorch as if they had one.
    fn is_plain(&self, kind: &Bound<'_, PyAny>) -> bool {
        let py = kind.py();
        self.plain_types.iter().any(|plain| plain.is(kind))
            || kind.getattr(intern!(py, "__torch_dispatch__")).is_ok_and(|dispatch| self.no_dispatch.is(&dispatch))
    }

    /// Runs an operator for a mode that should have been left. It cannot leave while it handles an operator:
    /// PyTorch puts it back afterwards. Only then the arguments are given up, and what is hidden among them.
    #[cold]
    fn pass_on_and_leave<'py>(
        &self,
        func: &Bound<'py, PyAny>,
        types: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = func.py();
        let result = if self.are_plain(types)? {
            func.call(args, kwargs)
        } else {
            self.dispatch_elsewhere.bind(py).call1((func, types, args, kwargs))
        };
        if let Some(kwargs) = kwargs
            && result.as_ref().is_ok_and(|result| !result.is(py.NotImplemented()))
            && let Err(error) = self.farewell.call0(py).and_then(|farewell| kwargs.set_item("msmemscope", farewell))
        {
            error.write_unraisable(py, None);
        }
        result
    }

    /// Tells about something that cannot be read: the operator must run all the same.
    #[cold]
    fn complain<Value>(&self, py: Python<'_>, what: &str, error: &PyErr, instead: Value) -> Value {
        let text = format!("an operator's {what} cannot be read: {}", error.value(py));
        if let Err(error) = self.warn.call1(py, (text,)) {
            error.write_unraisable(py, None);
        }
        instead
    }

    fn is_tensor(&self, object: &Bound<'_, PyAny>) -> bool {
        let tensor_type = self.tensor_type.bind(object.py());
        object.get_type().is(tensor_type) || object.is_instance(tensor_type).unwrap_or(false)
    }

    fn touch_results(&self, recorder: Recorder, operator: &Operator, result: &Bound<'_, PyAny>) -> PyResult<()> {
        match (operator.results.as_slice(), result.cast::<PyTuple>()) {
            ([], _) => Ok(()),
            ([one], _) => self.touch(recorder, operator, *one, result, 1),
            (several, Ok(results)) => {
                for (position, (how, result)) in several.iter().zip(results.iter_borrowed()).enumerate() {
                    self.touch(recorder, operator, *how, &result, position as u32 + 1)?;
                }
                Ok(())
            }
            (_, Err(_)) => Ok(()),
        }
    }

    /// Records an access to a tensor or to every tensor of a list.
    ///
    /// `position` is that of a result, counted from one; members of a list have positions of their own.
    fn touch(
        &self,
        recorder: Recorder,
        operator: &Operator,
        how: Use,
        object: &Bound<'_, PyAny>,
        position: u32,
    ) -> PyResult<()> {
        let Use::Touched(kind) = how else { return Ok(()) };
        if self.is_tensor(object) {
            return self.touch_tensor(recorder, operator, kind, object, position);
        }
        let member_position = |index: usize| if position == 0 { 0 } else { position + index as u32 };
        if let Ok(list) = object.cast::<PyList>() {
            for (index, member) in list.iter().enumerate() {
                self.touch(recorder, operator, how, &member, member_position(index))?;
            }
        } else if let Ok(tuple) = object.cast::<PyTuple>() {
            for (index, member) in tuple.iter_borrowed().enumerate() {
                self.touch(recorder, operator, how, &member, member_position(index))?;
            }
        }
        Ok(())
    }

    fn touch_tensor(
        &self,
        recorder: Recorder,
        operator: &Operator,
        kind: AccessKind,
        tensor: &Bound<'_, PyAny>,
        position: u32,
    ) -> PyResult<()> {
        let py = tensor.py();
        let device = self.device_code(recorder, &tensor.getattr(intern!(py, "device"))?)?;
        if device == NO_MEMORY || (device == Device::Host.code() && !self.host.load(Ordering::Relaxed)) {
            return Ok(());
        }
        let address: u64 = match tensor.call_method0(intern!(py, "data_ptr")) {
            Ok(address) => address.extract()?,
            // Weights that have no shape yet have no memory either, and say so.
            Err(error) if error.is_instance_of::<PyValueError>(py) => return Ok(()),
            Err(error) => return Err(error),
        };
        if address == 0 {
            return Ok(());
        }
        let element_type = self.element_type(recorder, tensor)?;
        let (shape, element_count) = self.shape(recorder, &tensor.getattr(intern!(py, "shape"))?)?;
        let fact = AccessFact {
            kind: kind as u32,
            framework: Framework::Aten as u32,
            device,
            operator: operator.name,
            element_type: element_type.text,
            shape,
            format: 0,
            output_position: position,
            address,
            size_bytes: element_count * element_type.size_bytes,
        };
        recorder.access(&fact);
        Ok(())
    }

    /// What the elements of a tensor are.
    fn element_type(&self, recorder: Recorder, tensor: &Bound<'_, PyAny>) -> PyResult<ElementType> {
        let py = tensor.py();
        let element_type = tensor.getattr(intern!(py, "dtype"))?;
        let key = element_type.as_ptr() as usize;
        if let Some(known) = locked(&self.element_types).get(&key) {
            return Ok(*known);
        }
        let size_bytes = tensor.call_method0(intern!(py, "element_size"))?.extract()?;
        let known = ElementType { text: text_id(recorder, &element_type)?, size_bytes };
        locked(&self.element_types).insert(key, known);
        Ok(known)
    }

    /// The id of a shape's text, and how many elements a tensor of this shape has.
    fn shape(&self, recorder: Recorder, shape: &Bound<'_, PyAny>) -> PyResult<(u32, u64)> {
        let mut dimensions = [0; MOST_DIMENSIONS];
        let shape_tuple = shape.cast::<PyTuple>()?;
        let Some(dimensions) = dimensions.get_mut(..shape_tuple.len()) else {
            return Err(PyValueError::new_err(format!("a tensor has {} dimensions", shape_tuple.len())));
        };
        for (dimension, size) in dimensions.iter_mut().zip(shape_tuple.iter_borrowed()) {
            *dimension = size.extract()?;
        }
        let element_count = dimensions.iter().product();
        if let Some(&text) = locked(&self.shapes).get(&*dimensions) {
            return Ok((text, element_count));
        }
        let text = text_id(recorder, shape)?;
        let mut shapes = locked(&self.shapes);
        if shapes.len() >= MOST_SHAPES {
            shapes.clear();
        }
        shapes.insert((&*dimensions).into(), text);
        Ok((text, element_count))
    }

    /// The code of a `torch.device`, or a word such as "cpu".
    fn device_code(&self, recorder: Recorder, device: &Bound<'_, PyAny>) -> PyResult<u32> {
        let devices = self.devices.bind(device.py());
        if let Some(code) = devices.get_item(device)? {
            return code.extract();
        }
        let text = device.str()?.to_cow()?.into_owned();
        let (kind, index) = text.split_once(':').unwrap_or((&text, ""));
        let code = match (kind, index.parse()) {
            ("cpu", _) => Device::Host.code(),
            ("meta", _) => NO_MEMORY,
            ("npu" | "privateuseone", Ok(index)) => Device::from_id(index).code(),
            // Without a number it is the thread's device, which may change.
            ("npu" | "privateuseone", Err(_)) => return Ok(recorder.current_device().code()),
            _ => Device::Unknown.code(),
        };
        devices.set_item(device, code)?;
        Ok(code)
    }
}

/// The id of an object's text.
#[cold]
fn text_id(recorder: Recorder, object: &Bound<'_, PyAny>) -> PyResult<u32> {
    let text = object.repr()?;
    Ok(recorder.intern(text.to_cow()?.as_bytes()))
}

fn locked<Value>(mutex: &Mutex<Value>) -> MutexGuard<'_, Value> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether an operator is asked to make a tensor on a device: then it brings the device up if none is yet.
#[cold]
fn is_first_of_a_device(named_arguments: &Bound<'_, PyDict>) -> bool {
    let device = named_arguments.get_item(intern!(named_arguments.py(), "device")).ok().flatten();
    let text = device.and_then(|device| device.str().ok()).map(|text| text.to_string_lossy().into_owned());
    text.is_some_and(|text| text.starts_with("npu") || text.starts_with("privateuseone"))
}

/// Whether two texts are equal. Names of arguments are nearly always the same object.
fn same_text(one: &Py<PyString>, other: &Bound<'_, PyString>) -> bool {
    one.is(other) || one.bind(other.py()).as_any().eq(other).unwrap_or(false)
}

/// Adds the classes of this module to the extension.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("NOT_RECORDED", NOT_RECORDED)?;
    module.add_class::<Operator>()?;
    module.add_class::<OperatorRecorder>()
}
