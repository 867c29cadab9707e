/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inspect.h - the parts of nib inspect: statistics of one NVFP4 layer or float
 * tensor (scan.c), what the other tensors are (layouts.c), and the rules that
 * say what looks wrong (findings.c, config_check.c, uncalibrated.c).
 */
#ifndef NIB_INSPECT_H
#define NIB_INSPECT_H

#include "certificate.h"
#include "cli.h"
#include "config.h"
#include "tensor.h"

/* ---- scan.c -------------------------------------------------------------- */

/* e4m3 with any sign, as a number; NaN for 0x7F and 0xFF. */
float scan_scale_value(uint8_t code);
/* e2m1, the low four bits. */
float scan_code_value(int code);

struct scan_layer {
	const struct nib_layer *layer;
	int64_t codes[16];   /* how often each code */
	int64_t scales[256]; /* how often each scale byte */
	int64_t n_scales;
	int64_t signs, nans, zeros; /* scales with the sign set; 0x7F; 0 */
	double scale_min, scale_median, scale_max; /* finite ones */
	double amax;				   /* largest |value| */
	/*
	 * Sampled blocks with a normal scale, and those among them whose
	 * largest code is under 4: a block that was scaled by its largest value
	 * has a code of 6 or 4.
	 */
	int64_t blocks, weak_blocks;
	/*
	 * The share of the variance of log2(scale) that rows and columns
	 * explain, beyond chance: with the bytes read row by row, and read as
	 * tiles.  NaN when the sizes rule out tiles.  structure_sd is the
	 * standard deviation of their difference by chance.
	 */
	double linear_structure, tiled_structure, structure_sd;
	/* Energy of each of the k columns over sampled rows; or NULL. */
	double *columns;
};

/* CLI_OK or CLI_FAILED (memory).  Owns scan->columns. */
int scan_layer(const struct nib_layer *layer, struct scan_layer *scan);
void scan_layer_free(struct scan_layer *scan);

/*
 * Correlation of the logarithms of a[i] and b[i], and of a[i] and b[i ^ 1]: the
 * columns as they would be with the nibbles of each byte exchanged.
 */
void scan_correlate(const double *a, const double *b, int64_t k, double *plain,
		    double *exchanged);

struct scan_float {
	int64_t elems, nans, infs, zeros;
	double amax;
	double value; /* of the first element */
};

/*
 * Counts what a tensor holds; all is zero if that is no floats.  Moves the
 * progress on by the bytes read.  CLI_OK, or an exit code after a message.
 */
int scan_float(const struct tensor_source *source, struct scan_float *scan);

/* ---- findings.c ---------------------------------------------------------- */

enum finding_kind {
	FIND_HALF_LAYER,
	FIND_SCALE_SIGN,
	FIND_SCALE_NAN,
	FIND_ALL_ZERO,
	FIND_RECIPROCAL,
	FIND_TILED,
	FIND_INT4,
	FIND_NOT_FINITE,
	FIND_UNKNOWN,
	FIND_CONFIG,
	FIND_CONFIG_FIELD,
	FIND_CONFIG_INPUT,
	FIND_NIBBLES,
	FIND_WEAK_BLOCKS,
	FIND_SMALL_SCALES,
	FIND_NOT_SHARED,
	FIND_INPUT_NOT_SHARED,
	FIND_INPUT_SCALE,
	FIND_AWQ,
	FIND_ACROSS,
	FIND_NOT_IGNORED,
	FIND_RULE,
	FIND_TARGETS,
	FIND_NO_INPUT,
	FIND_CERTIFICATE,
	FIND_KINDS,
};

struct finding_rule {
	const char *code;   /* "scale-sign" */
	int is_problem;	    /* certain or nearly so; else a note, a hint */
	const char *title;  /* what is wrong, in a few words */
	const char *advice; /* what to do, a sentence */
};
extern const struct finding_rule finding_rules[FIND_KINDS];

struct finding {
	enum finding_kind kind;
	const char *name; /* of the layer or tensor; lives with the file */
	char text[240];	  /* the evidence */
};

struct findings {
	struct finding *items;
	int64_t count;
	int64_t of_kind[FIND_KINDS];
	int failed; /* no memory for one */
};

__attribute__((format(printf, 4, 5))) void findings_add(struct findings *findings,
							enum finding_kind kind,
							const char *name,
							const char *format, ...);
void findings_free(struct findings *findings);

