//! Real interpreters load the probe library and compare captured stacks with what they show themselves.
//!
//! `PYTHON_STACK_INTERPRETER` names another interpreter than `python3`, as words of a command line.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A library or program beside this test program.
fn example(name: &str) -> PathBuf {
    let program = std::env::current_exe().expect("own path");
    program.parent().and_then(Path::parent).expect("target directory").join("examples").join(name)
}

/// The interpreter under test, as words of a command line.
fn interpreter() -> String {
    std::env::var("PYTHON_STACK_INTERPRETER").unwrap_or_else(|_| "python3".into())
}

/// A command that runs the interpreter.
fn command(interpreter: &str) -> Command {
    let mut words = interpreter.split_whitespace();
    let mut command = Command::new(words.next().expect("an interpreter"));
    command.args(words);
    command
}

/// Runs one of the scripts; its output is in the error if it fails.
fn run(script: &str, arguments: &[&str]) {
    let interpreter = interpreter();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python").join(script);
    let output = command(&interpreter)
        .arg(script)
        .args(arguments)
        .env("PYTHON_STACK_PROBE", example("libpython_stack_probe.so"))
        .env("PYTHON_STACK_COMMAND", &interpreter)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap_or_else(|error| panic!("cannot run {interpreter}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{interpreter} {arguments:?}: {}\n{text}", output.status);
    print!("{text}");
}

/// One test per function of the behaviour script.
macro_rules! behaviours {
    ($($name:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                run("behaviour.py", &[stringify!($name)]);
            }
        )*
    };
}

behaviours! {
    unusable_interpreters_are_refused,
    unknown_versions_use_the_interpreters_functions,
    a_failed_self_check_uses_the_interpreters_functions,
    nobody_waits_for_the_lock,
    nothing_is_leaked,
    a_forked_child_defines_again,
    sub_interpreters_have_no_stacks,
    the_end_of_an_interpreter_is_survived,
    greenlets_have_their_own_stacks,
    tracing_does_not_disturb,
    names_of_all_kinds_are_read,
}

#[test]
fn random_call_patterns_are_captured_as_the_interpreter_shows_them() {
    run("patterns.py", &["100000"]);
}

#[test]
fn code_at_the_same_address_is_told_apart() {
    run("reuse.py", &[]);
}

#[test]
fn embedded_interpreters_come_and_go() {
    let source = "import os, sys, sysconfig\n\
        print(sys.base_prefix)\n\
        print(os.path.join(sysconfig.get_config_var('LIBDIR'), sysconfig.get_config_var('LDLIBRARY')))";
    let output = command(&interpreter()).args(["-c", source]).output().expect("the interpreter runs");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let (prefix, library) = text.trim().split_once('\n').expect("two lines");
    // Some builds of 3.12 abort when they are ended after ctypes was in use, with us or without.
    if !library.ends_with(".so") || !Path::new(library).exists() || library.contains("python3.12") {
        println!("this interpreter has no shared library that can be embedded");
        return;
    }
    let output = Command::new(example("python_stack_host"))
        .arg(library)
        .arg("3")
        .env("PYTHONHOME", prefix)
        .output()
        .expect("the program runs");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{library}: {}\n{told}", output.status);
}
