// SPDX-License-Identifier: GPL-2.0 OR MIT
/* verdict: the least that each of XDP's verdicts takes. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>

/* No kernel for servers has room for fewer. */
#define CPUS_MAX 64

/* XDP's number of it; of a redirection, whether it is to a CPU, and to which. */
const volatile __u64 verdict = XDP_DROP;
const volatile __u64 is_to_cpu = 0;
const volatile __u64 cpu = 0;

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} port SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, CPUS_MAX);
	__type(key, __u32);
	__type(value, struct bpf_cpumap_val);
} cpus SEC(".maps");

/* So that it may leave where it came from. */
static __always_inline int send_back(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	__u8 mac[ETH_ALEN];

	if ((void *)(eth + 1) > end)
		return XDP_ABORTED;
	__builtin_memcpy(mac, eth->h_dest, ETH_ALEN);
	__builtin_memcpy(eth->h_dest, eth->h_source, ETH_ALEN);
	__builtin_memcpy(eth->h_source, mac, ETH_ALEN);
	return XDP_TX;
}

SEC("xdp")
int give_verdict(struct xdp_md *ctx)
{
	if (verdict == XDP_TX)
		return send_back(ctx);
	if (verdict == XDP_REDIRECT && is_to_cpu)
		return bpf_redirect_map(&cpus, cpu, XDP_ABORTED);
	if (verdict == XDP_REDIRECT)
		return bpf_redirect_map(&port, 0, XDP_ABORTED);
	return verdict;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
