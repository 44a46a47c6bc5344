// The portable translation unit: no instructions beyond what the compiler's baseline has.
#include "lanes_portable.hpp"
#include "product_portable.hpp"
#include "unit.hpp"

namespace foredraft {

constinit const Kernels portable_kernels = unit<PortableLanes, PortableProducts>("portable");

}  // namespace foredraft
