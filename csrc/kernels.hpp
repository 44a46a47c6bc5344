// What every instruction set implements: one table of functions, chosen once at run time (runtime.cpp).
//
// Row invariance is decided here: a function's result for a row is one fixed-order computation over that row's own
// data, whatever rows share the call.
#pragma once

#include <cstddef>
#include <cstdint>

namespace foredraft {

struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};

// Packed weight formats, named as the GGUF types they hold without loss.
enum class Format : uint8_t { F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K };
constexpr int num_formats = 11;

enum class Activation : uint8_t { silu, gelu };

constexpr int tile_outputs = 16;         // outputs of a row block, the unit of packing and of work
constexpr int max_row_batch = 64;        // most rows of a `multiply` call
constexpr int attend_padding = 32;      // of head_dim and page sizes, to whole vectors
constexpr int attend_tile = 6;            // queries (rows x heads) that share a load of keys or values
constexpr int attend_max_queries = 128;  // most rows x heads of an `attend` call

// Activations as int8 codes in -127..127 times a scale, for a group of a row's inputs, each quantized on its own. Beside
// the codes lies what the formats with offsets and minima need of their sums.
// `start`: the negated sum of codes times the format's offset, what a sum of products of unsigned weights begins with.
// `offsets`: the same as pairs: inputs 4i and 4i + 1, inputs 4i + 2 and 4i + 3. That is how products of bytes are added
// up in pairs of 16-bit lanes.
struct Codes32 {
  int8_t codes[32];
  float scale;
  float scaled_sum;    // scale * sum of codes
  int32_t start;       // of all 32 codes, times 16
  int16_t offsets[2];
};
struct Codes256 {
  int8_t codes[256];
  float scale;
  int16_t sums[8];     // negated sums of 32 codes
  int32_t starts[16];  // of 16 codes, times 32
  int16_t offsets[16][2];
};

// What a matrix product may read: the rows as floats and, where a format wants them, quantized. A group of all rows lies
// together, so that the rows of a tile are at fixed distances.
struct Input {
  int rows;
  const float* values;  // [rows, inputs]
  Codes32* by32;        // [inputs / 32, rows]
  Codes256* by256;      // [inputs / 256, rows]
};

// totals [count, 16] = rows first .. first + count of the input times one row block of weights; count <= max_row_batch.
using Multiply = void (*)(const uint8_t* block, int inputs, const Input& input, int first, int count, float* totals);

struct AttendShape {
  int num_heads, num_kv_heads, head_dim, page_size, window;
};

// A row attends to positions [start, length): position i lies in slot i below `linear`, else in ancestors[i - prefix].
struct AttendRow {
  int row, prefix, linear, start, length;
  const int32_t* ancestors;
};

// Attention of some rows of one sequence for some of the query heads that share a key-value head.
struct AttendItem {
  const AttendShape* shape;
  const AttendRow* rows;
  int num_rows;
  const int32_t* pages;  // of the sequence
  int kv_head, first_head, num_heads;
  const float* q;  // [rows, num_heads * head_dim], rotated and scaled
  float* out;      // the same shape
  const Half* keys;
  const Half* values;
  float* workspace;  // attend_workspace() floats, 64-byte aligned
};

struct Kernels {
  const char* name;
  void (*rms_norm)(const float* x, const float* weight, float eps, int n, float* out);  // out may be x
  // One row; its groups go to `out`, `stride` apart.
  void (*quantize32)(const float* x, int n, Codes32* out, size_t stride);
  void (*quantize256)(const float* x, int n, Codes256* out, size_t stride);
  Multiply multiply[num_formats];
  void (*gate)(Activation activation, float* gate, const float* up, int n);  // gate = activation(gate) * up
  // Rotates one head [2 * half] in place and multiplies it by `scale`.
  void (*rotate)(float* x, const float* cosines, const float* sines, int half, bool is_interleaved, float scale);
  void (*to_half)(const float* x, int n, Half* out);  // rounds to nearest even
  void (*attend)(const AttendItem& item);
};

size_t attend_workspace(const AttendShape& shape, int num_rows, int num_heads);

extern const Kernels portable_kernels;
#ifdef FOREDRAFT_X86
extern const Kernels avx2_kernels;
extern const Kernels avxvnni_kernels;
extern const Kernels avx512vnni_kernels;
#endif

}  // namespace foredraft
