//! Links the library under its CANN soname.

fn main() {
    soname_link::shared_library("libruntime.so", &["libascend_hal.so", "libprofapi.so"]);
}