/* Rules that look at one layer, or one float tensor. */
void findings_of_layer(struct findings *findings, const struct scan_layer *scan);
void findings_of_float(struct findings *findings, const char *name,
		       const struct scan_float *scan);
/* Layers that cannot be read, and stacks that only nibblas.transformers reads. */
void findings_of_defects(struct findings *findings, const struct nib_file *file);
/* Whether a defect is such a stack. */
int findings_is_across(const struct nib_file *file,
		       const struct nib_layer_defect *defect);
/* Whether engines fuse two layers, by their names and sizes. */
int findings_are_fused(const struct nib_layer *a, const struct nib_layer *b);

/* ---- layouts.c ----------------------------------------------------------- */

/* What a tensor is that belongs to no NVFP4 layer. */
enum tensor_role {
	ROLE_PLAIN,
	ROLE_BROKEN, /* of a layer that cannot be read */
	ROLE_FP8,    /* the weight of an FP8 linear */
	ROLE_FP8_SCALE,
	ROLE_KV_SCALE, /* of the kv cache */
	ROLE_CODES,    /* bytes that may hold quantised values */
	ROLE_SCALES,   /* 8-bit floats that may be their scales */
	ROLES,
};

struct layouts {
	const struct nib_file *file;
	const char **problems; /* names of layers that cannot be read, sorted */
	size_t n_problems;
	int64_t count[ROLES]; /* by layouts_count() */
};

/* CLI_OK or CLI_FAILED (memory). */
int layouts_read(struct layouts *layouts, const struct nib_file *file);
void layouts_free(struct layouts *layouts);
enum tensor_role layouts_role(const struct layouts *layouts,
			      const struct nib_file_tensor *tensor);
void layouts_count(struct layouts *layouts);
/* Quantised tensors that belong to nothing known. */
void findings_of_layouts(struct findings *findings, const struct layouts *layouts);

/* ---- config_check.c ------------------------------------------------------ */

/* The key that quantization_config lacks, or NULL. */
const char *config_missing_field(const struct config *config,
				 const struct nib_file *file);
/* Whether it says that activations are quantised, and no layer has their scale. */
int config_lacks_inputs(const struct config *config, const struct nib_file *file);
/* "modelopt" or "compressed-tensors", as the layers are named; NULL: as both, or
 * otherwise, or there are none. */
const char *config_method_of(const struct nib_file *file);
/* Calls found for the name of each linear layer of floats that is not left out.  CLI_OK
 * or CLI_FAILED. */
int config_each_not_ignored(const struct config *config, const struct nib_file *file,
			    void (*found)(void *arg, const char *module), void *arg);
/* What config.json says against what the tensors are. */
void findings_of_config(struct findings *findings, const struct config *config,
			const struct nib_file *file);

/* ---- uncalibrated.c ------------------------------------------------------ */

/* The largest input scale of the same layer of the other experts, or 0. */
double findings_largest_of_others(const struct scan_layer *scans, int64_t count,
				  int64_t index);
/* Layers without an input scale in a file whose other layers have one; scans are
 * in the order of names. */
void findings_of_inputs(struct findings *findings, const struct scan_layer *scans,
			int64_t count);

/* ---- certificate_show.c -------------------------------------------------- */

#define CERTIFIED_WORST 3
struct certified {
	char *path;
	json_t *root;		    /* NULL: the checkpoint has no certificate */
	int64_t count[3];	    /* of layers, by enum certificate_state */
	int64_t nvfp4, int8, dense; /* of layers by the choice */
	struct {
		const char *name; /* NULL: no more */
		double error;
	} worst[CERTIFIED_WORST];
};

/* CLI_OK or CLI_FAILED (memory). */
int certified_read(struct certified *certified, const char *checkpoint,
		   struct findings *findings);
void certified_free(struct certified *certified);
/* Counts a layer, and finds what its certificate is wrong about. */
struct certificate_layer certified_layer(struct certified *certified,
					 const struct nib_layer *layer,
					 struct findings *findings);
/* The columns of a layer. */
void certified_put_layer(const struct certified *certified,
			 const struct certificate_layer *layer, struct table *table);
/* The sums over all layers. */
void certified_put(const struct certified *certified, struct table *table);

/* ---- findings.c, all layers ---------------------------------------------- */

/* Rules that compare the layers of a file with each other and with its norms.
 */
void findings_of_layers(struct findings *findings, const struct nib_file *file,
			const struct scan_layer *scans, int64_t count);

#endif
