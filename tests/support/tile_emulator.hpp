// SPDX-License-Identifier: Apache-2.0
// AMX where there is none, for tests on Linux: what the processor refuses as unknown is decoded and done here, and the
// program goes on after it. It knows palette 1, eight tiles of 16 rows of 64 bytes, and the instructions that load,
// store, clear, configure and multiply bfloat16. Each thread has tiles of its own.
// Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, and volume 1 on programming with AMX.
#pragma once

#include <zoomr/core/cpu_path.hpp>

#include <ucontext.h>  // ucontext_t

#include <cmath>    // std::fma
#include <csignal>  // sigaction
#include <cstdint>  // std::uint8_t
#include <cstdlib>  // std::abort
#include <cstring>  // std::memcpy

namespace zoomr_test::tiles {

struct shapes {  // as LDTILECFG reads them
  std::uint8_t palette = 0, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[8] = {}, more_bytes[8] = {};
  std::uint8_t rows[8] = {}, more_rows[8] = {};
};
static_assert(sizeof(shapes) == 64);

struct state {
  shapes of;
  unsigned char bytes[8][16][64] = {};
  long products = 0;  // TDPBF16PS so far
};
inline thread_local state now;

inline float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }
inline float number_at(const unsigned char* at) {
  float number;
  std::memcpy(&number, at, sizeof number);
  return flushed(number);
}
inline float bfloat16_at(const unsigned char* at) {
  const unsigned char wide[4] = {0, 0, at[0], at[1]};
  return number_at(wide);
}

/// Configures the tiles, as LDTILECFG.
/// @return false if the instruction would fault
inline bool configure(const unsigned char* from) {
  shapes given;
  std::memcpy(&given, from, sizeof given);
  if (given.palette > 1) return false;
  for (const std::uint8_t byte : given.reserved) {
    if (byte != 0) return false;
  }
  for (int t = 0; t < 8; ++t) {
    if (given.rows[t] > 16 || given.row_bytes[t] > 64 || given.more_bytes[t] != 0 || given.more_rows[t] != 0)
      return false;
    if (given.palette == 1 && (given.rows[t] == 0) != (given.row_bytes[t] == 0)) return false;
  }
  const long products = now.products;
  now = state{};
  now.products = products;
  if (given.palette == 1) now.of = given;
  return true;
}

inline bool there(int tile) { return now.of.palette == 1 && now.of.rows[tile] > 0; }

/// dest += a * b, as TDPBF16PS: even and odd numbers are added up apart.
inline bool multiply(int dest, int a, int b) {
  if (!there(dest) || !there(a) || !there(b) || dest == a || dest == b || a == b) return false;
  if (now.of.rows[dest] != now.of.rows[a] || now.of.row_bytes[dest] != now.of.row_bytes[b]) return false;
  if (now.of.row_bytes[a] / 4 != now.of.rows[b] || now.of.row_bytes[a] % 4 != 0 || now.of.row_bytes[b] % 4 != 0)
    return false;
  for (int m = 0; m < now.of.rows[dest]; ++m) {
    for (int n = 0; n < now.of.row_bytes[dest] / 4; ++n) {
      float sums[2] = {};
      for (int k = 0; k < now.of.row_bytes[a] / 4; ++k) {
        for (int i = 0; i < 2; ++i) {
          sums[i] = flushed(std::fma(bfloat16_at(&now.bytes[a][m][4 * k + 2 * i]),
                                     bfloat16_at(&now.bytes[b][k][4 * n + 2 * i]), sums[i]));
        }
      }
      const float sum = flushed(number_at(&now.bytes[dest][m][4 * n]) + flushed(sums[0] + sums[1]));
      std::memcpy(&now.bytes[dest][m][4 * n], &sum, sizeof sum);
    }
    std::memset(&now.bytes[dest][m][now.of.row_bytes[dest]], 0, 64u - now.of.row_bytes[dest]);
  }
  std::memset(now.bytes[dest][now.of.rows[dest]], 0, 64u * (16u - now.of.rows[dest]));
  now.of.start_row = 0;
  ++now.products;
  return true;
}

