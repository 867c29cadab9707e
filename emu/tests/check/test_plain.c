/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_plain.c - the checkers' quick tests of a whole warp give the verdicts of their
 * tests of one lane after the other: random accesses of four warps, some ordered by
 * barriers and some not, are given to two checkers in these two ways.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/check.h"
#include "check/order.h"
#include "check/races.h"
#include "common/unit.h"

#define WARPS	4
#define BYTES	2048
#define STEPS	20000
#define MEMORY	(UINT64_C(1) << 20)
#define CLUSTER 4 /* steps of one cluster, in the test of races: a power of two */

static uint64_t state = 1;

static uint32_t below(uint32_t n)
{
	state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (uint32_t)(state >> 33) % n;
}

/* ---- accesses ------------------------------------------------------------ */

struct step {
	uint32_t warp, lanes, bytes;
	bool is_write;
	struct emu_place place;
	uint64_t address[EMU_LANES];
	uint8_t value[EMU_LANES][32];
};

/* Lanes' accesses in BYTES bytes from base on: rows, one address, strides, any. */
static void fill(struct step *s, uint64_t base, uint32_t now)
{
	static const uint32_t sizes[] = {4, 4, 4, 8, 16, 2, 1};
	const uint32_t kind = below(6);
	const uint32_t size = sizes[below(sizeof(sizes) / sizeof(*sizes))];
	const uint64_t from = below(4) ? base + 128 * below(4) : base + 16 * below(32);

	*s = (struct step){.warp = below(WARPS),
			   .lanes = below(4) ? UINT32_MAX : below(1u << 31) + 1,
			   .bytes = size,
			   .is_write = below(3) == 0,
			   .place = {.line = 1 + below(9), .instruction = now}};
	for (uint32_t l = 0; l < EMU_LANES; l++) {
		const uint32_t to = kind < 3	? l * size
				    : kind == 3 ? 0
				    : kind == 4 ? 2 * l * size
						: below(EMU_LANES) * size;

		s->address[l] = from + to;
		memset(s->value[l], (int)below(3), sizeof(s->value[l]));
	}
}

/* What a checker has said. */
struct verdict {
	uint32_t objections;
	char last[sizeof(struct emu_error)];
};

static void note(struct verdict *v, bool is_good, const struct emu_error *err)
{
	if (is_good)
		return;
	v->objections++;
	snprintf(v->last, sizeof(v->last), "%s", err->text);
}

static void compare(const struct verdict *a, const struct verdict *b)
{
	assert_int_equal(a->objections, b->objections);
	assert_string_equal(a->last, b->last);
}

/* Bytes of a step in BYTES bytes at most, by which lanes. */
static void synchronise(struct emu_check *c, uint32_t now)
{
	if (below(3)) {
		const uint32_t warp = below(WARPS);
		const uint32_t lanes = below(3) ? UINT32_MAX : 0xFFFF;

		emu_check_lanes_sync(c, warp, lanes, UINT32_MAX, now);
		return;
	}
	for (uint32_t w = 0; w < WARPS; w++)
		emu_check_join(c, w, 0, 0, true);
	emu_check_all_joined(c, 0, 0);
	for (uint32_t w = 0; w < WARPS; w++) {
		emu_check_leave(c, w, 0, 0, true);
		emu_check_lanes_sync(c, w, UINT32_MAX, UINT32_MAX, now);
	}
}

/* ---- shared memory ------------------------------------------------------- */

static void shared_lane(struct emu_check *c, const struct step *s, uint32_t lane,
			struct verdict *v)
{
	struct emu_place place = s->place;
	struct emu_error err;

	place.lanes = 1u << lane;
	note(v,
	     (s->is_write ? emu_check_write : emu_check_read)(
		 c, s->warp, s->address[lane], s->bytes, place, &err),
	     &err);
}

