/* SPDX-License-Identifier: Apache-2.0 */
/*
 * repair.h - the parts of nib repair: what is done about each finding of nib inspect
 * (repair_plan.c, repair_group.c, repair_config.c), and the copy that has it done
 * (repair_write.c).  Nothing of the input is changed.
 */
#ifndef NIB_REPAIR_H
#define NIB_REPAIR_H

#include "cli.h"
#include "config.h"
#include "inspect.h"
#include "share_scale.h"
#include "tensor.h"

/* What may be done only because the user says so: --mend. */
struct repair_choices {
	int inverse_input;    /* input-scale=inverse */
	int inverse_global;   /* reciprocal-global=inverse */
	int untile;	      /* tiled-scales=untile */
	int clear_signs;      /* scale-sign=clear */
	int nan_is_largest;   /* scale-nan=448 */
	int inputs_from_rest; /* no-input-scale=largest */
};
#define REPAIR_CHOICES                                                                 \
	"input-scale=inverse, reciprocal-global=inverse, "                             \
	"tiled-scales=untile, scale-sign=clear, scale-nan=448, "                       \
	"no-input-scale=largest"
/* CLI_OK, or CLI_USAGE after a message. */
int repair_read_choices(const struct cli_texts *texts, struct repair_choices *choices);

/* How the bytes of weight_scale are stored. */
enum stored_scales {
	STORED_LINEAR,
	STORED_TILED, /* 128x4 tiles, with their padding */
	STORED_PADDED /* linear, with the padding of tiles */
};

/* The changes of one layer. */
struct layer_mend {
	const struct nib_layer_tensors *tensors;
	int is_reciprocal; /* global and input are stored as 1 / x */
	enum stored_scales stored;
	int clears_signs, replaces_nans; /* of block scales */
	/* The numbers of the tensors global and input_global as they will be stored,
	 * and whether they differ from the file's.  input: NULL if there are none. */
	float *global, *input;
	int64_t n_global, n_input;
	int changes_global, changes_input;
	/* The global scales of the codes before they share others; NULL: they do
	 * not, and codes stay as they are. */
	float *unshared;
	struct share_error error; /* of sharing */
	int is_refused;		  /* something in it cannot be mended */
};
int64_t layer_mend_blocks(const struct layer_mend *mend);
/* The scale that the number x of a file means, and back. */
float layer_mend_value(const struct layer_mend *mend, float x);

/* One line of the report. */
struct repair_row {
	enum finding_kind kind;
	const char *name; /* lives with the file */
	int is_mended;
	char text[300];
	double error, worst; /* of weights that change; else NAN */
};

struct repair_plan {
	const struct nib_file *file;
	const struct config *config;
	const struct findings *findings;
	const struct scan_layer *scans; /* in the order of strverscmp() */
	int64_t n_scans;
	struct repair_choices choices;
	double max_error;
	/* The layers of the file by the address of their tensors, and their mends, of
	 * which most are NULL. */
	const struct nib_layer_tensors **layers;
	struct layer_mend **mends;
	int64_t n_layers;
	/* Layers that engines fuse; those of one group are next to each other. */
	const struct nib_layer **fused;
	int64_t n_fused;
	struct repair_row *rows;
	int64_t n_rows, n_refused;
	/* What replaces quantization_config and hf_quant_config.json; or NULL. */
	json_t *quant, *quant_file;
};

/* ---- repair_plan.c ------------------------------------------------------- */

/* Decides about every finding.  CLI_OK, or an exit code after a message;
 * repair_plan_free() in every case. */
int repair_plan_make(struct repair_plan *plan);
void repair_plan_free(struct repair_plan *plan);
/* The mend of a layer, or NULL. */
struct layer_mend *repair_find(const struct repair_plan *plan,
			       const struct nib_layer_tensors *tensors);
/* The same, made if there is none yet; NULL without memory. */
struct layer_mend *repair_mend(struct repair_plan *plan,
			       const struct nib_layer_tensors *tensors);
/* Adds a row; NULL without memory. */
__attribute__((format(printf, 5, 6))) struct repair_row *
repair_say(struct repair_plan *plan, enum finding_kind kind, const char *name,
	   int is_mended, const char *format, ...);

/* ---- repair_group.c ------------------------------------------------------ */

/* Lists the layers that engines fuse.  CLI_OK or CLI_FAILED. */
int repair_list_groups(struct repair_plan *plan);
/* The group of a layer: *count members from the result on; NULL: it has none. */
const struct nib_layer *const *repair_group_of(const struct repair_plan *plan,
					       const struct nib_layer *layer,
					       int64_t *count);
/* Gives the layers of each group one global scale and one input scale. */
int repair_groups(struct repair_plan *plan);

/* ---- repair_config.c ----------------------------------------------------- */

/* Decides about the findings of config.json. */
int repair_config(struct repair_plan *plan);

/* ---- repair_write.c ------------------------------------------------------ */

/* The index of the scale of row r and group g, of scales with cols columns. */
int64_t repair_scale_at(enum stored_scales how, int64_t cols, int64_t r, int64_t g);

/*
 * The scales of a layer, [batch * rows, k / 16], to be freed: in the library's order
 * and mended, but for sharing.  NULL without memory.
 */
uint8_t *repair_read_scales(const struct layer_mend *mend);
/* Writes the copy: a file, or a folder where the configuration has one. */
int repair_write(const struct repair_plan *plan, const char *in, const char *out);

#endif
