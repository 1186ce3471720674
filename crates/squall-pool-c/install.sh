#!/bin/sh
# Installs the header, both libraries and a file for pkg-config below a folder.
#
#  cargo build --release -p squall-pool-c
#  crates/squall-pool-c/install.sh target/release /usr/local
#
# DESTDIR, if set, is put before the folder, as by `make install`.
set -eu

if [ $# -ne 2 ] || [ "${2#/}" = "$2" ]; then
    echo "usage: $0 FOLDER_OF_LIBRARIES PREFIX, where PREFIX begins with a slash" >&2
    exit 2
fi
crate=$(dirname "$0")
built=$1
prefix=$2
to=${DESTDIR:-}$prefix
# In the repository, the version is that of the workspace.
version=$(cat "$crate/Cargo.toml" "$crate/../../Cargo.toml" 2>/dev/null | sed -n 's/^version = "\(.*\)"$/\1/p' | head -n 1)
# The loader looks for the library by this number.
interface=$(sed -n 's/^const INTERFACE: u32 = \([0-9]*\);$/\1/p' "$crate/build.rs")
# An empty one would give a wrong name.
: "${version:?}" "${interface:?}"

mkdir -p "$to/include" "$to/lib/pkgconfig"
install -m 644 "$crate/include/squall_pool.h" "$to/include/squall_pool.h"
install -m 644 "$built/libsquall_pool.a" "$to/lib/libsquall_pool.a"
install -m 755 "$built/libsquall_pool.so" "$to/lib/libsquall_pool.so.$interface"
ln -sf "libsquall_pool.so.$interface" "$to/lib/libsquall_pool.so"
cat >"$to/lib/pkgconfig/squall_pool.pc" <<END
prefix=$prefix
includedir=\${prefix}/include
libdir=\${prefix}/lib

Name: squall_pool
Description: The pool that the members of a fleet share
Version: $version
Cflags: -I\${includedir}
Libs: -L\${libdir} -lsquall_pool
Libs.private: -lgcc_s -lpthread -ldl -lm
END
