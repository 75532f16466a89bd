//! Links the library under its CANN soname.

fn main() {
    soname_link::shared_library(
        "libascendcl.so",
        &["libacl_rt_impl.so", "libruntime.so", "libascend_hal.so", "libprofapi.so", "libmsprofiler.so"],
    );
}
