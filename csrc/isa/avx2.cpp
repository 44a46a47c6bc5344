// The AVX2 translation unit (with FMA and F16C).
#include "dots_avx2.hpp"
#include "unit.hpp"

namespace foredraft {

constinit const Kernels avx2_kernels = unit<Avx2Lanes, Products<Avx2Dots>>("avx2");

}  // namespace foredraft
