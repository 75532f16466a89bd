//! Links the library under its CANN soname.

fn main() {
    soname_link::shared_library("libdcmi.so", &["libascend_hal.so"]);
}
