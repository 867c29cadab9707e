/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tile_search.c - packs tiles of different sizes.  It tries a time for all clusters and
 * fills them one after another so that none exceeds it.  Bisection finds the least time
 * for which all tiles fit (docs/performance-hopper.md).
 *
 * A problem is a strip of rows of A for each of its row units.  A cluster gets the
 * longest piece that is left, then the other pieces that fill the rest of its time
 * best.  Strips are cut if that fills more.  All units of a problem are alike, so one
 * pattern of slices serves as many clusters as there are pieces for it: the search
 * handles tens of patterns instead of single tiles.
 */
#include "tile_search.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/*
 * The numbers with which 26 groups take 1.018 of a lower bound in the mean, found by
 * trying others: docs/notes/0033-tile-search.md ("note 0033") has the table.
 *
 * The most times that are tried.  The search ends when the gain is less than this share
 * (note 0033: a step of 1 % upwards gives 1.025).
 */
#define TRIES 8
#define FINE  0.005
/*
 * Attempts at each time (one if the problems are many, since these are easy to
 * balance), and the factor by which prices of problems with pieces left over rise for
 * the next attempt (note 0033: three attempts and 1.3 give 1.017).
 */
#define ATTEMPTS     3
#define MANY	     16
#define PRICE_GROWTH 1.3
/* If more than this share of all work is left over, no further attempt is made (note
 * 0033). */
#define HOPELESS 0.2
/*
 * The most patterns in all, which bounds the search's time (note 0033: 124 for a group
 * of eight).
 */
#define PATTERNS(problems) (100 + 3 * (problems))
/* A cluster that is busy for this share of the time needs no better pattern
 * (chosen). */
#define FULL 0.98
/* A cut that fills a smaller share of the time is not worth a tile (chosen). */
#define LEAST_CUT 0.01

#define PIECES (5 * NIB_TILE_PROBLEMS)
/* The most slices of a pattern (chosen). */
#define PATTERN_MAX 12
/*
 * The most pieces that are considered for a cut, which bounds the search's time
 * (chosen).
 */
#define CUTS_LOOKED_AT 24

struct nib_tile_search {
	const struct nib_tile_device *device;
	const struct nib_tile_shape *shapes;
	int32_t count, clusters;
	bool dual;
	double cycles; /* the most for each cluster */
	double least;  /* cycles of a tile of any size */
	double cost[NIB_TILE_PROBLEMS][NIB_TILE_SIZES];
	double price[NIB_TILE_PROBLEMS]; /* of a cycle of work */
	int32_t cap[NIB_TILE_PROBLEMS];	 /* most rows of a tile */
	bool is_stale;			 /* pieces were made with other caps */
	/* All pieces, and those left; both by falling cost. */
	struct nib_tile_piece whole[2 * NIB_TILE_PROBLEMS], left[PIECES];
	int32_t n_whole, n_left;
	int32_t patterns; /* that may still be tried */
	double work;	  /* of all pieces */
	struct nib_tile_loads loads[2];
	int current; /* index into loads; the other entry is the best so far */
};

/* A part of what a cluster gets: `each` tiles of piece left[at], of `rows` rows. */
struct slice {
	int32_t at, each, rows;
};

struct pattern {
	struct slice slices[PATTERN_MAX];
	int32_t n;
	double cycles;
	double work;  /* by which the work left decreases */
	double value; /* the same in prices */
};

static int32_t min32(int32_t a, int32_t b)
{
	return a < b ? a : b;
}

/* Rows of the first tile if `rows` rows from `row` on are cut equally. */
static int32_t next_tile(const struct nib_tile_search *s, int32_t problem, int32_t row,
			 int32_t rows)
{
	const int32_t most = min32(s->cap[problem], nib_tile_most(s->device, row));

	if (rows <= most)
		return rows;
	return nib_tile_aligned(
	    s->device,
	    nib_tile_size(nib_tile_size_of(divide_up(rows, divide_up(rows, most)))));
}

