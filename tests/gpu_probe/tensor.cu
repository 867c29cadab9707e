/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor.cu - asks a Hopper GPU and its driver what tensor_cases.h lists, writes
 * their answers, and compares them with the software GPU's.  Exit code 1 if
 * anything differs.  run.sh builds it.
 */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
#include "tensor_cases.h"
}

#define C1 "{%2}"
#define C2 "{%2, %3}"
#define C3 "{%2, %3, %4}"
#define C4 "{%2, %3, %4, %5}"
#define C5 "{%2, %3, %4, %5, %6}"

struct place {
	int32_t at[EMU_TENSOR_RANK];
};

#define LOAD(rank)                                                             \
	asm volatile("cp.async.bulk.tensor." #rank                             \
		     "d.shared::cluster.global.mbarrier::complete_tx::bytes "  \
		     "[%0], [%1, " C##rank "], [%7];" ::"r"(to),               \
		     "l"(map), "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]),       \
		     "r"(c.at[3]), "r"(c.at[4]), "r"(bar)                      \
		     : "memory")

#define STORE(rank)                                                            \
	asm volatile("cp.async.bulk.tensor." #rank                             \
		     "d.global.shared::cta.bulk_group [%1, " C##rank           \
		     "], [%0];" ::"r"(to),                                     \
		     "l"(map), "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]),       \
		     "r"(c.at[3]), "r"(c.at[4])                                \
		     : "memory")

#define BY_RANK(what, rank)                                                    \
	switch (rank) {                                                        \
	case 1:                                                                \
		what(1);                                                       \
		break;                                                         \
	case 2:                                                                \
		what(2);                                                       \
		break;                                                         \
	case 3:                                                                \
		what(3);                                                       \
		break;                                                         \
	case 4:                                                                \
		what(4);                                                       \
		break;                                                         \
	default:                                                               \
		what(5);                                                       \
	}

static __device__ uint32_t address_of(const void *p)
{
	return (uint32_t)__cvta_generic_to_shared(p);
}

/* True when the phase has ended, false if it does not for a long time. */
static __device__ uint32_t ends(uint32_t bar)
{
	uint32_t done = 0;

	for (int i = 0; i < 100000 && !done; i++)
		asm volatile(
			"{\n\t.reg .pred p;\n\t"
			"mbarrier.test_wait.parity.shared::cta.b64 p, [%1], "
			"0;\n\tselp.u32 %0, 1, 0, p;\n\t}"
			: "=r"(done)
			: "r"(bar)
			: "memory");
	return done;
}

/* out: shared memory, then whether bytes were counted as expected. */
static __global__ void load(const __grid_constant__ CUtensorMap tensor,
			    int rank, place c, uint32_t begin, uint32_t bytes,
			    uint8_t *out)
{
	extern __shared__ __align__(1024) uint8_t memory[];
	__shared__ uint64_t barrier;
	const uint32_t bar = address_of(&barrier);
	const uint32_t to = address_of(memory) + begin;
	const uint64_t map = (uint64_t)&tensor;
	__shared__ uint32_t done;

	for (uint32_t i = threadIdx.x; i < TENSOR_SHARED; i += blockDim.x)
		memory[i] = TENSOR_FILL;
	asm volatile("fence.proxy.async;" ::: "memory");
	__syncthreads();
	if (threadIdx.x == 0) {
		asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n\t"
			     "fence.mbarrier_init.release.cluster;\n\t"
			     "mbarrier.arrive.expect_tx.shared::cta.b64 _, "
			     "[%0], %1;" ::"r"(bar),
			     "r"(bytes)
			     : "memory");
		BY_RANK(LOAD, rank);
		done = ends(bar);
	}
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < TENSOR_SHARED; i += blockDim.x)
		out[i] = memory[i];
	if (threadIdx.x == 0)
		out[TENSOR_SHARED] = (uint8_t)done;
}

