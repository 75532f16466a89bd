//! Follows references between Python objects, as the garbage collector does: from roots outward, through the types' own
//! functions for it, so that no code of the job runs and no object is touched. Says how objects of one type are reached.
//!
//! The walk is one native call: nothing else runs in the interpreter meanwhile, so objects stay where they are although
//! no reference to them is held.

use std::ffi::{c_int, c_void};

use pyo3::exceptions::PyTypeError;
use pyo3::ffi::{self, PyObject, PyTypeObject};
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyList, PyType};
use rustc_hash::{FxHashMap, FxHashSet};

/// The object is a root, or is found from none: whoever holds it is no Python object, or it waits for the collector.
const ROOT: i64 = -1;
const HELD_NATIVELY: i64 = -2;
const GARBAGE: i64 = -3;

/// Objects between two looks at the clock.
const CLOCK_INTERVAL: usize = 1024;
/// A chain of objects that no root leads to is cut off behind this many.
const LONGEST_CHAIN: usize = 64;
/// Where a type has its `tp_traverse` in releases that do not give it away for all types.
const TRAVERSE_OFFSET_3_9: usize = 184;

type Visit = unsafe extern "C" fn(*mut PyObject, *mut c_void) -> c_int;
type Traverse = unsafe extern "C" fn(*mut PyObject, Visit, *mut c_void) -> c_int;

unsafe extern "C" {
    static PyFrame_Type: PyTypeObject;
    /// Part of the limited interface from 3.10 on, and there before.
    fn PyObject_GenericGetDict(object: *mut PyObject, closure: *mut c_void) -> *mut PyObject;
}

/// What is known of a type.
#[derive(Clone, Copy)]
struct Kind {
    traverse: Option<Traverse>,
    is_target: bool,
    is_late: bool,
}

/// An object that was reached, and from which other one.
struct Node {
    object: *mut PyObject,
    parent: i64,
    is_target: bool,
}

struct Walk {
    target: *mut PyTypeObject,
    /// Objects of these types are followed only when there is nothing else.
    late: Vec<*mut PyTypeObject>,
    postponed: Vec<Node>,
    gives_slots: bool,
    kinds: FxHashMap<usize, Kind>,
    seen: FxHashSet<usize>,
    nodes: Vec<Node>,
    /// The node whose references are followed.
    current: i64,
    most_objects: usize,
    /// Time of this thread on a processor: what others do meanwhile costs the job nothing through us.
    deadline_ns: u128,
    is_complete: bool,
}

impl Walk {
    fn kind(&mut self, object: *mut PyObject) -> Kind {
        // SAFETY: the object is alive.
        let kind = unsafe { ffi::Py_TYPE(object) };
        if let Some(known) = self.kinds.get(&(kind as usize)) {
            return *known;
        }
        // SAFETY: both are types; the functions only read them.
        let (flags, is_target) = unsafe { (ffi::PyType_GetFlags(kind), ffi::PyType_IsSubtype(kind, self.target) != 0) };
        // SAFETY: likewise.
        let is_late = self.late.iter().any(|late| unsafe { ffi::PyType_IsSubtype(kind, *late) != 0 });
        let traverse = match flags & ffi::Py_TPFLAGS_HAVE_GC {
            0 => None,
            _ => self.traverse_of(kind),
        };
        let known = Kind { traverse, is_target, is_late };
        self.kinds.insert(kind as usize, known);
        known
    }

