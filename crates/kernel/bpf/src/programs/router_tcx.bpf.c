// SPDX-License-Identifier: GPL-2.0 OR MIT
/* router_tcx: `router`, in front of `tree_tcx`. */
#define TCX
#include "router.bpf.c"
