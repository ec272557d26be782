// SPDX-License-Identifier: Apache-2.0
// Files of blocks as others see them: caches and processes with the same path, a process that is killed while it makes
// one, file systems that know no files without a name, and what is said when the system says no.
#include <doctest/doctest.h>
#include <support/file_calls.hpp>
#include <zoomr/paging/tiers/tiered_pool.hpp>

#include <sys/wait.h>  // waitpid

#include <array>       // std::array
#include <cstdlib>     // mkdtemp
#include <filesystem>  // std::filesystem::directory_iterator
#include <fstream>     // std::ofstream
#include <memory>      // std::unique_ptr

namespace zoomr {
namespace {

namespace fs = std::filesystem;
using file_calls::fault;

/// A folder of its own, whatever is left in it.
struct folder {
  folder() {
    char made[] = "/tmp/zoomr_test_XXXXXX";
    name = mkdtemp(made);
    path = name + "/tier";
  }
  folder(const folder&) = delete;
  folder& operator=(const folder&) = delete;
  ~folder() {
    file_calls::now = {};
    fs::remove_all(name);
  }
  index_t entries() const {
    return static_cast<index_t>(std::distance(fs::directory_iterator(name), fs::directory_iterator{}));
  }

  std::string name;
  std::string path;  // of no file
};

index_t open_files() {
  return static_cast<index_t>(std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator{}));
}

/// Calls `test` where files can be made without a name, and where not.
template <class Test>
void on_both_kinds_of_file_system(Test test) {
  for (const bool named : {false, true}) {
    CAPTURE(named);
    const folder in;
    file_calls::now = {.path = in.path.c_str(), .named = named};
    test(in);
  }
}

constexpr byte_count bytes = 64;
constexpr std::int64_t blocks = 3;
using block = std::array<std::uint8_t, bytes>;

/// What a file of a certain number holds.
block content(int file, std::int64_t of) {
  block made;
  for (std::size_t i = 0; i < made.size(); ++i)
    made[i] = static_cast<std::uint8_t>(31 * file + 7 * of + static_cast<int>(i));
  return made;
}
void fill(block_file& file, int number) {
  for (std::int64_t b = 0; b < blocks; ++b) file.write(b, content(number, b).data());
}
bool holds(block_file& file, int number) {
  bool all = true;
  for (std::int64_t b = 0; b < blocks; ++b) {
    block got{};
    file.read(b, got.data());
    all = all && got == content(number, b);
  }
  return all;
}

/// Runs `work` in another process.
/// @return  its exit status, or minus the signal that ended it
template <class Work>
pid_t begin_process(Work work) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    int status = 1;
    try {
      status = work() ? 0 : 2;
    } catch (...) {
    }
    ::_exit(status);
  }
  return child;
}
int end_of(pid_t child) {
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/// What an error says without the library's name; empty: there was none.
template <class Work>
std::string said(Work work) {
  try {
    work();
  } catch (const error& why) {
    CHECK(why.code() == errc::storage);
    return std::string(why.what()).substr(error::prefix.size());
  }
  return {};
}

}  // namespace

TEST_CASE("a path may be that of a folder, or of something that stays as it is") {
  on_both_kinds_of_file_system([](const folder& in) {
    std::ofstream(in.path) << "somebody's";
    block_file beside(in.path, bytes, blocks);
    CHECK(in.entries() == 1);
    block_file inside(in.name, bytes, blocks);
    fill(beside, 1), fill(inside, 2);
    CHECK(holds(beside, 1));
    CHECK(holds(inside, 2));
    CHECK(in.entries() == 1);
    std::string found;
    std::ifstream(in.path) >> found;
    CHECK(found == "somebody's");
  });
}

