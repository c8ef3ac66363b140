// SPDX-License-Identifier: GPL-2.0 OR MIT
/* front_tcx: `front`, in front of `tree_tcx`. */
#define TCX
#include "front.bpf.c"
