/* SPDX-License-Identifier: Apache-2.0 */
/* ptx.c - types, special registers, and operations on a whole module. */
#include "ptx/ptx.h"

#include <string.h>

#include "hardware/arena.h"

/* ---- types --------------------------------------------------------------- */

static const struct {
	const char *name;
	int bytes;
} types[EMU_TYPES] = {
    [EMU_PRED] = {"pred", 1},	    [EMU_B8] = {"b8", 1},
    [EMU_U8] = {"u8", 1},	    [EMU_S8T] = {"s8", 1},
    [EMU_B16] = {"b16", 2},	    [EMU_U16] = {"u16", 2},
    [EMU_S16] = {"s16", 2},	    [EMU_T_F16] = {"f16", 2},
    [EMU_T_BF16] = {"bf16", 2},	    [EMU_B32] = {"b32", 4},
    [EMU_U32] = {"u32", 4},	    [EMU_S32] = {"s32", 4},
    [EMU_F32] = {"f32", 4},	    [EMU_T_TF32] = {"tf32", 4},
    [EMU_U16X2] = {"u16x2", 4},	    [EMU_S16X2] = {"s16x2", 4},
    [EMU_F16X2] = {"f16x2", 4},	    [EMU_BF16X2] = {"bf16x2", 4},
    [EMU_E4M3X2] = {"e4m3x2", 2},   [EMU_E5M2X2] = {"e5m2x2", 2},
    [EMU_E2M1X2] = {"e2m1x2", 1},   [EMU_T_E4M3] = {"e4m3", 1},
    [EMU_T_E5M2] = {"e5m2", 1},	    [EMU_T_E2M1] = {"e2m1", 1},
    [EMU_T_E2M3] = {"e2m3", 1},	    [EMU_T_E3M2] = {"e3m2", 1},
    [EMU_T_UE4M3] = {"ue4m3", 1},   [EMU_T_UE8M0] = {"ue8m0", 1},
    [EMU_T_S4] = {"s4", 1},	    [EMU_T_U4] = {"u4", 1},
    [EMU_T_B1] = {"b1", 1},	    [EMU_B64] = {"b64", 8},
    [EMU_U64] = {"u64", 8},	    [EMU_S64] = {"s64", 8},
    [EMU_F64] = {"f64", 8},	    [EMU_B128] = {"b128", 16},
    [EMU_E2M3X2] = {"e2m3x2", 2},   [EMU_E3M2X2] = {"e3m2x2", 2},
    [EMU_UE8M0X2] = {"ue8m0x2", 2}, [EMU_F32X2] = {"f32x2", 8},
};

int emu_type_bytes(enum emu_type type)
{
	return types[type].bytes;
}

const char *emu_type_name(enum emu_type type)
{
	return types[type].name ? types[type].name : "no type";
}

enum emu_type emu_type_of(const char *word, size_t length)
{
	for (int i = 1; i < EMU_TYPES; i++)
		if (types[i].name && strlen(types[i].name) == length &&
		    memcmp(types[i].name, word, length) == 0)
			return (enum emu_type)i;
	return EMU_NO_TYPE;
}

/* ---- special registers --------------------------------------------------- */

static const char *const special_names[EMU_SPECIALS] = {
    [EMU_TID_X] = "%tid.x",
    [EMU_TID_Y] = "%tid.y",
    [EMU_TID_Z] = "%tid.z",
    [EMU_NTID_X] = "%ntid.x",
    [EMU_NTID_Y] = "%ntid.y",
    [EMU_NTID_Z] = "%ntid.z",
    [EMU_CTAID_X] = "%ctaid.x",
    [EMU_CTAID_Y] = "%ctaid.y",
    [EMU_CTAID_Z] = "%ctaid.z",
    [EMU_NCTAID_X] = "%nctaid.x",
    [EMU_NCTAID_Y] = "%nctaid.y",
    [EMU_NCTAID_Z] = "%nctaid.z",
    [EMU_CLUSTERID_X] = "%clusterid.x",
    [EMU_CLUSTERID_Y] = "%clusterid.y",
    [EMU_CLUSTERID_Z] = "%clusterid.z",
    [EMU_NCLUSTERID_X] = "%nclusterid.x",
    [EMU_NCLUSTERID_Y] = "%nclusterid.y",
    [EMU_NCLUSTERID_Z] = "%nclusterid.z",
    [EMU_CLUSTER_CTAID_X] = "%cluster_ctaid.x",
    [EMU_CLUSTER_CTAID_Y] = "%cluster_ctaid.y",
    [EMU_CLUSTER_CTAID_Z] = "%cluster_ctaid.z",
    [EMU_CLUSTER_NCTAID_X] = "%cluster_nctaid.x",
    [EMU_CLUSTER_NCTAID_Y] = "%cluster_nctaid.y",
    [EMU_CLUSTER_NCTAID_Z] = "%cluster_nctaid.z",
    [EMU_CLUSTER_CTARANK] = "%cluster_ctarank",
    [EMU_CLUSTER_NCTARANK] = "%cluster_nctarank",
    [EMU_LANEID] = "%laneid",
    [EMU_WARPID] = "%warpid",
    [EMU_NWARPID] = "%nwarpid",
    [EMU_SMID] = "%smid",
    [EMU_NSMID] = "%nsmid",
    [EMU_LANEMASK_EQ] = "%lanemask_eq",
    [EMU_LANEMASK_LT] = "%lanemask_lt",
    [EMU_LANEMASK_LE] = "%lanemask_le",
    [EMU_LANEMASK_GT] = "%lanemask_gt",
    [EMU_LANEMASK_GE] = "%lanemask_ge",
    [EMU_DYNAMIC_SMEM_SIZE] = "%dynamic_smem_size",
    [EMU_TOTAL_SMEM_SIZE] = "%total_smem_size",
    [EMU_ENVREG1] = "%envreg1",
    [EMU_ENVREG2] = "%envreg2",
    [EMU_GRIDID] = "%gridid",
    [EMU_CLOCK] = "%clock",
    [EMU_CLOCK64] = "%clock64",
    [EMU_GLOBALTIMER] = "%globaltimer",
};

const char *emu_special_name(enum emu_special special)
{
	return special_names[special];
}

uint32_t emu_special_row(enum emu_special special)
{
	const uint32_t narrow = 4 * EMU_LANES, wide = 8 * EMU_LANES;

	if (special < EMU_SPECIALS_32)
		return (uint32_t)special * narrow;
	return EMU_SPECIALS_32 * narrow + (uint32_t)(special - EMU_SPECIALS_32) * wide;
}

uint32_t emu_special_rows_bytes(void)
{
	/* The last row receives unwanted results. */
	return emu_special_row(EMU_SPECIALS) + 8 * EMU_LANES;
}

/* ---- modules ------------------------------------------------------------- */

void emu_module_free(struct emu_module *module)
{
	if (module)
		emu_arena_free(module->arena);
}

struct emu_kernel *emu_module_find(const struct emu_module *m, const char *name)
{
	for (uint32_t i = 0; i < m->n_kernels; i++)
		if (strcmp(m->kernels[i]->name, name) == 0)
			return m->kernels[i];
	return NULL;
}
