//! Attributes of operators launched by name. The stand-in computes none of those operators, so an attribute list is
//! only an object to hand around.

use std::ffi::{c_char, c_void};

#[unsafe(no_mangle)]
extern "C" fn aclopCreateAttr() -> *mut c_void {
    Box::into_raw(Box::new(0u64)).cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclopDestroyAttr(attributes: *const c_void) {
    if !attributes.is_null() {
        // SAFETY: the program gives back what `aclopCreateAttr` made, once.
        drop(unsafe { Box::from_raw(attributes.cast_mut().cast::<u64>()) });
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
    aclopSetAttrFloat(f32);
    aclopSetAttrString(*const c_char);
    aclopSetAttrDataType(i32);
    aclopSetAttrListBool(i32, *const u8);
    aclopSetAttrListInt(i32, *const i64);
    aclopSetAttrListFloat(i32, *const f32);
    aclopSetAttrListListInt(i32, *const i32, *const *const i64);
}
