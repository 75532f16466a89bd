//! Links the library under its CANN soname.

fn main() {
    soname_link::shared_library("libacl_op_compiler.so", &["libascendcl.so", "libruntime.so"]);
}
