//! The table: every option and every command, with all spellings, allowed values and help.
//!
//! Everything users meet is generated from here: the parser, the Python keys, `--help`, the reference
//! page and the errors. To add a command, add one line to [`COMMANDS`] when the program implements it.

/// Identifies an option in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is described by its line in the table")]
pub enum OptionId {
    LoadApiEnvironment,
    UnloadApiEnvironment,
    Help,
    Version,
    LogLevel,
    Verbose,
    Quiet,
    Color,
    Level,
    Events,
    Steps,
    CallStack,
    CollectMode,
    Device,
    Holders,
    MaxTraceSize,
    FlightRecorder,
    Trigger,
    On,
    Analysis,
    Report,
    Compare,
    Watch,
    Input,
    Output,
    DataFormat,
}

/// The section of the help text an option stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Variables of the calling shell.
    Environment,
    /// Accepted by every command.
    General,
    /// What is recorded.
    Collection,
    /// What is computed from it.
    Analysis,
    /// Where data comes from and goes to.
    InputOutput,
}

impl Group {
    /// The groups in the order of the help text, with their headings.
    pub const HEADINGS: &'static [(Group, &'static str)] = &[
        (Group::Environment, "Environment setup"),
        (Group::General, "General options"),
        (Group::Collection, "Collection options"),
        (Group::Analysis, "Analysis options"),
        (Group::InputOutput, "Input / Output options"),
    ];
}

/// One option.
#[derive(Debug)]
pub struct OptionSpec {
    /// Identity.
    pub id: OptionId,
    /// Long spellings without dashes, the documented one first.
    pub names: &'static [&'static str],
    /// One-letter spellings.
    pub letters: &'static [char],
    /// How its value is shown; `None` if it takes no value. What starts with `[=` may be left out, and else stands in the
    /// same argument.
    pub placeholder: Option<&'static str>,
    /// Keys of the Python `config()`, the documented one first.
    pub python_keys: &'static [&'static str],
    /// Section of the help text.
    pub group: Group,
    /// What it does, as one or two sentences.
    pub summary: &'static str,
    /// What its values mean.
    pub values: &'static [(&'static str, &'static str)],
    /// What is allowed, for error messages.
    pub allowed: &'static str,
    /// The value that holds without the option; empty if there is none.
    pub default: &'static str,
    /// A value to show in the reference; empty if there is none.
    pub example: &'static str,
}

/// What most lines of the table leave open.
const UNSET: OptionSpec = OptionSpec {
    id: OptionId::Help,
    names: &[],
    letters: &[],
    placeholder: None,
    python_keys: &[],
    group: Group::General,
    summary: "",
    values: &[],
    allowed: "",
    default: "",
    example: "",
};

