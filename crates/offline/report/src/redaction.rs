//! Results without paths, host names, names of people and names of scripts, so that they can be mailed.
//!
//! The same name always gets the same placeholder: `/home/trainer7/model/train.py` is `dir-1/script-1.py` wherever it
//! stands, also in the middle of a sentence, so that findings can still be followed. Names that everybody knows stay:
//! modules of public frameworks below `site-packages`, the standard library of Python, libraries of CANN.
//!
//! Results must be redacted before they are laid out: a path that was cut to fit is not recognised any more.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

/// Packages whose modules everybody knows.
const PUBLIC_PACKAGES: [&str; 16] = [
    "accelerate",
    "apex",
    "deepspeed",
    "flash_attn",
    "megatron",
    "mindspeed",
    "mindspore",
    "msmemscope",
    "numpy",
    "peft",
    "torch",
    "torch_npu",
    "torchair",
    "torchvision",
    "transformers",
    "vllm",
];

/// How the names of programs and libraries begin that everybody knows.
const PUBLIC_NAMES: [&str; 26] = [
    "bash",
    "env",
    "ld-linux",
    "libacl",
    "libascend",
    "libatb",
    "libc.so",
    "libc10",
    "libgcc_s",
    "libge_",
    "libgraph",
    "libhccl",
    "libm.so",
    "libmindspore",
    "libmsprof",
    "libnnopbase",
    "libopapi",
    "libpthread",
    "libpython",
    "libruntime",
    "libstdc++",
    "libtorch",
    "msmemscope",
    "python",
    "sh",
    "torchrun",
];

/// Endings by which files are recognised where a path is given.
const FILE_ENDINGS: [&str; 46] = [
    "a",
    "arrow",
    "bin",
    "c",
    "cc",
    "cfg",
    "ckpt",
    "cpp",
    "csv",
    "cu",
    "cxx",
    "db",
    "gguf",
    "go",
    "gz",
    "h",
    "h5",
    "hh",
    "hpp",
    "ipynb",
    "json",
    "jsonl",
    "log",
    "mindrecord",
    "npy",
    "npz",
    "om",
    "onnx",
    "parquet",
    "pickle",
    "pkl",
    "pt",
    "pth",
    "py",
    "pyc",
    "pyx",
    "rs",
    "safetensors",
    "sh",
    "so",
    "tfrecord",
    "toml",
    "tsv",
    "txt",
    "yaml",
    "yml",
];

/// Endings of programs as they are written.
const SCRIPT_ENDINGS: [&str; 9] = ["cc", "cpp", "cu", "cxx", "hpp", "ipynb", "py", "pyx", "sh"];

/// Further endings by which files are recognised anywhere: no function is called like that.
const DATA_ENDINGS: [&str; 19] = [
    "arrow",
    "ckpt",
    "csv",
    "gguf",
    "gz",
    "h5",
    "jsonl",
    "mindrecord",
    "npz",
    "onnx",
    "parquet",
    "pickle",
    "pkl",
    "pth",
    "safetensors",
    "tfrecord",
    "tsv",
    "yaml",
    "yml",
];

/// Users that every machine has.
const PUBLIC_USERS: [&str; 5] = ["", "root", "nobody", "shared", "runner"];
const PUBLIC_HOSTS: [&str; 3] = ["", "localhost", "localhost.localdomain"];

/// Names that are shorter are replaced as whole words only.
const SHORTEST_ANYWHERE: usize = 4;

/// Words of our own, not names: what these keys of results hold.
const OWN_WORDS: [&str; 16] = [
    "bottleneck",
    "by",
    "columns",
    "device",
    "event_type",
    "kind",
    "language",
    "moment",
    "origin_ns",
    "phase",
    "pool",
    "severity",
    "state",
    "track",
    "verdict",
    "view",
];

