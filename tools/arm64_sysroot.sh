#!/bin/sh
# arm64_sysroot.sh DIR: unpacks Debian's arm64 packages of the two libraries that kvant links (PCRE2, utf8proc) into DIR, for
# the cross build of `./dev neon`.  apt works on a state of its own and nothing is installed: neither the host's package
# database nor its architectures change.  Static libraries only, so that programs run under qemu-user without a search path.
set -eu
case $1 in /*) dir=$1 ;; *) dir=$PWD/$1 ;; esac
[ ! -e "$dir/.complete" ] || exit 0
rm -rf "$dir" "$dir.apt"
mkdir -p "$dir" "$dir.apt/state/lists/partial" "$dir.apt/cache/archives/partial"
cd "$dir.apt"
apt_arm64() {
    apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$PWD/state" -o Dir::Cache="$PWD/cache" \
        -o Dir::State::status=/dev/null -o APT::Sandbox::User=root "$@" </dev/null >log 2>&1
}
apt_arm64 update || { cat log >&2; exit 1; }
apt_arm64 download libpcre2-dev libutf8proc-dev || { cat log >&2; exit 1; }
for package in ./*.deb; do
    dpkg -x "$package" "$dir"
done
find "$dir" -name '*.so*' -delete
cd /
rm -rf "$dir.apt"
touch "$dir/.complete"
