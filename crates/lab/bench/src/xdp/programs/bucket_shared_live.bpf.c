// SPDX-License-Identifier: GPL-2.0 OR MIT
/* The same for live frames. */
#define LIVE
#include "bucket_shared.bpf.c"
