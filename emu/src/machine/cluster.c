/* SPDX-License-Identifier: Apache-2.0 */
/* cluster.c - the CTAs of a cluster: shared memory, warps, special registers.
 */
#include "machine/cluster.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "hardware/mbarrier.h"
#include "machine/async.h"
#include "machine/rules.h"
#include "machine/tensor_move.h"
#include "machine/tensor_queue.h"
#include "machine/time.h"
#include "machine/transfer.h"
#include "machine/watch.h"
#include "machine/wgmma_queue.h"

/* ---- blocks -------------------------------------------------------------- */

/*
 * Registers and shared memory are most of the memory of a cluster.  A cluster's
 * blocks are kept for the next one, and registers keep their values, as on the
 * hardware.
 */
struct emu_block {
	struct emu_block *next;
	size_t bytes;
	_Alignas(16) uint8_t data[];
};

/*
 * Large blocks come from mmap(), which clears a page when it is touched: a
 * kernel with many paths never touches most of its registers.
 */
#define LARGE_BYTES 65536

static struct emu_block *new_block(size_t bytes)
{
	void *b;

	if (bytes < LARGE_BYTES)
		return calloc(1, bytes);
	b = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		 0);
	return b == MAP_FAILED ? NULL : b;
}

static void free_block(struct emu_block *b)
{
	const size_t bytes = sizeof(*b) + b->bytes;

	if (bytes < LARGE_BYTES)
		free(b);
	else
		munmap(b, bytes);
}

static uint8_t *take_block(struct emu_machine *m, size_t bytes)
{
	struct emu_block **at = &m->blocks, *b;

	while (*at && (*at)->bytes != bytes)
		at = &(*at)->next;
	b = *at;
	if (b)
		*at = b->next;
	else
		b = new_block(sizeof(*b) + bytes);
	if (!b)
		return NULL;
	b->bytes = bytes;
	return b->data;
}

static void give_block(struct emu_machine *m, uint8_t *data)
{
	struct emu_block *b;

	if (!data)
		return;
	b = (struct emu_block *)(void *)(data - offsetof(struct emu_block, data));
	b->next = m->blocks;
	m->blocks = b;
}

void emu_free_blocks(struct emu_machine *m)
{
	while (m->blocks) {
		struct emu_block *next = m->blocks->next;

		free_block(m->blocks);
		m->blocks = next;
	}
}

/* ---- special registers --------------------------------------------------- */

static void fill_32(uint8_t *registers, enum emu_special special, uint32_t value)
{
	uint32_t *row = (uint32_t *)(void *)(registers + emu_special_row(special));

	EMU_EACH_LANE(l) row[l] = value;
}

static void fill_64(uint8_t *registers, enum emu_special special, uint64_t value)
{
	uint64_t *row = (uint64_t *)(void *)(registers + emu_special_row(special));

	EMU_EACH_LANE(l) row[l] = value;
}

static void fill_three(uint8_t *registers, enum emu_special x, const uint32_t value[3])
{
	for (int k = 0; k < 3; k++)
		fill_32(registers, (enum emu_special)((int)x + k), value[k]);
}

static void fill_lanes(const struct emu_grid *g, uint32_t first, uint8_t *to)
{
	static const enum emu_special rows[] = {
	    EMU_TID_X,	     EMU_TID_Y,	      EMU_TID_Z,
	    EMU_LANEID,	     EMU_LANEMASK_EQ, EMU_LANEMASK_LT,
	    EMU_LANEMASK_LE, EMU_LANEMASK_GT, EMU_LANEMASK_GE};
	uint32_t x = first % g->block[0], y = first / g->block[0] % g->block[1];
	uint32_t z = first / g->block[0] / g->block[1];
	uint32_t values[sizeof(rows) / sizeof(*rows)][EMU_LANES];

	EMU_EACH_LANE(l)
	{
		const uint32_t bit = 1u << l;
		const uint32_t of_lane[] = {x,
					    y,
					    z,
					    (uint32_t)l,
					    bit,
					    bit - 1,
					    bit | (bit - 1),
					    ~(bit | (bit - 1)),
					    ~(bit - 1)};

		for (size_t k = 0; k < sizeof(rows) / sizeof(*rows); k++)
			values[k][l] = of_lane[k];
		if (++x < g->block[0])
			continue;
		x = 0;
		if (++y < g->block[1])
			continue;
		y = 0;
		z++;
	}
	for (size_t k = 0; k < sizeof(rows) / sizeof(*rows); k++)
		memcpy(to + emu_special_row(rows[k]), values[k], sizeof(values[k]));
}

