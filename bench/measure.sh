#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures everything on a GPU in under twelve minutes, once it is built.
#   bench/measure.sh OUT_DIR [BUILD_DIR]
# BUILD_DIR, or ZOOMR_BUILD, or build/bench: where bin/device_smoke, bin/device_bench and bin/device_test lie. What is
# missing is configured and built first (nvcc, cmake, ninja, Google Benchmark, doctest, Python; ZOOMR_ARCH, sm_90 as a
# rule; ZOOMR_FLASHINFER, without which FlashInfer's rows fail, and with them their parts), which takes longer than the
# measuring. Each part has a limit of its own in seconds, and no part stops another. ZOOMR_PARTS names the parts, which
# come in this order: build smoke test step32k step128k step4k tiers choose attend peers sanitize. ZOOMR_DRY=1 only says
# what would run.
# All outputs lie in OUT_DIR: <part>.txt, <part>.json, machine.txt, parts.txt, summary.txt; and in one archive,
# OUT_DIR.tar.gz. Exit status 1 if a part failed, was skipped (without a device all of them are) or was cut off.
# The limits are 715 s together. On a machine that lends less time at once, in calls of 420 s and 295 s:
#   ZOOMR_PARTS="smoke test step32k step128k step4k tiers" bench/measure.sh a
#   ZOOMR_PARTS="choose attend peers sanitize" bench/measure.sh b
set -u
shopt -s nullglob
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
[ $# -ge 1 ] || { sed -n '3,15p' "$0"; exit 2; }
mkdir -p "$1" && out=$(cd "$1" && pwd) || exit 2
build=${2:-${ZOOMR_BUILD:-$root/build/bench}}
parts=${ZOOMR_PARTS:-build smoke test step32k step128k step4k tiers choose attend peers sanitize}
failed=0
: > "$out/parts.txt"

asked() { case " $parts " in *" $1 "*) true ;; *) false ;; esac }

note() { printf '%-22s %-28s %s\n' "$1" "$2" "$3" | tee -a "$out/parts.txt"; }

# part NAME SECONDS COMMAND...   what cannot be measured, for whatever reason, is a failure
part() {
  local name=$1 limit=$2 from=$SECONDS said
  shift 2
  if [ -n "${ZOOMR_DRY:-}" ]; then note "$name" "limit ${limit} s" "$*"; return 0; fi
  timeout -k 5 "$limit" "$@" > "$out/$name.txt" 2>&1
  local status=$?
  local took=$((SECONDS - from))
  # 124: the limit; 137: killed, by timeout if the first signal did not do, otherwise by somebody else
  [ $status -eq 137 ] && [ $took -ge "$limit" ] && status=124
  case $status in
    0) said=done ;;
    77) said='SKIPPED: no device' ;;
    124)
      said="CUT OFF after $limit s"
      echo "the time limit of $limit s has ended this part; it has not failed by itself" >> "$out/$name.txt"
      ;;
    *) said="FAILED, exit status $status" ;;
  esac
  [ $status -eq 0 ] || failed=1
  note "$name" "$said" "$took s"
  return $status
}

bench() {
  part "$1" "$2" "$build/bin/device_bench" "--benchmark_filter=$3" "--benchmark_out=$out/$1.json" \
    --benchmark_out_format=json
}

{
  date -u '+%Y-%m-%d %H:%M UTC'
  uname -srm
  nvidia-smi 2> /dev/null || echo 'there is no nvidia-smi'
  gpu=name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem,power.limit,temperature.gpu,utilization.gpu
  nvidia-smi "--query-gpu=$gpu" --format=csv 2> /dev/null
  nvidia-smi --query-compute-apps=pid,used_memory --format=csv 2> /dev/null
  nvcc --version 2> /dev/null | tail -n 2
} > "$out/machine.txt" 2>&1
cat "$out/machine.txt"

if asked build; then
  if [ -x "$build/bin/device_smoke" ] && [ -x "$build/bin/device_bench" ] && [ -x "$build/bin/device_test" ] &&
    [ -f "$build/bench/libzoomr_calls.so" ]; then
    note build 'already there' "$build"
  else
    PATH=$PATH:/usr/local/cuda/bin
    arch=${ZOOMR_ARCH:-90}
    part configure 120 cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DZOOMR_BENCH=ON \
      -DZOOMR_CUDA=ON -DZOOMR_EXAMPLES=OFF "-DCMAKE_CUDA_ARCHITECTURES=$arch-real" \
      "-DZOOMR_FLASHINFER=${ZOOMR_FLASHINFER:-}"
    part compile 1500 cmake --build "$build" --target device_smoke device_bench device_test zoomr_calls
  fi
fi

if asked smoke; then
  part smoke_check 60 "$build/bin/device_smoke" check
  part smoke_times 60 "$build/bin/device_smoke" times
fi

asked test && part test 50 "$build/bin/device_test"

# What a limit cuts off is the rest of one part; what is whole is read. FlashInfer's rows run beside ours.
peer='(flashinfer(_tc)?/page:[0-9]+/)?'
asked step32k && bench step32k 80 "^(copy|nothing)/|^${peer}step/.*/context:32768/layers:(1|32)/"
asked step128k && bench step128k 85 "^${peer}step/.*/context:131072/"
asked step4k && bench step4k 45 "^${peer}step/.*/context:(2048|4096|8192)/"
asked tiers && bench tiers 40 '^transfer/|^step/.*/context:32768/layers:4/'
asked choose && bench choose 50 '^(choose|top_k)/'
asked attend && bench attend 90 "^${peer}attend/"

if asked peers; then
  part peers 35 python3 "$here/peers/compare.py" --out "$out/peers.json" --calls "$build/bench/libzoomr_calls.so"
fi

if asked sanitize; then
  sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer)
  if [ -n "$sanitizer" ] || [ -n "${ZOOMR_DRY:-}" ]; then
    # A few small tests of each kernel: a sanitizer makes them tens to hundreds of times slower.
    few='*split over blocks*,*that query tokens share*,*tokens of a draft together,*full and window*,*zoomr_mass*'
    few="$few,*zoomr_focus*,*with each selector*,*that the host finds*,*bits of the contract*,*the best k of a row*"
    for tool in memcheck racecheck initcheck synccheck; do
      part "sanitize_$tool" 30 "${sanitizer:-compute-sanitizer}" --tool "$tool" --error-exitcode 1 \
        "$build/bin/device_test" "--test-case=${ZOOMR_SANITIZED:-$few,votes,mass}"
    done
  else
    note sanitize SKIPPED 'there is no compute-sanitizer on the PATH or in /usr/local/cuda/bin'
    failed=1
  fi
fi

if [ -z "${ZOOMR_DRY:-}" ]; then
  {
    for said in "$out"/parts.txt "$out"/smoke_*.txt; do cat "$said"; echo; done
    python3 "$here/analysis/table.py" "$out"/*.json
  } 2>&1 | tee "$out/summary.txt"
  [[ "${PIPESTATUS[*]}" == "0 0" ]] || failed=1  # the table's, which is the last of its group, and tee's
  tar -czf "$out.tar.gz" -C "$(dirname "$out")" "$(basename "$out")" || failed=1
fi
exit $failed
