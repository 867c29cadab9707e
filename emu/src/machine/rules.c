/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules.c - see rules.h.  The code that finds a broken rule writes a report of one
 * sentence.  This table has the explanation, once for each rule.  Names in quotes
 * are sections and instructions of the PTX ISA 9.0.
 */
#include "machine/rules.h"

#include <stddef.h>
#include <string.h>

static const struct emu_rule table[] = {
    /* the kernel's own messages; first, because they may have any words */
    {"assert", false, "assertion `", "an assert() of the kernel has failed",
     "check the values in the condition of the assert()"},
    {"trap", false, "the kernel has executed trap", "the kernel has executed trap",
     "find what leads to the trap: a branch of the kernel, or "
     "__builtin_trap()"},
    /* the order of accesses, from here to group-wait: emu_rule_is_order() */
    {"refill-fence", true, "no fence.proxy.async between that load",
     "loads by threads and writes by an asynchronous copy belong to two "
     "proxies (\"Proxies\")",
     "fence.proxy.async after the loads, before the stage is released"},
    {"proxy-fence", true, "no fence.proxy.async",
     "writes by threads and reads by an asynchronous copy or a tensor core "
     "belong to two proxies (\"Proxies\", \"fence.proxy\")",
     "fence.proxy.async in each thread that wrote, after its writes and "
     "before the barrier or arrival that releases them"},
    {"phase-wait", true, "the end of that phase",
     "the bytes of a bulk copy may be read when the mbarrier phase that "
     "counts them has completed (\"mbarrier.try_wait\")",
     "wait for that phase, with its parity, in this warp, or for a barrier "
     "after a warp that has waited for it"},
    {"cp-async-lane", true, "between that lane's wait for its group",
     "cp.async.wait_group waits only for the copies of the thread that "
     "executes it (\"cp.async.wait_group\")",
     "bar.warp.sync (__syncwarp) after the wait, before other lanes read"},
    {"volatile", true, "volatile accesses make no order",
     "volatile accesses are performed, but they are not ordered with other "
     "accesses (\"Memory Consistency Model\", \"ld.volatile\")",
     "__threadfence() after the stores, before the atomic that announces "
     "them, and after the atomic that observes it, before the loads; "
     "inside a CTA __syncthreads()"},
    {"same-value", true, "the same value to it",
     "two stores to one address must be ordered, even if they store the "
     "same value (\"Memory Consistency Model\"); a GPU stores that value",
     "let one thread store it; if the values are always equal, waive this "
     "rule"},
    {"lane-order", true, "of the same warp",
     "the lanes of a warp may run independently; shfl and vote do not "
     "order memory (\"bar.warp.sync\", \"Memory Consistency Model\")",
     "bar.warp.sync (__syncwarp()) between the two accesses, with both "
     "lanes in its mask; __syncthreads() if warps exchange data"},
    {"store-wait", true, "by a bulk store, and its group",
     "a bulk store is complete when its group has been waited for without .read "
     "(\"cp.async.bulk.wait_group\")",
     "cp.async.bulk.wait_group without .read before the release that announces "
     "the bytes"},
    {"grid-order", true, "another grid",
     "a dependent grid may begin before the preceding grid has ended "
     "(\"griddepcontrol\")",
     "griddepcontrol.wait (cudaGridDependencySynchronize) before this "
     "access"},
    {"stream-order", true, "nothing orders the two streams",
     "operations of two streams may run concurrently, in any order (CUDA "
     "programming guide, \"Streams\")",
     "cudaEventRecord in one stream and cudaStreamWaitEvent in the other, "
     "cudaStreamSynchronize between them, or an edge between two nodes of a graph"},
    {"grid-race", true, "nothing in this grid can order two clusters",
     "CTAs of a grid without atomics and ordered accesses run "
     "concurrently, in any order (\"Memory Consistency Model\")",
     "atomicAdd() or another atomic where CTAs update one word; a separate "
     "address for each CTA; or a later kernel that reads"},
    {"gpu-order", true, "no release and acquire of .gpu scope",
     "two CTAs are ordered by a release and an acquire of one address, of "
     ".gpu scope or wider (\"Memory Consistency Model\")",
     "a release after the writes (red.release.gpu, or __threadfence() "
     "before the flag), and an acquire before the reads"},
    {"wgmma-wait", true, "wgmma.wait_group must come before",
     "a wgmma may read shared memory until its group has been waited for "
     "(\"wgmma.wait_group\")",
     "wgmma.wait_group before the arrival that releases the stage"},
    {"tcgen05-commit", true, "a later tcgen05.commit",
     "tcgen05.mma and tcgen05.cp are complete when a later tcgen05.commit "
     "has arrived (\"tcgen05.commit\")",
     "tcgen05.commit to an mbarrier, and a wait for its phase before this "
     "access"},
    {"tcgen05-wait", true, "tcgen05.wait::",
     "tcgen05.ld and tcgen05.st are complete when their tcgen05.wait has "
     "returned (\"tcgen05.wait\")",
     "tcgen05.wait::ld or ::st, then a barrier if another warp continues"},
    {"tcgen05-fence", true, "tcgen05.fence::",
     "accesses of different threads to tensor memory are ordered by a pair "
     "of fences around the barrier (\"tcgen05.fence\")",
     "tcgen05.fence::before_thread_sync before the arrival, "
     "::after_thread_sync after the wait"},
    {"order", true, "nothing orders",
     "accesses of two threads to one address must be ordered (\"Memory "
     "Consistency Model\")",
     "__syncthreads() or another barrier between the two accesses, or an "
     "mbarrier at which one thread arrives and for which the other waits"},
    {"group-wait", true, "its group",
     "copies and bulk stores are complete when their group has been waited "
     "for (\"cp.async.wait_group\", \"cp.async.bulk.wait_group\")",
     "commit the group, and wait for it before this access, in the thread "
     "that began it"},
    /* states of bytes */
    {"copy-wait", true, "to write these bytes",
     "the bytes of an asynchronous copy may be read when it has been "
     "waited for (\"Completion Mechanisms for Asynchronous Copy "
     "Operations\")",
     "wait for the mbarrier's phase or the copy's group, in the warp that "
     "reads"},
    {"two-writers", false, "writing the",
     "two writes to one address must be ordered (\"Completion Mechanisms "
     "for Asynchronous Copy Operations\")",
     "wait for the copy before this write, or write other bytes"},
    {"never-written", true, "never written",
     "a thread may read only bytes that have been written; other bytes are "
     "undefined",
     "write them first (device memory: cudaMemset, a copy or a kernel), or "
     "add the missing __syncthreads() or the wait for the copy that writes "
     "them"},
    {"live-mbarrier", false, "these bytes belong to a live mbarrier",
     "an mbarrier is opaque: only mbarrier instructions may access it "
     "(\"mbarrier\")",
     "use another address for the data, or execute mbarrier.inval first"},
    {"address", false, "these bytes are not allocated",
     "every byte of an access belongs to an allocation, in the state space "
     "of the instruction (\"State Spaces\")",
     "check the index, the size of the allocation, and conversions by cvta "
     "and mapa"},
    {"variable", true, "and the variable has the offsets",
     "an address that is computed from a variable must stay inside it "
     "(C++: arrays have bounds; PTX may place variables in any order)",
     "check the index and the size of the array; use one array if both are "
     "meant"},
    {"heap", false, "which malloc of a kernel did not return",
     "free() in a kernel accepts a pointer that malloc() in a kernel has returned, once "
     "(CUDA programming guide, \"Dynamic Global Memory Allocation\")",
     "free each pointer once; free memory of cudaMalloc() by cudaFree()"},
    {"texture-object", false, " object: it ",
     "texture and surface instructions need the handle of an object that exists "
     "(\"tex\", \"sust\")",
     "create the object before the launch, and destroy it after a wait for the kernel"},
    {"texture-geometry", false, "the instruction is of .",
     "the instruction and the object must have the same dimensions (\"tex\")",
     "tex1D for arrays of one row, tex2D for rows, tex3D for slices, tex2DLayered for "
     "layers, texCubemap for cubes"},
    {"surface-trap", false, "is outside of the surface",
     "an access with .trap must be inside the surface (\"suld\", \"sust\")",
     "check the coordinates (x is in bytes), or pass cudaBoundaryModeClamp or "
     "cudaBoundaryModeZero"},
    {"callee", false, "which is no address of a function",
     "a call through a register must call a function of the module, with that "
     "function's parameters (\"call\")",
     "check where the pointer comes from; recursion is not supported"},
    {"alignment", false, "not a multiple of the size",
     "an address must be a multiple of the size of the access (\"Addresses "
     "as Operands\")",
     "align the variable, the stride or the offset"},
    {"unfinished", true, "this operation has not",
     "shared memory and barriers do not exist after the end of the CTA "
     "(\"cp.async.bulk\")",
     "wait for the operation's mbarrier or group before the kernel's end"},
    {"bytes-short", false, "bytes short",
     "a phase ends when all its bytes have arrived (\"mbarrier\")",
     "expect as many bytes as the copies of this phase write"},
    {"dealloc", true, "tcgen05.dealloc is missing",
     "a kernel must deallocate all tensor memory before it ends "
     "(\"tcgen05.dealloc\")",
     "tcgen05.dealloc by the warp that allocated, after the last use"},
    {"ended-cta", false, "has ended",
     "the shared memory of another CTA exists only while that CTA runs "
     "(\"mapa\", \"barrier.cluster\")",
     "barrier.cluster.arrive and .wait before the first CTA of the cluster "
     "leaves"},
    /* mbarriers */
    {"mbarrier-init", true, "mbarrier.init of",
     "an mbarrier may be used when its init is visible (\"mbarrier.init\", "
     "\"fence.mbarrier_init\")",
     "fence.mbarrier_init and a barrier of the CTA, or of the cluster for "
     "its other CTAs, after the init"},
    {"no-mbarrier", false, "no mbarrier",
     "mbarrier.init must come before all other uses (\"mbarrier.init\")",
     "check the address, and that a barrier separates the init and this "
     "use"},
    {"arrivals", false, "more arrivals",
     "a phase expects as many arrivals as mbarrier.init sets "
     "(\"mbarrier.arrive\")",
     "check the count of mbarrier.init, and that no thread arrives before "
     "the wait for the previous phase"},
    {"tx-count", false, "transaction count",
     "expected minus arrived bytes must be within +-(2^20 - 1) (\"mbarrier, "
     "tx-count\")",
     "expect as many bytes as the copies of this phase write"},
    {"bytes-to-come", false, "bytes to come",
     "a phase ends when all its bytes have arrived (\"mbarrier\")",
     "expect as many bytes as the copies of this phase write"},
    {"parity", false, "0 or 1",
     "the parity of a phase is the last bit of its number "
     "(\"mbarrier.try_wait\")",
     "pass the number of the phase modulo 2"},
    /* wgmma and tcgen05 */
    {"wgmma-result", false, "result of a wgmma",
     "the registers of a wgmma may be accessed when its group has been "
     "waited for (\"wgmma.mma_async\", \"wgmma.wait_group\")",
     "wgmma.commit_group, and wgmma.wait_group before this instruction"},
    {"wgmma-source", false, "source of a wgmma",
     "the registers of a wgmma may be accessed when its group has been "
     "waited for (\"wgmma.mma_async\", \"wgmma.wait_group\")",
     "wgmma.wait_group before the registers are written again, or use "
     "other registers"},
    {"wgmma-fence", false, "wgmma.fence must",
     "wgmma.fence must precede the first wgmma of a warp, and each wgmma "
     "whose registers other instructions have written (\"wgmma.fence\")",
     "wgmma.fence.sync.aligned before it"},
    {"tcgen05-ld-result", true, "result of a tcgen05.ld",
     "the registers of a tcgen05.ld may be read after its wait "
     "(\"tcgen05.wait\")",
     "tcgen05.wait::ld before this instruction"},
    {"warpgroup", false, "warpgroup",
     "the four warps of a warpgroup must execute the same wgmma "
     "(\"wgmma.mma_async\")",
     "make the condition the same in all four warps"},
    {"tmem-allocation", false, "is not allocated",
     "tensor memory may be used between tcgen05.alloc and tcgen05.dealloc "
     "(\"Tensor Memory Allocation\")",
     "check the address that tcgen05.alloc stored, and the columns that "
     "are added to it"},
    {"descriptor", false, "descriptor",
     "the fields of a descriptor must have the values that the tables list "
     "(\"Matrix Descriptor\", \"Instruction Descriptor\")",
     "check the field that the report names"},
    /* copies of tensors */
    {"tensor-map", false, "not as cuTensorMapEncodeTiled",
     "a tensor map is opaque, and copies read it through a separate proxy "
     "(\"tensormap.replace\", \"fence.proxy.tensormap\")",
     "encode it on the host for each tensor, and pass it as a "
     "__grid_constant__ parameter"},
    {"copy-alignment", false, "multiple of 16 bytes",
     "the addresses and sizes of bulk copies must be multiples of 16 bytes "
     "(\"cp.async.bulk\", \"cp.async.bulk.tensor\")",
     "begin the box at a multiple of 16 bytes, or pad the row"},
    {"box-alignment", false, "multiples of 128",
     "a box in shared memory must be aligned to 128 bytes "
     "(\"cp.async.bulk.tensor\")",
     "align the variable or the stage"},
    /* lanes and warps */
    {"whole-warp", false, "needs all of the warp",
     "all threads of the warp must execute an .aligned instruction",
     "move the instruction out of the condition"},
    {"lanes-together", false, "and it needs lanes",
     "the lanes of a .sync or .aligned instruction must execute the same "
     "one (\"Independent thread scheduling\")",
     "bar.warp.sync before it, or a mask of the lanes that execute it"},
    {"barrier-lanes", true, "ended without this barrier",
     "all threads of a warp must execute an .aligned barrier (\"barrier\"; "
     "__syncthreads() is one)",
     "move __syncthreads() out of the condition, and return after the last "
     "one"},
    {"shfl-source", false, "which does not participate",
     "shfl may read registers only of lanes that execute it too "
     "(\"shfl.sync\")",
     "let all lanes of the mask execute shfl, and select by value "
     "afterwards"},
    {"mask", false, "do not participate",
     "all lanes of the mask must execute the instruction (\"shfl.sync\", "
     "\"vote.sync\")",
     "a mask of the lanes that execute it; __activemask() does not "
     "synchronise them"},
    {"deadlock", false, "deadlock",
     "a warp may wait only for threads and copies that can still make "
     "progress",
     "compare the lines above: arrivals counted at mbarrier.init, "
     "parities, expected bytes, threads of each barrier, and warps that "
     "have ended"},
    {"unwaited", false, "has not been waited for",
     "the result of an asynchronous operation may be used when the "
     "operation has been waited for",
     "add the wait for this operation before this instruction"},
    {"budget", false, "NIBEMU_BUDGET", "a launch must end",
     "look for an infinite loop; for a long kernel increase NIBEMU_BUDGET"},
};

