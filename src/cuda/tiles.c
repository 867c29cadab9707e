/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiles.c - the schedule of a group: equal tiles of each problem, the longest
 * first, always to the cluster that is free first (LPT).
 *
 * A problem of m tokens is cut into equal tiles, as many as the cap on a tile
 * asks for; the cap is tried in all its steps and the shortest makespan wins.
 * What a tile costs is in the device's table (costs.h).
 */
#include "cuda/tiles.h"

#include <stdlib.h>
#include <string.h>

/* Tokens of a tile: multiples of 16, above 128 of 32. */
#define STEP NIB_TILE_TOKENS_STEP
/* Parts of k, most. */
#define PARTS_MAX 16

static int32_t divide_up(int32_t a, int32_t b)
{
	return a / b + (a % b != 0);
}

static int32_t round_tokens(int32_t tokens)
{
	const int32_t step = tokens > 128 ? 2 * STEP : STEP;

	return divide_up(tokens, step) * step;
}

/* Tokens of a tile of a problem with m, none above cap. */
static int32_t tile_tokens(int32_t m, int32_t cap)
{
	return round_tokens(divide_up(m, divide_up(m, cap)));
}

/* The tiles of a problem that have the same cost. */
struct run {
	double cycles;
	int32_t problem, tokens;
	int32_t token; /* of the first tile */
	int32_t tiles; /* along the tokens, times units */
	int32_t units;
};

static int32_t stages_of(const struct nib_tile_shape *s)
{
	return divide_up(s->k, NIB_WEIGHT_STAGE_K);
}

static int32_t min32(int32_t a, int32_t b)
{
	return a < b ? a : b;
}

/* Of one part of a tile, with its share of the work of joining them. */
static double tile_cycles(const struct nib_cuda_costs *costs,
			  const struct nib_tile_shape *s, int32_t tokens,
			  int32_t parts)
{
	const int32_t stage_steps = NIB_WEIGHT_STAGE_K / NIB_TOKEN_STAGE_K;
	const int32_t steps =
	    min32(divide_up(s->k, NIB_TOKEN_STAGE_K),
		  divide_up(stages_of(s), parts) * stage_steps);
	const double step = costs->step[nib_tile_size_of(tokens)];
	/* The table has two parts of 128 tokens; a fifth of that is waiting. */
	const double join =
	    (double)costs->split * (parts + 1) * (tokens + 32) / (3 * 160);

	return costs->tile + steps * step + (parts > 1 ? join : 0);
}

static int by_falling_cycles(const void *a, const void *b)
{
	const struct run *x = a, *y = b;

	if (x->cycles != y->cycles)
		return x->cycles < y->cycles ? 1 : -1;
	return x->problem != y->problem ? (x->problem < y->problem ? -1 : 1)
					: (x->token < y->token ? -1 : 1);
}

/* Loads of the clusters as a heap, the least loaded on top. */
struct heap {
	double *load;
	int32_t *cluster;
	int32_t size;
};

struct search {
	const struct nib_cuda_costs *costs;
	const struct nib_tile_shape *shapes;
	int32_t count;
	bool dual;
	struct run *runs;
	struct heap heap;
	int32_t *rounds;
};

/*
 * The search's runs: two a problem at most, equal tiles, and a smaller one at
 * the end.
 */
static int32_t make_runs(const struct search *search, int32_t cap,
			 int32_t parts)
{
	const struct nib_cuda_costs *costs = search->costs;
	const int32_t unit_rows =
	    search->dual ? NIB_TILE_ROWS : 2 * NIB_TILE_ROWS;
	struct run *runs = search->runs;
	int32_t n_runs = 0;

	for (int32_t i = 0; i < search->count; i++) {
		const struct nib_tile_shape *s = search->shapes + i;
		const int32_t tokens =
		    s->m && s->n ? tile_tokens(s->m, cap) : 1;
		const int32_t whole = s->n ? s->m / tokens : 0;
		const int32_t rest = s->n ? s->m % tokens : 0;
		const int32_t units = divide_up(s->n, unit_rows);

		if (whole)
			runs[n_runs++] =
			    (struct run){tile_cycles(costs, s, tokens, parts),
					 i,
					 tokens,
					 0,
					 whole,
					 units};
		if (rest) {
			const int32_t last = round_tokens(rest);

			runs[n_runs++] =
			    (struct run){tile_cycles(costs, s, last, parts),
					 i,
					 last,
					 whole * tokens,
					 1,
					 units};
		}
	}
	qsort(runs, (size_t)n_runs, sizeof(*runs), by_falling_cycles);
	return n_runs;
}

static void add_to_least(struct heap *h, double cycles)
{
	const int32_t cluster = h->cluster[0];
	const double load = h->load[0] + cycles;
	int32_t i = 0;

	for (;;) {
		int32_t child = 2 * i + 1;

		if (child >= h->size)
			break;
		if (child + 1 < h->size &&
		    (h->load[child + 1] < h->load[child] ||
		     (h->load[child + 1] == h->load[child] &&
		      h->cluster[child + 1] < h->cluster[child])))
			child++;
		if (load < h->load[child] ||
		    (load == h->load[child] && cluster < h->cluster[child]))
			break;
		h->load[i] = h->load[child];
		h->cluster[i] = h->cluster[child];
		i = child;
	}
	h->load[i] = load;
	h->cluster[i] = cluster;
}

