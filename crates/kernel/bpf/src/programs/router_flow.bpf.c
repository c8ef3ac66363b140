// SPDX-License-Identifier: GPL-2.0 OR MIT
/* router_flow: `router` that routes only packets of flows in the kernel's flowtable (flow.h). */
#define FLOWS
#include "router.bpf.c"