/// Registers in the order of their numbers in an instruction.
inline std::uint64_t register_of(const ucontext_t& from, int number) {
  constexpr int places[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                            REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  return static_cast<std::uint64_t>(from.uc_mcontext.gregs[places[number]]);
}

/// Does the instruction at the context's place, and goes on after it.
/// @return false if it is none of AMX's, or would fault
inline bool step(ucontext_t& context) {
  auto& place = context.uc_mcontext.gregs[REG_RIP];
  const auto* const code = reinterpret_cast<const unsigned char*>(place);
  if (code[0] != 0xc4 || (code[1] & 0x1f) != 2) return false;  // VEX of three bytes, opcodes after 0F 38
  const int high_reg = code[1] & 0x80 ? 0 : 8, high_index = code[1] & 0x40 ? 0 : 8, high_base = code[1] & 0x20 ? 0 : 8;
  const int third = ~(code[2] >> 3) & 15, prefix = code[2] & 3;  // 0: none, 1: 66, 2: F3, 3: F2
  if ((code[2] & 0x84) != 0) return false;                       // W0, 128 bits
  const int opcode = code[3], mode = code[4] >> 6, reg = (code[4] >> 3 & 7) + high_reg, base = code[4] & 7;
  const unsigned char* end = code + 5;
  std::uint64_t address = 0, apart = 0;
  if (mode != 3) {
    int from = base + high_base;
    if (base == 4) {
      const int index = (*end >> 3 & 7) + high_index;
      if (index != 4) apart = register_of(context, index) << (*end >> 6);
      from = (*end & 7) + high_base;
      ++end;
    }
    std::int32_t offset = 0;
    const bool without_base = mode == 0 && from % 8 == 5;
    if (mode == 1) offset = static_cast<std::int8_t>(*end++);
    if (mode == 2 || without_base) {
      std::memcpy(&offset, end, sizeof offset);
      end += sizeof offset;
    }
    if (!without_base) address = register_of(context, from);
    if (without_base && base != 4) address = reinterpret_cast<std::uint64_t>(end);  // relative to the next one
    address += static_cast<std::uint64_t>(std::int64_t{offset});
  }
  const auto row = [&](int r) {
    return reinterpret_cast<unsigned char*>(address + static_cast<std::uint64_t>(r) * apart);
  };
  if (opcode == 0x49 && mode == 3 && prefix == 0 && code[4] == 0xc0) {  // TILERELEASE
    const unsigned char nothing[64] = {};
    configure(nothing);
  } else if (opcode == 0x49 && mode == 3 && prefix == 3) {  // TILEZERO
    if (reg > 7 || !there(reg)) return false;
    std::memset(now.bytes[reg], 0, sizeof now.bytes[reg]);
    now.of.start_row = 0;
  } else if (opcode == 0x49 && mode != 3 && prefix == 0) {  // LDTILECFG
    if (!configure(reinterpret_cast<const unsigned char*>(address + apart))) return false;
  } else if (opcode == 0x49 && mode != 3 && prefix == 1) {  // STTILECFG
    std::memcpy(reinterpret_cast<unsigned char*>(address + apart), &now.of, sizeof now.of);
  } else if (opcode == 0x4b && mode != 3 && base == 4 && (prefix == 3 || prefix == 1)) {  // TILELOADD, TILELOADDT1
    if (reg > 7 || !there(reg)) return false;
    if (now.of.start_row == 0) std::memset(now.bytes[reg], 0, sizeof now.bytes[reg]);
    for (int r = now.of.start_row; r < now.of.rows[reg]; ++r) {
      std::memset(now.bytes[reg][r], 0, 64);
      std::memcpy(now.bytes[reg][r], row(r), now.of.row_bytes[reg]);
    }
    now.of.start_row = 0;
  } else if (opcode == 0x4b && mode != 3 && base == 4 && prefix == 2) {  // TILESTORED
    if (reg > 7 || !there(reg)) return false;
    for (int r = now.of.start_row; r < now.of.rows[reg]; ++r)
      std::memcpy(row(r), now.bytes[reg][r], now.of.row_bytes[reg]);
    now.of.start_row = 0;
  } else if (opcode == 0x5c && mode == 3 && prefix == 2) {  // TDPBF16PS
    if (reg > 7 || base + high_base > 7 || third > 7 || !multiply(reg, base, third)) return false;
  } else {
    return false;
  }
  place = static_cast<greg_t>(reinterpret_cast<std::uint64_t>(end));
  return true;
}

/// From now on, to the end of a test case, instructions of AMX are done here; any other one that the processor does not
/// know ends the program. Where there are tiles they are used.
/// @return false there
inline bool emulate() {
  if (zoomr::has_cpu_path(zoomr::cpu_path::avx512) && zoomr::detail::has_tiles()) return false;
  struct sigaction action = {};
  action.sa_sigaction = [](int, siginfo_t*, void* context) {
    if (!step(*static_cast<ucontext_t*>(context))) std::abort();
  };
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGILL, &action, nullptr);
  return true;
}

}  // namespace zoomr_test::tiles
