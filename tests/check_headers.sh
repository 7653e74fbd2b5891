#!/bin/sh
# check_headers: every public header compiles alone, twice over, as C11 and as C++, without any other include and without
# warnings; and a header that did not would be noticed (a broken one is tried first).
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

compile() {     # language header; included twice: the guard is tested as well
    printf '#include "%s"\n#include "%s"\nint main(void) { return 0; }\n' "$2" "$2" >"$work/one.$1"
    if [ "$1" = c ]; then
        ${CC:-cc} -std=c11 -Wall -Wextra -Wpedantic -Werror -Wstrict-prototypes -Iinclude -I"$build/generated/include" -I"$work" -fsyntax-only "$work/one.c"
    else
        ${CXX:-c++} -std=c++17 -Wall -Wextra -Werror -Iinclude -I"$build/generated/include" -I"$work" -fsyntax-only "$work/one.cc"
    fi >"$work/log" 2>&1
}

printf 'size_t kvant_broken(void);\n' >"$work/broken.h"
noticed=0
compile c broken.h && noticed=1
result $noticed "a header that needs another one was not noticed"

for header in include/kvant/*.h; do
    for language in c cc; do
        compile "$language" "kvant/$(basename "$header")"
        result $? "$header does not stand alone in $language"
    done
done
echo "check_headers: $passed passed, $failed failed"
[ "$failed" = 0 ]
