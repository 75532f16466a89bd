#!/bin/sh
# Removes this installation: the files that were installed, bytecode that Python made of them, and directories that are
# empty then. Anything else stays.
set -eu
home=$(cd "$(dirname "$0")" && pwd -P)
cd "$home"
[ -f share/msmemscope/installed ] || { echo "uninstall.sh: $home is no installation" >&2; exit 2; }
find python -name __pycache__ -type d -prune -exec rm -rf {} +
files=$(cat share/msmemscope/installed)
directories=$(find . -mindepth 1 -type d | sort -r)
printf '%s\n' "$files" | while IFS= read -r file; do rm -f -- "$file"; done
printf '%s\n' "$directories" | while IFS= read -r directory; do rmdir -- "$directory" 2>/dev/null || true; done
cd /
rmdir "$home" 2>/dev/null || echo "uninstall.sh: $home has files of others and was kept"
echo "msMemScope was removed from $home."
