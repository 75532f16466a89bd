//! Link options of the recorder: its name for the loader, and that it is never unloaded, because
//! threads and import tables of the job point into it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libascend_kernel_hook.so");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
