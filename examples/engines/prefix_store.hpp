// SPDX-License-Identifier: Apache-2.0
// A prefix store: what caches have saved of the first tokens of prompts, in Redis, for all processes that serve a
// model.
//
// An entry has two kinds of keys, each with its value:
//
//   zoomr:prefix:K    the index: identity and tokens, whole; the checksum of each part; a checksum of all this
//   zoomr:prefix:K:C  a part: bytes that the cache has saved, whose checksum is C
//
// K is a hash of identity and tokens, which are compared whole, so that no collision is taken for a hit. Parts are put
// first and the index last: a put that was interrupted is never seen. Since parts are named by what is in them, two
// processes that put the same prefix at once do not mix. Nothing is ever deleted here: Redis drops what was not used
// for longest, by its own options maxmemory and maxmemory-policy allkeys-lru.
//
// Checksums find faults, not forgers: who may write to the store decides what models read.
#pragma once

#include <hiredis/hiredis.h>
#include <zoomr/zoomr.hpp>

#include <poll.h>        // poll
#include <sys/socket.h>  // send, recv

#include <algorithm>         // std::min
#include <cerrno>            // errno
#include <chrono>            // std::chrono::milliseconds, std::chrono::steady_clock
#include <cstdint>           // std::int64_t, std::uint64_t
#include <cstdlib>           // std::atoi
#include <cstring>           // std::memcpy
#include <initializer_list>  // std::initializer_list
#include <memory>            // std::unique_ptr
#include <new>               // std::bad_alloc
#include <optional>          // std::optional
#include <span>              // std::span
#include <stdexcept>         // std::invalid_argument, std::runtime_error
#include <string>            // std::string
#include <string_view>       // std::string_view
#include <system_error>      // std::generic_category
#include <utility>           // std::move
#include <vector>            // std::vector

namespace prefixes {

/// The store is down, slow, or has something else than what was put. The prompt is computed as if nothing were stored.
class store_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Of some bytes and their number.
inline std::uint64_t checksum(std::string_view bytes, std::uint64_t start = 0) {
  constexpr std::uint64_t odd = 0x9e3779b97f4a7c15;
  std::uint64_t sum = (start ^ bytes.size()) * odd;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof sum) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min(sizeof word, bytes.size() - at));
    sum = (sum ^ word) * odd;
    sum ^= sum >> 29;
  }
  return sum;
}

/// 16 hexadecimal digits.
inline std::string digits(std::uint64_t number) {
  std::string text(16, '0');
  for (std::size_t at = text.size(); at-- > 0; number >>= 4) text[at] = "0123456789abcdef"[number & 15];
  return text;
}

/// A connection to Redis, for a call that ends within a time, whatever is at the other end.
class connection {
 public:
  static constexpr std::size_t most_bytes = std::size_t{16} << 20;  // of an answer

  /// @param address  the path of a unix socket, which has a slash, or HOST:PORT
  /// @throws store_error, as `command`, if the time is over, or the connection or an answer fails
  connection(const std::string& address, std::chrono::milliseconds patience)
      : name_("prefix store " + address + ": "), patience_(patience), until_(clock::now() + patience) {
    const auto micros = std::chrono::microseconds(patience).count();
    const timeval time{static_cast<time_t>(micros / 1000000), static_cast<suseconds_t>(micros % 1000000)};
    const std::size_t colon = address.rfind(':');
    if (address.find('/') != address.npos) {
      context_.reset(redisConnectUnixWithTimeout(address.c_str(), time));
    } else if (colon != address.npos) {
      context_.reset(
          redisConnectWithTimeout(address.substr(0, colon).c_str(), std::atoi(address.c_str() + colon + 1), time));
    } else {
      fail("the address is neither a path nor HOST:PORT");
    }
    if (context_ == nullptr) throw std::bad_alloc();
    if (context_->err != 0) fail(std::string("it cannot be reached: ") + context_->errstr);
    // No command here has a list for an answer, and a list may claim any length.
    functions_ = *context_->reader->fn;
    functions_.createArray = [](const redisReadTask*, auto) -> void* { return nullptr; };
    context_->reader->fn = &functions_;
  }
  connection(const connection&) = delete;

  /// @return  the answer; nothing: there is no such key
  std::optional<std::string> command(std::initializer_list<std::string_view> words) {
    std::vector<const char*> texts;
    std::vector<std::size_t> sizes;
    for (const std::string_view word : words) texts.push_back(word.data()), sizes.push_back(word.size());
    char* text = nullptr;
    const auto size = redisFormatCommandArgv(&text, static_cast<int>(texts.size()), texts.data(), sizes.data());
    if (size < 0) throw std::bad_alloc();
    const std::unique_ptr<char, void (*)(char*)> owner(text, redisFreeCommand);
    send({text, static_cast<std::size_t>(size)});
    const auto reply = receive();
    if (reply->type == REDIS_REPLY_NIL) return std::nullopt;
    const std::string said(reply->str == nullptr ? "" : reply->str, reply->str == nullptr ? 0 : reply->len);
    if (reply->type == REDIS_REPLY_ERROR) fail("it says: " + said.substr(0, 200));
    return said;
  }

