/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tile_plan.c - the schedule of a group: the shorter of the results of two searches.
 * This file cuts each problem into equal tiles and gives them, longest first, to the
 * cluster that is free first (LPT).  tile_search.c packs tiles of all sizes; without it
 * a group of eight takes 9.0 % longer on an H200, and dual 512x3072x7168 8.7 %.
 *
 * A problem of m rows of A is cut into as few equal tiles as a cap on the tile's rows
 * allows, and every cap is tried.  The cost of a tile is from the device's table
 * (costs.h).
 */
#include "tile_plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tile_search.h"

/* Rows of A of a tile: a multiple of 16, above 128 of 32. */
#define STEP NIB_TILE_M_STEP
/* The most split-k slices. */
#define SLICES_MAX 16
/* With this many tiles for each cluster the sizes of tiles hardly matter. */
#define LONG_LIST 64
/* The largest gain that is required of a schedule with more tiles. */
#define MORE_TILES 0.1

/* Rows of the tiles of a problem of m rows, at most cap. */
static int32_t tile_m(const struct nib_tile_device *device, int32_t m, int32_t cap)
{
	const bool is_one = m <= cap;
	int32_t rows;

	if (!is_one && device->align)
		cap = cap / device->align * device->align;
	rows = nib_tile_size(nib_tile_size_of(divide_up(m, divide_up(m, cap))));
	return is_one ? rows : nib_tile_aligned(device, rows);
}

/* The tiles of a problem that have the same cost. */
struct run {
	double cycles;
	int32_t problem, rows;
	int32_t row;   /* of the first tile */
	int32_t tiles; /* along m, times units, times matrices */
	int32_t units, matrices;
};

static int32_t stages_of(const struct nib_tile_shape *s)
{
	return divide_up(s->k, NIB_WEIGHT_STAGE_K);
}

static int32_t min32(int32_t a, int32_t b)
{
	return a < b ? a : b;
}

/*
 * The cycles of one split-k slice of a tile, with its share of the reduction.
 */
static double tile_cycles(const struct nib_cuda_costs *costs,
			  const struct nib_tile_shape *s, int32_t rows, int32_t slices)
{
	const int32_t steps =
	    min32(divide_up(s->k, NIB_STEP_K),
		  divide_up(stages_of(s), slices) * NIB_WEIGHT_STAGE_STEPS);
	/* The table has the cost of two slices of 128 rows, a fifth of it for
	 * waiting. */
	const double join =
	    (double)costs->split * (slices + 1) * (rows + 32) / (3 * 160);

	return nib_tile_cycles(costs, nib_tile_size_of(rows), steps) +
	       (slices > 1 ? join : 0);
}

static int by_falling_cycles(const void *a, const void *b)
{
	const struct run *x = a, *y = b;

	if (x->cycles != y->cycles)
		return x->cycles < y->cycles ? 1 : -1;
	return x->problem != y->problem ? (x->problem < y->problem ? -1 : 1)
					: (x->row < y->row ? -1 : 1);
}

/*
 * The cycles of a cluster, and the cluster that is free next: a list ordered by cycles.
 * The last entry is its end, which is never free and whose next is the first cluster.
 */
struct load {
	double cycles;
	int32_t next;
};

struct search {
	struct nib_tile_device device;
	const struct nib_cuda_costs *costs;
	const struct nib_tile_shape *shapes;
	int32_t count;
	bool dual;
	struct run *runs;
	struct load *loads;
	int32_t *rounds;
};

/*
 * Fills the search's runs, at most two for each problem: its equal tiles, and a smaller
 * tile at its end.
 */
