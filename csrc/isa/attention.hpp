// Softmax attention over paged half-precision keys and values, written once over a vector type.
//
// A row's positions are taken in chunks of a page, counted from position 0. Within a chunk each score is a chain of
// multiply-adds over the head's dimensions and each output a chain over the positions, so a row's bits depend on its
// positions alone: not on which pages or slots hold them, nor on the rows that share a page's conversion to float.
// The softmax is the online one (Milakov and Gimelshein, 2018): a running maximum and sum, rescaled per chunk.
#pragma once

#include <cmath>
#include <cstring>

#include "elementwise.hpp"
#include "float_product.hpp"

namespace foredraft {
namespace {

template <class V>
struct Attention {
  using F = typename V::F;
  static constexpr int width = V::width;
  static constexpr int N = 2;  // vectors for each query, so that a few queries hide the latency of their sums
  static constexpr int lanes = N * width;

  // One query head of one row, and its running softmax.
  struct Query {
    const float* q;
    float* sums;  // [padded head_dim], of values weighted by e^(score - most)
    float* weight;  // [width] lanes of the sum of e^(score - most)
    float most;
  };
  // A chunk's keys [head_dim, key_stride] and values [page_size, value_stride], of numbers Half or float.
  template <class Number>
  struct Chunk {
    const Number* keys;
    const Number* values;
    int key_stride, value_stride;
  };
  // Where a step puts what it needs: scores [attend_tile, page], a gathered chunk, a chunk in floats.
  struct Scratch {
    float* scores;
    Half* gathered;
    float* widened;
  };

  static int padded(int n) { return (n + attend_padding - 1) / attend_padding * attend_padding; }

  static void attend(const AttendItem& item) {
    const AttendShape& shape = *item.shape;
    const int dim = padded(shape.head_dim), page = padded(shape.page_size);
    const int num_queries = item.num_rows * item.num_heads;
    float* at = item.workspace;
    const Scratch scratch{at, reinterpret_cast<Half*>(at + attend_tile * page), at + (attend_tile + dim) * page};
    at += (attend_tile + 3 * dim) * page;
    Query queries[attend_max_queries];
    for (int i = 0; i < num_queries; i++) {
      const AttendRow& row = item.rows[i / item.num_heads];
      const size_t head = static_cast<size_t>(row.row) * shape.num_heads + item.first_head + i % item.num_heads;
      queries[i] = {item.q + head * shape.head_dim, at, at + dim, -INFINITY};
      std::memset(at, 0, (dim + 16) * sizeof(float));
      at += dim + 16;
    }
    walk_chunks(item, queries, scratch);
    for (int i = 0; i < num_queries; i++) finish(item, queries[i]);
  }

 private:
  static void walk_chunks(const AttendItem& item, Query* queries, const Scratch& scratch) {
    const int page_size = item.shape->page_size, heads = item.num_heads;
    int first = item.rows[0].start, last = item.rows[0].length;
    for (int r = 1; r < item.num_rows; r++) {
      first = item.rows[r].start < first ? item.rows[r].start : first;
      last = item.rows[r].length > last ? item.rows[r].length : last;
    }
    for (int chunk = first / page_size; chunk * page_size < last; chunk++) {
      const int begin = chunk * page_size;
      for (int r = 0; r < item.num_rows;) {
        const AttendRow& row = item.rows[r];
        if (row.length <= begin || row.start >= begin + page_size) {
          r++;
          continue;
        }
        // Rows that see all of a page share its loads; any other row is alone, so that what it does not see, such as
        // a later row's infinities, cannot reach it.
        int end = r + 1;
        if (sees_page(row, begin, page_size))
          while (end < item.num_rows && sees_page(item.rows[end], begin, page_size)) end++;
        const Chunk<Half> source = locate(item, row, chunk, scratch.gathered);
        const int low = row.start > begin ? row.start - begin : 0;
        const int high = row.length < begin + page_size ? row.length - begin : page_size;
        step(item, source, low, high, queries + r * heads, (end - r) * heads, scratch);
        r = end;
      }
    }
  }

  static bool sees_page(const AttendRow& row, int begin, int page_size) {
    return row.start <= begin && row.linear >= begin + page_size;
  }

  // The chunk where it lies, or, if its positions are scattered over slots or its sizes do not fill vectors, gathered.
  static Chunk<Half> locate(const AttendItem& item, const AttendRow& row, int chunk, Half* gathered) {
    const AttendShape& shape = *item.shape;
    const int page_size = shape.page_size, dim = shape.head_dim, begin = chunk * page_size;
    const bool is_linear = row.linear >= begin + page_size || row.linear >= row.length;
    if (is_linear && page_size % lanes == 0 && dim % lanes == 0) {
      const size_t at = page_offset(item, item.pages[chunk]);
      return {item.keys + at, item.values + at, page_size, dim};
    }
    const int key_stride = padded(page_size), value_stride = padded(dim);
    Half* values = gathered + key_stride * value_stride;
    std::memset(gathered, 0, 2 * key_stride * value_stride * sizeof(Half));
    const int end = row.length < begin + page_size ? row.length : begin + page_size;
    for (int position = begin; position < end; position++) {
      const int slot = position < row.linear ? position : row.ancestors[position - row.prefix];
      const size_t at = page_offset(item, item.pages[slot / page_size]);
      const Half* key = item.keys + at + slot % page_size;
      for (int d = 0; d < dim; d++) gathered[d * key_stride + position - begin] = key[d * page_size];
      std::memcpy(values + (position - begin) * value_stride, item.values + at + slot % page_size * dim,
                  dim * sizeof(Half));
    }
    return {gathered, values, key_stride, value_stride};
  }