    fn traverse_of(&self, kind: *mut PyTypeObject) -> Option<Traverse> {
        let slot = if self.gives_slots {
            // SAFETY: from 3.10 on every type may be asked.
            unsafe { ffi::PyType_GetSlot(kind, ffi::Py_tp_traverse) }
        } else {
            // SAFETY: types of 3.9 have it there.
            unsafe { kind.byte_add(TRAVERSE_OFFSET_3_9).cast::<*mut c_void>().read() }
        };
        // SAFETY: the slot is null or a function of this type.
        (!slot.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Traverse>(slot) })
    }

    /// Takes an object in unless it is known or cannot refer to anything.
    #[inline]
    fn reach(&mut self, object: *mut PyObject, parent: i64) {
        let kind = self.kind(object);
        if (kind.traverse.is_some() || kind.is_target) && self.seen.insert(object as usize) {
            let nodes = if kind.is_late { &mut self.postponed } else { &mut self.nodes };
            nodes.push(Node { object, parent, is_target: kind.is_target });
        }
    }

    /// Calls a function for everything that an object refers to.
    fn references(&mut self, object: *mut PyObject, visit: Visit, argument: *mut c_void) {
        let Some(traverse) = self.kind(object).traverse else { return };
        // What the collector does not follow holds nothing of interest, and some of it must not be followed.
        // SAFETY: the object is alive, the function is its type's own, and is called as the collector calls it.
        unsafe {
            if ffi::PyObject_GC_IsTracked(object) != 0 {
                traverse(object, visit, argument);
            }
        }
    }

    fn is_over(&mut self, looked_at: usize) -> bool {
        if self.nodes.len() >= self.most_objects
            || (looked_at.is_multiple_of(CLOCK_INTERVAL) && thread_time_ns() >= self.deadline_ns)
        {
            self.is_complete = false;
        }
        !self.is_complete
    }

    /// Follows references from the nodes from `first` on until there are no more.
    fn follow_from(&mut self, first: usize) {
        let mut next = first;
        while next < self.nodes.len() && !self.is_over(next) {
            self.current = next as i64;
            let walk: *mut Walk = self;
            self.references(self.nodes[next].object, visited, walk.cast());
            next += 1;
            if next == self.nodes.len() {
                self.nodes.append(&mut self.postponed);
            }
        }
    }
}

unsafe extern "C" fn visited(object: *mut PyObject, walk: *mut c_void) -> c_int {
    // SAFETY: `follow_from` hands its walk over, and does not use it meanwhile.
    let walk = unsafe { &mut *walk.cast::<Walk>() };
    walk.reach(object, walk.current);
    0
}

/// References among objects that no root leads to.
#[derive(Default)]
struct Unreached {
    objects: FxHashSet<usize>,
    /// From where each is referred to, and how often.
    referrers: FxHashMap<usize, (usize, isize)>,
    current: usize,
}

unsafe extern "C" fn visited_unreached(object: *mut PyObject, unreached: *mut c_void) -> c_int {
    // SAFETY: handed over by `find_unreached`, which does not use it meanwhile.
    let unreached = unsafe { &mut *unreached.cast::<Unreached>() };
    let address = object as usize;
    if unreached.objects.contains(&address) {
        let referrer = unreached.referrers.entry(address).or_insert((unreached.current, 0));
        referrer.1 += 1;
    }
    0
}

/// Looks at what the collector knows and no root leads to. Adds targets among it with what refers to them.
fn find_unreached(walk: &mut Walk, all: &Bound<'_, PyList>) {
    let mut unreached = Unreached::default();
    let mut targets = Vec::new();
    for object in all.iter() {
        let object = object.as_ptr();
        if !walk.seen.contains(&(object as usize)) {
            unreached.objects.insert(object as usize);
            if walk.kind(object).is_target {
                targets.push(object);
            }
        }
    }
    if targets.is_empty() {
        return;
    }
    let rest: Vec<usize> = unreached.objects.iter().copied().collect();
    for (index, &object) in rest.iter().enumerate() {
        if walk.is_over(index) {
            return;
        }
        unreached.current = object;
        let argument: *mut Unreached = &mut unreached;
        walk.references(object as *mut PyObject, visited_unreached, argument.cast());
    }
    for target in targets {
        add_chain(walk, &unreached, target);
    }
}