/* Deals the runs out; rounds[c] counts, tiles (if any) are stored. */
static void deal(const struct run *runs, int32_t n_runs, struct heap *h,
		 int32_t *rounds, struct nib_tile_plan *plan,
		 struct nib_gemm_tile *tiles)
{
	const int32_t parts = plan->k_parts;

	for (int32_t c = 0; c < h->size; c++) {
		h->load[c] = 0;
		h->cluster[c] = c;
		rounds[c] = 0;
	}
	plan->tiles = 0;
	plan->rounds = 0;
	for (int32_t r = 0; r < n_runs; r++) {
		const struct run *run = runs + r;

		for (int32_t i = 0; i < run->tiles * run->units * parts; i++) {
			const int32_t t = i / parts;
			const int32_t c = h->cluster[0];
			const int32_t round = rounds[c]++;

			if (tiles)
				tiles[(int64_t)round * h->size + c] =
				    (struct nib_gemm_tile){
					run->problem, t % run->units,
					run->token +
					    t / run->units * run->tokens,
					(int16_t)run->tokens,
					(int16_t)(i % parts)};
			if (rounds[c] > plan->rounds)
				plan->rounds = rounds[c];
			add_to_least(h, run->cycles);
			plan->tiles++;
		}
	}
	plan->cycles = 0;
	for (int32_t c = 0; c < h->size; c++)
		if (h->load[c] > plan->cycles)
			plan->cycles = h->load[c];
}

/* Tries every cap with k in so many parts; keeps what beats *best. */
static void try_caps(struct search *s, int32_t parts, int32_t clusters,
		     struct nib_tile_plan *best)
{
	const int32_t most = NIB_TILE_TOKENS_MAX;

	for (int32_t cap = most; cap >= STEP;
	     cap -= cap > 128 ? 2 * STEP : STEP) {
		struct nib_tile_plan p = {
		    .k_parts = parts, .clusters = clusters, .tile_tokens = cap};
		const int32_t n_runs = make_runs(s, cap, parts);
		int64_t tiles = 0;
		double cycles = 0;

		for (int32_t r = 0; r < n_runs; r++) {
			const int64_t n = (int64_t)s->runs[r].tiles *
					  s->runs[r].units * parts;

			tiles += n;
			cycles += (double)n * s->runs[r].cycles;
		}
		/* Not even a perfect balance would win. */
		if (best->clusters && cycles / clusters >= best->cycles)
			continue;
		/* Who adds parts up waits for the others: all run at once. */
		if (parts > 1 && tiles > clusters)
			break;
		/* Long lists need no fine search. */
		if (tiles > 64 * (int64_t)clusters && cap < most)
			break;
		s->heap.size = clusters;
		deal(s->runs, n_runs, &s->heap, s->rounds, &p, NULL);
		if (best->clusters == 0 || p.cycles < best->cycles)
			*best = p;
	}
}

static bool fill(struct search *s, struct nib_tile_plan *plan,
		 struct nib_gemm_tile **tiles)
{
	const size_t entries = (size_t)plan->rounds * (size_t)plan->clusters;
	const int32_t n_runs = make_runs(s, plan->tile_tokens, plan->k_parts);

	*tiles = calloc(entries ? entries : 1, sizeof(**tiles));
	if (!*tiles)
		return false;
	s->heap.size = plan->clusters;
	deal(s->runs, n_runs, &s->heap, s->rounds, plan, *tiles);
	return true;
}

bool nib_tiles_plan(const struct nib_tile_device *device,
		    const struct nib_tile_shape *shapes, int32_t count,
		    bool dual, bool may_split, struct nib_tile_plan *plan,
		    struct nib_gemm_tile **tiles)
{
	const int32_t most = device->clusters;
	/* Every part has a stage of k at least. */
	const int32_t most_parts =
	    may_split && count == 1 && stages_of(shapes) > 1
		? min32(stages_of(shapes), PARTS_MAX)
		: 1;
	struct search s = {
	    .costs = device->costs ? device->costs : &nib_cuda_costs,
	    .shapes = shapes,
	    .count = count,
	    .dual = dual,
	};
	bool ok;

	s.runs = calloc((size_t)count * 2 + 1, sizeof(*s.runs));
	s.heap.load = calloc((size_t)most, sizeof(*s.heap.load));
	s.heap.cluster = calloc((size_t)most, sizeof(*s.heap.cluster));
	s.rounds = calloc((size_t)most, sizeof(*s.rounds));
	ok = s.runs && s.heap.load && s.heap.cluster && s.rounds;
	if (ok) {
		*plan = (struct nib_tile_plan){0};
		for (int32_t parts = 1; parts <= most_parts; parts++)
			try_caps(&s, parts, most, plan);
		ok = !tiles || fill(&s, plan, tiles);
	}
	free(s.runs);
	free(s.heap.load);
	free(s.heap.cluster);
	free(s.rounds);
	return ok;
}
