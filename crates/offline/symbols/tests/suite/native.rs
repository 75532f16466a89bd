//! Functions, files and lines of libraries built in every way.

use std::ffi::{CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use msmemscope_event::StackId;
use msmemscope_symbols::{ModuleState, Symbols};
use msmemscope_trace::Trace;

use crate::recording::Recording;

const C_SOURCE: &str = "\
static volatile int used;
static inline __attribute__((always_inline)) void call_inlined(void (*callback)(void *), void *data) {
    callback(data);
    used++;
}
__attribute__((noinline)) static void hidden(void (*callback)(void *), void *data) {
    call_inlined(callback, data);
    used++;
}
void enter(void (*callback)(void *), void *data) {
    hidden(callback, data);
    used++;
}
";

const CPP_SOURCE: &str = "\
static volatile int used;
namespace pool {
struct Allocator {
    __attribute__((noinline)) void allocate(void (*callback)(void *), void *data) {
        callback(data);
        used = used + 1;
    }
};
}
extern \"C\" void enter(void (*callback)(void *), void *data) {
    pool::Allocator allocator;
    allocator.allocate(callback, data);
    used = used + 1;
}
";

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().expect("installed");
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Builds a library with the flags.
fn build(directory: &Path, source: &str, flags: &[&str]) -> PathBuf {
    let (compiler, name) = if source.contains("namespace") { ("g++", "unit.cpp") } else { ("gcc", "unit.c") };
    let source_path = directory.join(name);
    std::fs::write(&source_path, source).expect("written");
    let library = directory.join("libunit.so");
    let mut arguments = vec!["-shared", "-fPIC", text(&source_path), "-o", text(&library)];
    arguments.extend(flags);
    run(compiler, &arguments);
    library
}

/// Loads a library, takes a stack inside it, and returns the stack and the recording.
#[inline(never)]
fn record(directory: &Path, library: &Path) -> (StackId, Trace) {
    unsafe extern "C" fn callback(data: *mut c_void) {
        // SAFETY: `data` is the pair passed below, not used elsewhere meanwhile.
        let (recording, stack) = unsafe { &mut *data.cast::<(Recording, StackId)>() };
        *stack = recording.take();
    }
    let mut state = (Recording::new(directory), StackId::NONE);
    let name = CString::new(library.as_os_str().as_bytes()).expect("no NUL");
    // SAFETY: loads a library built by this test, whose function has this signature.
    unsafe {
        let handle = dlopen(name.as_ptr(), 2);
        assert!(!handle.is_null(), "{library:?} loads");
        let enter = dlsym(handle, c"enter".as_ptr());
        assert!(!enter.is_null());
        let enter: unsafe extern "C" fn(unsafe extern "C" fn(*mut c_void), *mut c_void) = std::mem::transmute(enter);
        enter(callback, (&raw mut state).cast());
        dlclose(handle);
    }
    (state.1, state.0.finish())
}

unsafe extern "C" {
    fn dlopen(name: *const std::ffi::c_char, flags: i32) -> *mut c_void;
    fn dlsym(handle: *mut c_void, name: *const std::ffi::c_char) -> *mut c_void;
    fn dlclose(handle: *mut c_void) -> i32;
}

/// The lines of a stack that lie in the library.
fn library_lines(symbols: &Symbols<'_>, stack: StackId, library: &Path) -> Vec<String> {
    let mut out = String::new();
    symbols.print_native(stack, &mut out);
    assert!(out.ends_with('\n'), "{out}");
    let prefix = text(library);
    out.lines().filter_map(|line| line.strip_prefix(prefix)).map(without_address).collect()
}

/// Takes the run-time address out of a line, and the directory of the test.
fn without_address(line: &str) -> String {
    let (before, rest) = line.split_once(" [0x").expect("an address");
    let (_, after) = rest.split_once(']').expect("its end");
    let after = match (after.rfind('/'), after.starts_with(" <")) {
        (Some(slash), false) => format!(" {}", &after[slash + 1..]),
        _ => after.to_owned(),
    };
    // Offsets depend on the compiler.
    let before = match before.rsplit_once("+0x") {
        Some((name, _)) => format!("{name}+)"),
        None => before.to_owned(),
    };
    before + &after
}

#[test]
fn function_file_and_line_of_an_unoptimised_library() {
    let directory = tempfile::tempdir().expect("a directory");
    let library = build(directory.path(), C_SOURCE, &["-g", "-O0"]);
    let (stack, trace) = record(directory.path(), &library);
    let symbols = Symbols::new(trace.definitions(), trace.wall_offset_ns());
    let expected = ["(call_inlined inlined) unit.c:3", "(hidden+) unit.c:7", "(enter+) unit.c:11"];
    assert_eq!(library_lines(&symbols, stack, &library), expected);
    assert_eq!(symbols.doubtful_modules(), []);
}

#[test]
fn inlined_functions_are_shown() {
    let directory = tempfile::tempdir().expect("a directory");
    let library = build(directory.path(), C_SOURCE, &["-g", "-O2"]);
    let (stack, trace) = record(directory.path(), &library);
    let symbols = Symbols::new(trace.definitions(), trace.wall_offset_ns());
    let expected = ["(call_inlined inlined) unit.c:3", "(hidden+) unit.c:7", "(enter+) unit.c:11"];
    assert_eq!(library_lines(&symbols, stack, &library), expected);
}

