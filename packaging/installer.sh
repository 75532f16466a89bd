#!/bin/sh
# Installs msMemScope @VERSION@ for @ARCHITECTURE@ into a directory, without a network, a compiler or root. The files
# follow behind the last line of this script, as a compressed tar archive.
set -eu
umask 022
program=$(basename "$0")

usage() {
    cat <<TEXT
usage: $program [--install-path=<directory>] [--upgrade]
       $program --uninstall [--install-path=<directory>]

Installs msMemScope @VERSION@ for @ARCHITECTURE@. Default directory: \$HOME/msmemscope
  --upgrade     replace an installation that is there
  --uninstall   remove an installation, and nothing else
TEXT
}

fail() {
    echo "$program: $1" >&2
    exit 2
}

directory=${HOME:-}/msmemscope
what=install
upgrade=no
for argument in "$@"; do
    case $argument in
        --install-path=?*) directory=${argument#--install-path=} ;;
        --uninstall) what=uninstall ;;
        --upgrade) upgrade=yes ;;
        --help | -h) usage; exit 0 ;;
        *) usage >&2; fail "unknown argument '$argument'" ;;
    esac
done
case $directory in /*) ;; *) directory=$PWD/$directory ;; esac
case $directory in *[:\ ]*) fail "LD_PRELOAD cannot name '$directory' (white space or colon); choose another directory" ;; esac

if [ "$what" = uninstall ]; then
    [ -x "$directory/uninstall.sh" ] || fail "there is no installation in $directory"
    exec "$directory/uninstall.sh"
fi
[ "$(uname -s)" = Linux ] && [ "$(uname -m)" = "@ARCHITECTURE@" ] ||
    fail "this file is for Linux on @ARCHITECTURE@, this machine is $(uname -s) on $(uname -m)"
if [ -e "$directory/uninstall.sh" ]; then
    [ "$upgrade" = yes ] || fail "$directory has an installation already; --upgrade replaces it"
    "$directory/uninstall.sh" >/dev/null
elif [ -d "$directory" ] && [ -n "$(ls -A "$directory")" ]; then
    fail "$directory is not empty and holds no installation; choose another directory"
fi
mkdir -p "$directory" || fail "cannot create $directory"
line=$(awk '/^__FILES_FOLLOW__$/ { print NR + 1; exit }' "$0")
tail -n +"$line" "$0" | tar -xzf - -C "$directory" --no-same-owner || fail "cannot write to $directory"
cat <<TEXT
msMemScope @VERSION@ is installed in $directory.
To use it:     source $directory/set_env.sh
To remove it:  $directory/uninstall.sh
TEXT
exit 0
__FILES_FOLLOW__
