//! Links the library under its CANN soname and generates the operators that exist without being computed: every name
//! in `operators.txt` that the sources do not define.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn main() {
    soname_link::shared_library("libopapi.so", &["libascendcl.so", "libruntime.so", "libnnopbase.so"]);
    println!("cargo:rerun-if-changed=operators.txt");
    println!("cargo:rerun-if-changed=src/operators");
    let computed = computed_operators(Path::new("src/operators"));
    let names = std::fs::read_to_string("operators.txt").expect("operators.txt is part of the sources");
    let mut generated = String::from("not_computed! {\n");
    for name in names.lines().filter(|name| !name.is_empty() && !name.starts_with('#')) {
        if !computed.contains(name) {
            writeln!(generated, "    {name} {name}GetWorkspaceSize;").expect("a string can be written");
        }
    }
    generated.push_str("}\n");
    let output = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("not_computed.rs");
    std::fs::write(output, generated).expect("the output directory can be written");
}

/// Names of the operators that the files in `directory` define: words at the start of lines that begin with `aclnn`,
/// up to the first that does not (families are declared with several names on a line).
fn computed_operators(directory: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in std::fs::read_dir(directory).expect("the sources can be read") {
        let text = std::fs::read_to_string(file.expect("a directory entry").path()).expect("a source file");
        for line in text.lines() {
            let words = line.split_whitespace().map(|word| word.split('(').next().unwrap_or_default());
            names.extend(words.take_while(|word| word.starts_with("aclnn")).map(str::to_owned));
        }
    }
    names
}
