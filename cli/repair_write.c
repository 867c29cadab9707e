/* SPDX-License-Identifier: Apache-2.0 */
/*
 * repair_write.c - the copy of a checkpoint in which everything is mended: see
 * repair.h.
 *
 * A file in which nothing changes is copied byte for byte.  Any other is written anew
 * with the same tensors, in pieces: what is in memory is the block scales of one
 * layer, 1/16 byte a value, and 8 MiB of its codes.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "leftovers.h"
#include "out_file.h"
#include "out_folder.h"
#include "progress.h"
#include "repair.h"

#define PIECE_BYTES ((size_t)8 << 20)
#define BLOCK_BYTES (NIB_NVFP4_BLOCK / 2)
#define INDEX_END   ".safetensors.index.json"

/* ---- scales -------------------------------------------------------------- */

int64_t repair_scale_at(enum stored_scales how, int64_t cols, int64_t r, int64_t g)
{
	if (how == STORED_TILED)
		return (r / 128 * (cols / 4) + g / 4) * 512 + r % 32 * 16 +
		       r % 128 / 32 * 4 + g % 4;
	return r * cols + g;
}

/* The number for a scale that is NaN: see plan_nans(). */
static uint8_t scale_of_nan(const uint8_t *codes)
{
	for (int i = 0; i < BLOCK_BYTES; i++)
		if (codes[i] & 0x77)
			return 0x7E;
	return 0x38;
}

static void fix_scales(const struct layer_mend *mend, uint8_t *scales, int64_t blocks)
{
	const uint8_t *codes = mend->tensors->codes->data;

	for (int64_t i = 0; i < blocks; i++) {
		if ((scales[i] & 0x7F) == 0x7F) {
			if (mend->replaces_nans)
				scales[i] = scale_of_nan(codes + i * BLOCK_BYTES);
		} else if (mend->clears_signs) {
			scales[i] &= 0x7F;
		}
	}
}

uint8_t *repair_read_scales(const struct layer_mend *mend)
{
	const struct nib_layer_tensors *t = mend->tensors;
	const int64_t blocks = layer_mend_blocks(mend), groups = t->k / NIB_NVFP4_BLOCK;
	const int64_t cols = t->scales->shape[t->scales->rank - 1];
	const uint8_t *bytes = t->scales->data;
	uint8_t *scales = malloc((size_t)blocks + 1);

	if (!scales)
		return NULL;
	if (mend->stored == STORED_LINEAR)
		memcpy(scales, bytes, (size_t)blocks);
	else
		for (int64_t i = 0; i < blocks; i++)
			scales[i] = bytes[repair_scale_at(mend->stored, cols,
							  i / groups, i % groups)];
	if (mend->clears_signs || mend->replaces_nans)
		fix_scales(mend, scales, blocks);
	return scales;
}

/* ---- one file ------------------------------------------------------------ */

struct copy {
	const struct repair_plan *plan;
	const char *path; /* of the file that is written */
	struct nib_writer *writer;
	/* Scales of the layer whose codes or scales were last written. */
	const struct layer_mend *last;
	uint8_t *scales;
};

static int put(struct copy *c, const void *bytes, size_t n)
{
	struct nib_error err;

	if (nib_writer_write(c->writer, bytes, n, &err))
		return cli_fail(c->path, &err);
	return cli_stopped();
}

static int put_tensor(struct copy *c, const struct nib_file_tensor *t)
{
	int code = CLI_OK;

	for (uint64_t at = 0; at < t->bytes && !code; at += PIECE_BYTES) {
		const char *data = (const char *)t->data + at;
		const size_t left = (size_t)(t->bytes - at);
		const size_t n = left < PIECE_BYTES ? left : PIECE_BYTES;

		code = put(c, data, n);
		tensor_drop(data, n);
		progress_advance((double)n, t->name);
	}
	return code;
}

static int read_scales(struct copy *c, const struct layer_mend *mend)
{
	if (c->last == mend)
		return CLI_OK;
	free(c->scales);
	c->scales = repair_read_scales(mend);
	c->last = c->scales ? mend : NULL;
	return c->scales ? CLI_OK : cli_no_memory("block scales");
}

