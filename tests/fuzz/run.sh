#!/bin/sh
# Fuzzes targets one after the other:  run.sh SECONDS TARGET...
#
# C targets need clang with libFuzzer (CLANG), Python ones atheris, which goes into an environment of
# its own. An input that fails lands in tests/fuzz/crashes/TARGET, which the tests replay for ever;
# what else is new stays in build/fuzz/corpus/TARGET, where the next run goes on.
set -u
cd "$(dirname "$0")/../.." || exit 2
seconds=$1
shift
build=build/fuzz
clang=${CLANG:-clang}
python=${PYTHON:-python3}
failed=0

have_libfuzzer() {
    "$clang" -fsanitize=fuzzer,address,undefined -x c - -o $build/probe 2>$build/probe.log <<'END'
#include <stddef.h>
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) { return data == 0 && size > 0; }
END
}

build_c() {
    if ! have_libfuzzer; then
        echo "$1: not run: found no libFuzzer for '$clang'; on Debian: apt-get install clang libclang-rt-dev," \
            "or name another clang with CLANG=" >&2
        return 1
    fi
    make --no-print-directory -s -C tests/c fuzzer TARGET="$1" CLANG="$clang" BUILD="$PWD/$build"
}

# Installed, not editable: atheris instruments modules that Python's own finder finds.
build_python() {
    pip="$build/venv/bin/python -m pip install -q"
    [ -e $build/venv/installed ] && return 0
    { [ -x $build/venv/bin/python ] || "$python" -m venv $build/venv; } &&
        $pip . atheris xxhash && $pip --no-deps --force-reinstall . && touch $build/venv/installed && return 0
    echo "$1: not run: atheris and the package could not be installed into $build/venv" >&2
    return 1
}

fuzz() {
    target=$1
    corpus=$build/corpus/$target crashes=tests/fuzz/crashes/$target
    mkdir -p "$corpus" "$crashes"
    before=$(find "$crashes" -type f | wc -l)
    case $target in
    gguf | files) build_python "$target" && set -- $build/venv/bin/python tests/fuzz/run.py "$target" || return 1 ;;
    *) build_c "$target" && set -- $build/fuzz_"$target" || return 1 ;;
    esac
    began=$(date +%s)
    "$@" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -len_control=10 -print_final_stats=1 \
        -artifact_prefix="$crashes/" "$corpus" "tests/fuzz/corpus/$target" "$crashes" >"$build/$target.log" 2>&1
    status=$?
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$build/$target.log")
    edges=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$build/$target.log" | tail -1)
    found=$(($(find "$crashes" -type f | wc -l) - before))
    echo "$target: ${runs:-0} executions in $(($(date +%s) - began)) s, ${edges:-0} edges covered, $found findings"
    [ "$status" -eq 0 ] && [ "$found" -eq 0 ] && return 0
    echo "$target: see $build/$target.log and $crashes" >&2
    return 1
}

mkdir -p $build
rm -f $build/venv/installed # the sources may have changed since
for each in "$@"; do
    fuzz "$each" || failed=1
done
# Folders without a finding are of no use.
find tests/fuzz/crashes -type d -empty -delete
exit $failed