static double work_of(const struct nib_tile_search *s, int32_t problem, int32_t row,
		      int32_t rows)
{
	double work = 0;

	while (rows > 0) {
		const int32_t tile = next_tile(s, problem, row, rows);

		work += s->cost[problem][nib_tile_size_of(tile)];
		row += tile;
		rows -= tile;
	}
	return work;
}

static void set_costs(const struct nib_tile_search *s, struct nib_tile_piece *x)
{
	const int32_t tile = next_tile(s, x->problem, x->row, x->rows);

	x->cycles = s->cost[x->problem][nib_tile_size_of(tile)];
	x->work = x->cycles + work_of(s, x->problem, x->row + tile, x->rows - tile);
}

/*
 * On Hopper a tile of over 128 rows begins at a multiple of 32: the converted
 * activations end with such a step.
 */
static bool may_cut(const struct nib_tile_search *s, const struct nib_tile_piece *x,
		    int32_t tile)
{
	const int32_t rest = x->rows - tile;
	const int32_t align = s->device->align;

	if (rest <= 0 || tile > nib_tile_most(s->device, x->row))
		return false;
	if (align)
		return tile % align == 0;
	return tile % 32 == 0 || rest <= 128 || s->cap[x->problem] <= 128;
}

/* ---- pieces -------------------------------------------------------------- */

static int by_falling_cycles(const void *a, const void *b)
{
	const struct nib_tile_piece *x = a, *y = b;

	if (x->cycles != y->cycles)
		return x->cycles < y->cycles ? 1 : -1;
	if (x->problem != y->problem)
		return x->problem < y->problem ? -1 : 1;
	return x->row < y->row ? -1 : x->row > y->row;
}

/* Sets the largest tiles that the time allows.  False: some problem has none. */
static bool set_caps(struct nib_tile_search *s)
{
	bool fits = true;

	for (int32_t i = 0; i < s->count; i++) {
		const int32_t align = s->device->align;
		int32_t size = nib_tile_size_of(nib_tile_most(s->device, 0));
		int32_t cap;

		while (size >= 0 && s->cost[i][size] > s->cycles)
			size--;
		cap = size < 0 ? 0 : nib_tile_size(size);
		if (align && s->shapes[i].m > cap)
			cap = cap / align * align;
		fits = fits && cap;
		s->is_stale = s->is_stale || cap != s->cap[i];
		s->cap[i] = cap;
	}
	return fits;
}

/*
 * A long problem is cut into whole tiles until a strip of at most two remains,
 * which may be cut anywhere.
 */
static void add_problem(struct nib_tile_search *s, int32_t i)
{
	const int32_t cap = s->cap[i], m = s->shapes[i].m;
	const int32_t units = nib_tile_units(s->shapes + i, s->dual);
	const int32_t tiles = m > 2 * cap ? (m - cap - 1) / cap : 0;
	struct nib_tile_piece piece = {.problem = i, .units = units, .stride = cap};

	if (m == 0 || units == 0)
		return;
	if (tiles) {
		piece.rows = cap;
		piece.count = tiles * units;
		set_costs(s, &piece);
		s->whole[s->n_whole++] = piece;
	}
	piece.row = tiles * cap;
	piece.rows = m - tiles * cap;
	piece.count = units;
	set_costs(s, &piece);
	s->whole[s->n_whole++] = piece;
}

static void make_pieces(struct nib_tile_search *s)
{
	s->is_stale = false;
	s->n_whole = 0;
	for (int32_t i = 0; i < s->count; i++)
		add_problem(s, i);
	qsort(s->whole, (size_t)s->n_whole, sizeof(*s->whole), by_falling_cycles);
	s->work = 0;
	for (int32_t i = 0; i < s->n_whole; i++)
		s->work += s->whole[i].count * s->whole[i].work;
}

