// The AVX-VNNI translation unit: AVX2 and the products of bytes.
#include "dots_vnni.hpp"
#include "lanes_avxvnni.hpp"
#include "unit.hpp"

namespace foredraft {

constinit const Kernels avxvnni_kernels = unit<Avx2Lanes, Products<VnniDots<AvxVnniLanes, 4>>>("avxvnni");

}  // namespace foredraft
