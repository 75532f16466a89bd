//! Attributes of operators launched by name. Only numbers with a fraction are kept: no computed operator needs others.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};

/// `aclopAttr`.
type Attributes = HashMap<Vec<u8>, f32>;

#[unsafe(no_mangle)]
extern "C" fn aclopCreateAttr() -> *mut c_void {
    Box::into_raw(Box::<Attributes>::default()).cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclopDestroyAttr(attributes: *const c_void) {
    if !attributes.is_null() {
        // SAFETY: the program gives back what `aclopCreateAttr` made, once.
        drop(unsafe { Box::from_raw(attributes.cast_mut().cast::<Attributes>()) });
    }
}

/// Bytes of a name.
unsafe fn bytes_of(name: *const c_char) -> Vec<u8> {
    // SAFETY: a terminated string by the contract of the C functions.
    unsafe { CStr::from_ptr(name) }.to_bytes().to_vec()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclopSetAttrFloat(attributes: *mut c_void, name: *const c_char, value: f32) -> i32 {
    if !attributes.is_null() && !name.is_null() {
        // SAFETY: made by `aclopCreateAttr` and used by one thread, by the contract of the C function.
        unsafe { (*attributes.cast::<Attributes>()).insert(bytes_of(name), value) };
    }
    0
}

/// Tells the operator library a number with a fraction; not 0 if there is none of that name.
#[unsafe(no_mangle)]
unsafe extern "C" fn standinAttributeFloat(attributes: *const c_void, name: *const c_char, value: *mut f32) -> i32 {
    if attributes.is_null() || name.is_null() || value.is_null() {
        return -1;
    }
    // SAFETY: made by `aclopCreateAttr`; the name is terminated and the value writable by the contract of this function.
    unsafe {
        match (*attributes.cast::<Attributes>()).get(&bytes_of(name)) {
            Some(found) => {
                value.write(*found);
                0
            }
            None => -1,
        }
    }
}

/// Defines a setter that accepts its value and forgets it.
macro_rules! setter {
    ($($name:ident($($type:ty),*);)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name(_attributes: *mut c_void, _name: *const c_char $(, _: $type)*) -> i32 {
                0
            }
        )*
    };
}

setter! {
    aclopSetAttrBool(u8);
    aclopSetAttrInt(i64);
    aclopSetAttrString(*const c_char);
    aclopSetAttrDataType(i32);
    aclopSetAttrListBool(i32, *const u8);
    aclopSetAttrListInt(i32, *const i64);
    aclopSetAttrListFloat(i32, *const f32);
    aclopSetAttrListListInt(i32, *const i32, *const *const i64);
}
