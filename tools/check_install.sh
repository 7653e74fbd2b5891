#!/bin/sh
# check_install: what `cmake --install` leaves behind is enough to build against, after the tree was moved elsewhere: every
# example, in C and in C++, shared and static, with pkg-config and with the CMake package; libkvant-formats needs libc and
# libm alone, as libqjl does; the libraries export what the public headers declare, and nothing but kvant_* (libqjl: qjl_*).
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

archive_has_only_kvant() {
    nm -g --defined-only "$1" | awk 'NF == 3 { n++; if ($3 !~ /^kvant_/) { print; bad = 1 } } END { exit bad || n < 20 }'
}

exports_every_public_function() {       # library header...
    nm -D --defined-only "$1" | awk '{ print $3 }' | sort >"$work/exported"
    shift
    for header in "$@"; do      # without what it includes: that may be the other library's
        sed '/^# *include "kvant\/.*\.h"/d' "include/kvant/$header" | ${CC:-cc} -E -P -Iinclude -I"$build/generated/include" -xc - 2>/dev/null |
            tr '\n' ' ' | tr ';' '\n' | grep -v typedef | sed -n 's/.*[ *]\(kvant_[a-z0-9_]*\)(.*)[ ]*$/\1/p'
    done | sort -u >"$work/declared"
    missing=$(comm -23 "$work/declared" "$work/exported")
    echo "declared but not exported: $missing"
    [ -s "$work/declared" ] && [ -z "$missing" ]
}

needs_only() {  # library pattern of what it may need
    others=$(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -Ev "$2")
    echo "also needs: $others"
    [ -z "$others" ]
}

exports_only_qjl() {    # library, option of nm
    nm $2 --defined-only "$1" | awk 'NF == 3 && $2 ~ /[A-Z]/ { n++; if ($3 !~ /^qjl_/) { print; bad = 1 } } END { exit bad || n < 10 }'
}

calls_none_of() {       # library pattern: functions that it must not call
    nm -D --undefined-only "$1" | sed 's/.* //; s/@.*//' >"$work/called"
    [ -s "$work/called" ] && ! grep -E "^($2)$" "$work/called"
}

# shellcheck disable=SC2046
with_pkg_config() {     # compiler, package, source, program
    $1 examples/"$3" $(pkg-config --cflags --libs "$2") -lm -o "$4"
}

run_examples() {        # folder, suffix of the programs
    "$1/rows$2" tbq4_0 128 && "$1/rows$2" qjl1_256 128 && "$1/attention$2" tbq4_0 turbo3 && "$1/paged$2" turbo3_tcq q4_0 &&
        "$1/layers$2" f16/f16 tbq4_0/tbq3_0 && "$1/qjl$2" "$work/projection.f32"
}

check "install" cmake --install "$build" --prefix "$work/first"
mv "$work/first" "$work/moved" || exit 1
prefix=$work/moved
lib=$(dirname "$(find "$prefix" -name libkvant.so | head -n 1)")
PKG_CONFIG_PATH=$lib/pkgconfig
LD_LIBRARY_PATH=$lib
export PKG_CONFIG_PATH LD_LIBRARY_PATH

