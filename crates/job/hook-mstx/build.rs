//! Links the library under its documented name, with the recorder as what it needs.

fn main() {
    soname_link::shared_library("libascend_mstx_hook.so", &["libascend_kernel_hook.so"]);
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