static bool insert(struct nib_tile_search *s, const struct nib_tile_piece *x)
{
	int32_t i = s->n_left;

	if (i >= PIECES)
		return false;
	for (; i > 0 && by_falling_cycles(&s->left[i - 1], x) > 0; i--)
		s->left[i] = s->left[i - 1];
	s->left[i] = *x;
	s->n_left++;
	return true;
}

/* ---- patterns ------------------------------------------------------------ */

static void add_part(const struct nib_tile_search *s, struct pattern *p, int32_t at,
		     int32_t each, int32_t tile)
{
	const struct nib_tile_piece *x = s->left + at;
	const int32_t rest = x->rows - tile;
	const double work = x->work - work_of(s, x->problem, x->row + tile, rest);

	p->slices[p->n++] = (struct slice){at, each, tile};
	p->cycles += each * s->cost[x->problem][nib_tile_size_of(tile)];
	p->work += each * work;
	p->value += each * work * s->price[x->problem];
}

static int32_t used(const struct pattern *p, int32_t at)
{
	int32_t n = 0;

	for (int32_t i = 0; i < p->n; i++)
		if (p->slices[i].at == at)
			n += p->slices[i].each;
	return n;
}

/* Adds as many tiles of each piece as fit, longest piece first. */
static void fill(const struct nib_tile_search *s, struct pattern *p, int32_t from)
{
	for (int32_t i = from; i < s->n_left && p->n < PATTERN_MAX - 1; i++) {
		const struct nib_tile_piece *x = s->left + i;
		const double gap = s->cycles - p->cycles;
		int32_t each;

		if (gap < s->least)
			return;
		if (x->cycles > gap)
			continue;
		each = x->count - (i == 0 ? used(p, 0) : 0);
		if (each * x->cycles > gap)
			each = (int32_t)(gap / x->cycles);
		if (each > 0)
			add_part(s, p, i, each,
				 next_tile(s, x->problem, x->row, x->rows));
	}
}

/* Adds one tile cut off a strip, the one that takes the most work off it. */
static void fill_by_cut(const struct nib_tile_search *s, struct pattern *p)
{
	const double gap = s->cycles - p->cycles;
	double best = LEAST_CUT * s->cycles;
	int32_t at = -1, rows = 0;

	if (gap < s->least)
		return;
	for (int32_t i = 0; i < min32(s->n_left, CUTS_LOOKED_AT); i++) {
		const struct nib_tile_piece *x = s->left + i;
		const double *cost = s->cost[x->problem];
		int size = nib_tile_size_of(x->rows);

		if (cost[0] > gap || x->count <= used(p, i))
			continue;
		while (size >= 0 &&
		       (cost[size] > gap || !may_cut(s, x, nib_tile_size(size))))
			size--;
		if (size >= 0) {
			const int32_t tile = nib_tile_size(size);
			const double gain =
			    s->price[x->problem] *
			    (x->work -
			     work_of(s, x->problem, x->row + tile, x->rows - tile));

			if (gain > best) {
				best = gain;
				at = i;
				rows = tile;
			}
		}
	}
	if (at >= 0)
		add_part(s, p, at, 1, rows);
}

/* Builds a pattern: a tile of the first piece (none if tile is 0), then other pieces.
 * Keeps the more valuable one in *best. */
static void consider(const struct nib_tile_search *s, int32_t tile, int32_t from,
		     struct pattern *best)
{
	struct pattern p = {.n = 0};

	if (tile)
		add_part(s, &p, 0, 1, tile);
	fill(s, &p, from);
	if (p.cycles < FULL * s->cycles)
		fill_by_cut(s, &p);
	if (best->n == 0 || p.value > best->value)
		*best = p;
}

