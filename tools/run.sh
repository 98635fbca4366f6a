#!/bin/sh
# Entry of every npm script: installs what is missing, then runs the given script with the pinned Node.
# The machine's own Node may be older (20): on Linux node_modules/.bin/node is the version in package.json. Elsewhere no
# packaged Node is published for it, and the machine's own must be 24 or newer.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
cd "$root"
if [ ! -f node_modules/.package-lock.json ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
  echo "installing dependencies (npm ci) ..." >&2
  npm ci --no-audit --no-fund --loglevel=error >&2
  touch node_modules/.package-lock.json
fi
node=node_modules/.bin/node
if [ ! -x "$node" ]; then
  node=$(command -v node)
  if ! "$node" -e 'process.exit(Number(process.versions.node.split(".")[0]) >= 24 ? 0 : 1)'; then
    echo "Node 24 or newer is needed on this platform; found $("$node" --version)" >&2
    exit 1
  fi
fi
script=$1
shift
exec "$node" --disable-warning=ExperimentalWarning "$script" "$@"