static __global__ void store(const __grid_constant__ CUtensorMap tensor,
			     int rank, place c, uint32_t begin,
			     const uint8_t *from)
{
	extern __shared__ __align__(1024) uint8_t memory[];
	const uint32_t to = address_of(memory) + begin;
	const uint64_t map = (uint64_t)&tensor;

	for (uint32_t i = threadIdx.x; i < TENSOR_SHARED; i += blockDim.x)
		memory[i] = from[i];
	asm volatile("fence.proxy.async;" ::: "memory");
	__syncthreads();
	if (threadIdx.x == 0) {
		BY_RANK(STORE, rank);
		asm volatile("cp.async.bulk.commit_group;\n\t"
			     "cp.async.bulk.wait_group 0;" ::
				     : "memory");
	}
}

/* ---- host ---------------------------------------------------------------- */

static void must(cudaError_t status, const char *what)
{
	if (status == cudaSuccess)
		return;
	fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
	exit(2);
}

typedef CUresult encode_function(CUtensorMap *, CUtensorMapDataType, cuuint32_t,
				 void *, const cuuint64_t *, const cuuint64_t *,
				 const cuuint32_t *, const cuuint32_t *,
				 CUtensorMapInterleave, CUtensorMapSwizzle,
				 CUtensorMapL2promotion,
				 CUtensorMapFloatOOBfill);
static encode_function *encode_tiled;

static bool encode(CUtensorMap *to, const emu_tensor_map *map)
{
	cuuint64_t sizes[EMU_TENSOR_RANK], strides[EMU_TENSOR_RANK - 1];

	for (int i = 0; i < EMU_TENSOR_RANK; i++)
		sizes[i] = map->sizes[i];
	for (int i = 0; i < EMU_TENSOR_RANK - 1; i++)
		strides[i] = map->strides_bytes[i];
	return encode_tiled(to, (CUtensorMapDataType)map->type,
			    (cuuint32_t)map->rank, (void *)map->address, sizes,
			    strides, map->box, map->element_strides,
			    (CUtensorMapInterleave)map->interleave,
			    (CUtensorMapSwizzle)map->swizzle,
			    (CUtensorMapL2promotion)map->l2_promotion,
			    (CUtensorMapFloatOOBfill)map->fill) == CUDA_SUCCESS;
}

static uint8_t before[TENSOR_BYTES], model[TENSOR_BYTES], answer[TENSOR_BYTES];
static uint8_t *global, *out;
static int differences;

static void describe(const char *what, int i, const tensor_case *c)
{
	const emu_tensor_map *m = &c->map;

	printf("%s %d: type %d swizzle %d begin %u sizes", what, i, m->type,
	       m->swizzle, c->begin);
	for (int d = 0; d < m->rank; d++)
		printf(" %llu(box %u step %u at %d)",
		       (unsigned long long)m->sizes[d], m->box[d],
		       m->element_strides[d], c->coordinates[d]);
	printf("\n");
}

/* Prints the first bytes that differ. */
static void compare(const char *what, int i, const tensor_case *c,
		    uint32_t bytes)
{
	int shown = 0;

	if (memcmp(answer, model, bytes) == 0)
		return;
	if (differences++ >= 12)
		return;
	describe(what, i, c);
	for (uint32_t at = 0; at < bytes && shown < 16; at++)
		if (answer[at] != model[at] && ++shown)
			printf("  byte %u: GPU %02x, model %02x\n", at,
			       answer[at], model[at]);
}

static void ask_load(FILE *file, int i)
{
	tensor_case c;
	CUtensorMap map;
	place at;
	uint8_t done;

	tensor_case_make(&c, false, i);
	memcpy(at.at, c.coordinates, sizeof(at.at));
	memset(model, TENSOR_FILL, TENSOR_SHARED);
	tensor_case_load(&c, before, model);
	must(cudaMemcpy(global, before, TENSOR_BYTES, cudaMemcpyHostToDevice),
	     "copy");
	c.map.address += (uint64_t)global;
	if (!encode(&map, &c.map)) {
		describe("refused: load", i, &c);
		differences++;
		fprintf(file, "%016llx 0\n", 0ull);
		return;
	}
	load<<<1, 256, TENSOR_SHARED>>>(map, c.map.rank, at, c.begin,
					emu_tensor_map_box_bytes(&c.map), out);
	must(cudaGetLastError(), "launch");
	must(cudaMemcpy(answer, out, TENSOR_SHARED + 1, cudaMemcpyDeviceToHost),
	     "load");
	done = answer[TENSOR_SHARED];
	fprintf(file, "%016llx %u\n",
		(unsigned long long)tensor_hash(answer, TENSOR_SHARED), done);
	if (!done) {
		describe("bytes not counted as expected: load", i, &c);
		differences++;
	}
	compare("load", i, &c, TENSOR_SHARED);
}