/* Chooses the pattern of the next cluster, which has a tile of the longest piece. */
static void choose(const struct nib_tile_search *s, struct pattern *best)
{
	const struct nib_tile_piece *x = s->left;
	const int32_t whole = next_tile(s, x->problem, x->row, x->rows);
	int size = nib_tile_size_of(x->rows);

	best->n = 0;
	consider(s, 0, 0, best);
	if (best->work < FULL * s->cycles && best->slices[0].each > 1)
		consider(s, whole, 1, best);
	if (best->work >= FULL * s->cycles)
		return;
	for (; size >= 0 && nib_tile_size(size) * 2 >= whole; size--) {
		const int32_t tile = nib_tile_size(size);

		if (s->cost[x->problem][size] <= s->cycles && may_cut(s, x, tile))
			consider(s, tile, 0, best);
	}
}

/* ---- packing ------------------------------------------------------------- */

/* Gives the pattern to as many clusters as the pieces suffice for, and returns their
 * number. 0: no space. */
static int32_t give(struct nib_tile_search *s, const struct pattern *p, int32_t cluster)
{
	struct nib_tile_loads *loads = &s->loads[s->current];
	struct nib_tile_piece rests[PATTERN_MAX];
	int32_t clusters = s->clusters - cluster, n_rests = 0, tiles = 0, n = 0;

	for (int32_t i = 0; i < p->n; i++)
		clusters = min32(clusters, s->left[p->slices[i].at].count /
					       used(p, p->slices[i].at));
	if (loads->count + p->n > NIB_TILE_LOADS)
		return 0;
	for (int32_t i = 0; i < p->n; i++) {
		const struct slice *slice = &p->slices[i];
		struct nib_tile_piece *x = s->left + slice->at, taken = *x;
		const int32_t rows = nib_tile_size(nib_tile_size_of(slice->rows));

		taken.count = clusters * slice->each;
		x->first += taken.count;
		x->count -= taken.count;
		if (slice->rows < x->rows) {
			struct nib_tile_piece *rest = &rests[n_rests++];

			*rest = taken;
			rest->row += slice->rows;
			rest->rows -= slice->rows;
			set_costs(s, rest);
		}
		taken.rows = slice->rows;
		loads->list[loads->count++] =
		    (struct nib_tile_load){taken, cluster, clusters, slice->each};
		tiles += slice->each;
		if (rows > loads->tile_m)
			loads->tile_m = rows;
	}
	for (int32_t i = 0; i < s->n_left; i++)
		if (s->left[i].count)
			s->left[n++] = s->left[i];
	s->n_left = n;
	for (int32_t i = 0; i < n_rests; i++)
		if (!insert(s, &rests[i]))
			return 0;
	loads->tiles += (int64_t)tiles * clusters;
	if (tiles > loads->rounds)
		loads->rounds = tiles;
	if (p->cycles > loads->cycles)
		loads->cycles = p->cycles;
	return clusters;
}

/* Packs all pieces within the time.  False: some are left. */
static bool pack(struct nib_tile_search *s)
{
	struct nib_tile_loads *loads = &s->loads[s->current];
	double spare = s->cycles * s->clusters - s->work;
	int32_t cluster = 0;

	memcpy(s->left, s->whole, (size_t)s->n_whole * sizeof(*s->whole));
	s->n_left = s->n_whole;
	loads->count = loads->rounds = loads->tile_m = 0;
	loads->tiles = 0;
	loads->cycles = 0;
	while (s->n_left) {
		struct pattern p;
		int32_t served;

		if (spare < -1e-6 * s->cycles || cluster == s->clusters ||
		    s->left[0].cycles > s->cycles || s->patterns-- <= 0)
			return false;
		choose(s, &p);
		served = give(s, &p, cluster);
		if (served == 0)
			return false;
		cluster += served;
		spare -= served * (s->cycles - p.work);
	}
	return true;
}

/*
 * Raises the prices of problems with pieces left over, for the next attempt.  False:
 * too much was left over for another attempt.
 */
