// Buffers, errors and checked weights: what all parts of the engine share.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace regard {

// An error whose message is shown to the user.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Memory aligned for vector loads. It grows on demand; growing loses the contents.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t count) { reserve(count); }
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer taken(std::move(other));
    swap(taken);
    return *this;
  }

  // At least `count` values.
  T* reserve(std::size_t count) {
    if (count > size_) {
      // Not aligned_alloc: the C library of Linux seldom reuses freed memory for it, so that the
      // heap of a process that searches for hours grows.
      constexpr std::size_t alignment = 64;
      const std::size_t bytes = (count * sizeof(T) + alignment - 1) / alignment * alignment;
      std::size_t space = bytes + alignment;
      data_ = nullptr;
      size_ = 0;
      memory_.reset();
      memory_.reset(std::malloc(space));
      void* start = memory_.get();
      if (start == nullptr) throw std::bad_alloc();
      data_ = static_cast<T*>(std::align(alignment, bytes, start, space));
      size_ = count;
    }
    return data_;
  }

  // `count` zeros.
  T* zeros(std::size_t count) {
    T* data = reserve(count);
    for (std::size_t i = 0; i < count; ++i) data[i] = T{};
    return data;
  }

  T* data() const { return data_; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> memory_;
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

// A weight matrix: float32 values, or int8 values with a float32 scale per row.
struct Matrix {
  const float* values;  // null if the matrix is quantised
  const std::int8_t* quantised;
  const float* scales;

  // One row times a factor.
  void read_row(std::size_t row, std::size_t columns, float factor, float* to) const {
    if (values != nullptr) {
      for (std::size_t i = 0; i < columns; ++i) to[i] = values[row * columns + i] * factor;
    } else {
      const std::int8_t* from = quantised + row * columns;
      for (std::size_t i = 0; i < columns; ++i) to[i] = from[i] * scales[row] * factor;
    }
  }
};

// Named tensors that the caller keeps in memory. Every access checks the shape.
class Weights {
 public:
  void add(const char* name, const void* data, const std::int64_t* shape, int rank,
           const float* scales) {
    if (rank < 0 || rank > 2 || (scales != nullptr && rank != 2)) {
      throw Error(std::string("tensor '") + name + "' has a bad rank");
    }
    Tensor tensor{data, scales, rank, {1, 1}, false};
    for (int i = 0; i < rank; ++i) tensor.shape[i] = shape[i];
    if (!tensors_.emplace(name, tensor).second) {
      throw Error(std::string("tensor '") + name + "' occurs twice");
    }
  }

  bool has(const std::string& name) const { return tensors_.count(name) > 0; }

  // A matrix that may be quantised: the weight of a linear layer, or an embedding table.
  Matrix weight(const std::string& name, std::int64_t rows, std::int64_t columns) {
    const Tensor& tensor = find(name, 2, rows, columns);
    if (tensor.scales == nullptr) return {static_cast<const float*>(tensor.data), nullptr, nullptr};
    return {nullptr, static_cast<const std::int8_t*>(tensor.data), tensor.scales};
  }

  const float* matrix(const std::string& name, std::int64_t rows, std::int64_t columns) {
    return floats(name, find(name, 2, rows, columns));
  }

  const float* vector(const std::string& name, std::int64_t size) {
    return floats(name, find(name, 1, size, 1));
  }

  // Raise if a tensor was never used: it belongs to another model.
  void check_all_used() const {
    for (const auto& [name, tensor] : tensors_) {
      if (!tensor.used) throw Error("tensor '" + name + "' belongs to another model");
    }
  }

 private:
  struct Tensor {
    const void* data;
    const float* scales;
    int rank;
    std::int64_t shape[2];
    bool used;
  };

  static const float* floats(const std::string& name, const Tensor& tensor) {
    if (tensor.scales != nullptr) throw Error("tensor '" + name + "' must not be quantised");
    return static_cast<const float*>(tensor.data);
  }

  const Tensor& find(const std::string& name, int rank, std::int64_t rows, std::int64_t columns) {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) throw Error("tensor '" + name + "' is missing");
    Tensor& tensor = found->second;
    if (tensor.rank != rank || tensor.shape[0] != rows || tensor.shape[1] != columns) {
      std::string wanted = std::to_string(rows);
      if (rank == 2) wanted += " x " + std::to_string(columns);
      throw Error("tensor '" + name + "' has the wrong shape; expected " + wanted);
    }
    tensor.used = true;
    return tensor;
  }

  std::map<std::string, Tensor> tensors_;
};

// A request to stop, which any thread may make while others search.
struct Cancellation {
  std::atomic<bool> requested{false};
};

// Scratch memory of one thread, and the request that can stop it.
struct Workspace {
  const Cancellation* cancellation = nullptr;

  // Raise if the search is to stop. Called at least every few milliseconds.
  void check_cancelled() const {
    if (cancellation != nullptr && cancellation->requested.load(std::memory_order_relaxed)) {
      throw Error("the search was cancelled");
    }
  }

  Buffer<float> x, y, qkv, context, hidden, memory, logits, allowed, weights, bias;
  Buffer<char> product;
  std::vector<const float*> rows;
};

}  // namespace regard