/// All options, in the order of the help text.
pub const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        id: OptionId::LoadApiEnvironment,
        names: &["load-api-env"],
        group: Group::Environment,
        summary: "Set LD_PRELOAD and LD_LIBRARY_PATH of the current shell for \
                  recording through the Python API. Must be sourced.",
        ..UNSET
    },
    OptionSpec {
        id: OptionId::UnloadApiEnvironment,
        names: &["unload-api-env"],
        group: Group::Environment,
        summary: "Undo --load-api-env. Must be sourced.",
        ..UNSET
    },
    OptionSpec { id: OptionId::Help, names: &["help"], letters: &['h'], summary: "Show this text and exit.", ..UNSET },
    OptionSpec {
        id: OptionId::Version,
        names: &["version"],
        letters: &['v', 'V'],
        summary: "Show the version and exit.",
        ..UNSET
    },
    OptionSpec {
        id: OptionId::LogLevel,
        names: &["log-level"],
        placeholder: Some("<LEVEL>"),
        python_keys: &["log_level"],
        summary: "How much the tool says about its own work: debug, info, warn \
                  (or warning), error. Wins over --verbose and --quiet. What \
                  analyses found is always shown.",
        allowed: "debug, info, warn (or warning), error",
        default: "warn",
        example: "info",
        ..UNSET
    },
    OptionSpec { id: OptionId::Verbose, names: &["verbose", "debug"], summary: "Same as --log-level=debug.", ..UNSET },
    OptionSpec {
        id: OptionId::Quiet,
        names: &["quiet"],
        letters: &['q'],
        summary: "Same as --log-level=error.",
        ..UNSET
    },
    OptionSpec {
        id: OptionId::Color,
        names: &["color", "colour"],
        placeholder: Some("<WHEN>"),
        summary: "Whether reports have colours: auto (on terminals; NO_COLOR and FORCE_COLOR decide otherwise), \
                  always, never.",
        allowed: "auto, always or never",
        default: "auto",
        example: "always",
        ..UNSET
    },
    OptionSpec {
        id: OptionId::Level,
        names: &["level"],
        placeholder: Some("<LIST>"),
        python_keys: &["level"],
        group: Group::Collection,
        summary: "Granularity of launches.",
        values: &[("op, 0", "operators"), ("kernel, 1", "kernels")],
        allowed: "op (or 0) and kernel (or 1), separated by commas",
        default: "op",
        example: "op,kernel",
        ..UNSET
    },
    OptionSpec {
        id: OptionId::Events,
        names: &["events"],
        placeholder: Some("<LIST>"),
        python_keys: &["events"],
        group: Group::Collection,
        summary: "Events to record. alloc brings free and the reverse, access \
                  brings both; an analysis brings the events it needs. An empty \
                  value or none records no events and turns analyses off.",
        values: &[
            ("alloc", "memory allocations"),
            ("free", "memory deallocations"),
            ("launch", "launches of operators and kernels"),
            ("access", "memory accesses of ATB and PyTorch operators"),
            ("traceback", "Python function trace"),
            ("none", "nothing"),
        ],
        allowed: "alloc, free, launch, access, traceback, separated by commas, or none",
        default: "alloc,free,launch",
        example: "alloc,free,access",
        ..UNSET
    },
    OptionSpec {
        id: OptionId::Steps,
        names: &["steps"],
        placeholder: Some("<LIST>"),
        python_keys: &["steps"],
        group: Group::Collection,
        summary: "Write only these steps, at most 5 numbers from 1 up. Without \
                  it all steps are written.",
        allowed: "1 to 5 step numbers from 1 to 4294967295, separated by commas",
        example: "1,2,3",
        ..UNSET
    },
    OptionSpec {
        id: OptionId::CallStack,
        names: &["call-stack"],
        placeholder: Some("<LIST>"),
        python_keys: &["call_stack"],
        group: Group::Collection,
        summary: "Write call stacks, with an optional depth from 0 to 1000 \
                  (without one: 50). With :alloc frees have none, which halves \
                  the cost.",
        values: &[("c[:DEPTH][:alloc]", "stacks of native code"), ("python[:DEPTH][:alloc]", "stacks of Python code")],
        allowed: "c[:DEPTH][:alloc] and python[:DEPTH][:alloc], separated by commas, DEPTH from 0 to 1000",
        default: "off",
        example: "c:20,python:10",
        ..UNSET
    },
    OptionSpec {
        id: OptionId::CollectMode,
        names: &["collect-mode"],
        placeholder: Some("<MODE>"),
        group: Group::Collection,
        summary: "When recording begins.",
        values: &[("immediate", "with the program"), ("deferred", "when the program calls start() of the Python API")],
        allowed: "immediate or deferred",
        default: "immediate",
        example: "deferred",
        ..UNSET
    },
    OptionSpec {
        id: OptionId::Device,
        names: &["device"],
        placeholder: Some("<LIST>"),
        python_keys: &["device"],
        group: Group::Collection,
        summary: "Devices to record.",
        values: &[("npu", "all NPUs"), ("npu:ID", "one NPU, ID from 0 to 31"), ("cpu", "host memory of CPU tensors")],
        allowed: "npu, npu:ID with ID from 0 to 31, and cpu, separated by commas",
        default: "npu",
        example: "npu:2,npu:7",
        ..UNSET
    },
    OptionSpec {
        id: OptionId::Holders,
        names: &["holders"],
        placeholder: Some("<SWITCH>"),
        python_keys: &["holders"],
        group: Group::Collection,
        summary: "Whether to look for who holds device memory: at ends of a few \
                  steps, at stop() and when memory runs out, for a bounded time.",
        values: &[("on", "name the variables that keep tensors alive"), ("off", "never look")],
        allowed: "on or off",
        default: "on",
        example: "off",
        ..UNSET
    },
    OptionSpec {
        id: OptionId::MaxTraceSize,
        names: &["max-trace-size"],
        placeholder: Some("<SIZE>"),
        python_keys: &["max_trace_size"],
        group: Group::Collection,
        summary: "Limit of the recorded data, in bytes or with a unit such as \
                  MiB or GiB. When it is reached, what came and went before the \
                  start of a deferred recording makes room; then recording stops \
                  with a message and the program goes on.",
        allowed: "a size from 1MiB up, in bytes or with a unit (KiB, MiB, GiB, TiB)",
        default: "10% of the free disk space, at most 20GiB; on small disks half of it, at most 64MiB",
        example: "8GiB",
        ..UNSET
    },
    OptionSpec {
        id: OptionId::FlightRecorder,
        names: &["flight-recorder"],
        placeholder: Some("[=<SIZE>]"),
        python_keys: &["flight_recorder"],
        group: Group::Collection,
        summary: "Keep everything only of the newest time, in a file of this size per process (without a size: 256MiB); \
                  of what was before, keep what is still alive and where it came from. For jobs that run for days.",
        allowed: "a size from 8MiB up, in bytes or with a unit (KiB, MiB, GiB, TiB), on or off",
        default: "off",
        example: "64MiB",
        ..UNSET
    },
    OptionSpec {
        id: OptionId::Trigger,
        names: &["trigger"],
        placeholder: Some("<LIST>"),
        group: Group::Collection,
        summary: "When to write out what the flight recorder holds, into flight/ below the output directory. Each kind at \
                  most once a minute for a process. An empty value or none means never; 'ctl snapshot' always works.",
        values: &[
            ("oom", "memory is refused"),
            ("growth[>RATE]", "memory in use grows faster, as 1GiB/h (the default) or 10MiB/min"),
            ("peak[>SIZE]", "more is in use than ever, or than SIZE"),
            ("signal", "somebody sends SIGUSR2 to this program, which does not pass it on then"),
            ("end", "the job ends: write its results, as without a flight recorder"),
            ("none", "never"),
        ],
        allowed: "oom, growth[>RATE], peak[>SIZE], signal and end, separated by commas, or none; RATE as 1GiB/h",
        default: "oom,signal",
        example: "oom,growth>1GiB/h",
        ..UNSET
    },
    OptionSpec {
        id: OptionId::On,
        names: &["on"],
        placeholder: Some("<MOMENT>:run <COMMAND>"),
        group: Group::Collection,
        summary: "Run a command of the shell at a moment, once a minute at most for a process, without waiting for it. It finds what \
                  happened in MSMEMSCOPE_EVENT, the process in MSMEMSCOPE_EVENT_PROCESS and the path of the recording, \
                  or of its copy, in MSMEMSCOPE_EVENT_PATH. May be given several times.",
        values: &[
            ("oom", "memory is refused"),
            ("growth[>RATE]", "memory in use grows faster, as 1GiB/h (the default) or 10MiB/min"),
            ("peak[>SIZE]", "more is in use than ever, or than SIZE"),
        ],
        allowed: "oom, growth[>RATE] or peak[>SIZE], then ':run ' and a command",
        default: "off",
        example: "oom:run notify.sh",
        ..UNSET
    },
    OptionSpec {
        id: OptionId::Analysis,
        names: &["analysis"],
        placeholder: Some("<LIST>"),
        python_keys: &["analysis"],
        group: Group::Analysis,
        summary: "Analyses to run. An empty value or none runs none.",
        values: &[
            ("leaks", "leaks and fluctuation between steps"),
            ("decompose", "memory by owner: weights, gradients, ..."),
            ("inefficient", "memory allocated early, freed late or idle"),
            ("oom[:K]", "causes of failed allocations, K blocks (1-1000, default 10)"),
            ("none", "nothing"),
        ],
        allowed: "leaks, decompose, inefficient, oom[:K] with K from 1 to 1000, separated by commas, \
                  or none",
        default: "leaks",
        example: "leaks,decompose",
        ..UNSET
    },
    OptionSpec {
        id: OptionId::Report,
        names: &["report"],
        placeholder: Some("<STYLE>"),
        python_keys: &["report"],
        group: Group::Analysis,
        summary: "How leaks are reported.",
        values: &[
            ("full", "with call sites, growth and what to do"),
            ("classic", "only the lines that earlier versions printed"),
        ],
        allowed: "full or classic",
        default: DEFAULT_REPORT,
        example: "classic",
        ..UNSET
    },
    OptionSpec {
        id: OptionId::Compare,
        names: &["compare"],
        group: Group::Analysis,
        summary: "Compare the memory of two recordings given by --input instead \
                  of running a program; --json and --html as for compare.",
        ..UNSET
    },
    OptionSpec {
        id: OptionId::Watch,
        names: &["watch"],
        placeholder: Some("<SPEC>"),
        python_keys: &["watch"],
        group: Group::Analysis,
        summary: "Check memory blocks around operators to find who corrupts \
                  them: [START[:OUT],]END[,full-content] or \
                  auto[:SIZE][,owner=LABEL].",
        values: &[
            ("START", "operator whose outputs are watched"),
            ("OUT", "only this output of START, as out1 or 1"),
            ("END", "operator at whose end watching ends"),
            ("full-content", "write contents, not only checksums"),
            ("auto[:SIZE]", "all live blocks, SIZE bytes at most each time"),
            ("owner=LABEL", "of these only blocks with a label, as weight"),
        ],
        allowed: "[START[:OUT],]END[,full-content] or auto[:SIZE][,owner=LABEL], with operator names, OUT as out1 or 1",
        default: "off",
        example: "op0,op1,full-content",
        ..UNSET
    },
    OptionSpec {
        id: OptionId::Input,
        names: &["input", "input-path"],
        letters: &['i'],
        placeholder: Some("<BASE>,<OTHER>"),
        group: Group::InputOutput,
        summary: "The two recordings for --compare.",
        allowed: "two paths of at most 4096 characters, separated by a comma",
        example: "/data/projects/input1,/data/projects/input2",
        ..UNSET
    },
    OptionSpec {
        id: OptionId::Output,
        names: &["output", "output-path"],
        letters: &['o'],
        placeholder: Some("<DIR>"),
        python_keys: &["output", "output_path"],
        group: Group::InputOutput,
        summary: "Directory for all results.",
        allowed: "a directory path of 1 to 4096 characters",
        default: DEFAULT_OUTPUT,
        example: "/data/projects/output",
        ..UNSET
    },
    OptionSpec {
        id: OptionId::DataFormat,
        names: &["data-format", "format"],
        placeholder: Some("<LIST>"),
        python_keys: &["data_format", "format"],
        group: Group::InputOutput,
        summary: "Format of the output files; both may be given.",
        values: &[("csv", "text tables"), ("db", "SQLite files, for MindStudio Insight")],
        allowed: "csv, db or csv,db",
        default: "csv",
        example: "db",
        ..UNSET
    },
];