static void shared_memory(void **unused)
{
	const struct emu_check_options options = {0};
	struct emu_check *one = emu_check_open(1, WARPS, 2 * BYTES, options);
	struct emu_check *all = emu_check_open(1, WARPS, 2 * BYTES, options);
	struct verdict by_one = {0}, by_all = {0};
	uint32_t clean = 0;

	for (uint32_t now = 1; now < STEPS; now++) {
		const uint32_t before = by_one.objections;
		uint64_t seed;
		struct step s;

		seed = state;
		if (below(3) == 0) {
			synchronise(one, now);
			state = seed;
			(void)below(3);
			synchronise(all, now);
			continue;
		}
		fill(&s, 0, now);
		for (uint32_t left = s.lanes; left; left &= left - 1)
			shared_lane(one, &s, (uint32_t)__builtin_ctz(left), &by_one);
		for (uint32_t left = s.lanes; left; left &= left - 1) {
			left = emu_check_plain(all, s.warp, 0, left, s.address, s.bytes,
					       s.is_write, s.place);
			if (!left)
				break;
			shared_lane(all, &s, (uint32_t)__builtin_ctz(left), &by_all);
		}
		compare(&by_one, &by_all);
		clean += by_one.objections == before;
	}
	assert_true(by_one.objections > 1000 && clean > 1000);
	emu_check_close(one);
	emu_check_close(all);
}

/* ---- global memory ------------------------------------------------------- */

static void global_memory(void **unused)
{
	const struct emu_check_options options = {0};
	struct emu_check *c = emu_check_open(1, WARPS, BYTES, options);
	struct emu_order *one = emu_order_open_cluster(WARPS);
	struct emu_order *all = emu_order_open_cluster(WARPS);
	struct verdict by_one = {0}, by_all = {0};
	uint32_t clean = 0;

	for (uint32_t now = 1; now < STEPS; now++) {
		const uint32_t before = by_one.objections;
		struct emu_order_warp who;
		struct emu_error err;
		uint32_t kind, left;
		struct step s;
		int lane;

		if (below(3) == 0) {
			synchronise(c, now);
			continue;
		}
		if (below(64) == 0) {
			emu_order_begin_cluster(one);
			emu_order_begin_cluster(all);
		}
		fill(&s, MEMORY, now);
		who = (struct emu_order_warp){0, 0, s.warp, c};
		kind = s.is_write ? EMU_ORDER_WRITE : EMU_ORDER_READ;
		for (left = s.lanes; left; left &= left - 1) {
			lane = __builtin_ctz(left);
			s.place.lanes = 1u << lane;
			note(&by_one,
			     emu_order_access(one, &who, kind, s.address[lane], s.bytes,
					      s.place, &err),
			     &err);
		}
		s.place.lanes = 1;
		left = s.lanes;
		while (!emu_order_access_lanes(all, &who, kind, left, NULL, s.address,
					       s.bytes, s.place, &lane, &err)) {
			note(&by_all, false, &err);
			left &= UINT32_MAX << lane << 1;
		}
		compare(&by_one, &by_all);
		clean += by_one.objections == before;
	}
	assert_true(by_one.objections > 1000 && clean > 1000);
	emu_order_close(one);
	emu_order_close(all);
	emu_check_close(c);
}

/* Reads of a parallel phase, by rows and by lanes, then writes of other warps. */
static void look_at(struct emu_order *o, struct emu_order_reads *reads,
		    const struct emu_order_warp *who, const struct step *s,
		    bool by_rows, struct verdict *v)
{
	struct emu_place place = s->place;
	struct emu_error err;

	place.lanes = 1;
	if (by_rows && emu_is_row(s->lanes, s->address, s->bytes) &&
	    emu_order_look_row(o, reads, who, s->address[0], s->bytes, place))
		return;
	for (uint32_t left = s->lanes; left; left &= left - 1) {
		const uint32_t lane = (uint32_t)__builtin_ctz(left);

		place.lanes = 1u << lane;
		note(v,
		     emu_order_look(o, reads, who, s->address[lane], s->bytes, place,
				    &err),
		     &err);
	}
}

static void write_by_lanes(struct emu_order *o, const struct emu_order_warp *who,
			   const struct step *s, struct verdict *v)
{
	struct emu_place place = s->place;
	struct emu_error err;

	for (uint32_t left = s->lanes; left; left &= left - 1) {
		const uint32_t lane = (uint32_t)__builtin_ctz(left);

		place.lanes = 1u << lane;
		note(v,
		     emu_order_access(o, who, EMU_ORDER_WRITE, s->address[lane],
				      s->bytes, place, &err),
		     &err);
	}
}