/// Replaces names by placeholders, the same ones for the same names.
#[derive(Debug, Default)]
pub struct Redactor {
    directories: HashMap<String, String>,
    /// Placeholders of file names without their directories.
    names: HashMap<String, String>,
    /// Known files by every part of their path that may stand for them.
    known: HashMap<String, String>,
    /// Modules of Python by the names under which they are imported, with their placeholders.
    modules: HashMap<String, String>,
    /// Known files that look like the words around them.
    spaced: Vec<String>,
    /// Names of hosts and users with their placeholders.
    people: Vec<(String, String)>,
    made: HashSet<String>,
    counts: HashMap<&'static str, usize>,
}

impl Redactor {
    /// A redactor that knows who uses this machine.
    pub fn of_this_machine() -> Self {
        let mut redactor = Self::default();
        for variable in ["USER", "LOGNAME", "SUDO_USER"] {
            redactor.add_user(&std::env::var(variable).unwrap_or_default());
        }
        redactor.add_host(std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim());
        redactor
    }

    /// A host, which may be called by the first part of its name alone.
    pub fn add_host(&mut self, name: &str) {
        let placeholder = self.add_person("host", name, &PUBLIC_HOSTS);
        if let (Some(placeholder), Some((first, _))) = (placeholder, name.split_once('.')) {
            self.people.push((first.to_owned(), placeholder));
        }
    }

    /// Somebody who uses a machine.
    pub fn add_user(&mut self, name: &str) {
        self.add_person("user", name, &PUBLIC_USERS);
    }

    fn add_person(&mut self, kind: &'static str, name: &str, public: &[&str]) -> Option<String> {
        let is_known = self.people.iter().any(|(known, _)| known == name);
        if is_known || public.contains(&name) {
            return None;
        }
        let placeholder = self.make(kind, "");
        self.people.push((name.to_owned(), placeholder.clone()));
        // The whole name of a host before its first part.
        self.people.sort_by_key(|(name, _)| usize::MAX - name.len());
        Some(placeholder)
    }

    /// A file that results speak of.
    pub fn add_file(&mut self, path: &str) {
        if path.is_empty() || path.starts_with('<') || self.known.contains_key(path) {
            return;
        }
        self.add_users_of(path);
        if path.contains(is_border) {
            self.spaced.push(path.to_owned());
            self.spaced.sort_by_key(|path| usize::MAX - path.len());
        }
        // People see paths from where they are: every end of the path may stand for it.
        let ends = path.match_indices('/').map(|(at, _)| &path[at + 1..]).filter(|end| end.contains('/'));
        let ends: Vec<String> = ends.map(str::to_owned).collect();
        for end in std::iter::once(path.to_owned()).chain(ends) {
            self.known.entry(end).or_insert_with(|| path.to_owned());
        }
        let name = path.rsplit('/').next().unwrap_or(path);
        if public_part(path).is_none() {
            self.name_placeholder(name);
            self.add_module(path);
        }
    }

    /// A module of Python, which may be called by every end of its path that has a package in front of it:
    /// `b.c` and `a.b.c` for `a/b/c.py`.
    fn add_module(&mut self, path: &str) {
        let Some(stem) = path.strip_suffix(".py") else { return };
        let stem = stem.strip_suffix("/__init__").unwrap_or(stem);
        let is_name = |part: &&str| !part.is_empty() && !part.contains(|letter| is_border(letter) || letter == '.');
        let mut parts = stem.rsplit('/').take_while(is_name);
        let Some(mut dotted) = parts.next().map(str::to_owned) else { return };
        // The same file may be known by a longer and a shorter path.
        let mut ends = Vec::new();
        for package in parts {
            dotted = format!("{package}.{dotted}");
            ends.push(dotted.clone());
        }
        if ends.is_empty() {
            return;
        }
        let known = ends.iter().find_map(|end| self.modules.get(end).cloned());
        let placeholder = known.unwrap_or_else(|| self.make("module", ""));
        for end in ends {
            self.modules.entry(end).or_insert_with(|| placeholder.clone());
        }
    }

