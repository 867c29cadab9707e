/* SPDX-License-Identifier: Apache-2.0 */
/* demo_model.c - writes the Llama of nib demo to disk: see demo.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "data.h"
#include "demo.h"
#include "out_folder.h"
#include "progress.h"

#define VOCABULARY   512
#define HEAD_VALUES  64
#define WEIGHT_SCALE 0.02F /* their standard deviation, as of a new Llama */

const struct demo_model demo_models[] = {
    {"of the sizes of Llama 3.2 1B", 2048, 8192, 32, 8},
    {"of small sizes", 256, 512, 4, 1},
};

void demo_layers(const struct demo_model *model, struct demo_layer layers[DEMO_LAYERS])
{
	const int64_t q = model->heads * HEAD_VALUES;
	const int64_t kv = model->kv_heads * HEAD_VALUES;
	const struct demo_layer all[DEMO_LAYERS] = {
	    {"self_attn.q_proj", q, model->hidden},
	    {"self_attn.k_proj", kv, model->hidden},
	    {"self_attn.v_proj", kv, model->hidden},
	    {"self_attn.o_proj", model->hidden, q},
	    {"mlp.gate_proj", model->middle, model->hidden},
	    {"mlp.up_proj", model->middle, model->hidden},
	    {"mlp.down_proj", model->hidden, model->middle},
	};

	memcpy(layers, all, sizeof all);
}

/* ---- tensors ------------------------------------------------------------- */

struct tensor {
	char name[64];
	int64_t rows, cols; /* cols 0: a vector of ones */
};

#define MAX_TENSORS (DEMO_LAYERS + 4)

/* All tensors of the model, in their order in the file; how many. */
static int list_tensors(const struct demo_model *model, struct tensor *tensors)
{
	static const char *const norms[] = {
	    "model.layers.0.input_layernorm.weight",
	    "model.layers.0.post_attention_layernorm.weight", "model.norm.weight"};
	struct demo_layer layers[DEMO_LAYERS];
	int n = 0;

	demo_layers(model, layers);
	tensors[n++] =
	    (struct tensor){"model.embed_tokens.weight", VOCABULARY, model->hidden};
	for (int i = 0; i < DEMO_LAYERS; i++, n++) {
		tensors[n] = (struct tensor){"", layers[i].n, layers[i].k};
		snprintf(tensors[n].name, sizeof tensors[n].name,
			 "model.layers.0.%s.weight", layers[i].name);
	}
	for (int i = 0; i < 3; i++, n++) {
		tensors[n] = (struct tensor){"", model->hidden, 0};
		snprintf(tensors[n].name, sizeof tensors[n].name, "%s", norms[i]);
	}
	return n;
}

static enum nib_status write_values(struct nib_writer *writer, int64_t rows,
				    int64_t cols, float scale, uint64_t *seed,
				    struct nib_error *err)
{
	const size_t count = (size_t)(rows * (cols ? cols : 1));
	float *x = malloc(count * sizeof *x);
	uint16_t *bf16 = malloc(count * sizeof *bf16);
	const struct nib_dense view = {
	    .data = x, .rows = rows, .cols = cols, .batch = 1};
	enum nib_status status = NIB_STATUS_OUT_OF_MEMORY;

	if (!x || !bf16) {
		err->status = status;
		snprintf(err->message, sizeof err->message, "no memory for %zu values",
			 count);
	} else {
		if (cols)
			data_fill_x(&view, DATA_FULL, DATA_NORMAL, seed);
		for (size_t i = 0; i < count; i++) {
			const float value = cols ? x[i] * scale : 1;
			uint32_t bits;

			memcpy(&bits, &value, sizeof bits);
			bf16[i] = (uint16_t)(bits >> 16);
		}
		status = nib_writer_write(writer, bf16, count * sizeof *bf16, err);
	}
	free(x);
	free(bf16);
	return status;
}

static int write_tensors(const struct tensor *tensors, int count, float scale,
			 const char *path)
{
	struct nib_writer *writer = NULL;
	struct nib_error err;
	uint64_t seed = 1;
	enum nib_status status = nib_writer_open(path, &writer, &err);

	for (int i = 0; i < count && !status; i++) {
		const int64_t shape[] = {tensors[i].rows, tensors[i].cols};

		status = nib_writer_declare(writer, tensors[i].name, "BF16",
					    tensors[i].cols ? 2 : 1, shape, &err);
	}
	for (int i = 0; i < count && !status && !cli_must_stop(); i++) {
		status = write_values(writer, tensors[i].rows, tensors[i].cols, scale,
				      &seed, &err);
		progress_update(i + 1, tensors[i].name);
	}
	if (!status && !cli_must_stop())
		status = nib_writer_commit(writer, &err);
	else
		nib_writer_discard(writer);
	return status ? cli_fail(path, &err) : cli_stopped();
}

/* ---- files --------------------------------------------------------------- */

static int write_config(const struct demo_model *model, const char *path)
{
	FILE *file = fopen(path, "w");
	int bad;

	if (!file)
		return cli_error(CLI_FAILED, "%s: %s", path, strerror(errno));
	fprintf(file,
		"{\n"
		"  \"architectures\": [\"LlamaForCausalLM\"],\n"
		"  \"model_type\": \"llama\",\n"
		"  \"dtype\": \"bfloat16\",\n"
		"  \"hidden_size\": %lld,\n"
		"  \"intermediate_size\": %lld,\n"
		"  \"num_hidden_layers\": 1,\n"
		"  \"num_attention_heads\": %lld,\n"
		"  \"num_key_value_heads\": %lld,\n"
		"  \"head_dim\": %d,\n"
		"  \"vocab_size\": %d,\n"
		"  \"tie_word_embeddings\": true\n"
		"}\n",
		(long long)model->hidden, (long long)model->middle,
		(long long)model->heads, (long long)model->kv_heads, HEAD_VALUES,
		VOCABULARY);
	bad = ferror(file) | fclose(file);
	return bad ? cli_error(CLI_FAILED, "%s: %s", path, strerror(errno)) : CLI_OK;
}

int demo_write_model(const struct demo_model *model, const char *path)
{
	struct tensor tensors[MAX_TENSORS];
	const int count = list_tensors(model, tensors);
	struct out_folder out;
	char *config = NULL, *weights = NULL;
	int code = out_folder_begin(&out, path);

	if (!code) {
		config = out_folder_path(out.work, "config.json");
		weights = out_folder_path(out.work, "model.safetensors");
		code = config && weights ? CLI_OK : CLI_FAILED;
	}
	progress_begin("writing", count, 0);
	if (!code)
		code = write_config(model, config);
	if (!code)
		code = write_tensors(tensors, count, WEIGHT_SCALE, weights);
	progress_end();
	if (!code)
		code = out_folder_commit(&out);
	out_folder_discard(&out);
	free(config);
	free(weights);
	return code;
}

int demo_write_input(const struct demo_model *model, const char *path, int64_t rows)
{
	const struct tensor x = {"x", rows, model->hidden};

	return write_tensors(&x, 1, 1, path);
}
