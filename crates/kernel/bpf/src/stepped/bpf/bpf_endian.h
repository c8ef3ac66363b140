/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Nothing of it is asked on the host. In the place of libbpf's. */
