/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outputs.c - checks that the outputs of a group overlap neither each other nor any
 * input: O(n log n) for n problems in any order, in memory of the caller's.
 *
 * Outputs are sorted by their first byte.  A cluster is a longest run of outputs
 * each of whose spans begins within the spans before it; only outputs of one
 * cluster can have a byte in common.  Their spans may overlap where they have none
 * in common: columns of one wide matrix, or pieces of the rows of one stack.  One
 * more sort recognises these two patterns.  Outputs in other patterns are compared
 * pair by pair.
 */
#include "outputs.h"

#include <inttypes.h>

#include "validate.h"

struct output {
	uintptr_t begin, end;
	int64_t index; /* of the problem */
};

size_t nib_outputs_bytes(void)
{
	return sizeof(struct output);
}

/*
 * Orders outputs by their first bytes.  If stride is not 0, orders them first by the
 * column of that byte in rows of stride bytes.
 */
static bool comes_before(const struct output *x, const struct output *y,
			 uintptr_t stride)
{
	if (stride && x->begin % stride != y->begin % stride)
		return x->begin % stride < y->begin % stride;
	return x->begin != y->begin ? x->begin < y->begin : x->index < y->index;
}

static void sift_down(struct output *o, int64_t at, int64_t count, uintptr_t stride)
{
	const struct output moved = o[at];

	for (int64_t child; (child = 2 * at + 1) < count; at = child) {
		if (child + 1 < count && comes_before(&o[child], &o[child + 1], stride))
			child++;
		if (!comes_before(&moved, &o[child], stride))
			break;
		o[at] = o[child];
	}
	o[at] = moved;
}

/* Heap sort: in place, and never quadratic.  qsort() may allocate. */
static void sort(struct output *o, int64_t count, uintptr_t stride)
{
	bool is_sorted = true;

	for (int64_t i = 1; i < count && is_sorted; i++)
		is_sorted = !comes_before(&o[i], &o[i - 1], stride);
	if (is_sorted)
		return;
	for (int64_t i = count / 2; i-- > 0;)
		sift_down(o, i, count, stride);
	for (int64_t i = count; i-- > 1;) {
		const struct output last = o[i];

		o[i] = o[0];
		o[0] = last;
		sift_down(o, 0, i, stride);
	}
}

static struct nib_grid grid_of(const struct nib_problem *problems,
			       const struct output *o)
{
	return nib_dense_grid(&problems[o->index].c);
}

/*
 * True if all outputs have one row stride and are in columns that do not meet,
 * or one after the other in the same columns.
 */
static bool are_columns(const struct nib_problem *problems, struct output *o,
			int64_t count)
{
	const struct nib_grid first = grid_of(problems, &o[0]);
	const uintptr_t stride = (uintptr_t)first.row_stride;
	uintptr_t column, end;

	for (int64_t i = 0; i < count; i++)
		if (grid_of(problems, &o[i]).row_stride != first.row_stride)
			return false;
	if (stride == 0)
		return false;
	sort(o, count, stride);
	column = o[0].begin % stride;
	end = column;
	for (int64_t i = 0; i < count; i++) {
		const struct nib_grid grid = grid_of(problems, &o[i]);
		const uintptr_t at = o[i].begin % stride;
		const uintptr_t at_end = at + nib_grid_columns_bytes(&grid);

		if (at != column && at < end)
			return false;
		if (i > 0 && at == column && o[i].begin < o[i - 1].end)
			return false;
		column = at;
		end = at_end > end ? at_end : end;
	}
	/* The last columns may reach into the next row. */
	return end <= stride || end - stride <= o[0].begin % stride;
}

/* True if all outputs are neighbours in the pieces of one larger grid. */
static bool are_pieces(const struct nib_problem *problems, struct output *o,
		       int64_t count)
{
	struct nib_grid all, last;

	sort(o, count, 0);
	all = last = grid_of(problems, &o[0]);
	for (int64_t i = 1; i < count; i++) {
		const struct nib_grid next = grid_of(problems, &o[i]);

		if (next.rows != all.rows || next.row_stride != all.row_stride ||
		    next.batch != all.batch || next.batch_stride != all.batch_stride ||
		    next.begin - last.begin < (uintptr_t)last.width)
			return false;
		last = next;
	}
	/* Far below any overflow of the sums that follow. */
	if (last.begin - all.begin > INT64_MAX / 4)
		return false;
	all.width = (int64_t)(last.begin - all.begin) + last.width;
	return nib_grid_is_apart(&all);
}

