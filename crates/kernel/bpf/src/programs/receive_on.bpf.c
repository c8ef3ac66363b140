// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * receive_on: hands frames for the box to other CPUs, whose stack receives them: receive packet
 * steering (RPS) in the driver.
 *
 * It is behind the tree of a host's port, which has counted the frame. A hash of the flow leads to
 * one of the CPUs, so a flow's packets stay in order. The hash has a secret: a sender cannot choose
 * the CPU. If a CPU is not there, the frame goes up the stack here.
 *
 * A frame waits for its CPU in a queue. What does not fit is dropped by the kernel, which tells only
 * the tracepoints: so there is a program at each of them.
 *
 * Source: kernel/bpf/cpumap.c, include/trace/events/xdp.h.
 *
 * Non-goals: which CPU an application runs on (RFS); frames at tcx, which are on their CPU already.
 */
#include "frame.h"
#include "packet.h"
#include "siphash.h"
#include "totals.h"

/* As many CPUs as a list may have. */
#define LIST_MAX 1024

const volatile __u64 flow_key[2];
/* How many CPUs there are in the list. */
const volatile __u32 cpu_count = 1;
/* The number of the map `cpus`, for the tracepoints. */
volatile __u32 own_map = 0;

/* The queue of each CPU, by its number. User space sets how many there may be. */
struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} cpus SEC(".maps");

/* The list: the numbers of CPUs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LIST_MAX);
	__type(key, __u32);
	__type(value, __u32);
} list SEC(".maps");

/* The flow of a packet. Fragments have no ports, so those of a packet stay together. */
static __always_inline __u64 flow_hash(const struct packet *packet)
{
	struct siphash sip = sip_begin(flow_key[0], flow_key[1]);

	sip_add(&sip, packet->words[0]);
	sip_add(&sip, packet->words[1]);
	sip_add(&sip, packet->words[2]);
	sip_add(&sip, packet->words[3]);
	sip_add(&sip, packet->has & PACKET_FRAGMENT ?
			      0 :
			      (__u64)packet->source_port << 16 | packet->destination_port);
	return sip_end(&sip, 5);
}

SEC("xdp")
int receive_on(struct xdp_md *ctx)
{
	struct packet packet = {};
	__u32 at, *cpu;

	read_packet(ctx, &packet, 1);
	at = (flow_hash(&packet) >> 32) * cpu_count >> 32;
	cpu = bpf_map_lookup_elem(&list, &at);
	if (!cpu)
		return XDP_PASS;
	return bpf_redirect_map(&cpus, *cpu, XDP_PASS);
}

static __always_inline int count_lost(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 zero = 0, drops = ctx->args[2];
	struct totals *total;

	if ((__u32)ctx->args[0] != own_map || !drops)
		return 0;
	total = bpf_map_lookup_elem(&totals, &zero);
	/* One tracepoint may interrupt another. */
	if (total)
		__sync_fetch_and_add(&total->lost_behind, drops);
	return 0;
}

/* The queue was full. */
SEC("raw_tp/xdp_cpumap_enqueue")
int queue_full(struct bpf_raw_tracepoint_args *ctx)
{
	return count_lost(ctx);
}

/* There was no memory for a packet. */
SEC("raw_tp/xdp_cpumap_kthread")
int no_memory(struct bpf_raw_tracepoint_args *ctx)
{
	return count_lost(ctx);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
