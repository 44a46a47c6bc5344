// The portable translation unit: no instructions beyond what the compiler's baseline has.
#include "attention.hpp"
#include "lanes_portable.hpp"
#include "product_portable.hpp"

namespace foredraft {

using V = PortableLanes;

const Kernels portable_kernels = {
    .name = "portable",
    .rms_norm = Elementwise<V>::rms_norm,
    .quantize32 = Elementwise<V>::quantize32,
    .quantize256 = Elementwise<V>::quantize256,
    .multiply =
        {
            FloatMatrix<V, float>::multiply,
            FloatMatrix<V, Half>::multiply,
            FloatMatrix<V, BFloat>::multiply,
            multiply_grouped<layout::Q4_0>,
            multiply_grouped<layout::Q4_1>,
            multiply_grouped<layout::Q5_0>,
            multiply_grouped<layout::Q5_1>,
            multiply_grouped<layout::Q8_0>,
            multiply_super<layout::Q4_K>,
            multiply_super<layout::Q5_K>,
            multiply_super<layout::Q6_K>,
        },
    .gate = Elementwise<V>::gate,
    .rotate = Elementwise<V>::rotate,
    .to_half = Elementwise<V>::to_half,
    .attend = Attention<V>::attend,
};

}  // namespace foredraft
