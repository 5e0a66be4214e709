// Threads that wait for work between searches.
//
// The system wakes a waiting thread on an idle core. A new thread may share a core with the one
// that started it for some milliseconds, in which a short search could have ended.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>

namespace regard {

class ThreadPool {
 public:
  // The pool of this process. It is never destroyed: its threads end with the process.
  static ThreadPool& shared();

  // Work that was started and not yet waited for.
  struct Group {
    std::size_t left = 0;
    std::condition_variable ended;
  };

  // Start `work`, which must not throw, in `count` threads, or in fewer if the system allows no
  // more. Returns their number. Work and group must live until `wait` returns.
  std::size_t start(std::size_t count, const std::function<void()>& work, Group& group);

  // Wait until all work of a group ended.
  void wait(Group& group);

 private:
  struct Job {
    const std::function<void()>* work;
    Group* group;
  };

  explicit ThreadPool(long process) : process_(process) {}
  void run_jobs();

  const long process_;  // a fork has no threads but its own
  std::size_t idle_ = 0;  // threads without a job, including those that are about to take one
  std::deque<Job> jobs_;
  std::mutex mutex_;
  std::condition_variable added_;
};

}  // namespace regard
