//! Bundles the front end in `web/` when Node is there, in a copy below the build directory: the source tree stays as
//! it is. Without Node, or when the bundle cannot be made, the build goes on and the program says what is missing.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// What the front end's build leaves behind, and nothing else is embedded.
const BUNDLE: [&str; 4] = ["index.html", "app.js", "app.css", "report.html"];

/// What the bundle is made of.
const INPUTS: [&str; 5] = ["src", "build.mjs", "package.json", "package-lock.json", ".npmrc"];

/// Directories of the front end that are made, not written.
const MADE: [&str; 3] = ["node_modules", "dist", "test-results"];

/// Of why there is no page, as the program tells it.
const MOST_LETTERS: usize = 200;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Not all of `web`: what npm leaves there while somebody works on the page does not count.
    for input in INPUTS {
        println!("cargo:rerun-if-changed=web/{input}");
    }
    println!("cargo:rerun-if-env-changed=PATH");
    println!("cargo:rustc-check-cfg=cfg(front_end)");
    let sources = PathBuf::from("web");
    if !sources.join("package.json").is_file() {
        return;
    }
    let copy = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names the build directory")).join("web");
    match bundle(&sources, &copy) {
        Ok(()) => {
            println!("cargo:rustc-cfg=front_end");
            println!("cargo:rustc-env=FRONT_END_DIRECTORY={}", copy.join("dist").display());
        }
        Err(reason) => {
            println!("cargo:rustc-env=NO_FRONT_END=this program was built without its page ({})", short(&reason));
            println!("cargo:warning=the viewer is built without its page: {reason}");
        }
    }
}

/// A reason on one line that a terminal has room for.
fn short(reason: &str) -> String {
    let line: String = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MOST_LETTERS) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

fn bundle(sources: &Path, copy: &Path) -> Result<(), String> {
    let known = fs::read(copy.join("installed-lock.json")).unwrap_or_default();
    let lock = fs::read(sources.join("package-lock.json")).map_err(|error| format!("package-lock.json: {error}"))?;
    clear(copy).and_then(|()| copy_tree(sources, copy)).map_err(|error| format!("cannot copy its sources: {error}"))?;
    if known != lock || !copy.join("node_modules").is_dir() {
        // What types and tests need stays away, and no package runs anything.
        npm(copy, &["ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"])?;
        fs::write(copy.join("installed-lock.json"), &lock).map_err(|error| error.to_string())?;
    }
    npm(copy, &["run", "--silent", "build"])?;
    let is_missing = |name: &&&str| !copy.join("dist").join(name).is_file();
    match BUNDLE.iter().find(is_missing) {
        Some(name) => Err(format!("its build did not make dist/{name}")),
        None => Ok(()),
    }
}

fn npm(directory: &Path, arguments: &[&str]) -> Result<(), String> {
    let result = Command::new("npm").args(arguments).current_dir(directory).output();
    let output = match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err("Node (npm) was not found".to_owned());
        }
        result => result.map_err(|error| format!("npm: {error}"))?,
    };
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let last: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    Err(format!("npm {} failed: {}", arguments.join(" "), last[last.len().saturating_sub(4)..].join(" | ")))
}

/// Removes what an earlier build copied. What npm installed stays.
fn clear(copy: &Path) -> io::Result<()> {
    fs::create_dir_all(copy)?;
    for entry in fs::read_dir(copy)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == "node_modules" || name == "installed-lock.json" {
            continue;
        }
        match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if MADE.iter().any(|made| name == *made) {
            continue;
        }
        let target = to.join(&name);
        match entry.file_type()?.is_dir() {
            true => copy_tree(&entry.path(), &target)?,
            false => drop(fs::copy(entry.path(), target)?),
        }
    }
    Ok(())
}