  [[noreturn]] void fail(const std::string& why) const { throw store_error(name_ + why); }

 private:
  using clock = std::chrono::steady_clock;
  using reply_owner = std::unique_ptr<redisReply, void (*)(void*)>;

  // hiredis limits the time of each piece that comes, not of all of them; and it writes to closed connections.
  void send(std::string_view text) {
    while (!text.empty()) {
      wait(POLLOUT);
      const ssize_t count = ::send(context_->fd, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (count >= 0) {
        text.remove_prefix(static_cast<std::size_t>(count));
      } else if (errno != EAGAIN && errno != EINTR) {
        fail("the connection fails: " + std::generic_category().message(errno));
      }
    }
  }
  reply_owner receive() {
    char piece[1 << 16];
    for (;;) {
      void* reply = nullptr;
      if (redisReaderGetReply(context_->reader, &reply) != REDIS_OK) fail("its answer is not one of Redis");
      if (reply != nullptr) return {static_cast<redisReply*>(reply), freeReplyObject};
      if (context_->reader->len > most_bytes) fail("its answer is too long");
      wait(POLLIN);
      const ssize_t count = ::recv(context_->fd, piece, sizeof piece, MSG_DONTWAIT);
      if (count == 0) fail("it has closed the connection");
      if (count < 0 && errno != EAGAIN && errno != EINTR)
        fail("the connection fails: " + std::generic_category().message(errno));
      if (count > 0 && redisReaderFeed(context_->reader, piece, static_cast<std::size_t>(count)) != REDIS_OK)
        throw std::bad_alloc();
    }
  }
  void wait(short events) const {
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until_ - clock::now()).count();
      if (left <= 0) fail("it has not answered within " + std::to_string(patience_.count()) + " ms");
      pollfd socket{context_->fd, events, 0};
      if (::poll(&socket, 1, static_cast<int>(std::min<std::int64_t>(left, 1 << 30))) > 0) return;
    }
  }

  std::string name_;
  std::chrono::milliseconds patience_;
  clock::time_point until_;
  redisReplyObjectFunctions functions_{};
  std::unique_ptr<redisContext, void (*)(redisContext*)> context_{nullptr, redisFree};
};

struct store_settings {
  std::string address;   // the path of a unix socket, which has a slash, or HOST:PORT; names take their time to look up
  std::string identity;  // identity_of(cache, ...): entries of another one are not found
  // Tokens. Prefixes are stored in whole blocks; a get looks for each number of them.
  std::size_t block = 64;
  // Of one call, connecting included. Computing the prompt is a good bound.
  std::chrono::milliseconds patience{1000};
  std::size_t part_bytes = std::size_t{1} << 20;
};

/// What was stored.
struct saved_prefix {
  zoomr::index_t tokens;
  std::string bytes;
};

/// Stores prefixes and finds them. Both calls connect anew and touch no cache: any thread may make them, several at
/// once, while others decode.
class store {
 public:
  explicit store(store_settings settings) : settings_(std::move(settings)) {
    const std::size_t part = settings_.part_bytes;
    if (settings_.block == 0 || part == 0 || part > connection::most_bytes)
      throw std::invalid_argument("prefix store: a block has tokens, and a part 1 to 2^24 bytes");
  }

  /// Tokens of a prompt that are stored: its whole blocks, but for its last token, whose logits are wanted.
  std::size_t shared(std::size_t tokens) const {
    return tokens == 0 ? 0 : (tokens - 1) / settings_.block * settings_.block;
  }

  /// The longest prefix of a prompt that is stored.
  /// @return  at most shared(text.size()) tokens; nothing: none is
  /// @throws store_error if the store cannot be reached, does not answer in time, or what it has is damaged
  std::optional<saved_prefix> get(std::span<const zoomr::token_id> text) const {
    connection to(settings_.address, settings_.patience);
    const std::vector<std::string> keys = keys_of(text.first(shared(text.size())));
    for (std::size_t blocks = keys.size(); blocks > 0; --blocks) {
      const std::string& key = keys[blocks - 1];
      const auto index = to.command({"GET", key});
      if (index) return read(to, key, *index, text.first(blocks * settings_.block));
    }
    return std::nullopt;
  }

