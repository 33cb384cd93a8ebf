#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The quick tests between network namespaces, on the programs of this build directory.
export PYTHONDONTWRITEBYTECODE=1
exec python3 "$(dirname "$0")/run.py" ./src/tools/swiftlane "$@"
