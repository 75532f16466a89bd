//! Links the library under its CANN soname.

fn main() {
    soname_link::shared_library("libmsprofiler.so", &["libprofapi.so", "libascend_hal.so"]);
}
