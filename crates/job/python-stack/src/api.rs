//! Frames and code objects through the functions of the interpreter, for threads that hold its lock.
//!
//! Frame objects may have to be made for this, so the garbage collector is kept from running: it
//! could run code of the user in the middle of an allocation.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::ptr::null_mut;

use crate::code::Text;
use crate::interpreter::{SymbolLookup, function};
use crate::walk::End;

type Object = *mut c_void;

/// The functions.
#[derive(Clone, Copy)]
pub(crate) struct ApiFunctions {
    innermost_frame: unsafe extern "C" fn() -> Object,
    code_of_frame: unsafe extern "C" fn(Object) -> Object,
    calling_frame: unsafe extern "C" fn(Object) -> Object,
    /// Since 3.11.
    last_instruction: Option<unsafe extern "C" fn(Object) -> c_int>,
    attribute: unsafe extern "C" fn(Object, *const c_char) -> Object,
    as_long: unsafe extern "C" fn(Object) -> c_long,
    as_utf8: unsafe extern "C" fn(Object, *mut isize) -> *const c_char,
    as_bytes: unsafe extern "C" fn(Object, *mut *mut c_char, *mut isize) -> c_int,
    take_reference: unsafe extern "C" fn(Object),
    drop_reference: unsafe extern "C" fn(Object),
    fetch_error: unsafe extern "C" fn(*mut Object, *mut Object, *mut Object),
    restore_error: unsafe extern "C" fn(Object, Object, Object),
    /// Since 3.10; before, frames are objects already and nothing needs to be made.
    collector: Option<Collector>,
}

#[derive(Clone, Copy)]
struct Collector {
    disable: unsafe extern "C" fn() -> c_int,
    enable: unsafe extern "C" fn() -> c_int,
}

/// A reference that is dropped in the end.
struct Owned<'a> {
    api: &'a ApiFunctions,
    object: Object,
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        // SAFETY: the reference is ours and the lock is held as long as this exists.
        unsafe { (self.api.drop_reference)(self.object) };
    }
}

/// What a code object says about itself.
pub(crate) struct CodeTexts {
    pub name: Text,
    pub file: Text,
    pub first_line: u32,
}

impl ApiFunctions {
    /// Finds the functions; nothing if one is missing.
    ///
    /// # Safety
    /// `lookup` must answer with addresses of one CPython's symbols that stay loaded.
    pub unsafe fn find(lookup: SymbolLookup<'_>) -> Option<Self> {
        // SAFETY: types as documented by CPython since 3.9.
        unsafe {
            let collector = match (lookup(c"PyGC_Disable"), lookup(c"PyGC_Enable")) {
                (Some(disable), Some(enable)) => {
                    Some(Collector { disable: function(disable), enable: function(enable) })
                }
                _ => None,
            };
            Some(Self {
                innermost_frame: function(lookup(c"PyEval_GetFrame")?),
                code_of_frame: function(lookup(c"PyFrame_GetCode")?),
                calling_frame: function(lookup(c"PyFrame_GetBack")?),
                last_instruction: lookup(c"PyFrame_GetLasti").map(|address| function(address)),
                attribute: function(lookup(c"PyObject_GetAttrString")?),
                as_long: function(lookup(c"PyLong_AsLong")?),
                as_utf8: function(lookup(c"PyUnicode_AsUTF8AndSize")?),
                as_bytes: function(lookup(c"PyBytes_AsStringAndSize")?),
                take_reference: function(lookup(c"Py_IncRef")?),
                drop_reference: function(lookup(c"Py_DecRef")?),
                fetch_error: function(lookup(c"PyErr_Fetch")?),
                restore_error: function(lookup(c"PyErr_Restore")?),
                collector,
            })
        }
    }

    /// Runs `work` with the collector switched off, and leaves the thread's pending error as it was.
    ///
    /// # Safety
    /// The calling thread must hold the interpreter's lock.
    pub unsafe fn undisturbed<T>(&self, work: impl FnOnce() -> T) -> T {
        let (mut kind, mut value, mut traceback) = (null_mut(), null_mut(), null_mut());
        // SAFETY: promised by the caller.
        unsafe {
            (self.fetch_error)(&mut kind, &mut value, &mut traceback);
            let was_enabled = self.collector.is_some_and(|collector| (collector.disable)() != 0);
            let result = work();
            if was_enabled && let Some(collector) = self.collector {
                (collector.enable)();
            }
            (self.restore_error)(kind, value, traceback);
            result
        }
    }

