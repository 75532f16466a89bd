//! Whose code a frame is, by where its file is installed.
//!
//! What a path is called says nothing: a user may keep a program below a directory named like this tool
//! or like a library. So only places count that an installation makes: the standard library of an interpreter
//! (`lib/pythonX.Y`), packages (`site-packages`, `dist-packages`), directories of the system, CANN's directory,
//! the file name of a loaded library, and where this tool's own package was when the job ran.

use msmemscope_config::Recording;
use msmemscope_trace::Definitions;

/// Whose code a frame is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// The user's program, and whatever no installation is known for.
    #[default]
    Program,
    /// A line of the user's program through which everything in it allocates, so that it tells nothing apart.
    Allocator,
    /// An installed package that is no framework: a program may run entirely from there.
    Package,
    /// A framework or runtime that allocates for everybody.
    Framework,
    /// The interpreter, its standard library, the system's libraries, or nobody knows.
    System,
    /// This tool.
    Own,
}

impl Origin {
    /// Whether it is a line of the user's program.
    pub fn is_program(self) -> bool {
        matches!(self, Origin::Program | Origin::Allocator)
    }
}

/// Packages that allocate for everybody.
const FRAMEWORK_PACKAGES: [&str; 3] = ["torch", "torch_npu", "mindspore"];
/// Packages of this tool.
const OWN_PACKAGES: [&str; 3] = ["msmemscope", "msleaks", "msmemscope_pytest"];
/// Libraries of this tool, by file name.
const OWN_LIBRARIES: [&str; 5] = [
    "libascend_kernel_hook",
    "libleaks_ascend_hal_hook",
    "libascend_mstx_hook",
    "libatb_abi_0_hook",
    "libatb_abi_1_hook",
];
/// Libraries of CANN by which its directory is known.
const RUNTIME_LIBRARIES: [&str; 6] =
    ["libascendcl", "libacl_rt", "libacl_rt_impl", "libruntime", "libascend_hal", "libms_tools_ext"];
/// Where CANN is installed unless somebody says otherwise.
const CANN_DIRECTORY: &str = "/usr/local/Ascend/";
/// Libraries of PyTorch begin like this, also outside of its package.
const FRAMEWORK_LIBRARIES: [&str; 2] = ["libtorch", "libc10"];
/// Where the system keeps libraries and headers.
const SYSTEM_DIRECTORIES: [&str; 6] = ["/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/", "/usr/include/", "/rustc/"];
/// The headers with the functions that send messages to tools, which are compiled into programs.
const MESSAGE_HEADERS: &str = "ms_tools_ext";
/// Where every program starts.
const ENTRY_FUNCTION: &str = "_start";

/// Where things were installed on the machine of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Installation {
    /// This tool's package, with a separator at its end.
    own_package: Option<String>,
    /// Directories of CANN's libraries.
    runtime_directories: Vec<String>,
}

impl Installation {
    /// What a recording says about it.
    pub fn of(definitions: &Definitions) -> Self {
        let settings = definitions.settings();
        let own_package = settings.iter().find_map(|settings| own_package(settings.text));
        let mut runtime_directories: Vec<String> = definitions
            .modules()
            .iter()
            .map(|module| definitions.string(module.path))
            .filter(|path| RUNTIME_LIBRARIES.contains(&library_name(path)))
            .filter_map(|path| Some(path.rsplit_once('/')?.0.to_owned()))
            .collect();
        runtime_directories.sort_unstable();
        runtime_directories.dedup();
        Self { own_package, runtime_directories }
    }

    /// Whose Python file it is.
    pub fn of_python(&self, file: &str) -> Origin {
        if file.is_empty() || file.starts_with("<frozen") || file == "<string>" {
            return Origin::System;
        }
        self.of_path(file)
    }

    /// Whose native function it is: that of a module, from a source file if one is known.
    pub fn of_native(&self, module: &str, source: Option<&str>, function: &str) -> Origin {
        let name = library_name(module);
        if module.is_empty() || function == ENTRY_FUNCTION || is_interpreter(name) {
            return Origin::System;
        }
        if OWN_LIBRARIES.contains(&name) {
            return Origin::Own;
        }
        if RUNTIME_LIBRARIES.contains(&name)
            || FRAMEWORK_LIBRARIES.iter().any(|start| name.starts_with(start))
            || source.is_some_and(|source| file_name(source).starts_with(MESSAGE_HEADERS))
            || self.is_beside_runtime(module)
        {
            return Origin::Framework;
        }
        match self.of_path(module) {
            Origin::Program => source.map_or(Origin::Program, |source| self.of_path(source)),
            origin => origin,
        }
    }

    fn is_beside_runtime(&self, module: &str) -> bool {
        module.contains(".so")
            && module.rsplit_once('/').is_some_and(|(place, _)| self.runtime_directories.iter().any(|of| of == place))
    }

    fn of_path(&self, path: &str) -> Origin {
        if self.own_package.as_ref().is_some_and(|package| path.starts_with(package)) {
            return Origin::Own;
        }
        let mut before = "";
        let mut origin = Origin::Program;
        let mut parts = path.split('/').peekable();
        while let (Some(part), Some(next)) = (parts.next(), parts.peek()) {
            // The last place counts: packages are below the standard library.
            if matches!(part, "site-packages" | "dist-packages") {
                origin = package_origin(next);
            } else if matches!(before, "lib" | "lib64") && is_versioned_python(part) {
                origin = Origin::System;
            }
            before = part;
        }
        match origin {
            Origin::Program if path.starts_with(CANN_DIRECTORY) => Origin::Framework,
            Origin::Program if SYSTEM_DIRECTORIES.iter().any(|place| path.starts_with(place)) => Origin::System,
            origin => origin,
        }
    }
}

