// SPDX-License-Identifier: Apache-2.0
// A prefix store: prompts whose beginning came from Redis go on with the bits of prompts that were computed, and
// whatever becomes of the store, a sequence has those bits. Each test starts a Redis of its own, on a socket in a
// folder of its own.
#include <doctest/doctest.h>

#include <zoomr/zoomr.hpp>

#include <sys/prctl.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#define main prefix_store_main  // a test program has one of its own
#include "prefix_store.cpp"
#undef main

#include <support/sentence_of.hpp>
#include "support.hpp"

namespace {

using namespace std::chrono_literals;
using prefixes::store;
using prefixes::store_error;
using zoomr_test::sentence_of;

struct temporary_folder {
  std::string path = [] {
    char name[] = "/tmp/prefix_store_XXXXXX";
    return std::string(mkdtemp(name));
  }();
  ~temporary_folder() { std::filesystem::remove_all(path); }
};

/// A Redis that keeps nothing on a disk.
class redis {
 public:
  redis() { run(); }
  ~redis() { end(); }
  std::string address() const { return folder_.path + "/socket"; }
  void send(int signal) const { ::kill(process_, signal); }
  void end() {
    send(SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  void run() {
    process_ = ::fork();
    if (process_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // where this test is killed
      const int nowhere = ::open("/dev/null", O_WRONLY);
      ::dup2(nowhere, 1), ::dup2(nowhere, 2);
      ::execl(REDIS_SERVER, "redis-server", "--port", "0", "--unixsocket", address().c_str(), "--save", "", "--dir",
              folder_.path.c_str(), nullptr);
      ::_exit(127);
    }
    for (int tries = 0;; ++tries) {
      try {
        prefixes::connection(address(), 1s).command({"PING"});
        return;
      } catch (const store_error&) {
        REQUIRE(tries < 500);
        std::this_thread::sleep_for(10ms);
      }
    }
  }

  std::optional<std::string> command(std::initializer_list<std::string_view> words) const {
    return prefixes::connection(address(), 10s).command(words);
  }
  std::string value(const std::string& key) const { return command({"GET", key}).value(); }
  void set(const std::string& key, std::string_view value) const { command({"SET", key, value}); }
  /// Indices are shorter than keys of parts.
  std::vector<std::string> keys() const {
    redisContext* const to = redisConnectUnix(address().c_str());
    auto* const reply = static_cast<redisReply*>(redisCommand(to, "KEYS *"));
    std::vector<std::string> names;
    for (std::size_t i = 0; i < reply->elements; ++i)
      names.emplace_back(reply->element[i]->str, reply->element[i]->len);
    freeReplyObject(reply), redisFree(to);
    std::ranges::sort(names, std::ranges::less(), [](const std::string& name) { return std::pair(name.size(), name); });
    return names;
  }

 private:
  temporary_folder folder_;
  pid_t process_ = -1;
};

template <class Call>
double seconds_of(Call call) {
  const auto since = std::chrono::steady_clock::now();
  call();
  return milliseconds_since(since) / 1000;
}
bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

/// A model of LEDGER, and caches that know its words.
struct ledger : zoomr_test::checkpoint {
  ledger() : checkpoint("indexed"), prompt(problem(5, 8, decode::ledger::scenario::continued)) {}

  cache_type open(const std::string& policy) {
    return open_half(policy, decode::shape_of(net),
                     {.max_sequences = 2, .max_tokens = 1024, .rollback_tokens = 16, .classes = classes});
  }
  std::vector<token_id> prompt;
};

/// A prompt and some tokens behind it.
struct written {
  index_t stored;
  std::vector<std::string> reports;
  std::vector<std::vector<float>> logits;
};
written write(ledger& with, cache_type& cache, const store& from) {
  written made;
  started text =
      start(with.net, cache, from, with.prompt, [&](const std::string& line) { made.reports.push_back(line); });
  made.stored = text.stored;
  for (int t = 0; t < 16; ++t) {
    made.logits.push_back(text.logits);
    const token_id id = decode::greedy(text.logits);
    text.logits = pass(with.net, cache, text.seq, {&id, 1}, false);
  }
  cache.close(text.seq);
  return made;
}
written write_alone(ledger& with, const std::string& policy) {
  cache_type cache = with.open(policy);
  return write(with, cache, store({.address = "/tmp/prefix_store_nobody_is_here", .identity = ""}));
}

/// A small cache, whose sequence of two blocks is some hundred bytes.
struct small_prefix {
  zoomr::kv_cache<zoomr::policy_of<zoomr::presets::full>, zoomr::float16> cache{
      zoomr::shape{1, 1, 1, 8}, zoomr::presets::full, zoomr::config{.max_sequences = 2, .max_tokens = 64}};
  std::vector<token_id> text = {3, 1, 4, 1, 5, 9, 2, 6, 5};
  static constexpr std::size_t block = 4;

  store in(const redis& server, std::size_t part_bytes = 64) {
    return store({.address = server.address(),
                  .identity = prefixes::identity_of(cache, "small"),
                  .block = block,
                  .patience = 10s,
                  .part_bytes = part_bytes});
  }
  std::span<const token_id> first(std::size_t blocks) const { return std::span(text).first(blocks * block); }
  /// What is saved of its first blocks.
  std::string saved(std::size_t blocks) {
    const zoomr::sequence seq = cache.open();
    auto step = cache.begin(seq, first(blocks));
    std::vector<float> numbers(first(blocks).size() * 8), out(numbers.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = float(text[i / 8]) + float(i % 8) / 4;
    const zoomr::view<const float, 3> rows(numbers.data(), {step.tokens(), 1, 8});
    step.append(0, rows, rows);
    step.attend(0, rows, {out.data(), {step.tokens(), 1, 8}});
    step.commit();
    std::string bytes = prefixes::save(cache, seq);
    cache.close(seq);
    return bytes;
  }
};

TEST_CASE("processes share a prefix, and go on with the bits of one that has computed it") {
  ledger with;
  for (const char* policy : {"full", "zoomr_focus", "sentence_kv", "h2o"}) {
    CAPTURE(policy);
    redis server;
    const auto in = [&](cache_type& cache) {
      return store({.address = server.address(),
                    .identity = prefixes::identity_of(cache, with.directory),
                    .patience = 10s,
                    .part_bytes = 10000});
    };
    const pid_t other = ::fork();
    if (other == 0) {
      cache_type cache = with.open(policy);
      const written made = write(with, cache, in(cache));
      ::_exit(made.stored == 0 && made.reports.size() == 1 && made.reports[0].starts_with("put ") ? 0 : 1);
    }
    int status = -1;
    ::waitpid(other, &status, 0);
    REQUIRE(status == 0);

    const written alone = write_alone(with, policy);
    CHECK(alone.stored == 0);
    CHECK(alone.reports.size() == 2);  // neither got nor put
    for (int restarts = 0; restarts < 2; ++restarts) {
      cache_type cache = with.open(policy);
      const written made = write(with, cache, in(cache));
      CHECK(made.stored == index_t(in(cache).shared(with.prompt.size())));
      CHECK(made.stored >= 128);
      CHECK(made.reports.size() == 1);
      CHECK(made.logits == alone.logits);
    }
    // A store that was restarted has nothing, and takes it again.
    server.end();
    server.run();
    cache_type cache = with.open(policy);
    CHECK(write(with, cache, in(cache)).stored == 0);
    const written made = write(with, cache, in(cache));
    CHECK(made.stored >= 128);
    CHECK(made.logits == alone.logits);
  }
}

TEST_CASE("the longest prefix is found, of the same tokens, policy, model and storage type alone") {
  redis server;
  small_prefix small;
  const store in = small.in(server);
  const auto held = [&](const store& from, const std::vector<token_id>& text) {
    const auto found = from.get(text);
    return found ? found->tokens : 0;
  };
  CHECK(held(in, small.text) == 0);
  in.put(small.first(1), small.saved(1));
  CHECK(held(in, small.text) == 4);
  in.put(small.first(2), small.saved(2));
  CHECK(held(in, small.text) == 8);
  CHECK(in.get(small.text)->bytes == small.saved(2));
  const zoomr::sequence seq = prefixes::load(small.cache, *in.get(small.text));
  CHECK(small.cache.tokens(seq) == 8);
  CHECK(small.cache.in_prompt(seq));

  CHECK(held(in, {3, 1, 4, 1, 5, 9, 2, 6}) == 4);  // the last token is computed
  CHECK(held(in, {3, 1, 4, 1, 5, 9, 2, 7, 5}) == 4);
  CHECK(held(in, {3, 1, 4, 1}) == 0);
  CHECK(held(in, {3, 1, 4, 2, 5, 9, 2, 6, 5}) == 0);
  CHECK(held(in, {}) == 0);

  const auto under = [&](const std::string& identity) {
    return store({.address = server.address(), .identity = identity, .block = 4, .patience = 10s});
  };
  using namespace zoomr;
  const shape model{1, 1, 1, 8};
  const config limits{.max_tokens = 64};
  kv_cache<policy_of<presets::full>, float16> same(model, presets::full, config{.max_tokens = 32});
  kv_cache<policy_of<presets::full>, bfloat16> stored(model, presets::full, limits);
  kv_cache<policy_of<presets::quest>, float16> chooses(model, presets::quest, limits);
  config other_rule = limits;
  other_rule.logits.scale = 0.3f;
  kv_cache<policy_of<presets::full>, float16> scaled(model, presets::full, other_rule);
  CHECK(held(under(prefixes::identity_of(same, "small")), small.text) == 8);
  CHECK(held(under(prefixes::identity_of(same, "large")), small.text) == 0);
  CHECK(held(under(prefixes::identity_of(stored, "small")), small.text) == 0);
  CHECK(held(under(prefixes::identity_of(chooses, "small")), small.text) == 0);
  CHECK(held(under(prefixes::identity_of(scaled, "small")), small.text) == 0);

  CHECK(contains(sentence_of([&] { in.put(std::span(small.text).first(5), "x"); }), "not 5 tokens"));
  CHECK(contains(sentence_of([&] { in.put({}, "x"); }), "not 0 tokens"));
  CHECK(contains(sentence_of([&] { small.in(server, 0); }), "a part 1 to 2^24 bytes"));
}

TEST_CASE("a store that lies: whatever single byte it has changed, or bits at random, nothing is taken") {
  redis server;
  small_prefix small;
  const store in = small.in(server);
  in.put(small.first(1), small.saved(1));
  const auto shorter = server.keys();
  in.put(small.first(2), small.saved(2));
  std::size_t changed = 0;
  std::vector<std::string> keys = server.keys();
  std::erase_if(keys, [&](const std::string& key) { return std::ranges::count(shorter, key) > 0; });
  CHECK(keys.size() > 3);
  for (const std::string& key : keys) {
    const std::string value = server.value(key);
    for (std::size_t at = 0; at < value.size(); ++at, ++changed) {
      std::string damaged = value;
      damaged[at] = char(damaged[at] ^ (1 << at % 8));
      server.set(key, damaged);
      const std::string why = sentence_of([&] { in.get(small.text); });
      if (!contains(why, " of the first 8 tokens is damaged")) FAIL_CHECK(key, " byte ", at, ": ", why);
    }
    for (std::size_t size = 0; size < value.size(); ++size) {  // cut off
      server.set(key, std::string_view(value).substr(0, size));
      if (!contains(sentence_of([&] { in.get(small.text); }), " is damaged")) FAIL_CHECK(key, " of ", size, " bytes");
    }
    server.set(key, value + '\0');
    CHECK(contains(sentence_of([&] { in.get(small.text); }), " is damaged"));
    server.set(key, value);
  }
  CHECK(changed > 500);
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    const std::string& key = keys[random() % keys.size()];
    const std::string value = server.value(key);
    std::string damaged = value;
    for (std::size_t flips = 1 + random() % 40; flips > 0; --flips) {
      char& byte = damaged[random() % damaged.size()];
      byte = char(byte ^ (1 << random() % 8));
    }
    server.set(key, damaged);
    const bool refused = !sentence_of([&] { in.get(small.text); }).empty();
    CHECK(refused == (damaged != value));
    server.set(key, value);
  }
  CHECK(in.get(small.text)->bytes == small.saved(2));
}

TEST_CASE("a store that lies: parts that are missing or another's, an index of others, what no cache has saved") {
  redis server;
  small_prefix small;
  const store in = small.in(server);
  in.put(small.first(1), small.saved(1));
  const std::string short_index = server.keys()[0];
  const auto shorter = server.keys();
  in.put(small.first(2), small.saved(2));
  auto keys = server.keys();
  std::erase_if(keys, [&](const std::string& key) { return std::ranges::count(shorter, key) > 0; });
  const std::string index = keys[0];
  for (const std::string& key : keys) {
    if (key == index) continue;
    const std::string value = server.value(key);
    const std::string& another = keys[key == keys.back() ? 1 : keys.size() - 1];
    server.set(key, server.value(another));
    CHECK(contains(sentence_of([&] { in.get(small.text); }), "is damaged"));
    server.command({"DEL", key});
    CHECK(contains(sentence_of([&] { in.get(small.text); }), "is missing"));
    server.set(key, value);
  }
  const std::string whole = server.value(index);
  server.set(index, server.value(short_index));
  CHECK(contains(sentence_of([&] { in.get(small.text); }), "the index of the first 8 tokens is of others"));
  server.command({"DEL", index});
  CHECK(in.get(small.text)->tokens == 4);
  server.command({"HSET", index, "a", "b"});
  CHECK(contains(sentence_of([&] { in.get(small.text); }), "it says: WRONGTYPE"));
  server.command({"DEL", index});

  in.put(small.first(2), small.saved(1));  // of another number of tokens
  CHECK(contains(sentence_of([&] { prefixes::load(small.cache, *in.get(small.text)); }), "has another number"));
  in.put(small.first(2), "nothing that was saved");
  CHECK(contains(sentence_of([&] { prefixes::load(small.cache, *in.get(small.text)); }), "no saved sequence"));
  in.put(small.first(2), "");
  CHECK(contains(sentence_of([&] { prefixes::load(small.cache, *in.get(small.text)); }), "damaged"));
  for (int s = 0; s < 2; ++s) small.cache.open();  // nothing is left open
}

TEST_CASE("a store that is down, stopped or full: the prompt is computed, and other sequences go on") {
  ledger with;
  const written alone = write_alone(with, "zoomr_focus");
  CHECK(contains(alone.reports[0], "prefix store /tmp/prefix_store_nobody_is_here: it cannot be reached: "));
  redis server;
  cache_type cache = with.open("zoomr_focus");
  const auto patient = [&](std::chrono::milliseconds patience) {
    return store({.address = server.address(),
                  .identity = prefixes::identity_of(cache, with.directory),
                  .patience = patience,
                  .part_bytes = 10000});
  };
  const store in = patient(10s), hurried = patient(300ms);
  // It takes nothing more: the put fails, and nothing of it is seen.
  server.command({"CONFIG", "SET", "maxmemory", "1"});
  written made = write(with, cache, in);
  REQUIRE(made.reports.size() == 1);
  CHECK(contains(made.reports[0], "it says: OOM"));
  CHECK(made.logits == alone.logits);
  server.command({"CONFIG", "SET", "maxmemory", "0"});
  CHECK(!in.get(with.prompt));

  // Another sequence is in its text meanwhile.
  started other = start(with.net, cache, in, with.prompt, [](const std::string&) {});
  server.send(SIGSTOP);
  std::string why;
  CHECK(seconds_of([&] { why = sentence_of([&] { hurried.get(with.prompt); }); }) < 3);
  CHECK(contains(why, "it has not answered within 300 ms"));
  const std::string large(std::size_t{8} << 20, 'x');  // more than a socket holds
  CHECK(seconds_of([&] { why = sentence_of([&] { hurried.put(std::span(with.prompt).first(64), large); }); }) < 3);
  CHECK(contains(why, "it has not answered within 300 ms"));
  made = write(with, cache, hurried);
  CHECK(made.stored == 0);
  CHECK(made.reports.size() == 2);
  CHECK(made.logits == alone.logits);
  for (int t = 0; t < 16; ++t) {
    CHECK(other.logits == alone.logits[t]);
    const token_id id = decode::greedy(other.logits);
    other.logits = pass(with.net, cache, other.seq, {&id, 1}, false);
  }
  server.send(SIGCONT);
  CHECK(write(with, cache, in).stored > 0);
}

TEST_CASE("a put that is killed is not seen, and a store that is killed is an error") {
  small_prefix small;
  const std::string saved = small.saved(2);
  int in_parts = 0, whole = 0;
  {
    redis server;
    const store in = small.in(server, 1);  // hundreds of parts
    const double once = seconds_of([&] { in.put(small.first(2), saved); });
    for (int round = 0; round < 60; ++round) {
      server.command({"FLUSHALL"});
      const pid_t other = ::fork();
      if (other == 0) {
        in.put(small.first(2), saved);
        ::_exit(0);
      }
      std::this_thread::sleep_for(std::chrono::duration<double>(once * round / 30));
      ::kill(other, SIGKILL);
      ::waitpid(other, nullptr, 0);
      const auto found = in.get(small.text);
      if (found) CHECK(found->bytes == saved);
      whole += found.has_value(), in_parts += !found && !server.keys().empty();
    }
  }
  CHECK(whole > 0);
  CHECK(in_parts > 0);
  int failed = 0, got = 0;
  redis server;
  for (int round = 0; round < 40; ++round) {
    const store in = small.in(server, 1);
    in.put(small.first(2), saved);
    const double once = seconds_of([&] { in.get(small.text); });
    std::thread killer([&] {
      std::this_thread::sleep_for(std::chrono::duration<double>(once * round / 20));
      server.end();
    });
    try {
      const auto found = in.get(small.text);
      ++got;
      CHECK(found->bytes == saved);
    } catch (const store_error&) {
      ++failed;
    }
    killer.join();
    server.run();
  }
  CHECK(failed > 5);
  CHECK(got > 0);
}

TEST_CASE("what answers is no Redis: an error in time, and no memory for what it claims") {
  temporary_folder folder;
  const std::string address = folder.path + "/socket";
  const auto endless = [](const std::string& begin) {
    return [begin](int to) {
      std::string piece = begin;
      while (::send(to, piece.data(), piece.size(), MSG_NOSIGNAL) > 0) piece.assign(1 << 16, '7');
    };
  };
  const auto once = [](const std::string& text, bool waits = false) {
    return [text, waits](int to) {
      ::send(to, text.data(), text.size(), MSG_NOSIGNAL);
      char rest[256];
      while (waits && ::recv(to, rest, sizeof rest, 0) > 0) {
      }
    };
  };
  const auto slowly = [](int to) {  // each piece comes in time, the answer never
    const std::string head = "$1000\r\n";
    ::send(to, head.data(), head.size(), MSG_NOSIGNAL);
    while (::send(to, "x", 1, MSG_NOSIGNAL) > 0) std::this_thread::sleep_for(20ms);
  };
  struct answer {
    std::function<void(int)> play;
    const char* sentence;
  };
  const answer answers[] = {
      {once(""), "it has closed the connection"},
      {once("$5\r\nab"), "it has closed the connection"},
      {once("$5\r\nab", true), "it has not answered within 300 ms"},
      {once("", true), "it has not answered within 300 ms"},
      {slowly, "it has not answered within 300 ms"},
      {once("hello\r\n", true), "its answer is not one of Redis"},
      {once("*1000000000\r\n", true), "its answer is not one of Redis"},
      {once("$99999999999999999999\r\n", true), "its answer is not one of Redis"},
      {once("$-7\r\n", true), "its answer is not one of Redis"},
      {endless("$900000000000\r\n"), "its answer is too long"},
      {endless("+"), "its answer is too long"},
      {once("-LOADING it is not ready\r\n", true), "it says: LOADING it is not ready"},
      {once(":5\r\n", true), "the index of the first 64 tokens is damaged"},
      {once("+OK\r\n", true), "the index of the first 64 tokens is damaged"},
  };
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  address.copy(name.sun_path, sizeof name.sun_path - 1);
  const int listens = ::socket(AF_UNIX, SOCK_STREAM, 0);
  REQUIRE(::bind(listens, reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0);
  REQUIRE(::listen(listens, 8) == 0);
  for (const answer& each : answers) {
    CAPTURE(std::string(each.sentence));
    std::thread server([&] {
      const int to = ::accept(listens, nullptr, nullptr);
      char command[256];
      ::recv(to, command, sizeof command, 0);
      each.play(to);
      ::close(to);
    });
    const bool in_time = contains(each.sentence, "300 ms");
    const store in({.address = address, .identity = "", .patience = in_time ? 300ms : 20000ms});
    const std::vector<token_id> text(65);
    std::string why;
    CHECK(seconds_of([&] { why = sentence_of([&] { in.get(text); }); }) < (in_time ? 3 : 20));
    CHECK(contains(why, each.sentence));
    server.join();
  }
  ::close(listens);
  CHECK(contains(sentence_of([&] { store({.address = "nowhere", .identity = ""}).get(std::vector<token_id>(65)); }),
                 "prefix store nowhere: the address is neither a path nor HOST:PORT"));
  CHECK(contains(sentence_of([&] { store({.address = "127.0.0.1:1", .identity = ""}).get(std::vector<token_id>(65)); }),
                 "prefix store 127.0.0.1:1: it cannot be reached: "));
}

TEST_CASE("the program") {
  redis server;
  std::string name = "zoomr-prefix-store", address = server.address(), policy = "full";
  char* arguments[] = {name.data(), address.data(), policy.data()};
  CHECK(prefix_store_main(1, arguments) == 2);
  CHECK(prefix_store_main(3, arguments) == 0);
  const std::size_t keys = server.keys().size();
  CHECK(keys > 1);
  CHECK(prefix_store_main(3, arguments) == 0);
  CHECK(server.keys().size() == keys);
}

}  // namespace
