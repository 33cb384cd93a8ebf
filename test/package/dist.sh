#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A release holds every tracked file but .gitignore, and else only what Autotools make. Usage: dist.sh BUILD TOP
set -euo pipefail
build=$1 top=$2
git -C "$top" ls-files >/dev/null 2>&1 && [ "$(git -C "$top" rev-parse --show-toplevel)" = "$top" ] || exit 77
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make -C "$build" distdir distdir="$folder/release" am__remove_distdir=: \
    am__skip_mode_fix=: >"$folder/log" 2>&1 || { tail -n 20 "$folder/log"; exit 1; }
(cd "$folder/release" && find . -type f -o -type l | cut -c 3- | sort) >"$folder/released"
git -C "$top" ls-files -co --exclude-standard | (cd "$top" && while read -r file; do [ ! -e "$file" ] || echo "$file"; done) | sort |
    grep -vx .gitignore >"$folder/tracked"
missing=$(comm -13 "$folder/released" "$folder/tracked")
added=$(comm -23 "$folder/released" "$folder/tracked" |
    grep -vE '^(aclocal\.m4|configure|config\.h\.in|Makefile\.in|build-aux/.*|m4/.*)$' || true)
[ -z "$missing" ] || printf 'tracked, not in a release (name it in a sources.am):\n%s\n' "$missing"
[ -z "$added" ] || printf 'in a release, not tracked:\n%s\n' "$added"
[ -z "$missing$added" ] && echo "dist: $(wc -l <"$folder/tracked") files"