static int32_t make_runs(const struct search *search, int32_t cap, int32_t slices)
{
	const struct nib_cuda_costs *costs = search->costs;
	struct run *runs = search->runs;
	int32_t n_runs = 0;

	for (int32_t i = 0; i < search->count; i++) {
		const struct nib_tile_shape *s = search->shapes + i;
		const int32_t rows =
		    s->m && s->n ? tile_m(&search->device, s->m, cap) : 1;
		const int32_t whole = s->n ? s->m / rows : 0;
		const int32_t rest = s->n ? s->m % rows : 0;
		const int32_t units = nib_tile_units(s, search->dual);

		if (whole)
			runs[n_runs++] =
			    (struct run){tile_cycles(costs, s, rows, slices),
					 i,
					 rows,
					 0,
					 whole,
					 units,
					 s->more + 1};
		if (rest) {
			const int32_t last = nib_tile_size(nib_tile_size_of(rest));

			runs[n_runs++] =
			    (struct run){tile_cycles(costs, s, last, slices),
					 i,
					 last,
					 whole * rows,
					 1,
					 units,
					 s->more + 1};
		}
	}
	return n_runs;
}

/*
 * Adds cycles to the cluster that is free first, which moves along the list, and
 * returns it.  after: the cluster that got the run's previous tile, or end.  The
 * cluster's new place follows that one, so that all tiles of a run together walk along
 * the list once.
 */
static int32_t give_to_first(struct load *loads, int32_t end, int32_t after,
			     double cycles)
{
	const int32_t c = loads[end].next;
	int32_t i = after == c ? end : after, next;

	loads[end].next = loads[c].next;
	loads[c].cycles += cycles;
	for (;; i = next) {
		next = loads[i].next;
		if (loads[next].cycles > loads[c].cycles ||
		    (next > c && loads[next].cycles == loads[c].cycles))
			break;
	}
	loads[i].next = c;
	loads[c].next = next;
	return c;
}

static int64_t tiles_of(const struct run *run, int32_t slices)
{
	return (int64_t)run->tiles * run->units * run->matrices * slices;
}

/*
 * Tile t of a run, counted by matrix, then by raster (a range of units), then by row,
 * then by unit.
 */
static struct nib_gemm_tile tile_of(const struct run *run, int32_t t, int32_t raster)
{
	const int32_t each = run->tiles * run->units;
	const int32_t wide = raster && raster < run->units ? raster : run->units;
	const int32_t first = t % each / (wide * run->tiles) * wide;
	const int32_t inside = t % each % (wide * run->tiles);
	const int32_t units = run->units - first < wide ? run->units - first : wide;

	return (struct nib_gemm_tile){
	    .problem = run->problem + t / each,
	    .unit = first + inside % units,
	    .row = run->row + inside / units * run->rows,
	    .rows = (int16_t)run->rows,
	};
}

/* Deals the tiles of the sorted runs to clusters.  s->rounds counts those of each
 * cluster; they are stored in tiles unless it is NULL. */
static void deal(struct search *s, int32_t n_runs, struct nib_tile_plan *plan,
		 struct nib_gemm_tile *tiles)
{
	const int32_t slices = plan->k_slices, end = plan->clusters;
	struct load *loads = s->loads;
	int32_t *rounds = s->rounds;

	for (int32_t c = 0; c < end; c++) {
		loads[c] = (struct load){0, c + 1};
		rounds[c] = 0;
	}
	loads[end] = (struct load){INFINITY, 0};
	plan->rounds = 0;
	plan->cycles = 0;
	for (int32_t r = 0; r < n_runs; r++) {
		const struct run *run = &s->runs[r];
		const int32_t count = (int32_t)tiles_of(run, slices);
		int32_t c = end;

		for (int32_t i = 0; i < count; i++) {
			const int32_t t = i / slices;

			c = give_to_first(loads, end, c, run->cycles);
			if (tiles) {
				struct nib_gemm_tile *at =
				    &tiles[(int64_t)rounds[c] * end + c];

				*at = tile_of(run, t, s->device.raster);
				at->k_slice = (int16_t)(i % slices);
			}
			if (++rounds[c] > plan->rounds)
				plan->rounds = rounds[c];
			if (loads[c].cycles > plan->cycles)
				plan->cycles = loads[c].cycles;
		}
	}
}

/* Sets plan->tiles, and plan->cycles to an even share of the work.  Returns the largest
 * size. */