    /// The text with modules that no package has: `of stem (path/stem.py)`, where the path says that it is one.
    fn without_stems(&mut self, text: &str) -> String {
        let mut redacted = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find(" of ") {
            let (before, behind) = rest.split_at(at + " of ".len());
            redacted.push_str(before);
            rest = behind;
            let Some((stem, place)) = behind.split_once(" (").filter(|(stem, _)| !stem.contains(is_border)) else {
                continue;
            };
            let path = place.split([')', ':']).next().unwrap_or_default();
            let name = path.rsplit('/').next().unwrap_or_default();
            if !stem.is_empty() && name.strip_suffix(".py") == Some(stem) && public_part(path).is_none() {
                let placeholder = self.name_placeholder(name);
                redacted.push_str(placeholder.strip_suffix(".py").unwrap_or(&placeholder));
                rest = &behind[stem.len()..];
            }
        }
        redacted + rest
    }

    /// A word that names a module, or something in one, such as a class.
    fn module(&self, word: &str) -> Option<String> {
        let dots = word.match_indices('.').map(|(at, _)| at);
        let mut ends = std::iter::once(word.len()).chain(dots.rev());
        ends.find_map(|end| Some(format!("{}{}", self.modules.get(&word[..end])?, &word[end..])))
    }

    /// A directory that results may speak of.
    pub fn add_directory(&mut self, path: &str) {
        self.add_users_of(path);
        if !path.trim_end_matches('/').is_empty() {
            self.directory_placeholder(path.trim_end_matches('/'));
        }
    }

    /// The command of a job: its words may be anywhere in what it recorded.
    pub fn add_command(&mut self, command: &str) {
        for word in command.split_whitespace() {
            let path = word.split_once('=').map_or(word, |(_, value)| value);
            if path.contains('/') || ending(path).is_some_and(|ending| FILE_ENDINGS.contains(&ending)) {
                self.add_file(path);
            }
        }
    }

    /// Learns the files, hosts and commands that results name as such.
    pub fn learn(&mut self, value: &Value) {
        match value {
            Value::Array(values) => values.iter().for_each(|value| self.learn(value)),
            Value::Object(values) => {
                for (key, value) in values {
                    match (key.as_str(), value.as_str()) {
                        ("file" | "module", Some(text)) => self.add_file(text),
                        ("host", Some(text)) => self.add_host(text),
                        ("command", Some(text)) => self.add_command(text),
                        _ => self.learn(value),
                    }
                }
            }
            Value::String(text) => self.learn_modules(text),
            _ => {}
        }
    }

    /// Learns the files of modules that hold memory, which may have no other mention: `of a.b (a/b.py) > list of 7`.
    fn learn_modules(&mut self, text: &str) {
        let paths = text.split('(').skip(1).map(|behind| behind.split(is_border).next().unwrap_or_default());
        for path in paths.filter(|path| path.contains('/') && ending(path) == Some("py")) {
            self.add_file(path);
        }
    }

    fn add_users_of(&mut self, path: &str) {
        let mut parts = path.split('/');
        while let Some(part) = parts.next() {
            if part == "home" || part == "Users" {
                self.add_user(parts.next().unwrap_or_default());
            }
        }
    }

