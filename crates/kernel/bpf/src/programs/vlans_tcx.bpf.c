// SPDX-License-Identifier: GPL-2.0 OR MIT
/* vlans_tcx: `vlans`, in front of `tree_tcx`. */
#define TCX
#include "vlans.bpf.c"