/// How the placeholder of a value that may be left out starts.
pub(crate) const OPTIONAL_VALUE: &str = "[=";
/// Stands for the default output directory, which depends on the program's name.
pub(crate) const DEFAULT_OUTPUT: &str = "{output}";
/// Stands for the default style of reports, which depends on the program's name as well.
pub(crate) const DEFAULT_REPORT: &str = "{report}";

/// An option that belongs to one command only.
#[derive(Debug)]
pub struct FlagSpec {
    /// Long spelling without dashes.
    pub name: &'static str,
    /// How its value is shown; `None` if it takes no value. The command itself checks the value.
    pub placeholder: Option<&'static str>,
    /// What it does.
    pub summary: &'static str,
}

/// One command, `msmemscope <name> ...`.
#[derive(Debug)]
pub struct CommandSpec {
    /// The word users type.
    pub name: &'static str,
    /// The arguments after it, as shown in the usage.
    pub operands: &'static str,
    /// Fewest and most arguments.
    pub operand_count: (usize, usize),
    /// What it does, in one line.
    pub summary: &'static str,
    /// Options of the main table it accepts besides the general ones.
    pub options: &'static [OptionId],
    /// What --output names, if that is a file and not a directory for all results.
    pub output_file: Option<&'static str>,
    /// Options of its own.
    pub flags: &'static [FlagSpec],
    /// Whether the word is a command only without arguments; with arguments it is a program to run.
    pub only_alone: bool,
}