    /// Redacts results in place.
    pub fn redact(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.redact(value)),
            Value::Object(values) => {
                let all = std::mem::take(values);
                *values = all.into_iter().map(|(key, value)| self.redacted_member(key, value)).collect::<Map<_, _>>();
            }
            _ => {}
        }
    }

    fn redacted_member(&mut self, key: String, mut value: Value) -> (String, Value) {
        match (key.as_str(), &mut value) {
            ("command", Value::String(command)) => *command = self.command(command),
            (known, Value::String(_)) if OWN_WORDS.contains(&known) => {}
            (_, value) => self.redact(value),
        }
        let key = if key.contains('/') && !key.contains('?') { self.text(&key) } else { key };
        (key, value)
    }

    /// A command without its arguments, which may say anything.
    pub fn command(&mut self, command: &str) -> String {
        let words: Vec<&str> = command.split_whitespace().collect();
        let is_script = |word: &&&str| ending(word).is_some_and(|ending| SCRIPT_ENDINGS.contains(&ending));
        let script = words.iter().skip(1).find(is_script);
        let shown: Vec<String> = words.first().into_iter().chain(script).map(|word| self.named(word)).collect();
        let rest = if words.len() > shown.len() { " ..." } else { "" };
        format!("{}{rest}", shown.join(" "))
    }

    /// The name of a program or script without its directory.
    fn named(&mut self, path: &str) -> String {
        let name = path.rsplit('/').next().unwrap_or(path);
        self.name_placeholder(name)
    }

    /// A text with all names in it replaced.
    pub fn text(&mut self, text: &str) -> String {
        let mut text = self.without_stems(text);
        for path in self.spaced.clone() {
            if text.contains(&path) {
                let placeholder = self.path_placeholder(&path);
                text = text.replace(&path, &placeholder);
            }
        }
        let mut redacted = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let end = rest.find(is_border).unwrap_or(rest.len());
            let (word, behind) = rest.split_at(end);
            redacted.push_str(&self.word(word));
            let border = behind.chars().next().map_or(0, char::len_utf8);
            redacted.push_str(&behind[..border]);
            rest = &behind[border..];
        }
        for (name, placeholder) in &self.people {
            if redacted.contains(name.as_str()) {
                redacted = replaced(&redacted, name, placeholder);
            }
        }
        redacted
    }

    /// A word: a path, the name of a file, or neither.
    fn word(&mut self, word: &str) -> String {
        // The dot behind a path ends a sentence.
        let path = word.trim_end_matches('.');
        let end = &word[path.len()..];
        if path.len() < 2 || self.made.contains(path) {
            return word.to_owned();
        }
        let is_file = |endings: &[&str]| ending(path).is_some_and(|ending| endings.contains(&ending));
        if let Some(whole) = self.known.get(path).cloned() {
            return self.path_placeholder(&whole) + end;
        }
        if path.contains('/') {
            let is_path = ["/", "~/", "./", "../"].iter().any(|begin| path.starts_with(begin));
            if is_path && path.chars().any(char::is_alphanumeric) || is_file(&FILE_ENDINGS) {
                return self.path_placeholder(path) + end;
            }
        } else if self.names.contains_key(path) || is_file(&SCRIPT_ENDINGS) || is_file(&DATA_ENDINGS) {
            return self.name_placeholder(path) + end;
        } else if let Some(module) = self.module(path) {
            return module + end;
        }
        word.to_owned()
    }

    fn path_placeholder(&mut self, path: &str) -> String {
        self.add_users_of(path);
        let path = path.trim_end_matches('/');
        if let Some(known) = self.directories.get(path) {
            return known.clone();
        }
        let placeholder = match (public_part(path), path.rsplit_once('/')) {
            (Some(at), _) => format!("{}/{}", self.directory_placeholder(&path[..at - 1]), &path[at..]),
            (None, None) => self.name_placeholder(path),
            (None, Some((directory, name))) => {
                let is_file = self.known.contains_key(path)
                    || ending(name).is_some_and(|ending| FILE_ENDINGS.contains(&ending))
                    || name.contains(".so.");
                match (is_file, directory.is_empty()) {
                    (false, _) => self.directory_placeholder(path),
                    (true, true) => self.name_placeholder(name),
                    (true, false) => {
                        let directory = self.directory_placeholder(directory);
                        format!("{directory}/{}", self.name_placeholder(name))
                    }
                }
            }
        };
        self.made.insert(placeholder.clone());
        placeholder
    }

    fn directory_placeholder(&mut self, path: &str) -> String {
        if let Some(known) = self.directories.get(path) {
            return known.clone();
        }
        let placeholder = self.make("dir", "");
        self.directories.insert(path.to_owned(), placeholder.clone());
        placeholder
    }

    fn name_placeholder(&mut self, name: &str) -> String {
        if PUBLIC_NAMES.iter().any(|public| name.starts_with(public)) && !is_script(name) {
            return name.to_owned();
        }
        if let Some(known) = self.names.get(name) {
            return known.clone();
        }
        let placeholder = match ending(name).filter(|ending| FILE_ENDINGS.contains(ending)) {
            Some(ending @ ("py" | "ipynb" | "sh")) => self.make("script", ending),
            Some("so") => self.make("library", "so"),
            Some(ending) => self.make("file", ending),
            None if name.contains(".so.") => self.make("library", "so"),
            None => self.make("program", ""),
        };
        self.names.insert(name.to_owned(), placeholder.clone());
        placeholder
    }

    fn make(&mut self, kind: &'static str, ending: &str) -> String {
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        let dot = if ending.is_empty() { "" } else { "." };
        let placeholder = format!("{kind}-{count}{dot}{ending}");
        self.made.insert(placeholder.clone());
        placeholder
    }
}