    /// Shows code object and instruction offset of up to `limit` frames to `visit`.
    ///
    /// # Safety
    /// As for [`ApiFunctions::undisturbed`], inside of which this must run.
    pub unsafe fn walk(&self, limit: usize, mut visit: impl FnMut(usize, u32)) -> End {
        // SAFETY: promised by the caller.
        unsafe {
            let innermost = (self.innermost_frame)();
            if innermost.is_null() {
                return End::Outermost;
            }
            (self.take_reference)(innermost);
            let mut frame = Owned { api: self, object: innermost };
            for shown in 0.. {
                if shown == limit {
                    return End::Limit;
                }
                let Some(offset) = self.instruction_offset(frame.object) else { return End::Damaged };
                let code = Owned { api: self, object: (self.code_of_frame)(frame.object) };
                visit(code.object as usize, offset);
                let outer = (self.calling_frame)(frame.object);
                if outer.is_null() {
                    break;
                }
                frame = Owned { api: self, object: outer };
            }
            End::Outermost
        }
    }

    /// # Safety
    /// As for [`ApiFunctions::walk`], with a live frame.
    unsafe fn instruction_offset(&self, frame: Object) -> Option<u32> {
        // SAFETY: promised by the caller.
        let offset = unsafe {
            match self.last_instruction {
                Some(last_instruction) => c_long::from(last_instruction(frame)),
                None => (self.as_long)(self.attribute(frame, c"f_lasti")?.object),
            }
        };
        Some(offset.max(0) as u32)
    }

    /// # Safety
    /// As for [`ApiFunctions::walk`], with a live object.
    unsafe fn attribute(&self, object: Object, name: &CStr) -> Option<Owned<'_>> {
        // SAFETY: promised by the caller.
        let object = unsafe { (self.attribute)(object, name.as_ptr()) };
        if object.is_null() { self.forget_error() } else { Some(Owned { api: self, object }) }
    }

    /// Clears the error that a failed call left.
    fn forget_error<T>(&self) -> Option<T> {
        // SAFETY: the lock is held, and the error of the user was put aside.
        unsafe { (self.restore_error)(null_mut(), null_mut(), null_mut()) };
        None
    }

    /// Name, file and first line of a code object; texts that are no UTF-8 are empty.
    ///
    /// # Safety
    /// As for [`ApiFunctions::walk`], with a live code object.
    pub unsafe fn texts_of(&self, code: usize) -> Option<CodeTexts> {
        let code = code as Object;
        let mut texts = CodeTexts { name: Text::new(), file: Text::new(), first_line: 0 };
        // SAFETY: promised by the caller.
        unsafe {
            let name = self.attribute(code, c"co_qualname").or_else(|| self.attribute(code, c"co_name"))?;
            self.read_text(&name, &mut texts.name);
            self.read_text(&self.attribute(code, c"co_filename")?, &mut texts.file);
            texts.first_line = (self.as_long)(self.attribute(code, c"co_firstlineno")?.object) as u32;
        }
        Some(texts)
    }

    /// # Safety
    /// As for [`ApiFunctions::walk`], with a live object.
    unsafe fn read_text(&self, object: &Owned<'_>, text: &mut Text) {
        let mut length = 0;
        // SAFETY: promised by the caller; the bytes live as long as the object.
        unsafe {
            let start = (self.as_utf8)(object.object, &mut length);
            if start.is_null() {
                self.forget_error::<()>();
            } else {
                text.set(std::slice::from_raw_parts(start.cast(), length as usize));
            }
        }
    }

    /// Shows the line table of a code object to `visit`.
    ///
    /// # Safety
    /// As for [`ApiFunctions::walk`], with a live code object.
    pub unsafe fn with_line_table<T>(&self, code: usize, visit: impl FnOnce(&[u8]) -> T) -> T {
        let code = code as Object;
        let (mut start, mut length) = (null_mut(), 0);
        // SAFETY: promised by the caller; the bytes live as long as the object, which lives until
        // after the visit.
        unsafe {
            let table = self.attribute(code, c"co_linetable").or_else(|| self.attribute(code, c"co_lnotab"));
            match &table {
                Some(table) if (self.as_bytes)(table.object, &mut start, &mut length) == 0 => {
                    visit(std::slice::from_raw_parts(start.cast(), length as usize))
                }
                _ => {
                    self.forget_error::<()>();
                    visit(&[])
                }
            }
        }
    }

    /// Keeps an object alive for good.
    ///
    /// # Safety
    /// As for [`ApiFunctions::walk`], with a live object.
    pub unsafe fn keep_alive(&self, object: usize) {
        // SAFETY: promised by the caller.
        unsafe { (self.take_reference)(object as Object) };
    }
}
