// Norm, quantization, activations and rotation, written once over a vector type (lanes_*.hpp).
#pragma once

#include <cmath>

#include "../kernels.hpp"

namespace foredraft {
namespace {

template <class V>
struct Elementwise {
  using F = typename V::F;
  static constexpr int width = V::width;

  static void rms_norm(const float* x, const float* weight, float eps, int n, float* out) {
    F squares[2] = {V::broadcast(0), V::broadcast(0)};
    int i = 0;
    for (; i + 2 * width <= n; i += 2 * width) {
      const F a = V::load(x + i), b = V::load(x + i + width);
      squares[0] = V::fma(a, a, squares[0]);
      squares[1] = V::fma(b, b, squares[1]);
    }
    float total = V::sum(squares[0] + squares[1]);
    for (; i < n; i++) total += x[i] * x[i];
    const float factor = 1.f / std::sqrt(total / static_cast<float>(n) + eps);
    for (i = 0; i + width <= n; i += width)
      V::store(out + i, (V::load(x + i) * V::broadcast(factor)) * V::load(weight + i));
    for (; i < n; i++) out[i] = (x[i] * factor) * weight[i];
  }

  static void quantize32(const float* x, int n, Codes32* out, size_t stride) {
    for (int i = 0; i < n; i += 32, out += stride) {
      out->scale = quantize<32>(x + i, out->codes);
      int first[2], second[2];
      V::pair_sums(out->codes, first);
      V::pair_sums(out->codes + 16, second);
      const int even = first[0] + second[0], odd = first[1] + second[1];
      out->scaled_sum = out->scale * static_cast<float>(even + odd);
      out->start = -16 * (even + odd);
      out->offsets[0] = static_cast<int16_t>(-16 * even);
      out->offsets[1] = static_cast<int16_t>(-16 * odd);
    }
  }

  static void quantize256(const float* x, int n, Codes256* out, size_t stride) {
    for (int i = 0; i < n; i += 256, out += stride) {
      out->scale = quantize<256>(x + i, out->codes);
      for (int g = 0; g < 16; g++) {
        int sums[2];
        V::pair_sums(out->codes + 16 * g, sums);
        out->starts[g] = -32 * (sums[0] + sums[1]);
        out->offsets[g][0] = static_cast<int16_t>(-32 * sums[0]);
        out->offsets[g][1] = static_cast<int16_t>(-32 * sums[1]);
        const int before = g % 2 ? out->sums[g / 2] : 0;
        out->sums[g / 2] = static_cast<int16_t>(before - sums[0] - sums[1]);
      }
    }
  }

  static void gate(Activation activation, float* gate, const float* up, int n) {
    int i = 0;
    for (; i + width <= n; i += width)
      V::store(gate + i, activate(activation, V::load(gate + i)) * V::load(up + i));
    if (i == n) return;
    float padded[width] = {};
    for (int j = i; j < n; j++) padded[j - i] = gate[j];
    V::store(padded, activate(activation, V::load(padded)));
    for (int j = i; j < n; j++) gate[j] = padded[j - i] * up[j];
  }

  static void rotate(float* x, const float* cosines, const float* sines, int half, bool is_interleaved, float scale) {
    if (is_interleaved) {
      for (int i = 0; i < half; i++) {
        const float a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = (a * cosines[i] - b * sines[i]) * scale;
        x[2 * i + 1] = (b * cosines[i] + a * sines[i]) * scale;
      }
      return;
    }
    for (int i = 0; i < half; i++) {
      const float a = x[i], b = x[half + i];
      x[i] = (a * cosines[i] - b * sines[i]) * scale;
      x[half + i] = (b * cosines[i] + a * sines[i]) * scale;
    }
  }

  static void to_half(const float* x, int n, Half* out) {
    int i = 0;
    for (; i + width <= n; i += width) V::store(out + i, V::load(x + i));
    if (i == n) return;
    float padded[width] = {};
    Half halves[width];
    for (int j = i; j < n; j++) padded[j - i] = x[j];
    V::store(halves, V::load(padded));
    for (int j = i; j < n; j++) out[j] = halves[j - i];
  }

  // e^x to about 1 unit in the last place (Cephes expf), x taken into -87.3 .. 88; not-a-number stays.
  static F exp(F x) {
    const F bounded = V::max(V::broadcast(-87.3f), V::min(V::broadcast(88.f), x));
    const F n = V::round(bounded * V::broadcast(1.44269504088896341f));
    F r = V::fma(n, V::broadcast(-0.693359375f), bounded);
    r = V::fma(n, V::broadcast(2.12194440e-4f), r);
    F p = V::broadcast(1.9875691500e-4f);
    p = V::fma(p, r, V::broadcast(1.3981999507e-3f));
    p = V::fma(p, r, V::broadcast(8.3334519073e-3f));
    p = V::fma(p, r, V::broadcast(4.1665795894e-2f));
    p = V::fma(p, r, V::broadcast(1.6666665459e-1f));
    p = V::fma(p, r, V::broadcast(5.0000001201e-1f));
    p = V::fma(p, r * r, r + V::broadcast(1.f));
    return V::scale_by_power(p, n);
  }

 private:
  // Codes of one group: the largest magnitude becomes 127. Returns the scale, not-a-number if any value is not finite.
  template <int group>
  static float quantize(const float* x, int8_t* codes) {
    F most = V::broadcast(0), poison = V::broadcast(0);
    for (int i = 0; i < group; i += width) {
      const F v = V::load(x + i);
      most = V::max(V::abs(v), most);
      poison = V::fma(v, V::broadcast(0), poison);
    }
    const float largest = V::max_lane(most);
    const float factor = largest > 1e-30f ? 127.f / largest : 0.f;  // the quotient overflows for subnormal groups
    for (int i = 0; i < group; i += 16) V::store_codes(codes + i, x + i, factor);
    return largest / 127.f + V::sum(poison);
  }

  static F activate(Activation activation, F x) {
    const F one = V::broadcast(1.f);
    // Both are x * sigmoid(z); tanh-gelu because (1 + tanh y) / 2 = sigmoid(2y).
    F z = x;
    if (activation == Activation::gelu) {
      const F cubic = V::fma(x * x, V::broadcast(0.044715f), one);
      z = x * cubic * V::broadcast(2 * 0.79788456080286535588f);
    }
    return x / (one + exp(V::broadcast(0) - z));
  }
};

}  // namespace
}  // namespace foredraft
