#!/bin/sh
# Inside the image build: a virtual environment of locked wheels; then our wheel in it, and its SBOM.
#   install.sh <folder> <requirements file> <folder of wheels>
#   install.sh <folder> <wheel>
set -eu
folder=$1

# Debian's Python has neither pip nor ensurepip: pip runs out of its own wheel, and stays out of the folder.
pip() { PYTHONPATH=$(echo /tmp/tools/pip-*.whl) "$folder/bin/python" -m pip --disable-pip-version-check --no-cache-dir "$@"; }

installed=$folder/lib
if [ $# = 3 ]; then
  # Wheels are downloaded for one Python; where the base has another one, pip would only say that it finds none.
  python3 -c 'import sys; v = sys.version_info[:2]; v == (3, 11) or sys.exit("BASE_IMAGE has Python %d.%d, and the locked wheels are for 3.11: give a base that has 3.11" % v)'
  python3 -m venv --without-pip "$folder"
  pip install --quiet --no-compile --no-index --find-links "$3" --require-hashes --no-deps --requirement "$2"
else
  pip install --quiet --no-compile --no-index --no-deps "$2"
  pip check
  installed=$(echo "$folder"/lib/python3*/site-packages/pairmill)
  # A list of every distribution in the folder.
  /tools/bin/cyclonedx-py environment --output-reproducible --output-file "$folder/sbom.cdx.json" "$folder/bin/python"
fi
# Not by time stamp: a layer's time stamps change with the engine, and a read-only root could not write it anew. torch has
# tests in the syntax of a later Python.
"$folder/bin/python" -m compileall -q -j0 -x /torch/testing/ --invalidation-mode unchecked-hash "$installed"