static int count_tiles(const struct run *runs, int32_t n_runs,
		       struct nib_tile_plan *plan)
{
	double work = 0;
	int largest = 0;

	for (int32_t r = 0; r < n_runs; r++) {
		const int64_t n = tiles_of(&runs[r], plan->k_slices);
		const int size = nib_tile_size_of(runs[r].rows);

		plan->tiles += n;
		work += (double)n * runs[r].cycles;
		if (size > largest)
			largest = size;
	}
	plan->cycles = work / plan->clusters;
	return largest;
}

/*
 * Sorts the runs and returns a lower bound of the schedule's cycles.  Some cluster gets
 * at least tiles / clusters of the tiles of the first r runs, none of which is shorter
 * than those of run r.
 */
static double least_cycles(struct run *runs, int32_t n_runs,
			   const struct nib_tile_plan *plan)
{
	const int32_t clusters = plan->clusters;
	int64_t tiles = 0;
	double least = 0;

	qsort(runs, (size_t)n_runs, sizeof(*runs), by_falling_cycles);
	for (int32_t r = 0; r < n_runs; r++) {
		int64_t rounds;

		tiles += tiles_of(&runs[r], plan->k_slices);
		rounds = (tiles + clusters - 1) / clusters;
		if ((double)rounds * runs[r].cycles > least)
			least = (double)rounds * runs[r].cycles;
	}
	return least;
}

/* Tries all caps with k in this many slices; keeps what is shorter than *best. */
static void try_caps(struct search *s, int32_t slices, int32_t clusters,
		     struct nib_tile_plan *best)
{
	const int most = nib_tile_size_of(nib_tile_most(&s->device, 0));
	/* Only the last tile of a problem may be smaller. */
	const int least = nib_tile_size_of(nib_tile_aligned(&s->device, 1));
	int largest;

	/* Skips caps between the largest tile and this cap: they give the same
	 * tiles. */
	for (int cap = most; cap >= least; cap = largest - 1) {
		struct nib_tile_plan p = {.k_slices = slices,
					  .clusters = clusters,
					  .tile_m = nib_tile_size(cap)};
		const int32_t n_runs = make_runs(s, p.tile_m, slices);

		largest = count_tiles(s->runs, n_runs, &p);
		/*
		 * Slices wait for each other, so all must be resident at once.
		 */
		if (slices > 1 && p.tiles > clusters)
			break;
		if (p.tiles > LONG_LIST * (int64_t)clusters && cap < most)
			break;
		/* Even a perfect balance would not be shorter. */
		if (best->clusters && p.cycles >= best->cycles)
			continue;
		p.rounds = p.tiles > 0;
		p.cycles = least_cycles(s->runs, n_runs, &p);
		if (best->clusters && p.cycles >= best->cycles)
			continue;
		if (p.tiles > clusters)
			deal(s, n_runs, &p, NULL);
		if (best->clusters == 0 || p.cycles < best->cycles)
			*best = p;
	}
}

/* Stores the plan's tiles.  loads: the packed tiles, which the plan may use, or
 * NULL. */
static bool fill(struct search *s, struct nib_tile_plan *plan,
		 const struct nib_tile_loads *loads, struct nib_gemm_tile **tiles)
{
	const size_t entries = (size_t)plan->rounds * (size_t)plan->clusters;
	int32_t n_runs;

	*tiles = calloc(entries ? entries : 1, sizeof(**tiles));
	if (!*tiles)
		return false;
	if (plan->is_packed) {
		nib_tile_loads_list(loads, plan->clusters, s->rounds, *tiles);
		return true;
	}
	n_runs = make_runs(s, plan->tile_m, plan->k_slices);
	qsort(s->runs, (size_t)n_runs, sizeof(*s->runs), by_falling_cycles);
	deal(s, n_runs, plan, *tiles);
	return true;
}

/*
 * Uses the packed tiles if they end earlier than *plan.  More tiles load the weights
 * more often and cost more than the table says.  So they must be shorter by the same
 * share as they are more, up to a tenth (docs/performance-hopper.md).
 */