/* Rewrites blocks begin .. end - 1 for the global scale that they share now, all of
 * one matrix; codes or scales may be NULL. */
static int share_piece(struct copy *c, const struct layer_mend *mend, int64_t part,
		       int64_t begin, int64_t end, uint8_t *codes, uint8_t *scales)
{
	const float from = layer_mend_value(mend, mend->unshared[part]);
	const float to = layer_mend_value(mend, mend->global[part]);
	const uint8_t *old = mend->tensors->codes->data;
	struct share_table *table = share_table_new(from, to);
	struct share_error unused = {0};
	const int failed =
	    !table || share_blocks(table, old + begin * BLOCK_BYTES, c->scales + begin,
				   end - begin, codes, scales, &unused);

	share_table_free(table);
	tensor_drop(old + begin * BLOCK_BYTES, (size_t)(end - begin) * BLOCK_BYTES);
	return failed ? cli_no_memory("shared scales") : CLI_OK;
}

/* The codes of a layer that shares its global scale now, or its scales. */
static int put_shared(struct copy *c, const struct layer_mend *mend, int is_codes)
{
	const int64_t blocks = layer_mend_blocks(mend) / mend->n_global;
	const int64_t piece = PIECE_BYTES / BLOCK_BYTES;
	uint8_t *out = malloc(PIECE_BYTES);
	int code = out ? CLI_OK : cli_no_memory("codes");

	for (int64_t part = 0; part < mend->n_global && !code; part++)
		for (int64_t at = 0; at < blocks && !code; at += piece) {
			const int64_t n = blocks - at < piece ? blocks - at : piece;
			const int64_t begin = part * blocks + at;

			code =
			    share_piece(c, mend, part, begin, begin + n,
					is_codes ? out : NULL, is_codes ? NULL : out);
			if (!code)
				code = put(c, out,
					   (size_t)n * (is_codes ? BLOCK_BYTES : 1));
			progress_advance((double)n * (is_codes ? BLOCK_BYTES : 1),
					 mend->tensors->name);
		}
	free(out);
	return code;
}

/* What changes of a tensor of a layer. */
enum change { AS_IT_IS, CODES, SCALES, GLOBAL, INPUT };

static enum change change_of(const struct layer_mend *mend,
			     const struct nib_file_tensor *t)
{
	if (!mend)
		return AS_IT_IS;
	if (t == mend->tensors->codes && mend->unshared)
		return CODES;
	if (t == mend->tensors->scales &&
	    (mend->unshared || mend->clears_signs || mend->replaces_nans ||
	     mend->stored != STORED_LINEAR))
		return SCALES;
	if (t == mend->tensors->global && mend->changes_global)
		return GLOBAL;
	if (t == mend->tensors->input_global && mend->changes_input)
		return INPUT;
	return AS_IT_IS;
}

static const struct layer_mend *mend_of(const struct repair_plan *plan,
					const struct nib_file_tensor *t)
{
	return repair_find(plan, nib_file_layer_tensors_of(plan->file, t));
}

static int put_changed(struct copy *c, const struct nib_file_tensor *t)
{
	const struct layer_mend *mend = mend_of(c->plan, t);
	const enum change change = change_of(mend, t);
	int code = CLI_OK;

	if (change == CODES || change == SCALES)
		code = read_scales(c, mend);
	if (code)
		return code;
	switch (change) {
	case CODES:
		return put_shared(c, mend, 1);
	case SCALES:
		if (mend->unshared)
			return put_shared(c, mend, 0);
		return put(c, c->scales, (size_t)layer_mend_blocks(mend));
	case GLOBAL:
		return put(c, mend->global, (size_t)t->bytes);
	case INPUT:
		return put(c, mend->input, (size_t)t->bytes);
	default:
		return put_tensor(c, t);
	}
}

static enum nib_status declare(struct copy *c, const struct nib_file_tensor *t,
			       struct nib_error *err)
{
	const struct layer_mend *mend = mend_of(c->plan, t);
	const struct nib_layer_tensors *layer = mend ? mend->tensors : NULL;