check "the program runs" "$prefix/bin/kvant" --version
check "the man page is installed" test -s "$prefix/share/man/man1/kvant.1"
check "tables of the API are installed" test -f "$prefix/include/kvant/ops.def"
check "exports of libkvant" exports_only_kvant "$lib/libkvant.so"
check "exports of libkvant-formats" exports_only_kvant "$lib/libkvant-formats.so"
check "names of libkvant.a" archive_has_only_kvant "$lib/libkvant.a"
check "names of libkvant-formats.a" archive_has_only_kvant "$lib/libkvant-formats.a"
engine="device.h engine.h session.h fit.h kvant.h"
formats=$(cd include/kvant && ls ./*.h | sed 's/^..//' | grep -vxE "$(echo "$engine" | tr ' ' '|')")
# shellcheck disable=SC2086
check "every function of the engine is exported" exports_every_public_function "$lib/libkvant.so" $engine
# shellcheck disable=SC2086
check "every function of the formats is exported" exports_every_public_function "$lib/libkvant-formats.so" $formats
check "libkvant-formats needs libc and libm alone" needs_only "$lib/libkvant-formats.so" '^(lib[cm]\.so|ld-linux)'
check "libkvant-formats allocates, prints and starts nothing" calls_none_of "$lib/libkvant-formats.so" \
    'malloc|calloc|realloc|free|posix_memalign|aligned_alloc|mmap|printf|puts|fwrite|pthread_create|abort|exit'
check "exports of libqjl" exports_only_qjl "$lib/libqjl.so" -D
check "names of libqjl.a" exports_only_qjl "$lib/libqjl.a" -g
check "libqjl needs libc and libm alone" needs_only "$lib/libqjl.so" '^(lib[cm]\.so|ld-linux)'
check "libqjl allocates, prints and starts nothing" calls_none_of "$lib/libqjl.so" \
    'malloc|calloc|realloc|free|posix_memalign|aligned_alloc|mmap|printf|puts|fwrite|pthread_create|abort|exit'
for package in kvant kvant-formats qjl; do
    check "pkg-config $package" pkg-config --exists --print-errors "$package >= 0.1"
done

for name in rows attention paged qjl layers; do
    check "$name.c with pkg-config" with_pkg_config "${CC:-cc} -std=c11 -Wall -Wextra -Werror" kvant-formats $name.c "$work/$name"
    check "$name.c as C++" with_pkg_config "${CXX:-c++} -std=c++17 -Wall -Wextra -Werror -x c++" kvant-formats $name.c "$work/$name++"
done
check "keys.c with pkg-config" with_pkg_config "${CC:-cc} -std=c11 -Wall -Wextra -Werror" qjl keys.c "$work/keys"
check "keys.c as C++" with_pkg_config "${CXX:-c++} -std=c++17 -Wall -Wextra -Werror -x c++" qjl keys.c "$work/keys++"
check "keys runs" "$work/keys"
check "keys runs, built as C++" "$work/keys++"
check "keys runs on the reference" env KVANT_CPU=ref "$work/keys"
# shellcheck disable=SC2046
check "keys.c, static" ${CC:-cc} -std=c11 examples/keys.c $(pkg-config --cflags qjl) "$lib/libqjl.a" -lm -o "$work/keys_static"
check "static keys runs" env -u LD_LIBRARY_PATH "$work/keys_static"
check "examples of the formats run" run_examples "$work" ""
check "examples of the formats run, built as C++" run_examples "$work" "++"
check "generate.c as C++" with_pkg_config "${CXX:-c++} -std=c++17 -Wall -Wextra -Werror -x c++" kvant generate.c "$work/generate++"
# shellcheck disable=SC2046
check "rows.c, static" ${CC:-cc} -std=c11 examples/rows.c $(pkg-config --cflags kvant-formats) "$lib/libkvant-formats.a" \
    -lm -o "$work/rows_static"
check "static rows runs" env -u LD_LIBRARY_PATH "$work/rows_static" q8_0 64

for language in C CXX; do
    check "CMake package, $language" cmake -S examples -B "$work/examples$language" -DCMAKE_PREFIX_PATH="$prefix" \
        -DCMAKE_BUILD_TYPE=Release -DEXAMPLES_LANGUAGE=$language
    check "examples build, $language" cmake --build "$work/examples$language"
    check "examples run, $language" run_examples "$work/examples$language" ""
    check "static examples run, $language" run_examples "$work/examples$language" _static
    for program in keys keys_static; do
        check "$program runs, $language" "$work/examples$language/$program"
    done
    for program in device device_static; do
        check "$program runs on the CPU, $language" "$work/examples$language/$program" cpu tbq3_0
    done
    for program in generate generate_static; do
        check "$program runs, $language" "$work/examples$language/$program" tests/golden/tiny/qwen35.gguf "hello" 4 q8_0
    done
done
if "$prefix/bin/kvant" --list-devices | grep -q '^vulkan:'; then
    check "device runs on Vulkan" "$work/examplesC/device" vulkan tbq4_0
else
    echo "SKIP check_install: device on Vulkan: this build or machine has none"
fi
# The formats ask for no package but themselves: pkg-config is hidden, and with it PCRE2 and utf8proc.
check "CMake package, formats alone" cmake -S examples -B "$work/examples_formats" -DCMAKE_PREFIX_PATH="$prefix" \
    -DEXAMPLES_ENGINE=OFF -DCMAKE_DISABLE_FIND_PACKAGE_PkgConfig=ON
check "examples build, formats alone" cmake --build "$work/examples_formats"
echo "check_install: $passed passed, $failed failed"
[ "$failed" = 0 ]
