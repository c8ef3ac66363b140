// SPDX-License-Identifier: GPL-2.0 OR MIT
/* steer_flow: `steer_router` that routes only packets of flows in the kernel's flowtable (flow.h). */
#define FLOWS
#include "steer_router.bpf.c"
