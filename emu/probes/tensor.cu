/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor.cu - runs the cases of tensor_cases.h on a Hopper GPU and its driver, records
 * the results, and compares them with the software GPU's.  The end of the GPU's context
 * is also a result.  A box that only the software GPU accepts is tried again with one
 * property simplified at a time, to find the reason.  Exit code 1 if anything differs.
 * run.sh builds it.
 *
 * Lines of the recording: for each load "ok HASH COUNTED" (whether as many bytes were
 * counted as expected), for each store "ok HASH"; or "refused" by the driver, or "trap
 * NAME" (CUDA's error).  The driver's answers to the rules follow, one digit each.
 */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
#include "children.h"
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

#define LOAD(rank)                                                                     \
	asm volatile("cp.async.bulk.tensor." #rank                                     \
		     "d.shared::cluster.global.mbarrier::complete_tx::bytes "          \
		     "[%0], [%1, " C##rank "], [%7];" ::"r"(to),                       \
		     "l"(map), "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3]), \
		     "r"(c.at[4]), "r"(bar)                                            \
		     : "memory")

#define STORE(rank)                                                                    \
	asm volatile("cp.async.bulk.tensor." #rank                                     \
		     "d.global.shared::cta.bulk_group [%1, " C##rank                   \
		     "], [%0];" ::"r"(to),                                             \
		     "l"(map), "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3]), \
		     "r"(c.at[4])                                                      \
		     : "memory")

#define BY_RANK(what, rank)                                                            \
	switch (rank) {                                                                \
	case 1:                                                                        \
		what(1);                                                               \
		break;                                                                 \
	case 2:                                                                        \
		what(2);                                                               \
		break;                                                                 \
	case 3:                                                                        \
		what(3);                                                               \
		break;                                                                 \
	case 4:                                                                        \
		what(4);                                                               \
		break;                                                                 \
	default:                                                                       \
		what(5);                                                               \
	}

static __device__ uint32_t address_of(const void *p)
{
	return (uint32_t)__cvta_generic_to_shared(p);
}

/* True when the phase has ended; false after a long time. */
static __device__ uint32_t ends(uint32_t bar)
{
	uint32_t done = 0;

	for (int i = 0; i < 100000 && !done; i++)
		asm volatile("{\n\t.reg .pred p;\n\t"
			     "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], "
			     "0;\n\tselp.u32 %0, 1, 0, p;\n\t}"
			     : "=r"(done)
			     : "r"(bar)
			     : "memory");
	return done;
}

/* out: shared memory, then whether bytes were counted as expected. */
static __global__ void load(const __grid_constant__ CUtensorMap tensor, int rank,
			    place c, uint32_t begin, uint32_t bytes, uint8_t *out)
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

static __global__ void store(const __grid_constant__ CUtensorMap tensor, int rank,
			     place c, uint32_t begin, const uint8_t *from)
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

typedef CUresult encode_function(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
				 const cuuint64_t *, const cuuint64_t *,
				 const cuuint32_t *, const cuuint32_t *,
				 CUtensorMapInterleave, CUtensorMapSwizzle,
				 CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
static encode_function *encode_tiled;

static bool encode(CUtensorMap *to, const emu_tensor_map *map)
{
	cuuint64_t sizes[EMU_TENSOR_RANK], strides[EMU_TENSOR_RANK - 1];

	for (int i = 0; i < EMU_TENSOR_RANK; i++)
		sizes[i] = map->sizes[i];
	for (int i = 0; i < EMU_TENSOR_RANK - 1; i++)
		strides[i] = map->strides_bytes[i];
	return encode_tiled(to, (CUtensorMapDataType)map->type, (cuuint32_t)map->rank,
			    (void *)map->address, sizes, strides, map->box,
			    map->element_strides,
			    (CUtensorMapInterleave)map->interleave,
			    (CUtensorMapSwizzle)map->swizzle,
			    (CUtensorMapL2promotion)map->l2_promotion,
			    (CUtensorMapFloatOOBfill)map->fill) == CUDA_SUCCESS;
}

static uint8_t before[TENSOR_BYTES], model[TENSOR_BYTES], reply[TENSOR_BYTES];
static uint8_t *global, *out;

static void describe(const char *what, int i, const tensor_case *c)
{
	const emu_tensor_map *m = &c->map;

	printf("%s %d: type %d swizzle %d begin %u sizes", what, i, m->type, m->swizzle,
	       c->begin);
	for (int d = 0; d < m->rank; d++)
		printf(" %llu(box %u step %u at %d)", (unsigned long long)m->sizes[d],
		       m->box[d], m->element_strides[d], c->coordinates[d]);
	printf("\n");
}

/* Prints the first bytes that differ. */
static bool compare(const char *what, int i, const tensor_case *c, uint32_t bytes)
{
	int shown = 0;

	if (memcmp(reply, model, bytes) == 0)
		return true;
	describe(what, i, c);
	for (uint32_t at = 0; at < bytes && shown < 16; at++)
		if (reply[at] != model[at] && ++shown)
			printf("  byte %u: GPU %02x, model %02x\n", at, reply[at],
			       model[at]);
	return false;
}

static void trapped(cudaError_t status, bool is_expected, probe_answer *answer)
{
	answer->differs = !is_expected;
	probe_trap(answer, "trap %s", cudaGetErrorName(status));
}

static void ask_load(const tensor_case *asked, int i, probe_answer *answer)
{
	const bool is_refused =
	    emu_tensor_map_refuses(&asked->map, asked->coordinates, false);
	tensor_case c = *asked;
	CUtensorMap map;
	cudaError_t status;
	place at;
	uint8_t done;

	memcpy(at.at, c.coordinates, sizeof(at.at));
	memset(model, TENSOR_FILL, TENSOR_SHARED);
	if (!is_refused)
		tensor_case_load(&c, before, model);
	must(cudaMemcpy(global, before, TENSOR_BYTES, cudaMemcpyHostToDevice), "copy");
	c.map.address += (uint64_t)global;
	if (!encode(&map, &c.map)) {
		answer->differs = 1;
		snprintf(answer->text, PROBE_TEXT, "refused");
		return;
	}
	load<<<1, 256, TENSOR_SHARED>>>(map, c.map.rank, at, c.begin,
					emu_tensor_map_box_bytes(&c.map), out);
	status = cudaMemcpy(reply, out, TENSOR_SHARED + 1, cudaMemcpyDeviceToHost);
	if (status != cudaSuccess)
		trapped(status, is_refused, answer);
	done = reply[TENSOR_SHARED];
	snprintf(answer->text, PROBE_TEXT, "ok %016llx %u",
		 (unsigned long long)tensor_hash(reply, TENSOR_SHARED), done);
	answer->differs = is_refused || !done;
	if (answer->differs)
		describe(done ? "no trap: load" : "bytes not as expected: load", i,
			 asked);
	else if (!compare("load", i, asked, TENSOR_SHARED))
		answer->differs = 1;
}

static void ask_store(const tensor_case *asked, int i, probe_answer *answer)
{
	const bool is_refused =
	    emu_tensor_map_refuses(&asked->map, asked->coordinates, true);
	static uint8_t shared[TENSOR_SHARED];
	tensor_case c = *asked;
	CUtensorMap map;
	cudaError_t status;
	place at;

	memcpy(at.at, c.coordinates, sizeof(at.at));
	for (uint32_t k = 0; k < TENSOR_SHARED; k++)
		shared[k] = tensor_shared_byte(k);
	memcpy(model, before, TENSOR_BYTES);
	if (!is_refused)
		tensor_case_store(&c, model, shared);
	must(cudaMemcpy(global, before, TENSOR_BYTES, cudaMemcpyHostToDevice), "copy");
	must(cudaMemcpy(out, shared, TENSOR_SHARED, cudaMemcpyHostToDevice), "copy");
	c.map.address += (uint64_t)global;
	if (!encode(&map, &c.map)) {
		answer->differs = 1;
		snprintf(answer->text, PROBE_TEXT, "refused");
		return;
	}
	store<<<1, 256, TENSOR_SHARED>>>(map, c.map.rank, at, c.begin, out);
	status = cudaMemcpy(reply, global, TENSOR_BYTES, cudaMemcpyDeviceToHost);
	if (status != cudaSuccess)
		trapped(status, is_refused, answer);
	snprintf(answer->text, PROBE_TEXT, "ok %016llx",
		 (unsigned long long)tensor_hash(reply, TENSOR_BYTES));
	answer->differs = is_refused;
	if (is_refused)
		describe("no trap: store", i, asked);
	else if (!compare("store", i, asked, TENSOR_BYTES))
		answer->differs = 1;
}

static void ask_rule(int i, probe_answer *answer)
{
	emu_tensor_map map;
	CUtensorMap encoded;
	emu_error err = {""};
	bool is_taken, is_good;

	tensor_rule_make(&map, i, (uint64_t)global);
	is_taken = encode(&encoded, &map);
	is_good = emu_tensor_map_check(&map, &err) &&
		  emu_tensor_map_check_device(&map, 9, &err);
	snprintf(answer->text, PROBE_TEXT, "%d", is_taken);
	if (is_taken == is_good)
		return;
	answer->differs = 1;
	printf(
	    "rule %d: the driver %s it; model: %s (type %d rank %d interleave %d swizzle %d fill %d)\n",
	    i, is_taken ? "takes" : "refuses", is_good ? "good" : err.text, map.type,
	    map.rank, map.interleave, map.swizzle, map.fill);
}

/* ---- questions ----------------------------------------------------------- */

/* In each child. */
static void begin(char *name, int bytes)
{
	cudaDriverEntryPointQueryResult found;
	cudaDeviceProp device;

	must(cudaGetDeviceProperties(&device, 0), "device");
	snprintf(name, bytes, "%s", device.name);
	must(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled",
					      (void **)&encode_tiled, 12000,
					      cudaEnableDefault, &found),
	     "cuTensorMapEncodeTiled");
	must(cudaMalloc(&global, TENSOR_BYTES), "malloc");
	must(cudaMalloc(&out, TENSOR_BYTES), "malloc");
	must(cudaFuncSetAttribute(load, cudaFuncAttributeMaxDynamicSharedMemorySize,
				  TENSOR_SHARED),
	     "shared memory");
	must(cudaFuncSetAttribute(store, cudaFuncAttributeMaxDynamicSharedMemorySize,
				  TENSOR_SHARED),
	     "shared memory");
	for (uint32_t i = 0; i < TENSOR_BYTES; i++)
		before[i] = tensor_global_byte(i);
}

static void ask_box(const tensor_case *c, bool is_store, int i, probe_answer *answer)
{
	if (is_store)
		ask_store(c, i, answer);
	else
		ask_load(c, i, answer);
}

/* Loads, stores, rules. */
static void ask(int question, probe_answer *answer)
{
	const bool is_store = question >= TENSOR_CASES;
	tensor_case c;

	if (question >= 2 * TENSOR_CASES) {
		ask_rule(question - 2 * TENSOR_CASES, answer);
		return;
	}
	tensor_case_make(&c, is_store, question % TENSOR_CASES);
	ask_box(&c, is_store, question % TENSOR_CASES, answer);
}

/* ---- what it was --------------------------------------------------------- */

#define SIMPLER	   6
#define MOST_AGAIN 12
static int again[MOST_AGAIN], n_again;

static const char *make_simpler(tensor_case *c, int what)
{
	switch (what) {
	case 0:
		c->begin = 0;
		return "begin 0";
	case 1:
		c->map.swizzle = 0;
		return "no swizzle";
	case 2:
		for (int i = 0; i < EMU_TENSOR_RANK; i++)
			c->map.element_strides[i] = 1;
		return "element strides 1";
	case 3:
		c->coordinates[0] = 0;
		return "first coordinate 0";
	case 4:
		for (int i = 1; i < EMU_TENSOR_RANK; i++)
			c->coordinates[i] = 0;
		return "other coordinates 0";
	default:
		c->map.address = 0;
		return "address aligned";
	}
}

static void ask_simpler(int question, probe_answer *answer)
{
	const int of = again[question / SIMPLER];
	tensor_case c;

	tensor_case_make(&c, of >= TENSOR_CASES, of % TENSOR_CASES);
	make_simpler(&c, question % SIMPLER);
	ask_box(&c, of >= TENSOR_CASES, of % TENSOR_CASES, answer);
}

static void find_causes(const probe_answer *answers)
{
	probe_questions q = {0, begin, ask_simpler};
	probe_answer *replies;

	for (int i = 0; i < 2 * TENSOR_CASES && n_again < MOST_AGAIN; i++)
		if (answers[i].is_trap && answers[i].differs)
			again[n_again++] = i;
	q.count = n_again * SIMPLER;
	replies = n_again ? probe_ask(&q) : NULL;
	if (!replies)
		return;
	for (int i = 0; i < q.count; i++) {
		const int of = again[i / SIMPLER];
		tensor_case c;

		tensor_case_make(&c, of >= TENSOR_CASES, of % TENSOR_CASES);
		if (i % SIMPLER == 0)
			describe("trap", of, &c);
		printf("  %s: %s\n", make_simpler(&c, i % SIMPLER), replies[i].text);
	}
	probe_free(replies, q.count);
}

int main(int argc, char **argv)
{
	probe_questions questions = {2 * TENSOR_CASES + TENSOR_RULES, begin, ask};

	questions.program = "tensor.cu";
	questions.things = "answers";
	questions.digits_from = 2 * TENSOR_CASES;
	questions.explain = find_causes;
	return probe_main(argc, argv, &questions);
}