/// Adds a target with the objects that lead to it, outermost first.
fn add_chain(walk: &mut Walk, unreached: &Unreached, target: *mut PyObject) {
    let mut chain = vec![target];
    let end = loop {
        let object = chain[chain.len() - 1];
        let (referrer, count) = unreached.referrers.get(&(object as usize)).copied().unwrap_or_default();
        // The list of all objects holds one reference, too.
        // SAFETY: the list keeps the object alive.
        let is_held_elsewhere = unsafe { ffi::Py_REFCNT(object) } > count + 1;
        if is_held_elsewhere || referrer == 0 {
            break HELD_NATIVELY;
        }
        if chain.len() >= LONGEST_CHAIN || chain.contains(&(referrer as *mut PyObject)) {
            break GARBAGE;
        }
        chain.push(referrer as *mut PyObject);
    };
    let mut parent = end;
    for object in chain.into_iter().rev() {
        walk.nodes.push(Node { object, parent, is_target: object == target });
        parent = walk.nodes.len() as i64 - 1;
    }
}

/// Time that this thread has spent on a processor.
fn thread_time_ns() -> u128 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place for the answer is valid; it stays zero if there is no such clock.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u128 * 1_000_000_000 + time.tv_nsec as u128
}

/// An object on the way to a target, and the index of the one before it.
type Step = (Py<PyAny>, i64);
/// A root, and what it refers to if that is not what the collector thinks.
type Root<'py> = (Bound<'py, PyAny>, Option<Bound<'py, PyList>>);

/// How objects of a type are reached: (object, index of the object that refers to it) for each object on the way, in
/// front of those that it refers to; how many objects were looked at; whether that was all there is to look at.
///
/// `ranks` are lists of roots: what the first list leads to is not looked for from the second. Nothing is followed
/// through `skipped`, and through objects of the types `late` only if nothing else is left. Roots have the index -1;
/// what no root leads to comes from native code (-2), or waits for the collector (-3), which has to be off meanwhile.
/// `all_objects` is `gc.get_objects`.
#[pyfunction]
fn find_paths<'py>(
    target: &Bound<'py, PyType>,
    ranks: Vec<Vec<Root<'py>>>,
    skipped: &Bound<'py, PyList>,
    late: Vec<Bound<'py, PyType>>,
    all_objects: &Bound<'py, PyCFunction>,
    most_objects: usize,
    most_seconds: f64,
) -> PyResult<(Vec<Step>, usize, bool)> {
    let py = target.py();
    let mut walk = Walk {
        target: target.as_type_ptr(),
        late: late.iter().map(Bound::as_type_ptr).collect(),
        postponed: Vec::new(),
        gives_slots: py.version_info() >= (3, 10),
        kinds: FxHashMap::default(),
        seen: FxHashSet::default(),
        nodes: Vec::new(),
        current: ROOT,
        most_objects,
        deadline_ns: thread_time_ns() + (most_seconds * 1e9) as u128,
        is_complete: true,
    };
    walk.seen.extend(skipped.iter().map(|object| object.as_ptr() as usize));
    walk.seen.insert(skipped.as_ptr() as usize);
    // No root is reached from another one.
    for (root, references) in ranks.iter().flatten() {
        walk.seen.insert(root.as_ptr() as usize);
        walk.seen.extend(references.iter().map(|list| list.as_ptr() as usize));
    }
    for rank in &ranks {
        let first = walk.nodes.len();
        for (root, _) in rank {
            let is_target = walk.kind(root.as_ptr()).is_target;
            walk.nodes.push(Node { object: root.as_ptr(), parent: ROOT, is_target });
        }
        for (index, (_, references)) in rank.iter().enumerate() {
            for object in references.iter().flat_map(|list| list.iter()) {
                walk.reach(object.as_ptr(), (first + index) as i64);
            }
        }
        walk.follow_from(first);
    }
    let mut looked_at = walk.nodes.len();
    if walk.is_complete {
        // A native function, so that still nothing else runs.
        let all = all_objects.call0()?.cast_into::<PyList>()?;
        looked_at = looked_at.max(all.len());
        walk.seen.insert(all.as_ptr() as usize);
        find_unreached(&mut walk, &all);
    }
    let paths = paths_of_targets(py, &walk);
    Ok((paths, looked_at, walk.is_complete))
}

