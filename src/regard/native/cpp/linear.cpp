// Packing of linear layers: panels of outputs, in the order in which kernels read them.
#include "linear.h"

#include <cmath>
#include <vector>

namespace regard {
namespace {

std::size_t round_up(int value, int multiple) {
  return (static_cast<std::size_t>(value) + multiple - 1) / multiple * multiple;
}

constexpr const char* kNotFinite =
    "the weights are not finite (NaN or infinity); they cannot be quantised";

// The scale that maps the largest weight of an output to 127.
float output_scale(const float* row, int inputs) {
  float most = 0.0f;
  for (int k = 0; k < inputs; ++k) {
    if (!std::isfinite(row[k])) throw Error(kNotFinite);
    most = std::fmax(most, std::fabs(row[k]));
  }
  return most > 0.0f ? most / 127.0f : 1.0f;
}

// One row of a matrix in int8; returns its scale. A quantised matrix keeps values and scale.
float quantise_row(const Matrix& matrix, std::size_t index, std::vector<int>& row) {
  const std::size_t inputs = row.size();
  if (matrix.values != nullptr) {
    const float* values = matrix.values + index * inputs;
    const float scale = output_scale(values, static_cast<int>(inputs));
    for (std::size_t k = 0; k < inputs; ++k) {
      row[k] = static_cast<int>(std::lrintf(values[k] / scale));
    }
    return scale;
  }
  const std::int8_t* values = matrix.quantised + index * inputs;
  for (std::size_t k = 0; k < inputs; ++k) {
    if (values[k] == -128) throw Error("int8 weights must lie between -127 and 127; one is -128");
    row[k] = values[k];
  }
  if (!std::isfinite(matrix.scales[index])) throw Error(kNotFinite);
  return matrix.scales[index];
}

}  // namespace

Linear::Linear(const Kernels& kernels, const std::vector<LinearPart>& parts, int inputs,
               bool int8)
    : kernels_(&kernels), inputs_(inputs) {
  for (const LinearPart& part : parts) outputs_ += part.outputs;
  padded_inputs_ = static_cast<int>(round_up(inputs, kInt8Depth));
  const int panel = int8 ? kernels.i8_panel : kernels.f32_panel;
  float* bias = bias_.zeros(round_up(outputs_, panel));
  for (const LinearPart& part : parts) {
    for (int i = 0; i < part.outputs; ++i) *bias++ = part.bias == nullptr ? 0.0f : part.bias[i];
  }
  if (int8) {
    pack_i8(parts);
  } else {
    pack_f32(parts);
  }
}

void Linear::pack_f32(const std::vector<LinearPart>& parts) {
  const std::size_t panel = static_cast<std::size_t>(kernels_->f32_panel);
  const std::size_t inputs = static_cast<std::size_t>(inputs_);
  float* packed = weights_.zeros(round_up(outputs_, kernels_->f32_panel) * inputs);
  std::vector<float> row(inputs);
  std::size_t output = 0;
  for (const LinearPart& part : parts) {
    for (int i = 0; i < part.outputs; ++i, ++output) {
      part.weight.read_row(static_cast<std::size_t>(i), inputs, 1.0f, row.data());
      float* to = packed + output / panel * panel * inputs + output % panel;
      for (std::size_t k = 0; k < inputs; ++k) to[k * panel] = row[k];
    }
  }
}

void Linear::pack_i8(const std::vector<LinearPart>& parts) {
  const std::size_t panel = static_cast<std::size_t>(kernels_->i8_panel);
  const std::size_t inputs = static_cast<std::size_t>(padded_inputs_);
  const std::size_t outputs = round_up(outputs_, kernels_->i8_panel);
  const std::size_t group = static_cast<std::size_t>(kernels_->i8_group);
  std::int8_t* packed = quantised_.zeros(outputs * inputs);
  float* scales = scales_.zeros(outputs);
  std::vector<int> row(static_cast<std::size_t>(inputs_));
  std::size_t output = 0;
  for (const LinearPart& part : parts) {
    for (int i = 0; i < part.outputs; ++i, ++output) {
      scales[output] = quantise_row(part.weight, static_cast<std::size_t>(i), row);
      std::int8_t* to = packed + output / panel * panel * inputs + output % panel * group;
      for (std::size_t k = 0; k < row.size(); ++k) {
        const int value = row[k] + kernels_->i8_offset;
        to[k / group * group * panel + k % group] =
            static_cast<std::int8_t>(static_cast<std::uint8_t>(value & 0xFF));
      }
    }
  }
}

void Linear::apply(const float* x, std::size_t x_stride, int count, float* y,
                   std::size_t y_stride, Workspace& workspace, bool add) const {
  const Rows rows{x, x_stride, y, y_stride, count, add};
  void* scratch = workspace.product.reserve(scratch_bytes(inputs_));
  if (quantised_.data() != nullptr) {
    const I8Matrix matrix{quantised_.data(), scales_.data(),  bias_.data(),
                          inputs_,           padded_inputs_, outputs_};
    kernels_->multiply_i8(matrix, rows, scratch);
  } else {
    const F32Matrix matrix{weights_.data(), bias_.data(), inputs_, outputs_};
    kernels_->multiply_f32(matrix, rows, scratch);
  }
}

}  // namespace regard
