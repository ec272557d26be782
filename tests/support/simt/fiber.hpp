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

/// Memory for a stack, above a guard that faults when the stack is too deep. Stacks begin at different distances from
/// the ends of their pages: at the same one, the threads of a block would drive each other out of the processor's
/// caches.
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
  char* top() const { return begin() + size - unused_; }

 private:
  static constexpr std::size_t guard = 64 * 1024;
  static inline std::size_t made = 0;

  // Frames that are never left would otherwise mark the memory's next user.
  void forget_poison() const {
#if defined(ZOOMR_SIMT_ASAN)
    __asan_unpoison_memory_region(begin(), size);
#endif
  }

  void* mapped_;
  std::size_t unused_ = made++ % 61 * 1088;  // at its top, in lines of a cache: 17
};

#if defined(ZOOMR_SIMT_UCONTEXT)

using stack_position = ucontext_t;
inline void switch_stacks(stack_position& left, stack_position& entered) { swapcontext(&left, &entered); }
inline void prepare(stack_position& fresh, const stack_memory& stack, void (*code)()) {
  getcontext(&fresh);
  fresh.uc_stack.ss_sp = stack.begin();
  fresh.uc_stack.ss_size = static_cast<std::size_t>(stack.top() - stack.begin());
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
  auto* const top = reinterpret_cast<void**>(stack.top());
  top[-1] = nullptr;  // the return address of `code`, which never returns; six registers lie below
  top[-2] = reinterpret_cast<void*>(code);
  for (int i = 3; i <= 8; ++i) top[-i] = nullptr;
  fresh = top - 8;
}

#endif

/// Code on a stack of its own. Only one thread of the host may use fibers, and no fiber enters another.
class fiber {
 public:
  /// @param code  never returns; runs from the first `enter` or `pass_to` on
  explicit fiber(void (*code)()) : code_(code) { prepare(inside_, stack_, &begin); }
  fiber(const fiber&) = delete;
  fiber& operator=(const fiber&) = delete;

  /// Runs the code until it, or what it has passed to, leaves.
  void enter() {
    entered = this;
    switching left(stack_.begin(), stack_memory::size);
    switch_stacks(outside, inside_);
  }
  /// Called by the code: goes back to who entered.
  void leave() {
    switching left(outer_stack, outer_size);
    switch_stacks(inside_, outside);
  }
  /// Called by the code: goes on in another fiber, which leaves to who entered this one. From a fiber to the next the
  /// same returns follow the same calls, which a processor foresees; by way of who entered, they would not.
  void pass_to(fiber& next) {
    entered = &next;
    switching left(next.stack_.begin(), stack_memory::size);
    switch_stacks(inside_, next.inside_);
  }

 private:
  static inline fiber* entered = nullptr;
  static inline stack_position outside{};
  static inline const void* outer_stack = nullptr;
  static inline std::size_t outer_size = 0;

  // From before a stack is left until it is entered again: what AddressSanitizer wants to know.
  class switching {
   public:
#if defined(ZOOMR_SIMT_ASAN)
    switching(const void* stack, std::size_t bytes) { __sanitizer_start_switch_fiber(&fake_stack_, stack, bytes); }
    switching(const switching&) = delete;
    switching& operator=(const switching&) = delete;
    ~switching() { __sanitizer_finish_switch_fiber(fake_stack_, nullptr, nullptr); }

   private:
    void* fake_stack_ = nullptr;
#else
    switching(const void*, std::size_t) {}
    ~switching() {}  // so that it is used
#endif
  };

  static void begin() {
    fiber& me = *entered;
#if defined(ZOOMR_SIMT_ASAN)
    const void* from = nullptr;
    std::size_t bytes = 0;
    __sanitizer_finish_switch_fiber(nullptr, &from, &bytes);
    if (outer_stack == nullptr) outer_stack = from, outer_size = bytes;  // the first of all is entered
#endif
    me.code_();
  }

  stack_memory stack_;
  stack_position inside_{};
  void (*code_)();
};

}  // namespace simt
