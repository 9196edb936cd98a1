#!/bin/sh
# The C compiler of the image `trainer`, with headers, libraries and tools of its own.
machine=$(uname -m)-linux-gnu
export LD_LIBRARY_PATH="/opt/gcc/usr/lib/$machine"
exec /opt/gcc/usr/bin/gcc --sysroot=/opt/gcc -B/opt/gcc/usr/bin/ "$@"
