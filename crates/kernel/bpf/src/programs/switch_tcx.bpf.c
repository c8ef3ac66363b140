// SPDX-License-Identifier: GPL-2.0 OR MIT
/* switch_tcx: `switch`, in front of `tree_tcx`. */
#define TCX
#include "switch.bpf.c"