static void fill_specials(struct emu_warp *w)
{
	const struct emu_cta *c = w->cta;
	const struct emu_grid *g = c->cluster->grid;
	const uint32_t sms = emu_device_or_default(g->machine->device)->sms;
	uint8_t *to = w->bank[EMU_REGISTERS];
	uint32_t clusters[3], cluster_id[3], in_cluster[3];

	for (int k = 0; k < 3; k++) {
		clusters[k] = g->grid[k] / g->cluster[k];
		cluster_id[k] = c->id[k] / g->cluster[k];
		in_cluster[k] = c->id[k] % g->cluster[k];
	}
	fill_lanes(g, w->index * EMU_LANES, to);
	fill_three(to, EMU_NTID_X, g->block);
	fill_three(to, EMU_CTAID_X, c->id);
	fill_three(to, EMU_NCTAID_X, g->grid);
	fill_three(to, EMU_CLUSTERID_X, cluster_id);
	fill_three(to, EMU_NCLUSTERID_X, clusters);
	fill_three(to, EMU_CLUSTER_CTAID_X, in_cluster);
	fill_three(to, EMU_CLUSTER_NCTAID_X, g->cluster);
	fill_32(to, EMU_CLUSTER_CTARANK, c->rank);
	fill_32(to, EMU_CLUSTER_NCTARANK, c->cluster->n_ctas);
	fill_32(to, EMU_WARPID, w->index);
	fill_32(to, EMU_NWARPID, c->n_warps);
	fill_32(to, EMU_SMID, (c->cluster->index * c->cluster->n_ctas + c->rank) % sms);
	fill_32(to, EMU_NSMID, sms);
	fill_32(to, EMU_ENVREG1, (uint32_t)(g->workspace >> 32));
	fill_32(to, EMU_ENVREG2, (uint32_t)g->workspace);
	fill_32(to, EMU_DYNAMIC_SMEM_SIZE, g->dynamic_bytes);
	fill_32(to, EMU_TOTAL_SMEM_SIZE,
		(uint32_t)c->shared.bytes - EMU_SHARED_RESERVED);
	fill_32(to, EMU_SHARED_BASE, c->rank << EMU_RANK_SHIFT);
	fill_64(to, EMU_SHARED_BASE_64, c->rank << EMU_RANK_SHIFT);
	fill_64(to, EMU_PARAM_BASE, g->parameters);
	fill_64(to, EMU_GRIDID, g->id);
}

/* ---- CTAs ---------------------------------------------------------------- */

/* The registers of an SM that a CTA may have. */
static uint32_t registers_of_cta(const struct emu_kernel *k)
{
	return EMU_SM_REGISTERS / (k->min_ctas ? k->min_ctas : 1);
}

uint32_t emu_registers_each(const struct emu_kernel *k, uint32_t threads)
{
	const uint32_t most = k->max_threads ? k->max_threads : threads;
	/* Each quarter of the SM has the registers of as many warps as the fullest. */
	const uint32_t each = 4 * EMU_LANES, full = (most + each - 1) / each * each;
	uint32_t fair = registers_of_cta(k) / (full ? full : 1) / 8 * 8;

	if (k->max_registers && k->max_registers < fair)
		fair = k->max_registers / 8 * 8;
	return fair > 248 ? 248 : fair < 24 ? 24 : fair;
}

