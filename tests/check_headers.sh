#!/bin/sh
# check_headers: every public header compiles alone, twice over, as C11, C99 and C++17, without any other include and without
# warnings, and under clang -Weverything; and a header that did not would be noticed (broken ones are tried first).
set -u
build=${1:-build/release}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0

result() {      # ok text
    if [ "$1" = 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL check_headers: $2"
        cat "$work/log"
    fi
}

# -Weverything but for these: padding is the layout of a struct, and C++ code is older than its rules for null and old casts in C.
EVERYTHING="-Weverything -Wno-padded -Wno-c++98-compat -Wno-c++98-compat-pedantic -Wno-old-style-cast -Wno-zero-as-null-pointer-constant
    -Wno-declaration-after-statement -Wno-unknown-warning-option -Wno-pre-c11-compat -Wno-missing-prototypes"

compile() {     # language header; included twice: the guard is tested as well
    printf '#include "%s"\n#include "%s"\nint main(void) { return 0; }\n' "$2" "$2" >"$work/one.${1%%[0-9]*}"
    set -- "$1" -Iinclude -I"$build/generated/include" -I"$work" -fsyntax-only
    language=$1
    shift
    # shellcheck disable=SC2086
    case $language in
        c11) ${CC:-cc} -std=c11 -Wall -Wextra -Wpedantic -Werror -Wstrict-prototypes "$@" "$work/one.c" ;;
        c99) ${CC:-cc} -std=c99 -Wall -Wextra -Wpedantic -Werror -Wstrict-prototypes "$@" "$work/one.c" ;;
        cc17) ${CXX:-c++} -std=c++17 -Wall -Wextra -Wpedantic -Werror "$@" "$work/one.cc" ;;
        c11clang) clang -std=c11 $EVERYTHING -Werror "$@" "$work/one.c" ;;
        cc17clang) clang++ -std=c++17 $EVERYTHING -Werror "$@" "$work/one.cc" ;;
    esac >"$work/log" 2>&1
}

languages="c11 c99 cc17"
if command -v clang >/dev/null 2>&1 && command -v clang++ >/dev/null 2>&1; then
    languages="$languages c11clang cc17clang"
    printf 'static inline int kvant_odd(float x) { return x == 1.0f; }\n' >"$work/odd.h"
    noticed=0
    compile c11clang odd.h && noticed=1
    result $noticed "a comparison of floats was not noticed by -Weverything"
else
    echo "SKIP check_headers: clang -Weverything: no clang here"
fi

printf 'size_t kvant_broken(void);\n' >"$work/broken.h"
noticed=0
compile c11 broken.h && noticed=1
result $noticed "a header that needs another one was not noticed"

for header in include/*.h include/kvant/*.h; do
    for language in $languages; do
        compile "$language" "${header#include/}"
        result $? "$header does not stand alone in $language"
    done
done
echo "check_headers: $passed passed, $failed failed"
[ "$failed" = 0 ]
