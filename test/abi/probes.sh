#!/bin/sh
# The probes of the library, by its ELF notes, are those that docs/observability.md lists.
#   probes.sh SOURCE LIBRARY
set -eu
listed=$(sed -n '/^## Probes/,/^## /s/^| `\([a-z_]*\)` |.*/\1/p' "$1/docs/observability.md" | sort -u)
built=$(readelf --notes --wide "$2" | awk '/Provider: swiftlane/ { getline; print $2 }' | sort -u)
[ -n "$built" ] || { echo "SKIP: built without sys/sdt.h"; exit 77; }
[ "$listed" = "$built" ] || { printf 'listed:\n%s\nbuilt:\n%s\n' "$listed" "$built"; exit 1; }
