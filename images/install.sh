#!/bin/sh
# Inside the image build: a virtual environment of locked wheels, our wheel, bytecode, and the list of what is in it.
#   install.sh <folder> <requirements file> <folder of wheels> [our wheel]
set -eu
folder=$1 requirements=$2 wheels=$3 ours=${4:-}

# Wheels are downloaded for one Python, which the base must have: a wheel of another one installs and does not import.
python3 -c 'import sys; sys.exit(None if sys.version_info[:2] == (3, 11) else "BASE_IMAGE has Python %d.%d, and the locked wheels are for 3.11: give a base that has 3.11" % sys.version_info[:2])'

# Debian's Python has neither pip nor ensurepip: pip runs out of its own wheel.
python3 -m venv --without-pip "$folder"
pip() { PYTHONPATH=$(echo /tmp/tools/pip-*.whl) "$folder/bin/python" -m pip --disable-pip-version-check --no-cache-dir "$@"; }
pip install --quiet --no-compile --no-index --find-links "$wheels" --require-hashes --no-deps -r "$requirements"
[ -n "$ours" ] || exit 0
pip install --quiet --no-compile --no-index --no-deps "$ours"
pip check

# Not by time stamp: a layer's time stamps change with the engine, and a read-only root could not write it anew.
"$folder/bin/python" -m compileall -q -j0 --invalidation-mode unchecked-hash "$folder/lib"
