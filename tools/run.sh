#!/bin/sh
# Entry of every npm script: installs what is missing, then runs the given script with the pinned Node.
# The machine's own Node may be older (20); node_modules/.bin/node is the version in package.json.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
cd "$root"
if [ ! -x node_modules/.bin/node ] || [ ! -f node_modules/.package-lock.json ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
  echo "installing dependencies (npm ci) ..." >&2
  npm ci --no-audit --no-fund --loglevel=error >&2
  touch node_modules/.package-lock.json
fi
script=$1
shift
exec node_modules/.bin/node --disable-warning=ExperimentalWarning "$script" "$@"