#define PHASE 8 /* steps; a run has four of them */

static void parallel_phases(void **unused)
{
	const struct emu_check_options options = {0};
	const uint32_t clusters = 1, warps = WARPS;
	struct emu_check *c = emu_check_open(1, WARPS, BYTES, options);
	struct emu_order *one = NULL, *all = NULL;
	struct emu_order_reads reads_of_one = {0}, reads_of_all = {0};
	struct verdict by_one = {0}, by_all = {0};
	uint32_t clean = 0, rows = 0;

	for (uint32_t now = 1; now < STEPS; now++) {
		const uint32_t before = by_one.objections;
		struct emu_order_warp who;
		struct step s;

		if (now % (4 * PHASE) == 1) {
			emu_order_close(one);
			emu_order_close(all);
			one = emu_order_open(1, &clusters, &warps);
			all = emu_order_open(1, &clusters, &warps);
			assert_true(one && all);
			reads_of_one.count = reads_of_all.count = 0;
		}
		if (below(4) == 0)
			synchronise(c, now);
		fill(&s, MEMORY, now);
		who = (struct emu_order_warp){0, 0, s.warp, c};
		if (now % PHASE == 0) {
			for (uint32_t t = 0; t < 2; t++) {
				emu_order_add(one, &reads_of_one, t, 2);
				emu_order_add(all, &reads_of_all, t, 2);
			}
			rows += reads_of_all.count < reads_of_one.count;
			assert_int_equal(reads_of_all.lanes, reads_of_one.lanes);
			reads_of_one.count = reads_of_all.count = 0;
			write_by_lanes(one, &who, &s, &by_one);
			write_by_lanes(all, &who, &s, &by_all);
		} else {
			look_at(one, &reads_of_one, &who, &s, false, &by_one);
			look_at(all, &reads_of_all, &who, &s, true, &by_all);
		}
		compare(&by_one, &by_all);
		clean += by_one.objections == before;
	}
	assert_true(by_one.objections > 1000 && clean > 1000 && rows > 1000);
	free(reads_of_one.list);
	free(reads_of_all.list);
	emu_order_close(one);
	emu_order_close(all);
	emu_check_close(c);
}

static void clusters(void **unused)
{
	struct emu_races *one = NULL, *all = NULL;
	struct verdict by_one = {0}, by_all = {0};
	uint32_t clean = 0;

	for (uint32_t now = 0; now < STEPS; now++) {
		const uint32_t before = by_one.objections;
		struct emu_error err;
		struct emu_race r;
		struct step s;
		int lane;

		if (now % 64 == 0) {
			emu_races_close(one);
			emu_races_close(all);
			one = emu_races_open(MEMORY, 2 * BYTES, now / 64 % 2);
			all = emu_races_open(MEMORY, 2 * BYTES, now / 64 % 2);
			assert_true(one && all);
		}
		fill(&s, MEMORY, now + 1);
		r = (struct emu_race){.cluster = now % 64 / CLUSTER,
				      .is_write = s.is_write,
				      .address = s.address,
				      .bytes = s.bytes,
				      .value = s.is_write ? s.value : NULL};
		for (uint32_t left = s.lanes; left; left &= left - 1) {
			r.lanes = left & -left;
			note(&by_one, emu_races_access(one, &r, &lane, &err), &err);
		}
		r.lanes = s.lanes;
		while (!emu_races_access(all, &r, &lane, &err)) {
			note(&by_all, false, &err);
			r.lanes &= UINT32_MAX << lane << 1;
		}
		compare(&by_one, &by_all);
		clean += by_one.objections == before;
	}
	assert_true(by_one.objections > 1000 && clean > 1000);
	emu_races_close(one);
	emu_races_close(all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(shared_memory),
	    cmocka_unit_test(global_memory),
	    cmocka_unit_test(parallel_phases),
	    cmocka_unit_test(clusters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