/// What most commands leave open.
const PLAIN: CommandSpec = CommandSpec {
    name: "",
    operands: "",
    operand_count: (0, 0),
    summary: "",
    options: &[],
    output_file: None,
    flags: &[],
    only_alone: false,
};

/// What the program can end with, and what it means.
pub const EXIT_STATUSES: &[(&str, &str)] = &[
    ("0", "Everything was done, or the recorded program ended with 0."),
    (
        "1",
        "check: a rule is broken. doctor: something would not be recorded. ctl: a process has not done what was asked.",
    ),
    ("2", "Our own error: a wrong command line, an input that cannot be read, results that cannot be written."),
    ("3", "check: a rule cannot be judged, and none is broken."),
    ("126", "The program to record is not executable."),
    ("127", "The program to record was not found."),
    ("other", "That of the recorded program. If a signal ended it, the same signal ends msmemscope."),
];

/// Results as data; for every command whose results are worth it.
const JSON: FlagSpec = FlagSpec { name: "json", placeholder: None, summary: "Print the results as JSON." };

/// The command that `msmemscope <program>` stands for.
pub(crate) const RUN: &str = "run";
/// The command that `--compare` stands for.
pub(crate) const COMPARE: &str = "compare";

/// All commands. Only implemented ones are listed: a word in this table is no program name any more.
pub const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: RUN,
        operands: "[--] <program> [arguments]",
        operand_count: (1, usize::MAX),
        summary: "Record a program; the default, the word may be left out.",
        options: &[
            OptionId::Level,
            OptionId::Events,
            OptionId::Steps,
            OptionId::CallStack,
            OptionId::CollectMode,
            OptionId::Device,
            OptionId::Holders,
            OptionId::MaxTraceSize,
            OptionId::FlightRecorder,
            OptionId::Trigger,
            OptionId::On,
            OptionId::Analysis,
            OptionId::Report,
            OptionId::Watch,
            OptionId::Output,
            OptionId::DataFormat,
        ],
        ..PLAIN
    },
    CommandSpec {
        name: COMPARE,
        operands: "<BASE> [<OTHER>]",
        operand_count: (1, 2),
        summary: "Compare the memory of two recordings, or of two steps of one with --steps.",
        options: &[OptionId::Level, OptionId::Steps, OptionId::Output, OptionId::Input],
        flags: &[JSON, FlagSpec { name: "html", placeholder: None, summary: "Write the summary as a page, too." }],
        ..PLAIN
    },
    CommandSpec {
        name: "analyze",
        operands: "[<DIR|FILE>...]",
        operand_count: (0, usize::MAX),
        summary: "Find leaks, owners, inefficient use and more in recordings, csv or db files.",
        options: &[OptionId::Analysis, OptionId::Report],
        flags: &[
            JSON,
            FlagSpec { name: "ascii", placeholder: None, summary: "Draw curves with plain characters only." },
            FlagSpec { name: "peak", placeholder: None, summary: "Only show what held memory at the peak, by line." },
            FlagSpec {
                name: "at",
                placeholder: Some("<MOMENT>"),
                summary: "Only show what held memory at a moment, by line: peak, step:7 (its end), 12.3s or 250ms after \
                          the first event. Several moments: separated by commas.",
            },
            FlagSpec {
                name: "grew",
                placeholder: Some("<MOMENT>..<MOMENT>"),
                summary: "Only show what holds more memory at the second moment than at the first, by line: \
                          step:3..step:9, 1s..peak.",
            },
            FlagSpec {
                name: "by",
                placeholder: Some("<WHAT>"),
                summary: "Break memory at these moments, or at the peak, down by line, module, call-tree, owner, \
                          operator, kernel or phase.",
            },
            FlagSpec {
                name: "marks",
                placeholder: Some("<TEXT>"),
                summary: "Only look for memory allocated between the first two of three marks with this text and not \
                          freed before the third.",
            },
            FlagSpec {
                name: "mark-index",
                placeholder: Some("<N>"),
                summary: "Which mark with this text is the first of the three, counted from 0.",
            },
            FlagSpec {
                name: "step",
                placeholder: Some("<N>"),
                summary: "Show the owners of memory at the end of this step, too.",
            },
            FlagSpec {
                name: "min-size",
                placeholder: Some("<SIZE>"),
                summary: "Leave smaller blocks out of the search for inefficient use.",
            },
            FlagSpec {
                name: "idle-threshold",
                placeholder: Some("<N>"),
                summary: "Operators between two uses after which a block counts as idle; 3000 by default.",
            },
            FlagSpec {
                name: "annotate",
                placeholder: None,
                summary: "Write inefficient_type into the rows of the csv or db files.",
            },
        ],
        ..PLAIN
    },
    CommandSpec {
        name: "top",
        operands: "[<PID|DIR>...]",
        operand_count: (0, usize::MAX),
        summary: "Show what a running job holds and what grows, until it ends.",
        flags: &[
            FlagSpec {
                name: "interval",
                placeholder: Some("<SECONDS>"),
                summary: "Time between two looks, from 0.1 on; 1 by default.",
            },
            FlagSpec {
                name: "once",
                placeholder: None,
                summary: "Look once and end, as happens anyway where the output is no terminal.",
            },
            FlagSpec { name: "ascii", placeholder: None, summary: "Draw with plain characters." },
            FlagSpec { name: "json", placeholder: None, summary: "Look once and print JSON." },
        ],
        ..PLAIN
    },
    CommandSpec {
        name: "ctl",
        operands: "[<PID|DIR>] <ACTION> [<KEY=VALUE>...]",
        operand_count: (1, usize::MAX),
        summary: "Control a running job: start, stop, step, snapshot, finish, status or set.",
        flags: &[
            FlagSpec {
                name: "wait",
                placeholder: Some("<SECONDS>"),
                summary: "How long to wait for the job's next memory event, with which it acts; 5 by default.",
            },
            JSON,
        ],
        ..PLAIN
    },
    CommandSpec {
        name: "view",
        operands: "[<DIR|FILE|PID>...]",
        operand_count: (0, usize::MAX),
        summary: "Show recordings, csv or db files on a page in the browser, until interrupted.",
        flags: &[
            FlagSpec {
                name: "live",
                placeholder: None,
                summary: "Follow jobs that are running, named by process or directory, while they go on.",
            },
            FlagSpec {
                name: "port",
                placeholder: Some("<N>"),
                summary: "Port of the page on this machine; any free one by default.",
            },
            FlagSpec {
                name: "no-browser",
                placeholder: None,
                summary: "Only print the address of the page, do not open it.",
            },
        ],
        ..PLAIN
    },
    CommandSpec {
        name: "report",
        operands: "[<DIR|FILE>...]",
        operand_count: (0, usize::MAX),
        summary: "Write what was found into one file to take along, which --output names.",
        options: &[OptionId::Output],
        output_file: Some("The file to write; report.html, report.md or report.json by default."),
        flags: &[
            FlagSpec {
                name: "format",
                placeholder: Some("<FORMAT>"),
                summary: "html (a page that needs nothing else, the default), markdown (for issue trackers) or json.",
            },
            FlagSpec {
                name: "redact",
                placeholder: None,
                summary: "Replace paths and the names of hosts, users and scripts by placeholders.",
            },
        ],
        ..PLAIN
    },
    CommandSpec {
        name: "export",
        operands: "[<DIR|FILE>...]",
        operand_count: (0, usize::MAX),
        summary: "Write recordings in the format of another tool, to the file --output names.",
        options: &[OptionId::Output],
        output_file: Some("The file to write (the directory for parquet); by default named after the format."),
        flags: &[
            FlagSpec {
                name: "to",
                placeholder: Some("<FORMAT>"),
                summary: "perfetto, folded, speedscope, pprof, firefox-profiler, torch-snapshot, kernels, or parquet (a \
                          directory for DuckDB and Spark).",
            },
            FlagSpec {
                name: "memory",
                placeholder: Some("<KIND>"),
                summary: "For folded: peak (in use then, the default), alive (never freed) or allocated.",
            },
            FlagSpec {
                name: "process",
                placeholder: Some("<PID>"),
                summary: "Only this process, where there are several.",
            },
        ],
        ..PLAIN
    },
    CommandSpec {
        name: "replay",
        operands: "[<DIR|FILE>...]",
        operand_count: (0, usize::MAX),
        summary: "Compute what other settings of PyTorch's pool or another card would change.",
        flags: &[
            JSON,
            FlagSpec {
                name: "card",
                placeholder: Some("<SIZE>"),
                summary: "Memory of the card, such as 32GiB; that of the recorded one by default.",
            },
            FlagSpec {
                name: "set",
                placeholder: Some("<KEY=VALUE,...>"),
                summary: "Other settings of the pool than recorded, as in PYTORCH_NPU_ALLOC_CONF.",
            },
            FlagSpec {
                name: "sweep",
                placeholder: None,
                summary: "Try all sensible settings and say which helps most.",
            },
            FlagSpec {
                name: "batch",
                placeholder: Some("<N,N,...>"),
                summary: "The batch sizes of the recordings, in their order: say the largest that fits the card.",
            },
            FlagSpec {
                name: "curve",
                placeholder: Some("<FILE>"),
                summary: "Write what is used and reserved after each event, as csv.",
            },
        ],
        ..PLAIN
    },
    CommandSpec {
        name: "fleet",
        operands: "<DIR>...",
        operand_count: (1, usize::MAX),
        summary: "Merge the summaries of many ranks: who differs, leaks, out of memory.",
        flags: &[
            JSON,
            FlagSpec { name: "ascii", placeholder: None, summary: "Draw curves with plain characters only." },
        ],
        ..PLAIN
    },
    CommandSpec {
        name: "watch-report",
        operands: "<DIR>...",
        operand_count: (1, usize::MAX),
        summary: "Name who changed watched memory without declaring it.",
        flags: &[JSON],
        ..PLAIN
    },
    CommandSpec {
        name: "check",
        operands: "<DIR|FILE>...",
        operand_count: (1, usize::MAX),
        summary: "Check limits; exit status 1 if one is broken, 3 if one cannot be judged.",
        flags: &[
            JSON,
            FlagSpec {
                name: "max-peak",
                placeholder: Some("<SIZE>"),
                summary: "Most bytes any pool on an NPU may use at once, such as 20GiB.",
            },
            FlagSpec { name: "no-leaks", placeholder: None, summary: "Nothing may leak." },
            FlagSpec { name: "max-leaks", placeholder: Some("<SIZE>"), summary: "Most bytes that may leak." },
            FlagSpec {
                name: "max-inefficient",
                placeholder: Some("<PERCENT>"),
                summary: "Largest part of a peak that inefficient use may cost, such as 5%.",
            },
            FlagSpec {
                name: "baseline",
                placeholder: Some("<FILE|DIR>"),
                summary: "Compare peaks, growth per step and leaks with those of an accepted recording, or of a .json \
                          file that --save-baseline wrote.",
            },
            FlagSpec {
                name: "tolerance",
                placeholder: Some("<PERCENT>"),
                summary: "How much larger than in the baseline numbers may be; 5% by default.",
            },
            FlagSpec {
                name: "save-baseline",
                placeholder: Some("<FILE>"),
                summary: "Write the numbers of this recording to a .json file for --baseline.",
            },
            FlagSpec {
                name: "annotate",
                placeholder: Some("<WHERE>"),
                summary: "Show broken rules beside the code: github (in its workflows the default), gitlab:<FILE> for a \
                          code quality report, none.",
            },
            FlagSpec {
                name: "allow-unjudged",
                placeholder: None,
                summary: "Pass although a limit cannot be judged: no steps, too few, a pool not seen, events lost.",
            },
        ],
        ..PLAIN
    },
    CommandSpec {
        name: "recover",
        operands: "<DIR>...",
        operand_count: (1, usize::MAX),
        summary: "Write the results of recordings that were cut off.",
        options: &[OptionId::DataFormat, OptionId::Analysis, OptionId::Report],
        flags: &[JSON],
        ..PLAIN
    },
    CommandSpec {
        name: "finish",
        operands: "<DIR>...",
        operand_count: (1, usize::MAX),
        summary: "Write the results of recordings, again if need be.",
        options: &[OptionId::DataFormat, OptionId::Analysis, OptionId::Report],
        flags: &[JSON],
        ..PLAIN
    },
    CommandSpec {
        name: "info",
        operands: "<DIR|FILE>...",
        operand_count: (1, usize::MAX),
        summary: "Show what recordings contain and how complete they are.",
        flags: &[JSON],
        ..PLAIN
    },
    CommandSpec {
        name: "list",
        operands: "[<DIR>...]",
        operand_count: (0, usize::MAX),
        summary: "List the recordings in directories, the latest first.",
        flags: &[JSON],
        ..PLAIN
    },
    CommandSpec {
        name: "clean",
        operands: "[<DIR|NAME>...]",
        operand_count: (0, usize::MAX),
        summary: "Remove recordings: named ones, old ones, all but the latest.",
        flags: &[
            FlagSpec {
                name: "older-than",
                placeholder: Some("<AGE>"),
                summary: "Of the recordings in a directory those that started longer ago, such as 30m, 12h, 7d or 2w.",
            },
            FlagSpec {
                name: "keep",
                placeholder: Some("<N>"),
                summary: "Of the recordings in a directory all but those of the latest N runs.",
            },
            FlagSpec { name: "all", placeholder: None, summary: "All recordings in a directory." },
            FlagSpec { name: "yes", placeholder: None, summary: "Remove without asking." },
            JSON,
        ],
        ..PLAIN
    },
    CommandSpec {
        name: "doctor",
        operands: "[-- <program> [arguments]]",
        operand_count: (0, usize::MAX),
        summary: "Explain what would not be recorded here, and why.",
        flags: &[JSON],
        ..PLAIN
    },
    CommandSpec {
        name: "standin",
        operands: "-- <command> [arguments]",
        operand_count: (1, usize::MAX),
        summary: "Run a command on the stand-in Ascend device, without a card.",
        flags: &[
            FlagSpec {
                name: "devices",
                placeholder: Some("<COUNT>"),
                summary: "Number of cards, 1 to 32. [default: 8]",
            },
            FlagSpec { name: "memory", placeholder: Some("<SIZE>"), summary: "Memory of each card. [default: 64GiB]" },
            FlagSpec { name: "soc", placeholder: Some("<NAME>"), summary: "Name of the chip. [default: Ascend910B1]" },
            FlagSpec {
                name: "workspace",
                placeholder: Some("<SIZE>"),
                summary: "Workspace every operator asks for. [default: 0]",
            },
            FlagSpec {
                name: "unknown-operators",
                placeholder: Some("<HOW>"),
                summary: "What to do about operators it cannot compute: warn, quiet, error. [default: warn]",
            },
        ],
        ..PLAIN
    },
    CommandSpec {
        name: "completion",
        operands: "<bash|zsh|fish>",
        operand_count: (1, 1),
        summary: "Print a script that completes our words in a shell.",
        ..PLAIN
    },
    CommandSpec {
        name: "manual",
        operands: "[<COMMAND>]",
        operand_count: (0, 1),
        summary: "Print the manual page, or that of a command, for 'man -l -'.",
        ..PLAIN
    },
    CommandSpec {
        name: "env",
        summary: "Print the variables for recording by hand, for eval.",
        only_alone: true,
        ..PLAIN
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn spellings_are_unique() {
        let mut seen = HashSet::new();
        for spec in OPTIONS {
            for name in spec.names {
                assert!(seen.insert(name.to_string()), "{name}");
            }
            for letter in spec.letters {
                assert!(seen.insert(letter.to_string()), "{letter}");
            }
            for key in spec.python_keys {
                assert!(seen.insert(format!("python {key}")), "{key}");
            }
        }
        let mut commands = HashSet::new();
        for command in COMMANDS {
            assert!(commands.insert(command.name), "{}", command.name);
            for flag in command.flags {
                // A command may use the name of an option that it does not accept.
                let is_option = |spec: &&OptionSpec| spec.names.contains(&flag.name);
                let accepts = |spec: &OptionSpec| crate::parse::applies(Some(command), spec);
                assert!(!OPTIONS.iter().find(is_option).is_some_and(accepts), "{} of {}", flag.name, command.name);
            }
        }
    }

    #[test]
    fn a_recording_takes_the_same_options_with_and_without_its_word() {
        let run = COMMANDS.iter().find(|command| command.name == RUN);
        let is_of_recordings = |spec: &&OptionSpec| {
            matches!(spec.group, Group::Collection | Group::Analysis) && spec.id != OptionId::Compare
        };
        for spec in OPTIONS.iter().filter(is_of_recordings) {
            assert!(crate::parse::applies(run, spec), "{:?}", spec.id);
        }
    }

    #[test]
    fn options_with_a_value_say_what_is_allowed() {
        for spec in OPTIONS {
            assert_eq!(spec.placeholder.is_some(), !spec.allowed.is_empty(), "{:?}", spec.id);
            assert!(spec.python_keys.is_empty() || spec.placeholder.is_some(), "{:?}", spec.id);
            assert!(!spec.summary.is_empty(), "{:?}", spec.id);
            assert!(!spec.names.is_empty(), "{:?}", spec.id);
        }
    }
}
