# Puts this installation first in PATH and PYTHONPATH: source set_env.sh. Other installations of the tool step aside.
_msmemscope_without_installations() {
    printf '%s' "$1" | tr : '\n' | { grep -v -e '/msmemscope/bin/*$' -e '/msmemscope/python/*$' || true; } | paste -s -d : -
}
_msmemscope_home=$(cd "$(dirname "${BASH_SOURCE:-$0}")" && pwd -P)
_msmemscope_rest=$(_msmemscope_without_installations "${PATH-}")
export PATH="$_msmemscope_home/bin${_msmemscope_rest:+:$_msmemscope_rest}"
_msmemscope_rest=$(_msmemscope_without_installations "${PYTHONPATH-}")
export PYTHONPATH="$_msmemscope_home/python${_msmemscope_rest:+:$_msmemscope_rest}"
unset -f _msmemscope_without_installations
unset _msmemscope_home _msmemscope_rest
