//! `msmemscope`, or `msleaks` if it was started under that name: see the library of this crate.

fn main() -> std::process::ExitCode {
    let name = std::env::args_os().next().unwrap_or_default();
    msmemscope_cli::run(msmemscope_config::Variant::from_program_name(&name))
}
