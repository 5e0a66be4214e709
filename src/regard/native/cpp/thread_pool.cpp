#include "thread_pool.h"

#include <unistd.h>

#include <atomic>
#include <system_error>
#include <thread>

namespace regard {

ThreadPool& ThreadPool::shared() {
  static std::atomic<ThreadPool*> pool{nullptr};
  const long process = static_cast<long>(getpid());
  ThreadPool* found = pool.load();
  while (found == nullptr || found->process_ != process) {
    ThreadPool* made = new ThreadPool(process);
    if (pool.compare_exchange_strong(found, made)) return *made;
    delete made;  // another thread was first
  }
  return *found;
}

std::size_t ThreadPool::start(std::size_t count, const std::function<void()>& work, Group& group) {
  std::lock_guard<std::mutex> lock(mutex_);
  try {
    while (idle_ < jobs_.size() + count) {
      std::thread([this] { run_jobs(); }).detach();
      ++idle_;
    }
  } catch (const std::system_error&) {  // the system allows no more threads
    count = idle_ - jobs_.size();
  }
  for (std::size_t i = 0; i < count; ++i) {
    jobs_.push_back({&work, &group});
    added_.notify_one();
  }
  group.left += count;
  return count;
}

void ThreadPool::wait(Group& group) {
  std::unique_lock<std::mutex> lock(mutex_);
  group.ended.wait(lock, [&] { return group.left == 0; });
}

void ThreadPool::run_jobs() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    added_.wait(lock, [&] { return !jobs_.empty(); });
    const Job job = jobs_.front();
    jobs_.pop_front();
    --idle_;
    lock.unlock();
    (*job.work)();
    lock.lock();
    ++idle_;
    if (--job.group->left == 0) job.group->ended.notify_all();
  }
}

}  // namespace regard