fn is_script(name: &str) -> bool {
    ending(name).is_some_and(|ending| SCRIPT_ENDINGS.contains(&ending))
}

/// Whether a character stands between words rather than in paths.
fn is_border(letter: char) -> bool {
    letter.is_whitespace() || letter.is_control() || "'\"`()[]{}<>,;:=|@*&?#%\\".contains(letter)
}

/// The ending of a file name.
fn ending(path: &str) -> Option<&str> {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.rsplit_once('.').filter(|(stem, _)| !stem.is_empty()).map(|(_, ending)| ending)
}

/// Where the part of a path begins that everybody knows: the module of a public framework or of Python itself.
fn public_part(path: &str) -> Option<usize> {
    for directory in ["/site-packages/", "/dist-packages/"] {
        if let Some(at) = path.rfind(directory) {
            let at = at + directory.len();
            let package = path[at..].split('/').next().unwrap_or_default();
            return PUBLIC_PACKAGES.contains(&package).then_some(at);
        }
    }
    let at = path.find("/lib/python3.")? + "/lib/python3.".len();
    let version = path[at..].find('/')?;
    path[at..at + version].bytes().all(|byte| byte.is_ascii_digit()).then_some(at + version + 1)
}

/// The text without a name; short names count as whole words only.
fn replaced(text: &str, name: &str, placeholder: &str) -> String {
    if name.len() >= SHORTEST_ANYWHERE {
        return text.replace(name, placeholder);
    }
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut redacted = String::with_capacity(text.len());
    let mut copied = 0;
    for (at, _) in text.match_indices(name) {
        let behind = at + name.len();
        let is_whole = !text[..at].ends_with(is_word) && !text[behind..].starts_with(is_word);
        if is_whole {
            redacted.push_str(&text[copied..at]);
            redacted.push_str(placeholder);
            copied = behind;
        }
    }
    redacted.push_str(&text[copied..]);
    redacted
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_same_name_is_the_same_placeholder_everywhere() {
        let mut redactor = Redactor::default();
        redactor.add_file("/home/trainer7/llm/train.py");
        redactor.add_host("node7.corp.example");
        assert_eq!(redactor.text("/home/trainer7/llm/train.py:31 keep"), "dir-1/script-1.py:31 keep");
        assert_eq!(redactor.text("allocated at llm/train.py:31 keep."), "allocated at dir-1/script-1.py:31 keep.");
        assert_eq!(
            redactor.text("train.py(9): run in /home/trainer7/llm/model.py."),
            "script-1.py(9): run in dir-1/script-2.py."
        );
        assert_eq!(redactor.text("by trainer7 on node7, node7.corp.example"), "by user-1 on host-1, host-1");
        assert_eq!(redactor.text("planned with channels"), "planned with channels", "short names are whole words");
        assert_eq!(redactor.text("with tokens.yaml, Trainer.log"), "with file-1.yaml, Trainer.log");
        assert_eq!(redactor.text("dir-1/script-1.py"), "dir-1/script-1.py", "redacting twice changes nothing");
        assert_eq!(redactor.text("1.0 MiB/step of N/A, torch.save, and/or"), "1.0 MiB/step of N/A, torch.save, and/or");
    }

    #[test]
    fn what_everybody_knows_stays() {
        let mut redactor = Redactor::default();
        let text = redactor.text("/opt/trainer7/lib/python3.11/site-packages/torch/nn/modules/linear.py:9 forward");
        assert_eq!(text, "dir-1/torch/nn/modules/linear.py:9 forward");
        let text = redactor.text("/opt/trainer7/lib/python3.11/site-packages/secret_llm/linear.py:9 forward");
        assert_eq!(text, "dir-2/script-1.py:9 forward");
        assert_eq!(redactor.text("/usr/lib/python3.11/threading.py:1 run"), "dir-3/threading.py:1 run");
        assert_eq!(redactor.text("/opt/cann/lib64/libascendcl.so"), "dir-4/libascendcl.so");
        assert_eq!(redactor.text("/opt/cann/lib64/libours.so.2"), "dir-4/library-1.so");
    }

    #[test]
    fn modules_are_named_by_nothing_of_their_own() {
        let mut redactor = Redactor::default();
        redactor.add_file("acme_llm/layers/rotary_secret.py");
        redactor.add_file("/home/trainer7/acme_llm/layers/rotary_secret.py");
        redactor.add_file("/home/trainer7/acme_llm/models/__init__.py");
        redactor.add_file("/home/trainer7/helpers_secret.py");
        let text =
            redactor.text("Held by global 'kept' of acme_llm.layers.rotary_secret (acme_llm/layers/rotary_secret.py).");
        assert_eq!(text, "Held by global 'kept' of module-1 (dir-1/script-1.py).");
        assert_eq!(redactor.text("layers.rotary_secret.Rotary.cache > list of 7"), "module-1.Rotary.cache > list of 7");
        assert_eq!(redactor.text("a acme_llm.models.Model, trainer7.acme_llm.models"), "a module-2.Model, module-2");
        let text = redactor.text("global 'kept' of helpers_secret (helpers_secret.py:9) > list of 7 (of 9)");
        assert_eq!(text, "global 'kept' of script-3 (script-3.py:9) > list of 7 (of 9)");
        assert_eq!(
            redactor.text("of helpers (others.py), torch.nn.Linear"),
            "of helpers (script-4.py), torch.nn.Linear"
        );
        // Who holds memory may have allocated none, so that no call stack names the file.
        let mut redactor = Redactor::default();
        let mut held = json!({"held_by": "global 'kept' of acme.layers.rotary (acme/layers/rotary.py) > list of 8"});
        redactor.learn(&held);
        redactor.redact(&mut held);
        assert_eq!(held["held_by"], "global 'kept' of module-1 (dir-1/script-1.py) > list of 8");
        assert_eq!(redactor.text("reading corpus.jsonl.gz, rope.onnx"), "reading file-1.gz, file-2.onnx");
    }

    #[test]
    fn commands_lose_their_arguments() {
        let mut redactor = Redactor::default();
        redactor.add_command("python3 /home/trainer7/train.py --data=/mnt/secret/set.bin --key abc");
        assert_eq!(redactor.command("python3 /home/trainer7/train.py --key abc"), "python3 script-1.py ...");
        assert_eq!(redactor.text("reading set.bin"), "reading file-1.bin");
        assert_eq!(redactor.command("/opt/ours/run"), "program-1");
    }

    #[test]
    fn names_with_spaces_and_results_as_a_whole() {
        let mut redactor = Redactor::default();
        let mut value = json!({
            "kind": "peak", "host": "n7", "command": "python my.py", "frames": [{ "file": "/a b/my model.py", "line": 3 }],
            "sentence": "held by /a b/my model.py:3 f on n7", "numbers": [1, 2.5, null, true],
        });
        redactor.learn(&value);
        redactor.redact(&mut value);
        assert_eq!(value["sentence"], "held by dir-1/script-2.py:3 f on host-1");
        assert_eq!((&value["kind"], &value["command"]), (&json!("peak"), &json!("python script-1.py")));
        assert_eq!((&value["frames"][0]["file"], &value["host"]), (&json!("dir-1/script-2.py"), &json!("host-1")));
        assert_eq!(value["numbers"], json!([1, 2.5, null, true]));
    }
}