static void take_packed(const struct nib_tile_loads *loads, int32_t clusters,
			struct nib_tile_plan *plan)
{
	double more =
	    loads && plan->tiles ? (double)loads->tiles / (double)plan->tiles - 1 : 0;

	more = more < 0 ? 0 : more > MORE_TILES ? MORE_TILES : more;
	if (loads && loads->cycles * (1 + more) < plan->cycles)
		*plan = (struct nib_tile_plan){
		    .k_slices = 1,
		    .clusters = clusters,
		    .rounds = loads->rounds,
		    .tile_m = loads->tile_m,
		    .tiles = loads->tiles,
		    .cycles = loads->cycles,
		    .is_packed = true,
		};
}

int64_t nib_tiles_least(const struct nib_tile_shape *shapes, int32_t count, bool dual)
{
	int64_t tiles = 0;

	for (int32_t i = 0; i < count; i++)
		tiles += (int64_t)divide_up(shapes[i].m, NIB_TILE_M_MAX) *
			 nib_tile_units(shapes + i, dual) * (shapes[i].more + 1);
	return tiles;
}

/* The tiles of a batch are equal, so packing gains nothing. */
static bool is_batch(const struct search *s)
{
	return s->count == 1 && s->shapes->more > 0;
}

/* For such a long list only tiles of the largest size are tried. */
static bool is_long(const struct search *s, int32_t clusters)
{
	return nib_tiles_least(s->shapes, s->count, s->dual) >
	       LONG_LIST * (int64_t)clusters;
}

/* Packed tiles have all of k, which cannot win if the smallest one takes too long. */
static bool whole_k_may_win(const struct search *s, const struct nib_tile_plan *plan)
{
	for (int32_t i = 0; i < s->count; i++)
		if (s->shapes[i].m && s->shapes[i].n &&
		    tile_cycles(s->costs, s->shapes + i, STEP, 1) >= plan->cycles)
			return false;
	return true;
}

static bool plan_all(struct search *s, int32_t clusters, int32_t most_slices,
		     struct nib_tile_plan *plan, struct nib_gemm_tile **tiles)
{
	const struct nib_tile_loads *loads = NULL;
	struct nib_tile_search *packed = NULL;
	bool ok = true;

	*plan = (struct nib_tile_plan){0};
	for (int32_t slices = 1; slices <= most_slices; slices++)
		try_caps(s, slices, clusters, plan);
	if (!is_batch(s) && !is_long(s, clusters) && whole_k_may_win(s, plan)) {
		packed =
		    nib_tile_search(&s->device, s->shapes, s->count, s->dual, &loads);
		ok = packed != NULL;
	}
	take_packed(loads, clusters, plan);
	if (ok && tiles)
		ok = fill(s, plan, loads, tiles);
	free(packed);
	return ok;
}

bool nib_tiles_plan(const struct nib_tile_device *device,
		    const struct nib_tile_shape *shapes, int32_t count, bool dual,
		    bool may_split, struct nib_tile_plan *plan,
		    struct nib_gemm_tile **tiles)
{
	const int32_t most = device->clusters;
	/* Every slice has at least one weight stage. */
	const int32_t most_slices = may_split && count == 1 && stages_of(shapes) > 1
					? min32(stages_of(shapes), SLICES_MAX)
					: 1;
	struct search s = {
	    .device = *device,
	    .shapes = shapes,
	    .count = count,
	    .dual = dual,
	};
	bool ok;

	s.costs = s.device.costs;
	s.runs = calloc((size_t)count * 2 + 1, sizeof(*s.runs));
	s.loads = calloc((size_t)most + 1, sizeof(*s.loads));
	s.rounds = calloc((size_t)most, sizeof(*s.rounds));
	ok = s.runs && s.loads && s.rounds;
	ok = ok && plan_all(&s, most, most_slices, plan, tiles);
	free(s.runs);
	free(s.loads);
	free(s.rounds);
	return ok;
}