TEST_CASE("a process that is killed while it makes a file leaves nothing that is in the way") {
  on_both_kinds_of_file_system([](const folder& in) {
    const bool named = file_calls::now.named;
    index_t left = 0;
    int killed = 0;
    for (int end = -SIGKILL; end != 0; ++killed) {
      CAPTURE(killed);
      end = end_of(begin_process([&] {
        file_calls::now.points = 0;
        file_calls::now.dies = killed;
        block_file file(in.path, bytes, blocks);
        file_calls::now.dies = -1;
        fill(file, 5);
        return holds(file, 5);
      }));
      REQUIRE((end == 0 || end == -SIGKILL));
      left = std::max(left, in.entries());
      if (!named) CHECK(in.entries() == 0);
      block_file next(in.path, bytes, blocks);
      CHECK(in.entries() == 0);
      fill(next, 6);
      CHECK(holds(next, 6));
    }
    CHECK(killed >= 5);              // before and after each call, and not at all
    CHECK(left == (named ? 1 : 0));  // the gap was met
  });
}

TEST_CASE("two files with the same path, one made while the other has its name, are two files") {
  const folder in;
  std::unique_ptr<block_file> other;
  const std::function<void()> in_gap = [&] { other = std::make_unique<block_file>(in.path, bytes, blocks); };
  file_calls::now = {.path = in.path.c_str(), .named = true, .in_gap = &in_gap};
  block_file file(in.path, bytes, blocks);
  REQUIRE(other != nullptr);
  CHECK(in.entries() == 0);
  fill(file, 1), fill(*other, 2);
  CHECK(holds(file, 1));
  CHECK(holds(*other, 2));
}

TEST_CASE("processes with the same path at the same time do not meet") {
  on_both_kinds_of_file_system([](const folder& in) {
    std::vector<pid_t> all;
    for (int p = 0; p < 6; ++p) {
      all.push_back(begin_process([&] {
        for (int i = 0; i < 300; ++i) {
          block_file one(in.path, bytes, blocks), two(in.path, bytes, blocks);
          fill(one, 10 * i + p), fill(two, 10 * i + p + 5);
          if (!holds(one, 10 * i + p) || !holds(two, 10 * i + p + 5)) return false;
        }
        return true;
      }));
    }
    for (const pid_t each : all) CHECK(end_of(each) == 0);
    CHECK(in.entries() == 0);
  });
}

TEST_CASE("what cannot be made says why, and leaves no file open") {
  const folder in;
  const index_t files = open_files();
  const auto why = [&](const std::string& path) { return said([&] { block_file(path, bytes, blocks); }); };
  CHECK(why(in.name + "/no/tier") ==
        "the tier's file " + in.name + "/no/tier cannot be made: No such file or directory");
  CHECK(why("/dev/null/tier") == "the tier's file /dev/null/tier cannot be made: Not a directory");
  CHECK(why("/dev/null") == "the tier's file /dev/null cannot be made: it is neither a folder nor a file");
  const std::string of = "the tier's file " + in.path;
  for (const bool named : {false, true}) {
    CAPTURE(named);
    file_calls::now = {.path = in.path.c_str(), .fails = 0, .named = named};
    CHECK(why(in.path) == of + " cannot be made: Input/output error");
    file_calls::now = {.path = in.path.c_str(), .fails = 1, .how = fault::full, .named = named};
    CHECK(why(in.path) == of + " cannot be given 192 bytes: No space left on device");
    file_calls::now = {.path = in.path.c_str(), .fails = 0, .every = 2, .how = fault::interrupted, .named = named};
    CHECK(why(in.path) == "");
    CHECK(in.entries() == 0);
  }
  fs::create_directory(in.path + ".zoomr-tier");  // in the way
  file_calls::now = {.path = in.path.c_str(), .named = true};
  CHECK(why(in.path) == of + " cannot be made: Is a directory");
  file_calls::now = {};
  CHECK(open_files() == files);
}

