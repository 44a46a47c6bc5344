// The AVX2 translation unit (with FMA and F16C).
#include "attention.hpp"
#include "lanes_avx2.hpp"
#include "product_avx2.hpp"

namespace foredraft {

using V = Avx2Lanes;

const Kernels avx2_kernels = {
    .name = "avx2",
    .rms_norm = Elementwise<V>::rms_norm,
    .quantize32 = Elementwise<V>::quantize32,
    .quantize256 = Elementwise<V>::quantize256,
    .multiply =
        {
            FloatMatrix<V, float>::multiply,
            FloatMatrix<V, Half>::multiply,
            FloatMatrix<V, BFloat>::multiply,
            Product<GroupedProduct<layout::Q4_0>>::multiply,
            Product<GroupedProduct<layout::Q4_1>>::multiply,
            Product<GroupedProduct<layout::Q5_0>>::multiply,
            Product<GroupedProduct<layout::Q5_1>>::multiply,
            Product<GroupedProduct<layout::Q8_0>>::multiply,
            Product<SuperProduct<layout::Q4_K>>::multiply,
            Product<SuperProduct<layout::Q5_K>>::multiply,
            Product<SuperProduct<layout::Q6_K>>::multiply,
        },
    .gate = Elementwise<V>::gate,
    .rotate = Elementwise<V>::rotate,
    .to_half = Elementwise<V>::to_half,
    .attend = Attention<V>::attend,
};

}  // namespace foredraft
