// Attention: any number of rows, threads and any place of the pages against one row at a time, and paths of trees
// against chains. What no row may read is not a number.
#include <numeric>

#include "check.hpp"
#include "ops.hpp"
#include "runtime.hpp"

namespace foredraft::tests {
namespace {

struct Row {
  int sequence, slot, prefix;
  std::vector<int32_t> ancestors;
  int token;  // which query, key and value
};

Row in_chain(int sequence, int position, int token) { return {sequence, position, position, {position}, token}; }

std::vector<Row> chain(int sequence, int length) {
  std::vector<Row> rows;
  for (int p = 0; p < length; p++) rows.push_back(in_chain(sequence, p, 1000 * sequence + p));
  return rows;
}

struct Shape {
  int heads, kv_heads, dim, page_size, window;
  bool is_interleaved, has_norms;
};

AttentionSpec make_spec(const Shape& s) {
  Random random(9);
  AttentionSpec spec{{s.heads, s.kv_heads, s.dim, 0, s.window}, 0.2f, s.is_interleaved, {}, {}, {}, 1e-6f};
  float frequency = 1;
  for (int i = 0; i < s.dim / 2; i++, frequency *= 0.75f) spec.frequencies.push_back(frequency);
  if (s.has_norms) spec.q_norm = spec.k_norm = random.numbers(s.dim);
  return spec;
}

// A cache of its own, with two sequences whose pages lie in an order drawn by `seed`.
class Layer {
 public:
  Layer(const Shape& shape, uint32_t seed) : shape_(shape), spec_(make_spec(shape)), pages_(num_pages) {
    const size_t size = static_cast<size_t>(num_pages) * shape.kv_heads * shape.dim * shape.page_size;
    keys_.assign(size, Half{0x7e00});
    values_.assign(size, Half{0x7c00});
    std::iota(pages_.begin(), pages_.end(), 0);
    Random random(seed);
    for (int i = num_pages - 1; i > 0; i--) std::swap(pages_[i], pages_[random.below(i + 1)]);
  }

  std::vector<float> attend(const std::vector<Row>& rows) {
    Batch::Ints positions, sequences, slots, prefixes, ancestors, offsets{0};
    std::vector<float> q, k, v;
    for (const Row& row : rows) {
      positions.push_back(row.prefix + static_cast<int>(row.ancestors.size()) - 1);
      sequences.push_back(row.sequence);
      slots.push_back(row.slot);
      prefixes.push_back(row.prefix);
      ancestors.insert(ancestors.end(), row.ancestors.begin(), row.ancestors.end());
      offsets.push_back(static_cast<int>(ancestors.size()));
      Random random(static_cast<uint32_t>(row.token));
      for (auto [to, heads] : {std::pair{&q, shape_.heads}, {&k, shape_.kv_heads}, {&v, shape_.kv_heads}})
        for (int i = 0; i < heads * shape_.dim; i++) to->push_back(random.number());
    }
    std::vector<float> out(q.size());
    Batch batch(positions, sequences, slots, prefixes, ancestors, offsets, pages_, num_pages / 2);
    foredraft::attend(q.data(), k.data(), v.data(), spec_, {keys_.data(), values_.data(), num_pages, shape_.page_size},
                      batch, out.data());
    return out;
  }

  std::vector<float> attend_one_by_one(const std::vector<Row>& rows) {
    std::vector<float> out;
    for (const Row& row : rows)
      for (const float x : attend({row})) out.push_back(x);
    return out;
  }