/// The directory of this tool's package according to the settings of a recording: the launcher names the place it
/// is imported from, the package itself the program inside it.
fn own_package(settings: &[u8]) -> Option<String> {
    let recording = Recording::from_environment(std::str::from_utf8(settings).ok()?).ok()?;
    let of_launcher = recording.python_package.map(|place| place.join("msmemscope"));
    let directory = of_launcher.or_else(|| {
        let finisher = recording.finisher?;
        finisher
            .ends_with("msmemscope/bin/msmemscope.bin")
            .then(|| finisher.ancestors().nth(2).map(ToOwned::to_owned))?
    })?;
    Some(format!("{}/", directory.to_str()?))
}

fn package_origin(package: &str) -> Origin {
    let name = package.split('.').next().unwrap_or(package);
    if FRAMEWORK_PACKAGES.contains(&name) {
        Origin::Framework
    } else if OWN_PACKAGES.contains(&name) {
        Origin::Own
    } else {
        Origin::Package
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The file name of a library without `.so` and what follows it.
fn library_name(path: &str) -> &str {
    let name = file_name(path);
    name.split_once(".so").map_or(name, |(stem, _)| stem)
}

/// `python3.11`, the name of the directory of a standard library.
fn is_versioned_python(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    name.strip_prefix("python")
        .map(|version| version.trim_end_matches('t'))
        .and_then(|version| version.split_once('.'))
        .is_some_and(|(major, minor)| is_number(major) && is_number(minor))
}

/// `python`, `python3`, `python3.11` and `libpython3.11`.
fn is_interpreter(name: &str) -> bool {
    let program = name.strip_prefix("lib").unwrap_or(name);
    is_versioned_python(program) || matches!(program, "python" | "python3")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_the_path_of_a_program_hide_nothing() {
        let installation = Installation::default();
        for directory in [
            "/users/me/msmemscope",
            "/users/me/standin",
            "/data/libtorch-experiments",
            "/data/libruntime",
            "/data/libc10",
            "/users/me/lib/python",
            "/users/me/lib/python-jobs/train",
            "/users/me/site-packages-study",
            "/users/lib/python3x/jobs",
        ] {
            assert_eq!(installation.of_python(&format!("{directory}/train.py")), Origin::Program, "{directory}");
            let module = format!("{directory}/train");
            let source = format!("{directory}/train.c");
            assert_eq!(installation.of_native(&module, Some(&source), "main"), Origin::Program, "{directory}");
        }
    }

    #[test]
    fn installed_files_are_known_by_their_place() {
        let installation = Installation { own_package: Some("/opt/msmemscope/".into()), ..Installation::default() };
        for (file, origin) in [
            ("/usr/lib/python3.11/threading.py", Origin::System),
            ("/opt/conda/lib/python3.13t/runpy.py", Origin::System),
            ("<frozen runpy>", Origin::System),
            ("<string>", Origin::System),
            ("<stdin>", Origin::Program),
            ("/venv/lib/python3.11/site-packages/torch/_ops.py", Origin::Framework),
            ("/usr/lib/python3/dist-packages/torch_npu/npu.py", Origin::Framework),
            ("/venv/lib/python3.11/site-packages/torchvision/models.py", Origin::Package),
            ("/venv/lib/python3.11/site-packages/msmemscope/_session.py", Origin::Own),
            ("/opt/msmemscope/_torch/operators.py", Origin::Own),
            ("/data/train.py", Origin::Program),
        ] {
            assert_eq!(installation.of_python(file), origin, "{file}");
        }
    }

    #[test]
    fn native_frames_are_known_by_their_module() {
        let installation = Installation { runtime_directories: vec!["/data/cann/lib64".into()], own_package: None };
        let interpreter = Some("/build/Python-3.11.7/Objects/methodobject.c");
        for (module, source, origin) in [
            ("/usr/bin/python3.11", interpreter, Origin::System),
            ("/opt/lib/libpython3.11.so.1.0", interpreter, Origin::System),
            ("/usr/lib/x86_64-linux-gnu/libc.so.6", Some("../csu/libc-start.c"), Origin::System),
            ("/lib/x86_64-linux-gnu/libstdc++.so.6", None, Origin::System),
            ("/opt/libtorch/lib/libtorch_cpu.so", None, Origin::Framework),
            ("/data/cann/lib64/libopapi.so", None, Origin::Framework),
            ("/data/cann/lib64/train", None, Origin::Program),
            ("/usr/local/Ascend/latest/lib64/libhccl.so", None, Origin::Framework),
            ("/data/train", Some("/data/include/mstx/ms_tools_ext_inline.h"), Origin::Framework),
            ("/data/train", Some("/usr/include/c++/12/bits/vector.h"), Origin::System),
            ("/data/train", Some("/data/train.c"), Origin::Program),
            ("/tools/libascend_kernel_hook.so", None, Origin::Own),
            ("", None, Origin::System),
        ] {
            assert_eq!(installation.of_native(module, source, "f"), origin, "{module} {source:?}");
        }
        assert_eq!(installation.of_native("/data/train", None, "_start"), Origin::System);
    }
}