#[test]
fn names_without_debug_information_come_from_the_symbol_table() {
    let directory = tempfile::tempdir().expect("a directory");
    let library = build(directory.path(), C_SOURCE, &["-O2"]);
    let (stack, trace) = record(directory.path(), &library);
    let symbols = Symbols::new(trace.definitions(), trace.wall_offset_ns());
    assert_eq!(library_lines(&symbols, stack, &library), ["(hidden+)", "(enter+)"]);
}

#[test]
fn a_stripped_library_has_exported_names_and_offsets() {
    let directory = tempfile::tempdir().expect("a directory");
    let library = build(directory.path(), C_SOURCE, &["-O2", "-s"]);
    let (stack, trace) = record(directory.path(), &library);
    let symbols = Symbols::new(trace.definitions(), trace.wall_offset_ns());
    assert_eq!(library_lines(&symbols, stack, &library), ["(+)", "(enter+)"]);
}

#[test]
fn separate_debug_files_are_found_by_link_and_by_build_id() {
    for by_link in [true, false] {
        for compressed in [true, false] {
            let directory = tempfile::tempdir().expect("a directory");
            let library = build(directory.path(), C_SOURCE, &["-g", "-O2", "-Wl,--build-id=sha1"]);
            let debug = directory.path().join("libunit.debug");
            run("objcopy", &["--only-keep-debug", text(&library), text(&debug)]);
            if compressed {
                run("objcopy", &["--compress-debug-sections", text(&debug)]);
            }
            run("strip", &[text(&library)]);
            if by_link {
                let link = format!("--add-gnu-debuglink={}", debug.display());
                run("objcopy", &[&link, text(&library)]);
            }
            let (stack, trace) = record(directory.path(), &library);
            let build_id = &trace
                .definitions()
                .modules()
                .iter()
                .find(|module| trace.definitions().string(module.path) == text(&library))
                .expect("recorded")
                .build_id;
            let place = if by_link {
                directory.path().join(".debug/libunit.debug")
            } else {
                let hexadecimal: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
                directory.path().join(format!("store/.build-id/{}/{}.debug", &hexadecimal[..2], &hexadecimal[2..]))
            };
            std::fs::create_dir_all(place.parent().expect("has one")).expect("made");
            std::fs::rename(&debug, &place).expect("moved");
            let store = vec![directory.path().join("store")];
            let symbols = Symbols::with_debug_directories(trace.definitions(), trace.wall_offset_ns(), store);
            let expected = ["(call_inlined inlined) unit.c:3", "(hidden+) unit.c:7", "(enter+) unit.c:11"];
            assert_eq!(library_lines(&symbols, stack, &library), expected);
        }
    }
}

#[test]
fn cpp_and_rust_names_are_readable() {
    let directory = tempfile::tempdir().expect("a directory");
    let library = build(directory.path(), CPP_SOURCE, &["-O1"]);
    let (stack, trace) = record(directory.path(), &library);
    let symbols = Symbols::new(trace.definitions(), trace.wall_offset_ns());
    let lines = library_lines(&symbols, stack, &library);
    assert_eq!(lines, ["(pool::Allocator::allocate(void (*)(void*), void*)+)", "(enter+)"]);
    let mut out = String::new();
    symbols.print_native(stack, &mut out);
    let own = out.lines().find(|line| line.contains("native::record")).unwrap_or_else(|| panic!("{out}"));
    assert!(own.contains("native.rs:"), "{own}");
    assert!(!own.contains("17h"), "no hash: {own}");
}

#[test]
fn a_rebuilt_or_removed_library_is_not_trusted() {
    for build_id in ["-Wl,--build-id=sha1", "-Wl,--build-id=none"] {
        let directory = tempfile::tempdir().expect("a directory");
        let library = build(directory.path(), C_SOURCE, &["-g", "-O2", build_id]);
        let (stack, trace) = record(directory.path(), &library);
        std::thread::sleep(std::time::Duration::from_millis(20));
        build(directory.path(), &C_SOURCE.replace("used++", "used--"), &["-g", "-O1", build_id]);
        let symbols = Symbols::new(trace.definitions(), trace.wall_offset_ns());
        let changed = "(+) <module changed since>";
        assert_eq!(library_lines(&symbols, stack, &library), [changed, changed]);
        assert_eq!(symbols.doubtful_modules(), [(text(&library).to_owned(), ModuleState::Changed)]);

        std::fs::remove_file(&library).expect("removed");
        let symbols = Symbols::new(trace.definitions(), trace.wall_offset_ns());
        let missing = "(+) <module missing now>";
        assert_eq!(library_lines(&symbols, stack, &library), [missing, missing]);
        assert_eq!(symbols.doubtful_modules(), [(text(&library).to_owned(), ModuleState::Missing)]);
    }
}

#[test]
fn unknown_stacks_and_addresses_say_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut recording = Recording::new(directory.path());
    let frames: Vec<u8> = [0x1234_u64, 0].into_iter().flat_map(u64::to_le_bytes).collect();
    recording.write(&msmemscope_event::Fact::DefineNativeStack { id: StackId(7), frames: &frames });
    let trace = recording.finish();
    let symbols = Symbols::new(trace.definitions(), 0);
    let print = |stack| {
        let mut out = String::new();
        symbols.print_native(StackId(stack), &mut out);
        out
    };
    assert_eq!(print(7), "[0x1234]\n<outer frames unknown>\n");
    assert_eq!(print(8), "<stack 8 is missing>\n");
    assert_eq!(print(0), "");
}
