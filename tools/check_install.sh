#!/bin/sh
# check_install: what `cmake --install` leaves behind is enough to build against, after the tree was moved elsewhere: with
# pkg-config (shared and static) and with the CMake package; the shared library exports kvant_* and nothing else.
# Usage: tools/check_install.sh [build folder]; the default is build/release, built by ./dev build.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${1:-build/release}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0

check() {       # text command...
    text=$1
    shift
    if "$@" >"$work/log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL check_install: $text: $*"
        cat "$work/log"
    fi
}

exports_only_kvant() {
    nm -D --defined-only "$1" | awk '$2 ~ /[A-Z]/ { n++; if ($3 !~ /^kvant_/) { print; bad = 1 } } END { exit bad || n < 20 }'
}

exports_every_public_function() {
    nm -D --defined-only "$1" | awk '{ print $3 }' | sort >"$work/exported"
    for header in include/kvant/*.h; do
        ${CC:-cc} -E -P -Iinclude "$header" 2>/dev/null | tr '\n' ' ' | tr ';' '\n' | grep -v typedef |
            sed -n 's/.*[ *]\(kvant_[a-z0-9_]*\)(.*)[ ]*$/\1/p'
    done | sort -u >"$work/declared"
    missing=$(comm -23 "$work/declared" "$work/exported")
    echo "declared but not exported: $missing"
    [ -s "$work/declared" ] && [ -z "$missing" ]
}

check "install" cmake --install "$build" --prefix "$work/first"
mv "$work/first" "$work/moved" || exit 1
prefix=$work/moved
lib=$(dirname "$(find "$prefix" -name libkvant.so | head -n 1)")
PKG_CONFIG_PATH=$lib/pkgconfig
LD_LIBRARY_PATH=$lib
export PKG_CONFIG_PATH LD_LIBRARY_PATH

check "the program runs" "$prefix/bin/kvant" --version
check "exports" exports_only_kvant "$lib/libkvant.so"
check "every public function is exported" exports_every_public_function "$lib/libkvant.so"
check "pkg-config" pkg-config --exists --print-errors "kvant >= 0.1"
check "tables of the API are installed" test -f "$prefix/include/kvant/ops.def"

# shellcheck disable=SC2046,SC2086
check "rows.c with pkg-config" ${CC:-cc} -std=c11 -Wall -Wextra -Werror examples/rows.c $(pkg-config --cflags --libs kvant) -lm -o "$work/rows"
check "rows runs" "$work/rows" tbq4_0 128
check "rows runs with a projection" "$work/rows" qjl1_256 128
# shellcheck disable=SC2046
check "attention.c with pkg-config" ${CC:-cc} -std=c11 -Wall -Wextra -Werror examples/attention.c \
    $(pkg-config --cflags --libs kvant) -lm -o "$work/attention"
check "attention runs" "$work/attention" tbq4_0 turbo3
check "the man page is installed" test -s "$prefix/share/man/man1/kvant.1"
# shellcheck disable=SC2046,SC2086
check "rows.c, static" ${CC:-cc} -std=c11 examples/rows.c $(pkg-config --cflags kvant) "$lib/libkvant.a" \
    $(pkg-config --static --libs kvant | sed 's/-lkvant//') -o "$work/rows_static"
check "static rows runs" env -u LD_LIBRARY_PATH "$work/rows_static" q8_0 64

check "CMake package" cmake -S examples -B "$work/examples" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release
check "examples build" cmake --build "$work/examples"
for program in generate generate_static; do
    check "$program runs" "$work/examples/$program" tests/golden/tiny/qwen35.gguf "hello" 4 q8_0
done
echo "check_install: $passed passed, $failed failed"
[ "$failed" = 0 ]