const struct emu_rule *emu_rule_for(const char *report)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
		if (strstr(report, table[i].phrase))
			return &table[i];
	return NULL;
}

#define ATOMIC                                                                         \
	"atomicAdd() or another atomic (Triton: tl.atomic_add), if all threads "       \
	"update this word; else "

const char *emu_rule_update(const struct emu_rule *rule)
{
	static const struct {
		const char *name, *advice;
	} updates[] = {
	    {"lane-order", ATOMIC
	     "bar.warp.sync (__syncwarp()) or __syncthreads() between the accesses"},
	    {"order", ATOMIC "__syncthreads() or another barrier between the accesses"},
	    {"gpu-order",
	     ATOMIC "a release after the writes and an acquire before the reads"},
	    {"grid-race",
	     ATOMIC "a separate address for each CTA, or a later kernel that reads"},
	};

	for (size_t i = 0; i < sizeof(updates) / sizeof(*updates); i++)
		if (strcmp(updates[i].name, rule->name) == 0)
			return updates[i].advice;
	return NULL;
}

const char *emu_rule_advice(const struct emu_rule *rule, const char *report)
{
	const char *update = strstr(report, EMU_UPDATE) ? emu_rule_update(rule) : NULL;

	return update ? update : rule->mend;
}

bool emu_rule_is_order(const struct emu_rule *rule)
{
	const struct emu_rule *first = emu_rule_named("refill-fence", 12);
	const struct emu_rule *last = emu_rule_named("group-wait", 10);

	return (rule >= first && rule <= last) ||
	       strcmp(rule->name, "mbarrier-init") == 0;
}

const struct emu_rule *emu_rule_named(const char *name, size_t length)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
		if (strlen(table[i].name) == length &&
		    memcmp(table[i].name, name, length) == 0)
			return &table[i];
	return NULL;
}

const struct emu_rule *emu_rule_at(size_t i)
{
	return i < sizeof(table) / sizeof(*table) ? &table[i] : NULL;
}
