/* SPDX-License-Identifier: Apache-2.0 */
/*
 * certificate.h - the certificate of a quantised checkpoint: a JSON file next to its
 * config.json that has the error of each layer's weights.  nib verify --certify writes
 * it, python -m nibblas.certify adds the errors of products, nib inspect shows it.
 * docs/certificates.md defines the format, which python/nibblas/_certificate.py reads.
 */
#ifndef NIB_CERTIFICATE_H
#define NIB_CERTIFICATE_H

#include <jansson.h>

#include "nibblas.h"
#include "tensor.h"
#include "tensor_error.h"

#define CERTIFICATE_END                                                                \
	".certificate.json" /* after a file's name; of a folder: out_folder.h */
#define CERTIFICATE_FORMAT  "nibblas certificate"
#define CERTIFICATE_VERSION 1

/*
 * "crc32:89abcdef:4096": the CRC-32 of zlib and the number of the bytes of a layer's
 * tensors as they are stored: codes, scales, global scale, input scale, AWQ's scales.
 */
#define CERTIFICATE_DIGEST_TEXT 48
void certificate_digest(const struct nib_layer_tensors *layer,
			char text[CERTIFICATE_DIGEST_TEXT]);
/* The path of a checkpoint's certificate, which the caller frees.  NULL if memory ran
 * out, after a message. */
char *certificate_path(const char *checkpoint);
/* The tensors of an NVFP4 weight; NULL for other weights. */
const struct nib_layer_tensors *certificate_layer_of(const struct tensor_source *b);

/* ---- writing -------------------------------------------------------------- */

/* Adds b, whose error against its float original is known, to an object of layers.
 * CLI_OK, or an exit code after a message. */
int certificate_add(json_t *layers, const struct tensor_source *b,
		    const struct tensor_error *error);
/* Writes the certificate of a file to a path.  CLI_INPUT if one of the file's layers is
 * absent. */
int certificate_write(json_t *layers, const struct nib_file *file, const char *path);

/* ---- reading -------------------------------------------------------------- */

/* The text of a problem of a certificate. */
#define CERTIFICATE_PROBLEM_TEXT 200
/* The certificate in a file; NULL if there is none, and with a problem if the file
 * breaks the format.  CLI_OK or CLI_FAILED (memory). */
int certificate_read(const char *path, json_t **certificate,
		     char problem[CERTIFICATE_PROBLEM_TEXT]);

enum certificate_state {
	CERTIFICATE_NONE,  /* the layer is not in it */
	CERTIFICATE_STALE, /* the layer has other bytes */
	CERTIFICATE_CURRENT
};
/* A layer as a certificate describes it; texts live as long as the certificate. */
struct certificate_layer {
	enum certificate_state state;
	double relative, worst_row_relative;
	int64_t worst_row;
	const char *activations; /* the choice: "nvfp4", "int8", "dense"; or NULL */
};
struct certificate_layer certificate_find(const json_t *certificate,
					  const struct nib_layer_tensors *layer);

#endif