  /// Stores what a cache has saved of a sequence of these tokens, no more and no less.
  /// @param prefix  whole blocks
  /// @throws store_error if the store cannot be reached, does not answer in time, or refuses: what was stored before
  /// stays
  void put(std::span<const zoomr::token_id> prefix, std::string_view bytes) const {
    if (prefix.empty() || prefix.size() % settings_.block != 0)
      throw std::invalid_argument("prefix store: a prefix is whole blocks of " + std::to_string(settings_.block) +
                                  " tokens, not " + std::to_string(prefix.size()) + " tokens");
    connection to(settings_.address, settings_.patience);
    const std::string key = keys_of(prefix).back();
    std::string index = described(prefix);
    for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), settings_.part_bytes))) {
      const std::string_view part = bytes.substr(0, settings_.part_bytes);
      const std::string sum = digits(checksum(part));
      to.command({"SET", key + ":" + sum, part});
      index += sum;
    }
    to.command({"SET", key, index + digits(checksum(index))});
  }

 private:
  static constexpr std::size_t sum_digits = 16;

  static std::string_view bytes_of(std::span<const zoomr::token_id> ids) {
    return {reinterpret_cast<const char*>(ids.data()), ids.size_bytes()};
  }
  // What an index begins with.
  std::string described(std::span<const zoomr::token_id> prefix) const {
    return "zoomr prefix 1, " + std::to_string(settings_.identity.size()) + " bytes, " + std::to_string(prefix.size()) +
           " tokens\n" + settings_.identity + std::string(bytes_of(prefix));
  }
  // [blocks]  each is a hash of all tokens up to its end
  std::vector<std::string> keys_of(std::span<const zoomr::token_id> text) const {
    std::vector<std::string> keys;
    std::uint64_t hash = checksum(settings_.identity);
    for (std::size_t at = 0; at + settings_.block <= text.size(); at += settings_.block) {
      hash = checksum(bytes_of(text.subspan(at, settings_.block)), hash);
      keys.push_back("zoomr:prefix:" + digits(hash));
    }
    return keys;
  }
  saved_prefix read(connection& from, const std::string& key, std::string_view index,
                    std::span<const zoomr::token_id> prefix) const {
    const std::string which = "the first " + std::to_string(prefix.size()) + " tokens";
    const std::string expected = described(prefix);
    const std::size_t body = index.size() - std::min(index.size(), sum_digits);
    const std::string sum_of_body = digits(checksum(index.substr(0, body)));
    if (index.substr(body) != sum_of_body) from.fail("the index of " + which + " is damaged");
    index = index.substr(0, body);
    if (!index.starts_with(expected)) from.fail("the index of " + which + " is of others");
    const std::string_view sums = index.substr(expected.size());
    if (sums.size() % sum_digits != 0) from.fail("the index of " + which + " is damaged");
    saved_prefix found{static_cast<zoomr::index_t>(prefix.size()), {}};
    for (std::size_t at = 0; at < sums.size(); at += sum_digits) {
      const std::string sum(sums.substr(at, sum_digits));
      const auto part = from.command({"GET", key + ":" + sum});
      if (!part || digits(checksum(*part)) != sum)
        from.fail("part " + std::to_string(at / sum_digits + 1) + " of " + std::to_string(sums.size() / sum_digits) +
                  " of " + which + (part ? " is damaged" : " is missing"));
      found.bytes += *part;
    }
    return found;
  }

  store_settings settings_;
};

/// What a cache saves of a sequence.
template <class Cache>
std::string save(Cache& cache, zoomr::sequence seq) {
  struct sink final : zoomr::byte_sink {
    void write(const void* from, zoomr::byte_count count) override {
      bytes.append(static_cast<const char*>(from), static_cast<std::size_t>(count));
    }
    std::string bytes;
  } to;
  to.bytes.reserve(static_cast<std::size_t>(cache.save_bytes(seq)));
  cache.save(seq, to);
  return std::move(to.bytes);
}

/// A new sequence of the prefix, in its prompt.
/// @throws as cache.load; store_error if it has not as many tokens
template <class Cache>
zoomr::sequence load(Cache& cache, const saved_prefix& prefix) {
  struct source final : zoomr::byte_source {
    zoomr::byte_count read(void* to, zoomr::byte_count count) override {
      const std::string_view piece = left.substr(0, static_cast<std::size_t>(count));
      std::memcpy(to, piece.data(), piece.size());
      left.remove_prefix(piece.size());
      return static_cast<zoomr::byte_count>(piece.size());
    }
    std::string_view left;
  } from;
  from.left = prefix.bytes;
  const zoomr::sequence seq = cache.load(from);
  if (cache.tokens(seq) == prefix.tokens) return seq;
  cache.close(seq);
  throw store_error("prefix store: what is stored of " + std::to_string(prefix.tokens) + " tokens has another number");
}

/// What two processes must have in common to share prefixes. A cache saves of an empty sequence what `load` compares:
/// shape, storage type, scales, the rule of logits, and the policy.
/// @param model  all else that decides keys, values and classes: weights, adapter, tokenizer, config.classes, and which
///               heads a rank has
/// @pre   the cache has room for one more sequence
template <class Cache>
std::string identity_of(Cache& cache, const std::string& model) {
  const zoomr::sequence empty = cache.open();
  std::string saved = save(cache, empty);
  cache.close(empty);
  return saved + model;
}

}  // namespace prefixes
