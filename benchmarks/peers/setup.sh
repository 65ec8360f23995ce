#!/usr/bin/env bash
# Creates one environment for each peer, below benchmarks/peers/.venvs; those that are complete are left alone.
#   setup.sh [NAME ...]      PYTHON names the interpreter
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
python="${PYTHON:-python3}"
failed=()

install() {
  local directory=$1 requirements=$2
  if command -v uv >/dev/null; then
    uv venv --quiet --clear --python "$python" "$directory" \
      && uv pip install --quiet --python "$directory/bin/python" --requirement "$requirements"
  else
    "$python" -m venv --clear "$directory" \
      && "$directory/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$requirements"
  fi
}

for name in "${@:-*}"; do
  for requirements in $name/requirements.txt; do
    peer=$(dirname "$requirements")
    directory=.venvs/$peer
    if cmp --silent "$requirements" "$directory/.installed"; then continue; fi
    echo "$peer ..."
    # An environment counts as complete when it holds a copy of what was asked for.
    if install "$directory" "$requirements"; then cp "$requirements" "$directory/.installed"; else failed+=("$peer"); fi
  done
done
if ((${#failed[@]})); then echo "not installed: ${failed[*]}" >&2; exit 1; fi