  static size_t page_offset(const AttendItem& item, int page) {
    const size_t size = static_cast<size_t>(item.shape->page_size) * item.shape->head_dim;
    return (static_cast<size_t>(page) * item.shape->num_kv_heads + item.kv_head) * size;
  }

  static void step(const AttendItem& item, const Chunk<Half>& chunk, int low, int high, Query* queries, int count,
                   const Scratch& scratch) {
    auto each = [&](const auto& numbers) {
      each_tile<attend_tile>(count, [&](auto q, int first) {
        step_tile<q()>(numbers, item.shape->head_dim, low, high, queries + first, scratch.scores);
      });
    };
    if (count > 2 * attend_tile)  // many tiles share the conversion (10% faster at 8 rows on Zen 4)
      each(widen(*item.shape, chunk, scratch.widened));
    else
      each(chunk);
  }

  static Chunk<float> widen(const AttendShape& shape, const Chunk<Half>& chunk, float* out) {
    const int num_keys = shape.head_dim * chunk.key_stride, num_values = shape.page_size * chunk.value_stride;
    float* values = out + num_keys;
    for (int i = 0; i < num_keys; i += width) V::store(out + i, V::load(chunk.keys + i));
    for (int i = 0; i < num_values; i += width) V::store(values + i, V::load(chunk.values + i));
    return {out, values, chunk.key_stride, chunk.value_stride};
  }

  template <int Q, class Number>
  static void step_tile(const Chunk<Number>& chunk, int dim, int low, int high, Query* queries, float* scores) {
    const float *q[Q], *weights[Q];
    F factors[Q];
    for (int i = 0; i < Q; i++) q[i] = queries[i].q;
    for (int n = 0; n < chunk.key_stride; n += lanes) {
      F sums[Q][N];
      for (int i = 0; i < Q; i++)
        for (int v = 0; v < N; v++) sums[i][v] = V::broadcast(0);
      accumulate_product<V, Q, N>(q, 0, dim, chunk.keys + n, chunk.key_stride, sums);
      for (int i = 0; i < Q; i++)
        for (int v = 0; v < N; v++) V::store(scores + i * chunk.key_stride + n + v * width, sums[i][v]);
    }
    for (int i = 0; i < Q; i++) {
      weights[i] = scores + i * chunk.key_stride;
      factors[i] = V::broadcast(soften(queries[i], scores + i * chunk.key_stride, chunk.key_stride, low, high));
    }
    for (int n = 0; n < chunk.value_stride; n += lanes) {
      F sums[Q][N];
      for (int i = 0; i < Q; i++)
        for (int v = 0; v < N; v++) sums[i][v] = V::load(queries[i].sums + n + v * width) * factors[i];
      accumulate_product<V, Q, N>(weights, low, high, chunk.values + n, chunk.value_stride, sums);
      for (int i = 0; i < Q; i++)
        for (int v = 0; v < N; v++) V::store(queries[i].sums + n + v * width, sums[i][v]);
    }
  }

  // Scores to e^(score - new maximum), 0 outside [low, high). Returns the factor for what was summed before.
  static float soften(Query& query, float* scores, int count, int low, int high) {
    const F none = V::broadcast(-INFINITY);
    F most = V::broadcast(query.most);
    for (int i = 0; i < count; i += width) most = V::max(V::select(V::load(scores + i), i, low, high, none), most);
    const float maximum = V::max_lane(most);
    // Where all are -infinity so far, e^(score - maximum) would not be a number, and 0 is meant.
    const F shift = V::broadcast(maximum == -INFINITY ? 0.f : maximum);
    float factor = 1;  // most chunks do not raise the maximum
    if (maximum != query.most) {
      float factors[width];
      V::store(factors, Elementwise<V>::exp(V::broadcast(query.most) - shift));
      // The first chunk has nothing to rescale (and -infinity minus -infinity is not a number).
      factor = query.most == -INFINITY ? 0.f : factors[0];
    }
    F weight = V::load(query.weight) * V::broadcast(factor);
    for (int i = 0; i < count; i += width) {
      const F e = V::select(Elementwise<V>::exp(V::load(scores + i) - shift), i, low, high, V::broadcast(0));
      V::store(scores + i, e);
      weight = weight + e;
    }
    V::store(query.weight, weight);
    query.most = maximum;
    return factor;
  }

  static void finish(const AttendItem& item, const Query& query) {
    const int dim = item.shape->head_dim;
    const float factor = 1.f / V::sum(V::load(query.weight));
    float* out = item.out + (query.q - item.q);
    for (int d = 0; d < dim; d++) out[d] = query.sums[d] * factor;
  }
};

}  // namespace
}  // namespace foredraft