 private:
  static constexpr int num_pages = 12;
  Shape shape_;
  AttentionSpec spec_;
  std::vector<Half> keys_, values_;
  Batch::Ints pages_;
};

void check_chains(const Shape& shape, Digest& digest) {
  std::vector<Row> rows = chain(0, 3 * shape.page_size + 3);
  for (const Row& row : chain(1, shape.page_size + 2)) rows.push_back(row);
  set_threads(1);
  const std::vector<float> alone = Layer(shape, 1).attend_one_by_one(rows);
  for (const float x : alone) require(x > -2 && x < 2, isa() + ": no mean of the values");
  for (int threads = 1; threads <= 4; threads++) {
    set_threads(threads);
    const std::vector<float> together = Layer(shape, 2).attend(rows);
    require(same_bits(together.data(), alone.data(), alone.size()), isa() + ": a chain depends on rows or threads");
  }
  if (isa() == "portable") digest.add(alone);
}

void check_tree(const Shape& shape, Random& random) {
  const int committed = random.below(2 * shape.page_size), num_nodes = 1 + random.below(12);
  const size_t width = static_cast<size_t>(shape.heads) * shape.dim;
  std::vector<Row> tree;
  for (int node = 0; node < num_nodes; node++) {
    const int parent = random.below(node + 1) - 1;
    // Slots in an order that is not that of the nodes: 0 1 2 3 4 becomes 4 0 3 1 2.
    const int slot = committed + (node % 2 ? node / 2 : num_nodes - 1 - node / 2);
    Row row{0, slot, committed, {}, 500 + node};
    if (parent >= 0) row.ancestors = tree[parent].ancestors;
    row.ancestors.push_back(slot);
    tree.push_back(row);
  }
  set_threads(1 + random.below(4));
  Layer layer(shape, 3);
  layer.attend(chain(0, committed));
  const std::vector<float> together = layer.attend(tree);
  for (int node = 0; node < num_nodes; node++) {
    Layer plain(shape, 4);
    plain.attend(chain(0, committed));
    std::vector<float> last;
    for (size_t depth = 0; depth < tree[node].ancestors.size(); depth++) {
      int token = 0;
      for (const Row& row : tree)
        if (row.slot == tree[node].ancestors[depth]) token = row.token;
      last = plain.attend({in_chain(0, committed + static_cast<int>(depth), token)});
    }
    require(same_bits(&together[node * width], last.data(), width), isa() + ": a tree's row is not that of its path");
  }
}

}  // namespace

void test_attention(Digest& digest) {
  const Shape shapes[] = {{2, 1, 2, 3, 0, false, false},    {3, 1, 10, 5, 0, true, true},
                          {2, 2, 24, 16, 7, false, false},  {4, 1, 32, 16, 20, false, true},
                          {9, 3, 64, 32, 0, true, false},   {6, 2, 80, 16, 0, false, false},
                          {100, 1, 16, 16, 0, false, false}};
  for (const auto& name : available_isas()) {
    set_isa(name);
    Random random(6);
    for (const Shape& shape : shapes) {
      check_chains(shape, digest);
      for (int i = 0; i < 3; i++) check_tree(shape, random);
    }
  }
}

void test_any_batch(Digest&) {
  constexpr int page_size = 16, num_pages = 3, dim = 16, most_rows = 4;
  AttentionSpec spec = make_spec({2, 1, dim, page_size, 0, false, false});
  Random random(7);
  int num_accepted = 0, num_refused = 0;
  set_threads(1);  // two rows may name the same slot
  for (int i = 0; i < 4000; i++) {
    const int rows = random.below(most_rows + 1), max_pages = random.below(4);
    auto draw = [&](int below) {
      constexpr int32_t rare[] = {-1, 1000, INT32_MIN, INT32_MAX};
      return random.below(80) ? random.below(below) : rare[random.below(4)];
    };
    auto ints = [&](int count, int below) {
      Batch::Ints out(count);
      for (int32_t& value : out) value = draw(below);
      return out;
    };
    Batch::Ints offsets{0};
    for (int row = 0; row < rows; row++) offsets.push_back(offsets.back() + 1 + random.below(3));
    Batch::Ints ancestors = ints(offsets.back(), page_size * std::max(1, max_pages));
    if (!random.below(40)) offsets[random.below(rows + 1)] = draw(5);
    try {
      Batch batch(ints(rows, 40), ints(rows, 2), ints(rows, 20), ints(rows, 40), ancestors, offsets,
                  ints(2 * max_pages, num_pages), max_pages);
      std::vector<float> q = random.numbers(rows * 2 * dim), k = random.numbers(rows * dim), v = k, out(q.size());
      std::vector<Half> keys(num_pages * dim * page_size), values(keys.size());
      spec.shape.window = random.below(2) * random.below(50);
      attend(q.data(), k.data(), v.data(), spec, {keys.data(), values.data(), num_pages, page_size}, batch, out.data());
      num_accepted++;
    } catch (const std::invalid_argument&) {
      num_refused++;
    }
  }
  require(num_accepted > 500 && num_refused > 500, "of the batches " + std::to_string(num_accepted) +
                                                       " were accepted, " + std::to_string(num_refused) + " refused");
}

}  // namespace foredraft::tests
