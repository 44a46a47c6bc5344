// The operations of ops/base.py over plain memory. Shapes are the caller's promise (module.cpp checks them).
#pragma once

#include <span>
#include <vector>

#include "batch.hpp"
#include "kernels.hpp"
#include "matrix.hpp"

namespace foredraft {

// out [rows, width] = the tokens' rows of a table of GGUF blocks of type number `type`. Throws std::invalid_argument if
// the type is unknown, the table's bytes are not whole rows or a token is not in it.
void embed(int type, const uint8_t* table, size_t size, const int32_t* tokens, int rows, int width, float* out);

// outs[i] [rows, outputs of matrices[i]] = matrices[i] (RMSNorm of) x + bias.
void project(const float* x, int rows, const float* norm, float eps, std::span<const Matrix* const> matrices,
             std::span<float* const> outs);

// x += [RMSNorm of] matrix y.
void accumulate(float* x, const float* y, int rows, const Matrix& matrix, const float* norm, float eps);

// x += [post_norm of] down(activation(gate h) * (up h)), h = RMSNorm of x.
void feed_forward(float* x, int rows, const float* norm, const Matrix& gate, const Matrix& up, const Matrix& down,
                  Activation activation, const float* post_norm, float eps);

struct AttentionSpec {
  AttendShape shape;  // page_size is the cache's
  float scale;
  bool is_interleaved;
  std::vector<float> frequencies, q_norm, k_norm;  // norms empty if none
  float norm_eps;
};

struct Cache {
  Half* keys;
  Half* values;
  int num_pages, page_size;
};

// Rotates q and k in place, stores k and v, attends into out.
void attend(float* q, float* k, const float* v, const AttentionSpec& spec, const Cache& cache, Batch& batch,
            float* out);

struct Layer {
  AttentionSpec attention;
  std::vector<float> attention_norm, attention_post_norm, ffn_norm, ffn_post_norm;  // post norms empty if none
  const Matrix *query, *key, *value, *output, *gate, *up, *down;
  Activation activation;
  float eps;
};

// x [rows, hidden] passes through the layer: attention, then the feed-forward network, each added to x.
void forward(float* x, const Layer& layer, const Cache& cache, Batch& batch);

}  // namespace foredraft
