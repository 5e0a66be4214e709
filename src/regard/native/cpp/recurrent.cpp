#include "model.h"
namespace regard {
std::unique_ptr<Model> build_recurrent(const Kernels&, const ModelSettings&, Weights&) {
  throw Error("recurrent models are not supported yet");
}
}
