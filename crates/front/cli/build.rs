//! Tells the program which commit it is built from, for `--version`: what `MSMEMSCOPE_COMMIT` says, else what git says of
//! the sources, else that nobody knows.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=MSMEMSCOPE_COMMIT");
    let told = std::env::var("MSMEMSCOPE_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = told.or_else(|| git(&["rev-parse", "--short=12", "HEAD"])).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=MSMEMSCOPE_COMMIT={commit}");
    // Every commit and checkout leaves a line there. A file that does not exist would build the program anew every time.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|log| Path::new(log).exists()) {
        println!("cargo:rerun-if-changed={log}");
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
