/* Include first where floating-point results decide pixels: every operation rounds by itself.
 *
 * On processors whose baseline has fused multiply-add (64-bit ARM), compilers join a * b + c into one rounding unless
 * told otherwise, and gcc does so across statements. Pillow's and torch's results on x86 have two. */
#ifndef BATCHD_EXACT_H
#define BATCHD_EXACT_H

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

#endif
