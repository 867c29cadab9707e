/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_common.c - see gemm_common.h. */
#include "gemm_common.h"

#include <stdlib.h>
#include <string.h>

#include "arch.h"
#include "format/view.h"

/* The kernels keep the row at which the tile of a CTA pair ends in an int32_t, and some
 * look one tile ahead. */
#define ROWS_MAX (INT32_MAX - 4 * NIB_TILE_N + 1)

enum nib_status cuda_no_memory(size_t bytes, struct nib_error *err)
{
	return nib_fail(err, NIB_STATUS_OUT_OF_MEMORY,
			"no memory for a plan (%zu bytes)", bytes);
}

/* ---- operands ------------------------------------------------------------ */

/* The kernels load at least 8 bytes of a row of codes at a time. */
static enum nib_status check_strides(const struct nib_fp4 *v, struct nib_label label,
				     struct nib_error *err)
{
	const int64_t row = nib_fp4_row_stride_bytes(v);
	const int64_t batch =
	    nib_fp4_batches(v) > 1 ? nib_fp4_batch_stride_bytes(v) : 0;

	if (row % 8 != 0 || batch % 8 != 0)
		return nib_fail_at(err, NIB_STATUS_UNSUPPORTED, label, "",
				   ": row_stride_bytes = %lld, "
				   "batch_stride_bytes = %lld: must be multiples "
				   "of 8 on a GPU",
				   (long long)row, (long long)batch);
	if (v->rows > ROWS_MAX)
		return nib_fail_at(err, NIB_STATUS_UNSUPPORTED, label, "",
				   ": rows = %lld: at most 2^31 - 512 on a GPU",
				   (long long)v->rows);
	return NIB_STATUS_OK;
}

static enum nib_status check_weights(const struct nib_fp4 *b, struct nib_label label,
				     struct nib_error *err)
{
	const int64_t batch = nib_fp4_scale_batch_stride_bytes(b);

	if (b->scale_layout == NIB_SCALE_LAYOUT_TILED_128X4 && nib_fp4_batches(b) > 1 &&
	    batch % 8 != 0)
		return nib_fail_at(err, NIB_STATUS_UNSUPPORTED, label, "",
				   ": scale_batch_stride_bytes = %lld: must be "
				   "a multiple of 8 in tiles on a GPU",
				   (long long)batch);
	return check_strides(b, label, err);
}

/* The kernels load 16 bytes of a row of x at a time. */
static enum nib_status check_x(const struct nib_dense *x, struct nib_label label,
			       struct nib_error *err)
{
	const int64_t row = x->rows > 1 ? x->row_stride_elems : 0;
	const int64_t batch = x->batch > 1 ? x->batch_stride_elems : 0;

	if (row % 8 == 0 && batch % 8 == 0)
		return NIB_STATUS_OK;
	return nib_fail_at(err, NIB_STATUS_UNSUPPORTED, label, "",
			   ": row_stride_elems = %lld, batch_stride_elems = "
			   "%lld: must be multiples of 8 on a GPU",
			   (long long)x->row_stride_elems,
			   (long long)x->batch_stride_elems);
}

enum nib_status cuda_check_operands(const char *array, int64_t index,
				    const struct nib_fp4 *a, const struct nib_dense *x,
				    const struct nib_fp4 *b, const struct nib_fp4 *b2,
				    struct nib_error *err)
{
	enum nib_status status = check_strides(a, nib_label_of(array, index, "a"), err);

	if (!status && x)
		status = check_x(x, nib_label_of(array, index, "x"), err);
	if (!status)
		status = check_weights(b, nib_label_of(array, index, "b"), err);
	if (!status && b2)
		status = check_weights(b2, nib_label_of(array, index, "b2"), err);
	return status;
}

/* ---- tiles --------------------------------------------------------------- */

bool cuda_tiles_append(struct cuda_tile_list *list, const struct nib_gemm_tile *tiles,
		       size_t count)
{
	if (list->count + count > list->capacity) {
		const size_t capacity = 2 * (list->count + count);
		struct nib_gemm_tile *more =
		    realloc(list->tiles, capacity * sizeof(*more));

		if (!more)
			return false;
		list->tiles = more;
		list->capacity = capacity;
	}
	if (count)
		memcpy(list->tiles + list->count, tiles, count * sizeof(*tiles));
	list->count += count;
	return true;
}

