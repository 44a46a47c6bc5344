// exp and log in double, from additions, multiplications and divisions alone: the same bits with any compiler and
// instruction set (nothing here is contracted), and loops of exp become vector code.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace foredraft {

// e^x for x <= 0 within 2 units in the last place; 0 below -708 and for minus infinity.
inline double exp_negative(double x) {
  constexpr double lowest = -708, magic = 0x1.8p52;  // magic: the sum has no fraction bits left
  const double clamped = x > lowest ? x : lowest;
  const double shifted = clamped * 0x1.71547652b82fep0 + magic, n = shifted - magic;
  // |r| <= log(2) / 2, log(2) in two parts of which the first times n is exact.
  const double r = (clamped - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33;
  const double r2 = r * r, r4 = r2 * r2, r8 = r4 * r4;  // Taylor's series to r^12, in pairs
  const double low = (1 + r) + (1. / 2 + r * (1. / 6)) * r2;
  const double middle = (1. / 24 + r * (1. / 120)) + (1. / 720 + r * (1. / 5040)) * r2;
  const double high = (1. / 40320 + r * (1. / 362880)) + (1. / 3628800 + r * (1. / 39916800)) * r2;
  const double series = (low + middle * r4) + (high + r4 * (1. / 479001600 + r * (1. / 6227020800))) * r8;
  const uint64_t power = std::bit_cast<uint64_t>(shifted) << 52;  // n in the place of an exponent
  const double result = std::bit_cast<double>(std::bit_cast<uint64_t>(series) + power);
  return x > lowest ? result : 0;
}

// Natural logarithm of a finite x >= 0 within 1 unit in the last place (the method of fdlibm's e_log.c, Sun 1993).
inline double log_positive(double x) {
  if (x == 0) return -INFINITY;
  int64_t k = 0;
  if (x < 0x1p-1022) {
    x *= 0x1p54;
    k = -54;
  }
  // x = 2^k (1 + f) with 1 + f between sqrt(1/2) and sqrt(2).
  const uint64_t bits = std::bit_cast<uint64_t>(x) + (0x3ff0000000000000 - 0x3fe6a09e667f3bcd);
  k += static_cast<int64_t>(bits >> 52) - 1023;
  const double f = std::bit_cast<double>((bits & 0xfffffffffffff) + 0x3fe6a09e667f3bcd) - 1;
  const double s = f / (2 + f), z = s * s, w = z * z, half_square = f * f / 2;
  const double even = w * (0.3999999999940941908 + w * (0.2222219843214978396 + w * 0.1531383769920937332));
  const double odd =
      z * (0.6666666666666735130 + w * (0.2857142874366239149 + w * (0.1818357216161805012 + w * 0.1479819860511658591)));
  const double n = static_cast<double>(k);
  return n * 0x1.62e42feep-1 -
         ((half_square - (s * (half_square + (even + odd)) + n * 0x1.a39ef35793c76p-33)) - f);
}

}  // namespace foredraft
