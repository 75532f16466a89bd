//! Names, needed entries and symbols of the installed libraries.

use crate::dynamic_section;
use standin_testing::home;

#[test]
fn every_library_has_the_soname_of_its_file() {
    let mut seen = 0;
    for item in std::fs::read_dir(home().join("lib64")).expect("an installed device") {
        let path = item.expect("a directory entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(dynamic_section(&path).contains(&format!("soname: [{name}]")), "{name}");
        seen += 1;
    }
    assert!(seen >= 5, "only {seen} libraries are installed");
}

#[test]
fn the_libraries_need_each_other_as_in_cann() {
    let library = |name: &str| dynamic_section(&home().join("lib64").join(name));
    assert!(library("libascendcl.so").contains("[libruntime.so]"));
    assert!(library("libascendcl.so").contains("[libacl_rt_impl.so]"));
    assert!(library("libruntime.so").contains("[libascend_hal.so]"));
    assert!(library("libascendcl.so").contains("$ORIGIN"));
    assert!(!library("libms_tools_ext.so").contains("[libascend_hal.so]"));
}

#[test]
fn only_the_interface_is_exported() {
    for item in std::fs::read_dir(home().join("lib64")).expect("an installed device") {
        let path = item.expect("a directory entry").path();
        let output = std::process::Command::new("nm")
            .args(["-D", "--defined-only", "--format=posix"])
            .arg(&path)
            .output()
            .expect("nm");
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let symbol = line.split(' ').next().unwrap_or_default();
            let known = ["hal", "drv", "rt", "acl", "mstx", "standin", "dcmi", "Hccl", "Msprof", "prof"];
            let is_known = known.iter().any(|prefix| symbol.starts_with(prefix)) || symbol.contains("HugeMem");
            // Parts of it are methods and functions of C++.
            let is_of_cpp = path.ends_with("libnnopbase.so") && symbol.starts_with("_Z");
            assert!(is_known || is_of_cpp, "{}: {symbol}", path.display());
        }
    }
}