static bool begin_warp(struct emu_cta *c, uint32_t index)
{
	struct emu_warp *w = &c->warps[index];
	const struct emu_kernel *k = c->cluster->grid->kernel;
	const uint32_t threads = c->threads - index * EMU_LANES;

	w->cta = c;
	w->index = index;
	w->code = k->code;
	w->next_pc = EMU_NO_PC;
	w->live = threads >= EMU_LANES ? UINT32_MAX : (1u << threads) - 1;
	w->lanes = w->begun = w->live;
	w->registers_each = emu_registers_each(k, c->threads);
	w->bank[EMU_CONSTANTS] = k->constants;
	w->bank[EMU_REGISTERS] =
	    take_block(c->cluster->grid->machine, k->register_bytes);
	w->async = calloc(1, sizeof(*w->async));
	if (!w->bank[EMU_REGISTERS] || !w->async)
		return false;
	if (k->local_bytes) {
		const size_t bytes = (size_t)k->local_bytes * EMU_LANES;

		w->local.bytes = bytes;
		w->local.data = calloc(2, bytes);
		if (!w->local.data)
			return false;
		w->local.shadow = w->local.data + bytes;
		memset(w->local.shadow, EMU_MAPPED, bytes);
	}
	fill_specials(w);
	return true;
}

/* Undefined bytes are not zeros, so that results that use them are visibly wrong. */
#define POISON 0xCD

static bool begin_cta(struct emu_cluster *cluster, uint32_t rank)
{
	struct emu_cta *c = &cluster->ctas[rank];
	const struct emu_grid *g = cluster->grid;
	const uint32_t align = g->kernel->dynamic_align ? g->kernel->dynamic_align : 1;
	const uint32_t fixed = (g->kernel->shared_bytes + align - 1) / align * align;
	const size_t bytes = (size_t)EMU_SHARED_RESERVED + fixed + g->dynamic_bytes;

	c->cluster = cluster;
	c->rank = rank;
	c->threads = g->block[0] * g->block[1] * g->block[2];
	c->n_warps = (c->threads + EMU_LANES - 1) / EMU_LANES;
	c->n_live = c->n_warps;
	cluster->n_live += c->n_warps;
	c->register_pool =
	    registers_of_cta(g->kernel) -
	    c->n_warps * EMU_LANES * emu_registers_each(g->kernel, c->threads);
	c->shared.bytes = bytes;
	c->shared.data = take_block(cluster->grid->machine, 2 * bytes);
	c->warps = calloc(c->n_warps, sizeof(*c->warps));
	if (!c->shared.data || !c->warps)
		return false;
	c->shared.shadow = c->shared.data + bytes;
	memset(c->shared.data, POISON, bytes);
	memset(c->shared.shadow, 0, EMU_SHARED_RESERVED);
	memset(c->shared.shadow + EMU_SHARED_RESERVED, EMU_MAPPED,
	       bytes - EMU_SHARED_RESERVED);
	for (uint32_t i = 0; i < c->n_warps; i++)
		if (!begin_warp(c, i))
			return false;
	return true;
}

/* Places clusters in the order of their CTAs: x first. */
static void place_ctas(struct emu_cluster *cluster)
{
	const struct emu_grid *g = cluster->grid;
	const uint32_t nx = g->grid[0] / g->cluster[0];
	const uint32_t ny = g->grid[1] / g->cluster[1];
	const uint32_t at[3] = {cluster->index % nx, cluster->index / nx % ny,
				cluster->index / nx / ny};

	for (uint32_t rank = 0; rank < cluster->n_ctas; rank++) {
		uint32_t *id = cluster->ctas[rank].id;

		id[0] = at[0] * g->cluster[0] + rank % g->cluster[0];
		id[1] = at[1] * g->cluster[1] + rank / g->cluster[0] % g->cluster[1];
		id[2] = at[2] * g->cluster[2] + rank / g->cluster[0] / g->cluster[1];
	}
}

