#!/bin/bash
# check_neon.sh [full | PART...]: the arm64 build (build/arm64, made by `./dev neon`) under qemu-user, each rung on a CPU that has
# just that: cortex-a57 NEON, neoverse-n1 the dot product, max the int8 matrix product.  qemu kills a program at an instruction
# that its CPU lacks, so every pass is also the proof that a CPU without a feature never reaches its code.  The part x86 is that
# for the release build: Nehalem (no AVX) and Haswell (no AVX-512).  Parts: cortex-a57 neoverse-n1 max x86; all without arguments;
# `full` walks all shapes of all tests besides.  Last line: N passed, M failed.
set -u
cd "$(dirname "$0")/.."
mode=${1:-}
case $mode in '' | full) set -- cortex-a57 neoverse-n1 max x86 ;; esac
arm=build/arm64/bin x86=build/release/bin
model=models/novella-hybrid-q8_0.gguf
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
log=build/release/neon.$1.log
passed=0 failed=0
: >"$log"

on() { cpu=$1; shift; qemu-aarch64-static -L /usr/aarch64-linux-gnu -cpu "$cpu" "$@"; }

# Adds a program's last line, "...N passed, M failed", to the sum; one that ends badly counts as a failure.
count() {   # name command...
    local name=$1 out=$work/out last p f status=0
    shift
    "$@" >"$out" 2>&1 </dev/null || status=$?
    { printf '== %s: %s\n' "$name" "$*"; cat "$out"; } >>"$log"
    last=$(grep -E '[0-9]+ passed, [0-9]+ failed$' "$out" | tail -n 1)
    p=$(sed -E 's/.*[^0-9]?([0-9]+) passed, ([0-9]+) failed$/\1/' <<<" $last") f=${last% failed} f=${f##* }
    p=${p##* }
    if [ -z "$last" ] || { [ "$status" != 0 ] && [ "${f:-0}" = 0 ]; }; then
        tail -n 5 "$out"
        p=0 f=1
        last="ended badly, status $status"
    fi
    [ "$f" = 0 ] || grep -E '^(FAIL|.*failed)' "$out" | head -n 5
    passed=$((passed + p)) failed=$((failed + f))
    printf '%-34s %s\n' "$name" "$last"
}

# The same answer as the x86 program gives: greedy, prompt and decode, through every op of a hybrid model.
story() {     # tokens, options...
    local want got
    set -- run $model -p "Once upon a time there was a little fox who" --temp 0 -t 1 -n "$@"
    want=$($x86/kvant "$@" 2>/dev/null) || want=none
    got=$("${runner[@]}" "$@")
    printf '%s\n' "$got"
    if [ -n "$got" ] && [ "$got" = "$want" ]; then echo "1 passed, 0 failed"; else echo "want: $want"; echo "0 passed, 1 failed"; fi
}

stories() {     # label runner...
    local label=$1
    shift
    runner=("$@")
    count "story, f16 cache, $label" story 12 --compute f32
    count "story, tbq4_0/turbo3, $label" story 12 --compute f32 -ctk tbq4_0 -ctv turbo3
    count "story, int8, $label" story 24 -ctk q8_0 -ctv tbq3_0
}

kernels() {     # cpu isa: one shape; `full` has all
    count "check_kernels, $2 on $1" on "$1" $arm/check_kernels - "$2" - 128 4
}

arm_cpu() {     # cpu
    count "kvant verify, $1" on "$1" $arm/kvant verify --quick --ops "$OPS"
    count "attention, $1" on "$1" $arm/kvant verify --quick --ops attn --pairs f16:f16,tbq4_0:turbo3
    count "matmul, $1" on "$1" $arm/kvant verify --quick --ops matmul --formats Q4_K,NVFP4
    stories "$1" on "$1" $arm/kvant
}

# Those with code for a rung, and quick under qemu.
OPS=norm_rms,norm_add_rms,norm_l2,norm_gated,add,mul,scale,swiglu,rope,moe_route,moe_combine,conv_step,conv_chunk,gdn_step,gdn_chunk,ssm_step,ssm_chunk

for part in "$@"; do
    case $part in
        cortex-a57)
            kernels cortex-a57 neon
            arm_cpu cortex-a57
            # A cap lowers the rungs; it cannot raise them.
            count "check_kernels, KVANT_CPU=i8mm, a57" env KVANT_CPU=i8mm qemu-aarch64-static -L /usr/aarch64-linux-gnu -cpu cortex-a57 $arm/check_kernels q8_0 - score_q8 128 1
            ;;
        neoverse-n1)
            kernels neoverse-n1 dotprod
            arm_cpu neoverse-n1
            ;;
        max)
            arm_cpu max
            runner=(env KVANT_CPU=neon qemu-aarch64-static -L /usr/aarch64-linux-gnu -cpu max $arm/kvant)
            count "story, KVANT_CPU=neon on max" story 6 --compute f32
            count "rungs reached by dispatch alone" python3 tools/check_isa.py build/arm64
            ;;
        x86)
            for cpu in Nehalem Haswell; do
                count "kvant verify, x86 $cpu" qemu-x86_64-static -cpu "$cpu" $x86/kvant verify --quick --ops attn --pairs tbq4_0:turbo3
            done
            count "rungs reached by dispatch alone, x86" python3 tools/check_isa.py build/release
            ;;
        *) echo "check_neon.sh: part $part found, wanted cortex-a57, neoverse-n1, max, x86 or full"; exit 2 ;;
    esac
done

if [ "$mode" = full ]; then
    count check_kernels on max $arm/check_kernels
    for test in check_formats check_ops check_matmul check_gdn check_attn check_tiny; do
        count $test on max $arm/$test
    done
    count "kvant verify, n1" on neoverse-n1 $arm/kvant verify --quick
    count "kvant verify, a57" on cortex-a57 $arm/kvant verify --quick
fi
printf 'check_neon: %d passed, %d failed\n' "$passed" "$failed"
[ "$failed" = 0 ]