static bool raise_prices(struct nib_tile_search *s)
{
	bool is_raised[NIB_TILE_PROBLEMS] = {false};
	double left = 0;

	for (int32_t i = 0; i < s->n_left; i++) {
		const int32_t problem = s->left[i].problem;

		left += s->left[i].count * s->left[i].work;
		if (!is_raised[problem])
			s->price[problem] *= PRICE_GROWTH;
		is_raised[problem] = true;
	}
	return left < HOPELESS * s->work;
}

static bool try_cycles(struct nib_tile_search *s, double cycles)
{
	s->cycles = cycles;
	if (!set_caps(s))
		return false;
	if (s->is_stale)
		make_pieces(s);
	for (int32_t i = 0; i < s->count; i++)
		s->price[i] = 1;
	for (int i = 0; i < (s->count > MANY ? 1 : ATTEMPTS); i++) {
		if (pack(s))
			return true;
		if (!raise_prices(s))
			return false;
	}
	return false;
}

/* Finds the best packing by bisection, from the time `least` upwards. */
static void bisect(struct nib_tile_search *s, double least,
		   const struct nib_tile_loads **loads)
{
	double low = least, high = 0, grow = 1.05, cycles = 1.03 * least;

	for (int i = 0; i < TRIES && s->patterns > 0; i++) {
		if (high > 0 && high <= (1 + FINE) * low)
			return;
		if (try_cycles(s, cycles)) {
			*loads = &s->loads[s->current];
			s->current = !s->current;
			high = (*loads)->cycles;
		} else {
			low = cycles;
		}
		cycles = high > 0 ? (low + high) / 2 : cycles * grow;
		grow += 0.05;
	}
}

struct nib_tile_search *nib_tile_search(const struct nib_tile_device *device,
					const struct nib_tile_shape *shapes,
					int32_t count, bool dual,
					const struct nib_tile_loads **loads)
{
	struct nib_tile_search *s = malloc(sizeof(*s));

	assert(count <= NIB_TILE_PROBLEMS);
	*loads = NULL;
	if (!s)
		return NULL;
	s->device = device;
	s->shapes = shapes;
	s->count = count;
	s->clusters = device->clusters;
	s->dual = dual;
	s->current = 0;
	s->cycles = 0;
	s->least = INFINITY;
	s->is_stale = true;
	s->patterns = PATTERNS(count);
	for (int32_t i = 0; i < count; i++) {
		const int32_t steps = divide_up(shapes[i].k, NIB_STEP_K);

		s->cap[i] = 0;
		for (int j = 0; j < NIB_TILE_SIZES; j++) {
			s->cost[i][j] = nib_tile_cycles(device->costs, j, steps);
			if (s->cost[i][j] > s->cycles)
				s->cycles = s->cost[i][j];
			if (s->cost[i][j] < s->least)
				s->least = s->cost[i][j];
		}
	}
	/* A lower bound: the least work with all sizes allowed, shared evenly. */
	(void)set_caps(s);
	make_pieces(s);
	if (s->n_whole)
		bisect(s, s->work / s->clusters, loads);
	return s;
}

void nib_tile_loads_list(const struct nib_tile_loads *loads, int32_t clusters,
			 int32_t *rounds_of, struct nib_gemm_tile *tiles)
{
	memset(rounds_of, 0, (size_t)clusters * sizeof(*rounds_of));
	for (int32_t i = 0; i < loads->count; i++) {
		const struct nib_tile_load *load = &loads->list[i];
		const struct nib_tile_piece *x = &load->piece;
		const int32_t rows = nib_tile_size(nib_tile_size_of(x->rows));

		for (int32_t j = 0; j < load->clusters * load->each; j++) {
			const int32_t c = load->cluster + j / load->each;
			const int32_t p = x->first + j;

			tiles[(int64_t)rounds_of[c]++ * clusters + c] =
			    (struct nib_gemm_tile){x->problem, p % x->units,
						   x->row + p / x->units * x->stride,
						   (int16_t)rows, 0};
		}
	}
}
