//! `msleaks`: the same program under its older name, with the defaults and file names of that time.

fn main() -> std::process::ExitCode {
    msmemscope_cli::run(msmemscope_config::Variant::Msleaks)
}