	if (layer && mend->stored != STORED_LINEAR && t == layer->scales) {
		const int64_t shape[] = {layer->rows, layer->k / NIB_NVFP4_BLOCK};

		return nib_writer_declare(c->writer, t->name, t->dtype, 2, shape, err);
	}
	return nib_writer_declare(c->writer, t->name, t->dtype, t->rank, t->shape, err);
}

/* Metadata of the file itself: that of a checkpoint is its first shard's. */
static enum nib_status declare_metadata(struct copy *c, const char *from,
					struct nib_error *err)
{
	struct nib_file *file;
	const char *key, *value;
	enum nib_status status = nib_file_open(from, &file, err);

	for (int64_t i = 0; !status && i < nib_file_metadata_count(file); i++) {
		nib_file_metadata_at(file, i, &key, &value);
		status = nib_writer_metadata(c->writer, key, value, err);
	}
	nib_file_close(file);
	return status;
}

static int write_anew(struct copy *c, const char *from, int64_t shard)
{
	const struct nib_file *file = c->plan->file;
	const int64_t n = nib_file_tensor_count(file);
	struct nib_writer *writer;
	struct nib_error err = {0};
	enum nib_status status = nib_writer_open(c->path, &c->writer, &err);
	int code;

	if (!status)
		status = declare_metadata(c, from, &err);
	for (int64_t i = 0; i < n && !status; i++)
		if (nib_file_tensor_at(file, i)->shard == shard)
			status = declare(c, nib_file_tensor_at(file, i), &err);
	code = status ? cli_fail(c->path, &err) : CLI_OK;
	for (int64_t i = 0; i < n && !code; i++)
		if (nib_file_tensor_at(file, i)->shard == shard)
			code = put_changed(c, nib_file_tensor_at(file, i));
	writer = c->writer;
	c->writer = NULL;
	if (code)
		nib_writer_discard(writer);
	else if (nib_writer_commit(writer, &err))
		code = cli_fail(c->path, &err);
	return code;
}

/* ---- files byte for byte ------------------------------------------------- */

static int copy_bytes(int from, const char *from_path, struct out_file *out)
{
	char *bytes = malloc(PIECE_BYTES);
	int code = bytes ? CLI_OK : cli_no_memory("a copy");
	ssize_t n = 1;

	while (!code && n) {
		n = read(from, bytes, PIECE_BYTES);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			code =
			    cli_error(CLI_INPUT, "%s: %s", from_path, strerror(errno));
		else if (fwrite(bytes, 1, (size_t)n, out->stream) != (size_t)n)
			code =
			    cli_error(CLI_FAILED, "%s: %s", out->path, strerror(errno));
		else
			code = cli_stopped();
		progress_advance(n > 0 ? (double)n : 0, NULL);
	}
	free(bytes);
	return code;
}

static int copy_whole(const char *from_path, const char *to_path)
{
	const int from = open(from_path, O_RDONLY | O_CLOEXEC);
	struct out_file out = {0};
	int code = CLI_OK;

	if (from < 0)
		return cli_error(CLI_INPUT, "%s: %s", from_path, strerror(errno));
	if (!out_file_open(&out, to_path))
		code = cli_error(CLI_FAILED, "%s: %s", to_path, strerror(errno));
	if (!code)
		code = copy_bytes(from, from_path, &out);
	if (code)
		out_file_discard(&out);
	else if (!out_file_commit(&out))
		code = cli_error(CLI_FAILED, "%s: %s", to_path, strerror(errno));
	close(from);
	return code;
}

static int is_shard_changed(const struct repair_plan *plan, int64_t shard)
{
	for (int64_t i = 0; i < nib_file_tensor_count(plan->file); i++) {
		const struct nib_file_tensor *t = nib_file_tensor_at(plan->file, i);

		if (t->shard == shard && change_of(mend_of(plan, t), t) != AS_IT_IS)
			return 1;
	}
	return 0;
}

