// SPDX-License-Identifier: Apache-2.0
// decoder.hpp with CUDA. nvcc compiles this file, and tiers.cu beside it.
#include "engine.cuh"

namespace decode::device {
namespace {

class cuda_engine : public engine {
 public:
  cuda_engine(const model_config& config, const model_weights& weights, index_t tokens)
      : net_(config, weights, tokens, chunk), tokens_(tokens) {}

  std::unique_ptr<decoder> open(const policy_choice& choice, std::span<const zoomr::token_class> classes,
                                const details_room& room) override {
    return room.tiered() ? open_tiered(net_, choice, tokens_, classes, room)
                         : open_session<false>(net_, choice, tokens_, classes, room);
  }

 private:
  static constexpr index_t chunk = 256;  // as on the host
  device_model net_;
  index_t tokens_;
};

}  // namespace

void expect_present() {
  int devices = 0, driver = 0;
  const cudaError_t answer = cudaGetDeviceCount(&devices);
  if (answer == cudaSuccess && devices > 0) return;
  static_cast<void>(cudaDriverGetVersion(&driver));  // 0: none is installed, which the runtime calls too old
  if (answer == cudaSuccess || answer == cudaErrorNoDevice || (answer == cudaErrorInsufficientDriver && driver == 0))
    fail("--device cuda: there is no CUDA device here");
  fail("--device cuda: the CUDA device cannot be used: ", cudaGetErrorString(answer), "; the driver is for CUDA ",
       driver / 1000, ".", driver % 1000 / 10, ", the program of ", CUDART_VERSION / 1000);
}

std::unique_ptr<engine> load(const std::filesystem::path& directory, const model_config& config, index_t tokens) {
  expect_present();
  if (!has_shape(config)) {
    fail("--device cuda: this model has ", config.heads / config.kv_heads, " heads of ", config.head_dim,
         " dimensions to a KV head", config.window > 0 ? ", and sliding windows" : "", "; known are ", shapes);
  }
  return std::make_unique<cuda_engine>(config, read_weights(directory, config), tokens);
}

}  // namespace decode::device