/// The nodes on the way to targets, renumbered.
fn paths_of_targets(py: Python<'_>, walk: &Walk) -> Vec<Step> {
    let mut is_wanted = vec![false; walk.nodes.len()];
    for index in (0..walk.nodes.len()).rev() {
        is_wanted[index] |= walk.nodes[index].is_target;
        if let (true, Ok(parent)) = (is_wanted[index], usize::try_from(walk.nodes[index].parent)) {
            is_wanted[parent] = true;
        }
    }
    let mut numbers = vec![ROOT; walk.nodes.len()];
    let mut paths = Vec::new();
    for (index, node) in walk.nodes.iter().enumerate().filter(|(index, _)| is_wanted[*index]) {
        numbers[index] = paths.len() as i64;
        let parent = usize::try_from(node.parent).map_or(node.parent, |parent| numbers[parent]);
        // SAFETY: the object is alive: nothing has run since it was reached.
        paths.push((unsafe { Bound::from_borrowed_ptr(py, node.object) }.unbind(), parent));
    }
    paths
}

/// Where frames keep their variables, if this release is known: in the object itself or behind a pointer in it.
fn variables_offset(py: Python<'_>) -> Option<(Option<usize>, usize)> {
    match py.version_info() {
        version if version.major != 3 => None,
        version if version.minor == 9 => Some((None, 360)),
        version if version.minor == 10 => Some((None, 352)),
        version if matches!(version.minor, 11 | 12) => Some((Some(24), 72)),
        _ => None,
    }
}

/// The first `count` slots of a frame's variables, cells as they are. Nothing in releases where a frame can be asked
/// without changing anything.
///
/// `frame.f_locals` of these releases fills a dictionary that stays with the frame, and keeps alive what is in it.
#[pyfunction]
fn frame_slots(frame: &Bound<'_, PyAny>, count: usize) -> PyResult<Vec<Option<Py<PyAny>>>> {
    let py = frame.py();
    // SAFETY: only the address is taken; and the object is alive.
    let is_frame = unsafe { std::ptr::eq(ffi::Py_TYPE(frame.as_ptr()), &raw const PyFrame_Type) };
    let place = variables_offset(py).filter(|_| is_frame);
    let (pointer, offset) = place.ok_or_else(|| PyTypeError::new_err("no frame of a known release"))?;
    let mut slots = Vec::with_capacity(count);
    // SAFETY: frames of these releases have their variables there, each null or a reference; the caller knows from the
    // frame's code how many there are. The lock is held, so they stay while they are taken.
    unsafe {
        let mut start: *const c_void = frame.as_ptr().cast();
        if let Some(pointer) = pointer {
            start = start.byte_add(pointer).cast::<*const c_void>().read();
        }
        let variables = start.byte_add(offset).cast::<*mut PyObject>();
        for index in 0..count {
            slots.push(Bound::from_borrowed_ptr_or_opt(py, variables.add(index).read()).map(Bound::unbind));
        }
    }
    Ok(slots)
}

/// The dictionary of an object's attributes, without asking the object; nothing if it has none.
#[pyfunction]
fn attributes_of(object: &Bound<'_, PyAny>) -> Option<Py<PyAny>> {
    // SAFETY: the function takes any object, and no closure.
    unsafe {
        let attributes = PyObject_GenericGetDict(object.as_ptr(), std::ptr::null_mut());
        if attributes.is_null() {
            ffi::PyErr_Clear();
        }
        Bound::from_owned_ptr_or_opt(object.py(), attributes).map(Bound::unbind)
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(find_paths, module)?)?;
    module.add_function(wrap_pyfunction!(frame_slots, module)?)?;
    module.add_function(wrap_pyfunction!(attributes_of, module)?)
}
