/* Include this first in files where floating-point results decide pixels: every operation rounds separately.
 *
 * On processors whose baseline has fused multiply-add (64-bit ARM), compilers turn a * b + c into one rounding by
 * default, and gcc does so across statements. Pillow's and torch's results on x86 have two roundings. */
#ifndef BATCHD_EXACT_H
#define BATCHD_EXACT_H

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

#endif