enum nib_status cuda_tiles_upload(const struct cuda_device *device,
				  const struct cuda_tile_list *list, CUdeviceptr *data,
				  struct nib_error *err)
{
	const struct cuda_driver *cu = device->driver;
	const size_t bytes = list->count * sizeof(*list->tiles);
	CUresult result;

	if (list->count == 0)
		return NIB_STATUS_OK;
	result = cuda_memory_alloc(cu, data, bytes);
	if (!result)
		result =
		    cu->cuMemcpy(*data, (CUdeviceptr)(uintptr_t)list->tiles, bytes);
	return result ? cuda_fail(cu, result, device->name, err) : NIB_STATUS_OK;
}

int32_t cuda_tiles_most_m(const struct nib_gemm_tile *tiles, int64_t count)
{
	int32_t most = NIB_TILE_M_STEP;

	for (int64_t i = 0; i < count; i++)
		if (tiles[i].rows > most)
			most = tiles[i].rows;
	return most;
}

enum nib_status cuda_check_experts(int64_t experts, int64_t rows, int64_t padded,
				   struct nib_error *err)
{
	if (experts <= NIB_GEMM_EXPERTS && padded <= INT32_MAX)
		return NIB_STATUS_OK;
	return nib_fail_argument(err, NIB_STATUS_UNSUPPORTED, "moe",
				 ": %lld experts, %lld rows, which are %lld "
				 "when each expert's are padded: must be at "
				 "most %d experts and 2^31 - 1 padded rows on "
				 "a GPU",
				 (long long)experts, (long long)rows, (long long)padded,
				 NIB_GEMM_EXPERTS);
}

int32_t cuda_moe_tile_m(int64_t rows, int64_t experts, int32_t least)
{
	const int64_t fair = 3 * rows / (2 * experts);

	for (int32_t m = least; m < NIB_TILE_M_MAX; m *= 2)
		if (fair <= m)
			return m;
	return NIB_TILE_M_MAX;
}

/* ---- launches ------------------------------------------------------------ */

void cuda_set_cluster(CUlaunchConfig *config, int32_t ctas)
{
	CUlaunchAttribute *a = config->attrs + config->numAttrs++;

	a->id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
	a->value.clusterDim.x = (unsigned)ctas;
	a->value.clusterDim.y = a->value.clusterDim.z = 1;
}

void cuda_may_overlap(const struct cuda_device *device, CUlaunchConfig *config)
{
	CUlaunchAttribute *a;

	/* Kernels of an older architecture do not wait, also on a newer GPU. */
	if (device->arch->capabilities[0] < 90)
		return;
	a = config->attrs + config->numAttrs++;
	a->id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
	a->value.programmaticStreamSerializationAllowed = 1;
}

int cuda_resident_ctas(const struct cuda_device *device, int32_t shared_bytes, int most)
{
	/* The driver reserves 1 KiB for each CTA. */
	const int fit = (device->shared_bytes + 1024) / (shared_bytes + 1024);

	return fit < 1 ? 1 : fit < most ? fit : most;
}

enum nib_status cuda_count_clusters(const struct cuda_device *device,
				    CUfunction function, int32_t ctas, int32_t threads,
				    int32_t shared_bytes, int32_t most,
				    int32_t *clusters, struct nib_error *err)
{
	CUlaunchAttribute attribute;
	CUlaunchConfig config;
	int count = 0;
	CUresult result;

	memset(&attribute, 0, sizeof(attribute));
	memset(&config, 0, sizeof(config));
	config.attrs = &attribute;
	cuda_set_cluster(&config, ctas);
	config.gridDimX = (unsigned)ctas;
	config.gridDimY = config.gridDimZ = 1;
	config.blockDimX = (unsigned)threads;
	config.blockDimY = config.blockDimZ = 1;
	config.sharedMemBytes = (unsigned)shared_bytes;
	result =
	    device->driver->cuOccupancyMaxActiveClusters(&count, function, &config);
	if (result)
		return cuda_fail(device->driver, result, device->name, err);
	if (count < 1)
		return nib_fail(err, NIB_STATUS_DEVICE_FAILED,
				"%s: not one cluster of %d blocks with %d "
				"bytes of shared memory fits",
				device->name, ctas, shared_bytes);
	*clusters = count < most ? count : most;
	return NIB_STATUS_OK;
}
