// SPDX-License-Identifier: GPL-2.0 OR MIT
/* tree_tcx: `tree` for ports whose driver has no XDP, or builds packets before it. */
#define TCX
#include "tree.bpf.c"
