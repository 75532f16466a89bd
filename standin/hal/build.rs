//! Links the library under its CANN soname.

fn main() {
    standin_link::shared_library("libascend_hal.so", &[]);
}
