/*
 * The liburcu side of the cases rcu-read, rcu-wait and rcu-retire. Compiled once per flavour: the headers of two
 * flavours cannot be included in one file.
 *
 * The loops are in C so that the read side is inlined, as liburcu's README advises for speed (_LGPL_SOURCE). This
 * file is compiled only with the feature `rivals`, and is part of no published crate.
 *
 * Both flavours do equal work: enter, load a pointer, read a word through it, leave. The qsbr flavour reports a
 * quiescent state every 1024 reads, as liburcu's own test program does, and is offline outside these loops. For the
 * memb flavour the calls about quiescent states are empty.
 */
#define _LGPL_SOURCE
#include <stdint.h>
#include <stdlib.h>

#ifdef SQUALL_QSBR
#include <urcu/urcu-qsbr.h>
#define RCU(name) urcu_qsbr_##name
#define SHIM(name) squall_qsbr_##name
#else
#include <urcu/urcu-memb.h>
#define RCU(name) urcu_memb_##name
#define SHIM(name) squall_memb_##name
#endif

#define QUIESCE_EVERY 1024

struct item {
	uint64_t payload[8];
	struct rcu_head head;
};

static uint64_t dropped;

void SHIM(register)(void)
{
	RCU(register_thread)();
	RCU(thread_offline)();
}

void SHIM(unregister)(void)
{
	RCU(thread_online)();
	RCU(unregister_thread)();
}

uint64_t SHIM(read)(uint64_t **slot, uint64_t ops)
{
	uint64_t sum = 0;

	RCU(thread_online)();
	for (uint64_t i = 0; i < ops; i++) {
		RCU(read_lock)();
		sum += *rcu_dereference(*slot);
		RCU(read_unlock)();
#ifdef SQUALL_QSBR
		if ((i & (QUIESCE_EVERY - 1)) == QUIESCE_EVERY - 1)
			RCU(quiescent_state)();
#endif
	}
	RCU(thread_offline)();
	return sum;
}

/* The caller is offline or not registered, as required of a waiting thread. */
void SHIM(wait)(void)
{
	RCU(synchronize_rcu)();
}

struct item *SHIM(item)(void)
{
	struct item *fresh = malloc(sizeof(*fresh));

	if (!fresh)
		abort();
	return fresh;
}

void SHIM(item_free)(struct item *item)
{
	free(item);
}

uint64_t SHIM(item_bytes)(void)
{
	return sizeof(struct item);
}

static void reclaim(struct rcu_head *head)
{
	free(caa_container_of(head, struct item, head));
	__atomic_fetch_add(&dropped, 1, __ATOMIC_RELAXED);
}

uint64_t SHIM(retire)(struct item **own, struct item **other, uint64_t first, uint64_t ops)
{
	uint64_t sum = 0;

	RCU(thread_online)();
	for (uint64_t i = 0; i < ops; i++) {
		struct item *fresh = SHIM(item)(), *old;

		for (int word = 0; word < 8; word++)
			fresh->payload[word] = first + i;
		RCU(read_lock)();
		sum += rcu_dereference(*other)->payload[0];
		RCU(read_unlock)();
		old = rcu_xchg_pointer(own, fresh);
		RCU(call_rcu)(&old->head, reclaim);
	}
	RCU(thread_offline)();
	return sum;
}

uint64_t SHIM(dropped)(void)
{
	return __atomic_load_n(&dropped, __ATOMIC_RELAXED);
}

void SHIM(barrier)(void)
{
	RCU(barrier)();
}
