// Include this where results must equal NumPy's to the last bit. -ffp-contract=off is needed, too.

#pragma once

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 joins a - b c and a + b c into one fused operation, even with -ffp-contract=off.
#pragma GCC optimize("no-tree-slp-vectorize")
#endif
