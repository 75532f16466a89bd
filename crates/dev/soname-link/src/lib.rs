//! Gives a shared library the soname and the needed entries under which others find it.
//!
//! Cargo names the file after the crate and knows no order between shared libraries of a workspace, while the
//! libraries of CANN find each other by soname. So the soname is set here, and every needed library is
//! represented at link time by an empty stub carrying its soname; symbols stay undefined until load time, and
//! calls between the libraries go through the dynamic linker, where preloaded hooks can see them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Emits the linker arguments for a library called `soname` that needs the libraries in `needed`.
///
/// # Panics
/// When the C compiler that links the stubs is missing or fails: a build script has no better way to say so.
pub fn shared_library(soname: &str, needed: &[&str]) {
    println!("cargo:rerun-if-changed=build.rs");
    let output_directory = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    argument(&format!("-Wl,-soname,{soname}"));
    argument("-Wl,-rpath,$ORIGIN");
    if needed.is_empty() {
        return;
    }
    argument("-Wl,--no-as-needed");
    for library in needed {
        let stub = output_directory.join(library);
        build_stub(library, &stub);
        argument(&stub.display().to_string());
    }
}

fn argument(text: &str) {
    println!("cargo:rustc-cdylib-link-arg={text}");
}

fn build_stub(soname: &str, path: &Path) {
    let compiler = stub_compiler();
    let status = Command::new(&compiler)
        .args(["-shared", "-nostdlib", "-x", "c", "/dev/null"])
        .arg(format!("-Wl,-soname,{soname}"))
        .arg("-o")
        .arg(path)
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{compiler} could not link the stub of {soname}: {status}"),
        Err(error) => panic!("{compiler} is needed to link the stub of {soname}: {error}"),
    }
}

/// The C compiler for the target: `CC_<target>` as set by cross builds, `CC`, the cross compiler's usual name, or `cc`.
fn stub_compiler() -> String {
    let host = std::env::var("HOST").unwrap_or_default();
    let target = std::env::var("TARGET").unwrap_or_default();
    let of_target = format!("CC_{}", target.replace('-', "_"));
    if let Some(compiler) = [of_target.as_str(), "CC"].iter().find_map(|name| std::env::var(name).ok()) {
        return compiler;
    }
    let cross = target.replace("-unknown", "") + "-gcc";
    let cross_exists = || Command::new(&cross).arg("--version").output().is_ok();
    if host != target && cross_exists() { cross } else { "cc".to_owned() }
}