TEST_CASE("a block that cannot be moved says its number, the file and the system's reason") {
  const folder in;
  file_calls::now = {.path = in.path.c_str()};
  block_file file(in.path, bytes, blocks);
  fill(file, 1);
  const std::string block_1 = "block 1 of the tier's file " + in.path;
  block one = content(1, 1);
  const auto fails = [&](fault how) {
    file_calls::now.fails = file_calls::now.made;
    file_calls::now.how = how;
  };
  const auto write = [&] { file.write(1, one.data()); };
  const auto read = [&] { file.read(1, one.data()); };
  fails(fault::full);
  CHECK(said(write) == block_1 + " cannot be written: No space left on device");
  fails(fault::error);
  CHECK(said(write) == block_1 + " cannot be written: Input/output error");
  fails(fault::error);
  CHECK(said(read) == block_1 + " cannot be read: Input/output error");
  fails(fault::flipped);
  CHECK(said(read) == block_1 + " is not what was written there");
  for (const fault how : {fault::partial, fault::interrupted}) {
    one = content(1, 1);
    fails(how);
    CHECK(said(write) == "");
    one = {};
    fails(how);
    CHECK(said(read) == "");
    CHECK(one == content(1, 1));
  }
  CHECK(holds(file, 1));
  REQUIRE(::ftruncate(file_calls::now.file, bytes) == 0);
  CHECK(said(read) == block_1 + " cannot be read: the file ends before it");
  CHECK_FALSE(static_cast<bool>(file.try_write(1, one.data())));
  CHECK(said(read) == "");
}

TEST_CASE_TEMPLATE("an engine tells of each transfer that has failed what went wrong", Engine, sync_transfers,
                   async_transfers) {
  const folder in;
  file_calls::now = {.path = in.path.c_str()};
  block_file file(in.path, bytes, blocks);
  fill(file, 1);
  block got[3] = {};
  file_calls::now.fails = file_calls::now.made + 1;
  file_calls::now.how = fault::error;
  Engine engine;
  const ticket good = engine.start({&file, 0, got[0].data()});
  const ticket bad = engine.start({&file, 1, got[1].data()});
  const ticket other = engine.start({&file, 2, got[2].data()});
  CHECK(engine.wait(other));
  CHECK(engine.wait(good));
  CHECK_FALSE(engine.wait(bad));
  CHECK(engine.why(bad).sentence() == "block 1 of the tier's file " + in.path + " cannot be read: Input/output error");
}

TEST_CASE("the system is told of a block that is prefetched, before its read; whether it listens changes nothing") {
  constexpr shape model{1, 1, 1, 8};
  for (const bool deaf : {false, true}) {
    const folder in;
    file_calls::now = {.path = in.path.c_str(), .deaf = deaf};
    tiered_pool<float, lru, sync_transfers> pool({model, 1}, 12, 6, in.path);
    index_t pages[12];
    for (index_t& page : pages) {
      page = pool.take();
      pool.reach_to_write(0, page)[0] = static_cast<float>(page);
    }
    CHECK(file_calls::now.ahead == 0);
    pool.prefetch(0, pages[11]);  // it is in memory
    CHECK(file_calls::now.ahead == 0);
    pool.prefetch(0, pages[0]);
    CHECK(file_calls::now.ahead == 1);
    CHECK(pool.stats().prefetched == 1);
    for (const index_t page : pages) CHECK(pool.reach(0, page)[0] == static_cast<float>(page));
    CHECK(file_calls::now.ahead == 1);  // who waits for a block does not say so beforehand
  }
}

TEST_CASE("failures that are too many to be remembered are those of the last") {
  failed_tickets failed;
  for (ticket of = 1; of <= 1025; ++of) failed.add(2 * of, {.block = static_cast<std::int64_t>(of)});
  CHECK(failed.has(3));  // counted among them
  CHECK(failed.why(4).block == 1025);
  CHECK_FALSE(failed.has(2051));
  failed.add(2060, {.block = 7});
  CHECK_FALSE(failed.has(2059));
  CHECK(failed.has(2060));
  CHECK(failed.why(2060).block == 7);
  CHECK(failed.why(2050).block == 1025);
}

}  // namespace zoomr