static void ask_store(FILE *file, int i)
{
	static uint8_t shared[TENSOR_SHARED];
	tensor_case c;
	CUtensorMap map;
	place at;

	tensor_case_make(&c, true, i);
	memcpy(at.at, c.coordinates, sizeof(at.at));
	for (uint32_t k = 0; k < TENSOR_SHARED; k++)
		shared[k] = tensor_shared_byte(k);
	memcpy(model, before, TENSOR_BYTES);
	tensor_case_store(&c, model, shared);
	must(cudaMemcpy(global, before, TENSOR_BYTES, cudaMemcpyHostToDevice),
	     "copy");
	must(cudaMemcpy(out, shared, TENSOR_SHARED, cudaMemcpyHostToDevice),
	     "copy");
	c.map.address += (uint64_t)global;
	if (!encode(&map, &c.map)) {
		describe("refused: store", i, &c);
		differences++;
		fprintf(file, "%016llx\n", 0ull);
		return;
	}
	store<<<1, 256, TENSOR_SHARED>>>(map, c.map.rank, at, c.begin, out);
	must(cudaGetLastError(), "launch");
	must(cudaMemcpy(answer, global, TENSOR_BYTES, cudaMemcpyDeviceToHost),
	     "store");
	fprintf(file, "%016llx\n",
		(unsigned long long)tensor_hash(answer, TENSOR_BYTES));
	compare("store", i, &c, TENSOR_BYTES);
}

static void ask_rule(FILE *file, int i)
{
	emu_tensor_map map;
	CUtensorMap encoded;
	emu_error err = {""};
	bool is_taken, is_good;

	tensor_rule_make(&map, i, (uint64_t)global);
	is_taken = encode(&encoded, &map);
	is_good = emu_tensor_map_check(&map, &err);
	fprintf(file, "%d%s", is_taken, i % 64 == 63 ? "\n" : "");
	if (is_taken == is_good)
		return;
	differences++;
	printf("rule %d: the driver %s it; model: %s (type %d rank %d interleave %d swizzle %d fill %d)\n",
	       i, is_taken ? "takes" : "refuses", is_good ? "good" : err.text,
	       map.type, map.rank, map.interleave, map.swizzle, map.fill);
}

int main(int argc, char **argv)
{
	FILE *file;
	cudaDriverEntryPointQueryResult found;
	cudaDeviceProp device;

	if (argc != 2) {
		fprintf(stderr, "usage: %s RECORDING\n", argv[0]);
		return 2;
	}
	must(cudaGetDeviceProperties(&device, 0), "device");
	file = fopen(argv[1], "w");
	if (!file) {
		perror(argv[1]);
		return 2;
	}
	must(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled",
					      (void **)&encode_tiled, 12000,
					      cudaEnableDefault, &found),
	     "cuTensorMapEncodeTiled");
	must(cudaMalloc(&global, TENSOR_BYTES), "malloc");
	must(cudaMalloc(&out, TENSOR_BYTES), "malloc");
	must(cudaFuncSetAttribute(load,
				  cudaFuncAttributeMaxDynamicSharedMemorySize,
				  TENSOR_SHARED),
	     "shared memory");
	for (uint32_t i = 0; i < TENSOR_BYTES; i++)
		before[i] = tensor_global_byte(i);
	fprintf(file, "# tests/gpu_probe/tensor.cu on %s\n", device.name);
	for (int i = 0; i < TENSOR_CASES; i++)
		ask_load(file, i);
	for (int i = 0; i < TENSOR_CASES; i++)
		ask_store(file, i);
	for (int i = 0; i < TENSOR_RULES; i++)
		ask_rule(file, i);
	if (fclose(file) != 0)
		return 2;
	printf("%d differences\n", differences);
	return differences != 0;
}
