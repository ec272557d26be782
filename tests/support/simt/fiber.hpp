// SPDX-License-Identifier: Apache-2.0
// Part of support/simt.hpp: code on a stack of its own, which can be left in the middle and entered again.
// Switching is a few instructions where we have them (x86-64); elsewhere ucontext does it, two system calls each time.
#pragma once

#include <sys/mman.h>

#include <cstddef>  // std::size_t
#include <new>      // std::bad_alloc

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ZOOMR_SIMT_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) && !defined(ZOOMR_SIMT_ASAN)
#define ZOOMR_SIMT_ASAN 1
#endif
#if defined(ZOOMR_SIMT_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if !(defined(__x86_64__) && defined(__linux__)) && !defined(ZOOMR_SIMT_UCONTEXT)
#define ZOOMR_SIMT_UCONTEXT
#endif
#if defined(ZOOMR_SIMT_UCONTEXT)
#include <ucontext.h>
#endif

namespace simt {

/// Memory for a stack, above a guard that faults when the stack is too deep.
class stack_memory {
 public:
  static constexpr std::size_t size = 256 * 1024;

  stack_memory()
      : mapped_(
            mmap(nullptr, guard + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    if (mapped_ == MAP_FAILED) throw std::bad_alloc();
    mprotect(mapped_, guard, PROT_NONE);
    forget_poison();
  }
  stack_memory(const stack_memory&) = delete;
  stack_memory& operator=(const stack_memory&) = delete;
  ~stack_memory() {
    forget_poison();
    munmap(mapped_, guard + size);
  }
  char* begin() const { return static_cast<char*>(mapped_) + guard; }

 private:
  static constexpr std::size_t guard = 64 * 1024;

  // Frames that are never left would otherwise mark the memory's next user.
  void forget_poison() const {
#if defined(ZOOMR_SIMT_ASAN)
    __asan_unpoison_memory_region(begin(), size);
#endif
  }

  void* mapped_;
};

#if defined(ZOOMR_SIMT_UCONTEXT)

using stack_position = ucontext_t;
inline void switch_stacks(stack_position& left, stack_position& entered) { swapcontext(&left, &entered); }
inline void prepare(stack_position& fresh, const stack_memory& stack, void (*code)()) {
  getcontext(&fresh);
  fresh.uc_stack.ss_sp = stack.begin();
  fresh.uc_stack.ss_size = stack_memory::size;
  fresh.uc_link = nullptr;
  makecontext(&fresh, code, 0);
}

#else

using stack_position = void*;
// Leaves the registers that a called function must keep on the stack, and goes on where the other was left. Not a
// function of C++, so that no compiler knows which registers it leaves alone.
extern "C" void zoomr_simt_switch(stack_position* left, stack_position* entered);
asm(".pushsection .text.zoomr_simt_switch,\"axG\",@progbits,zoomr_simt_switch,comdat\n"
    ".weak zoomr_simt_switch\n"
    ".type zoomr_simt_switch,@function\n"
    "zoomr_simt_switch:\n"
    "pushq %rbp\n"
    "pushq %rbx\n"
    "pushq %r12\n"
    "pushq %r13\n"
    "pushq %r14\n"
    "pushq %r15\n"
    "movq %rsp, (%rdi)\n"
    "movq (%rsi), %rsp\n"
    "popq %r15\n"
    "popq %r14\n"
    "popq %r13\n"
    "popq %r12\n"
    "popq %rbx\n"
    "popq %rbp\n"
    "ret\n"
    ".size zoomr_simt_switch,.-zoomr_simt_switch\n"
    ".popsection\n");
inline void switch_stacks(stack_position& left, stack_position& entered) { zoomr_simt_switch(&left, &entered); }
inline void prepare(stack_position& fresh, const stack_memory& stack, void (*code)()) {
  auto* const top = reinterpret_cast<void**>(stack.begin() + stack_memory::size);
  top[-1] = nullptr;  // the return address of `code`, which never returns; six registers lie below
  top[-2] = reinterpret_cast<void*>(code);
  for (int i = 3; i <= 8; ++i) top[-i] = nullptr;
  fresh = top - 8;
}

#endif

/// Code on a stack of its own. Only one thread of the host may use fibers.
class fiber {
 public:
  /// @param code  never returns; runs from the first `enter` on
  explicit fiber(void (*code)()) : code_(code) { prepare(inside_, stack_, &begin); }
  fiber(const fiber&) = delete;
  fiber& operator=(const fiber&) = delete;

  /// Runs the code until it leaves.
  void enter() {
    entered = this;
#if defined(ZOOMR_SIMT_ASAN)
    void* fake_stack = nullptr;
    __sanitizer_start_switch_fiber(&fake_stack, stack_.begin(), stack_memory::size);
    switch_stacks(outside_, inside_);
    __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#else
    switch_stacks(outside_, inside_);
#endif
  }

  /// Called by the code: goes back to who entered.
  void leave() {
#if defined(ZOOMR_SIMT_ASAN)
    void* fake_stack = nullptr;
    __sanitizer_start_switch_fiber(&fake_stack, outer_stack_, outer_size_);
    switch_stacks(inside_, outside_);
    __sanitizer_finish_switch_fiber(fake_stack, &outer_stack_, &outer_size_);
#else
    switch_stacks(inside_, outside_);
#endif
  }

 private:
  static void begin() {
    fiber& me = *entered;
#if defined(ZOOMR_SIMT_ASAN)
    __sanitizer_finish_switch_fiber(nullptr, &me.outer_stack_, &me.outer_size_);
#endif
    me.code_();
  }

  static inline fiber* entered = nullptr;

  stack_memory stack_;
  stack_position inside_{};
  stack_position outside_{};
  void (*code_)();
#if defined(ZOOMR_SIMT_ASAN)
  const void* outer_stack_ = nullptr;
  std::size_t outer_size_ = 0;
#endif
};

}  // namespace simt
