// The AVX-512 VNNI translation unit (with AVX-512 F, BW, DQ and VL).
#include "dots_vnni.hpp"
#include "lanes_avx512.hpp"
#include "unit.hpp"

namespace foredraft {

// 32 registers: two sums for each of 12 rows, weights, scales, masks.
constinit const Kernels avx512vnni_kernels = unit<Avx512Lanes, Products<VnniDots<Avx512Lanes, 12>>>("avx512vnni");

}  // namespace foredraft