/* A cluster that is too large for the checker runs without it. */
static void begin_check(struct emu_cluster *c)
{
	const bool has_tmem = c->grid->kernel->cta_group;
	const struct emu_check_options options = {
	    .has_tensor_memory = has_tmem,
	    .is_strict = has_tmem && c->grid->machine->options.is_strict,
	    .fence_before_refill = c->grid->machine->options.is_strict,
	    .order_equal_stores = c->grid->machine->options.is_strict,
	    .order_before_stmatrix = c->grid->machine->options.is_strict};
	const struct emu_cta *first = &c->ctas[0];

	if (!c->grid->machine->options.is_unchecked)
		c->check = emu_check_open(c->n_ctas, first->n_warps,
					  (uint32_t)first->shared.bytes, options);
}

struct emu_cluster *emu_cluster_new(struct emu_grid *grid, uint32_t index)
{
	struct emu_cluster *c = calloc(1, sizeof(*c));
	bool ok = c;

	if (ok) {
		c->grid = grid;
		c->index = index;
		c->n_ctas = grid->cluster[0] * grid->cluster[1] * grid->cluster[2];
		c->ctas = calloc(c->n_ctas, sizeof(*c->ctas));
		c->transfers = calloc(1, sizeof(*c->transfers));
		ok = c->ctas && c->transfers;
	}
	if (ok)
		place_ctas(c);
	for (uint32_t rank = 0; ok && rank < c->n_ctas; rank++)
		ok = begin_cta(c, rank);
	ok = ok && emu_time_begin_cluster(c);
	if (ok) {
		begin_check(c);
		return c;
	}
	if (c)
		emu_cluster_free(c);
	grid->machine->has_failed = true;
	emu_fail(&grid->machine->report, "%s: no memory for a cluster",
		 grid->kernel->name);
	return NULL;
}

/* Reports bytes that were expected and did not arrive, or that were not expected. */
static void check_barriers(const struct emu_cta *c)
{
	struct emu_machine *m = c->cluster->grid->machine;
	char state[200];

	for (uint64_t at = 0; at + 8 <= c->shared.bytes; at += 8) {
		uint64_t bar;

		if (!(c->shared.shadow[at] & EMU_BARRIER))
			continue;
		memcpy(&bar, c->shared.data + at, sizeof(bar));
		if (emu_mbarrier_bytes(bar) == 0)
			continue;
		emu_mbarrier_describe(bar, state, sizeof(state));
		m->has_failed = true;
		m->report_rule = emu_rule_for("bytes short");
		emu_fail(&m->report,
			 "%s, cluster %u: the CTA of rank %u has ended, and "
			 "its mbarrier at offset %u is bytes short or over: %s",
			 c->cluster->grid->kernel->name, c->cluster->index, c->rank,
			 (uint32_t)at, state);
		return;
	}
}

bool emu_cluster_end(struct emu_cluster *c)
{
	bool ok = emu_transfers_end(c);

	emu_watch_end(c);
	emu_tensor_end(c);
	ok = ok && !c->grid->machine->has_failed;
	for (uint32_t rank = 0; ok && rank < c->n_ctas; rank++) {
		check_barriers(&c->ctas[rank]);
		ok = !c->grid->machine->has_failed;
	}
	return ok;
}

static void free_cta(struct emu_machine *m, struct emu_cta *c)
{
	for (uint32_t i = 0; c->warps && i < c->n_warps; i++) {
		struct emu_warp *w = &c->warps[i];

		if (w->async)
			emu_wgmma_free(w->async->wgmma);
		if (w->async)
			emu_tmem_queue_free(w->async->tmem);
		free(w->async);
		give_block(m, w->bank[EMU_REGISTERS]);
		free(w->local.data);
	}
	free(c->warps);
	give_block(m, c->shared.data);
}

void emu_cluster_free(struct emu_cluster *c)
{
	emu_time_end_cluster(c);
	if (c->transfers)
		(void)emu_transfers_end(c);
	emu_tensor_end(c);
	free(c->transfers);
	emu_check_close(c->check);
	for (uint32_t rank = 0; c->ctas && rank < c->n_ctas; rank++)
		free_cta(c->grid->machine, &c->ctas[rank]);
	free(c->ctas);
	free(c);
}