static int write_shard(const struct repair_plan *plan, const char *from, const char *to,
		       int64_t shard)
{
	struct copy c = {.plan = plan, .path = to};
	int code;

	if (!is_shard_changed(plan, shard))
		return copy_whole(from, to);
	code = write_anew(&c, from, shard);
	free(c.scales);
	return code;
}

/* ---- folders ------------------------------------------------------------- */

/* The preferred name if the folder has it, else the only one that ends so; to be freed.
 * NULL: there is none. */
static char *find_name(const char *folder, const char *end, const char *preferred)
{
	DIR *list = opendir(folder);
	const struct dirent *entry;
	char *found = NULL;

	while (list && (entry = readdir(list))) {
		const int is_preferred = !strcmp(entry->d_name, preferred);

		if (!is_preferred && (found || !tensor_name_ends(entry->d_name, end)))
			continue;
		free(found);
		found = strdup(entry->d_name);
		if (!found)
			cli_out_of_memory();
		if (is_preferred)
			break;
	}
	if (list)
		closedir(list);
	return found;
}

/* Copies or writes one file of the folder. */
static int write_name(const struct repair_plan *plan, const char *to_folder,
		      const char *name, int64_t shard)
{
	char *from = out_folder_path(plan->config->folder, name);
	char *to = from ? out_folder_path(to_folder, name) : NULL;
	int code = CLI_FAILED;

	if (to && shard >= 0)
		code = write_shard(plan, from, to, shard);
	else if (to)
		code = access(from, F_OK) ? CLI_OK : copy_whole(from, to);
	free(from);
	free(to);
	return code;
}

static int write_tensors(const struct repair_plan *plan, const char *in,
			 const char *to_folder)
{
	const int64_t shards = nib_file_shard_count(plan->file);
	const char *last = strrchr(in, '/');
	int code = CLI_OK, is_changed = 0;
	char *name;

	for (int64_t i = 0; i < shards && !code; i++) {
		is_changed |= is_shard_changed(plan, i);
		code = write_name(plan, to_folder, nib_file_shard_at(plan->file, i), i);
	}
	if (code)
		return code;
	if (shards && is_changed)
		return config_write_index(to_folder, plan->file);
	if (tensor_name_ends(in, INDEX_END))
		return write_name(plan, to_folder, last ? last + 1 : in, -1);
	name = find_name(plan->config->folder, shards ? INDEX_END : ".safetensors",
			 shards ? "model" INDEX_END : "model.safetensors");
	if (!name)
		return cli_error(CLI_INPUT, "%s: its files have gone", in);
	code = write_name(plan, to_folder, name, shards ? -1 : 0);
	free(name);
	return code;
}

static int write_config(const struct repair_plan *plan, const char *to_folder)
{
	int code = plan->quant
		       ? config_write_model(plan->config, to_folder, plan->quant)
		       : write_name(plan, to_folder, CONFIG_MODEL, -1);

	if (code)
		return code;
	return plan->quant_file
		   ? config_write_json(to_folder, CONFIG_MODELOPT, plan->quant_file)
		   : write_name(plan, to_folder, CONFIG_MODELOPT, -1);
}

static int write_folder(const struct repair_plan *plan, const char *in,
			const char *path)
{
	struct out_folder out = {0};
	int code = out_folder_begin(&out, path);

	if (!code)
		code = write_tensors(plan, in, out.work);
	if (!code)
		code = write_config(plan, out.work);
	if (!code)
		code = out_folder_copy_rest(&out, plan->config->folder);
	if (!code)
		code = cli_stopped();
	if (!code)
		code = out_folder_commit(&out);
	out_folder_discard(&out);
	return code;
}

int repair_write(const struct repair_plan *plan, const char *in, const char *out)
{
	double bytes = 0;
	int code;

	for (int64_t i = 0; i < nib_file_tensor_count(plan->file); i++)
		bytes += (double)nib_file_tensor_at(plan->file, i)->bytes;
	progress_begin("writing", bytes, 1);
	if (plan->config->folder) {
		code = write_folder(plan, in, out);
	} else {
		leftovers_name(out, strlen(out));
		code = write_shard(plan, in, out, 0);
	}
	progress_end();
	return code;
}