static enum nib_status check_pairs(const struct nib_problem *problems, struct output *o,
				   int64_t count, struct nib_error *err)
{
	sort(o, count, 0);
	for (int64_t i = 0; i < count; i++) {
		for (int64_t j = i + 1; j < count && o[j].begin < o[i].end; j++) {
			int64_t low = o[i].index, high = o[j].index;

			if (!nib_dense_overlap(&problems[low].c, &problems[high].c))
				continue;
			if (low > high) {
				low = o[j].index;
				high = o[i].index;
			}
			return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT,
					   nib_label_of("problems", high, "c"), "data",
					   " = %p overlaps problems[%" PRId64
					   "].c: outputs must not overlap",
					   problems[high].c.data, low);
		}
	}
	return NIB_STATUS_OK;
}

static enum nib_status check_cluster(const struct nib_problem *problems,
				     struct output *o, int64_t count,
				     struct nib_error *err)
{
	if (count > 2 &&
	    (are_columns(problems, o, count) || are_pieces(problems, o, count)))
		return NIB_STATUS_OK;
	return check_pairs(problems, o, count, err);
}

/* Checks each cluster and replaces it by its span; returns the number of spans. */
static int64_t join_clusters(const struct nib_problem *problems, struct output *o,
			     int64_t count, enum nib_status *status,
			     struct nib_error *err)
{
	int64_t clusters = 0;

	for (int64_t first = 0, next; first < count; first = next) {
		struct output cluster = o[first];

		for (next = first + 1; next < count && o[next].begin < cluster.end;
		     next++)
			if (o[next].end > cluster.end)
				cluster.end = o[next].end;
		if (next - first > 1)
			*status = check_cluster(problems, &o[first], next - first, err);
		if (*status)
			return 0;
		o[clusters++] = cluster;
	}
	return clusters;
}

/* ---- inputs --------------------------------------------------------------- */

/* True if a span overlaps a cluster.  Clusters ascend and do not overlap. */
static bool meets(struct nib_span in, const struct output *clusters, int64_t count)
{
	int64_t low = 0, high = count;

	/* Most inputs are in memory of their own. */
	if (count == 0 || in.end <= clusters[0].begin ||
	    in.begin >= clusters[count - 1].end)
		return false;
	while (low < high) {
		const int64_t middle = low + (high - low) / 2;

		if (clusters[middle].end <= in.begin)
			low = middle + 1;
		else
			high = middle;
	}
	return low < count && in.begin < in.end && clusters[low].begin < in.end;
}

static enum nib_status check_input(struct nib_span in, struct nib_label label,
				   const struct nib_problem *problems, int64_t count,
				   const struct output *clusters, int64_t n_clusters,
				   struct nib_error *err)
{
	enum nib_status status = NIB_STATUS_OK;

	if (!meets(in, clusters, n_clusters))
		return NIB_STATUS_OK;
	/* Runs once a call at most: it finds an overlap, and names the first. */
	for (int64_t i = 0; i < count && !status; i++)
		status = nib_check_disjoint(nib_dense_span(&problems[i].c),
					    nib_label_of("problems", i, "c"), in, label,
					    err);
	return status;
}

enum nib_status nib_valid_outputs(enum nib_op op, const struct nib_problem *problems,
				  int64_t count, void *scratch, struct nib_error *err)
{
	struct output *o = scratch;
	int64_t n = 0;
	enum nib_status status = NIB_STATUS_OK;

	for (int64_t i = 0; i < count; i++) {
		const struct nib_span c = nib_dense_span(&problems[i].c);

		if (c.begin != c.end)
			o[n++] = (struct output){c.begin, c.end, i};
	}
	sort(o, n, 0);
	n = join_clusters(problems, o, n, &status, err);
	for (int64_t i = 0; i < count && !status; i++) {
		const struct nib_problem *p = &problems[i];
		const bool is_nvfp4 = p->activations == NIB_ACTIVATIONS_NVFP4;
		const struct {
			const struct nib_fp4 *view;
			const char *name;
			bool used;
		} inputs[] = {
		    {&p->a, "a", is_nvfp4},
		    {&p->b, "b", !p->b_packed},
		    {&p->b2, "b2", op == NIB_OP_DUAL_GEMM && !p->b2_packed},
		};

		if (!is_nvfp4)
			status = check_input(nib_dense_span(&p->x),
					     nib_label_of("problems", i, "x"), problems,
					     count, o, n, err);
		for (int j = 0; j < 3 && !status; j++) {
			const struct nib_label label =
			    nib_label_of("problems", i, inputs[j].name);

			if (!inputs[j].used)
				continue;
			status = check_input(nib_codes_span(inputs[j].view), label,
					     problems, count, o, n, err);
			if (!status)
				status = check_input(nib_scale_span(inputs[j].view),
						     label, problems, count, o, n, err);
		}
	}
	return status;
}
