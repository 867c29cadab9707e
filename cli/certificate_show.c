/* SPDX-License-Identifier: Apache-2.0 */
/* certificate_show.c - what nib inspect prints about a certificate: see inspect.h. */
#include <stdlib.h>
#include <string.h>

#include "certificate.h"
#include "cli.h"
#include "inspect.h"

static const char *const state_names[] = {
    [CERTIFICATE_NONE] = "none",
    [CERTIFICATE_STALE] = "stale",
    [CERTIFICATE_CURRENT] = "current",
};

int certified_read(struct certified *c, const char *checkpoint,
		   struct findings *findings)
{
	char problem[CERTIFICATE_PROBLEM_TEXT];
	int code;

	*c = (struct certified){.path = certificate_path(checkpoint)};
	if (!c->path)
		return CLI_FAILED;
	code = certificate_read(c->path, &c->root, problem);
	if (*problem && !code)
		findings_add(findings, FIND_CERTIFICATE, c->path, "%s", problem);
	return code;
}

void certified_free(struct certified *c)
{
	json_decref(c->root);
	free(c->path);
}

/* Keeps the layers with the largest errors, the largest first. */
static void keep_worst(struct certified *c, const char *name, double error)
{
	int at = CERTIFIED_WORST;

	while (at > 0 && (!c->worst[at - 1].name || error > c->worst[at - 1].error))
		at--;
	if (at == CERTIFIED_WORST)
		return;
	memmove(&c->worst[at + 1], &c->worst[at],
		(size_t)(CERTIFIED_WORST - 1 - at) * sizeof(c->worst[0]));
	c->worst[at].name = name;
	c->worst[at].error = error;
}

struct certificate_layer certified_layer(struct certified *c,
					 const struct nib_layer *layer,
					 struct findings *findings)
{
	struct certificate_layer found = certificate_find(c->root, layer->tensors);
	const char *kind = found.activations ? found.activations : "";

	if (!c->root)
		return found;
	c->count[found.state]++;
	c->nvfp4 += !strcmp(kind, "nvfp4");
	c->int8 += !strcmp(kind, "int8");
	c->dense += !strcmp(kind, "dense");
	if (found.state == CERTIFICATE_CURRENT)
		keep_worst(c, layer->name, found.relative);
	else
		findings_add(findings, FIND_CERTIFICATE, layer->name, "%s",
			     found.state == CERTIFICATE_STALE
				 ? "its bytes are not those that were certified"
				 : "is not in the certificate");
	return found;
}

void certified_put_layer(const struct certified *c,
			 const struct certificate_layer *layer, struct table *table)
{
	if (!c->root)
		return;
	table_text(table, "certificate", state_names[layer->state]);
	if (layer->state == CERTIFICATE_NONE)
		return;
	table_number(table, "relative_error", layer->relative);
	table_number(table, "worst_row_error", layer->worst_row_relative);
	if (layer->activations)
		table_text(table, "activations", layer->activations);
}

static void put_text(const struct certified *c, struct table *table, const char *text)
{
	if (table_is_for_people(table)) {
		table_note(table, "\ncertificate %s: %s", c->path, text);
		return;
	}
	table_text(table, "kind", "certificate");
	table_text(table, "name", c->path);
	table_text(table, "text", text);
	table_end_row(table);
}

void certified_put(const struct certified *c, struct table *table)
{
	const int64_t chosen = c->nvfp4 + c->int8 + c->dense;
	char text[256];
	int n;

	if (!c->root) {
		table_note(table, "\nnot certified%s", "");
		return;
	}
	n = snprintf(text, sizeof(text),
		     "%lld layers current, %lld stale, %lld not in it",
		     (long long)c->count[CERTIFICATE_CURRENT],
		     (long long)c->count[CERTIFICATE_STALE],
		     (long long)c->count[CERTIFICATE_NONE]);
	if (chosen)
		snprintf(text + n, sizeof(text) - (size_t)n,
			 "; chosen: %lld W4A4, %lld W4A8, %lld W4A16",
			 (long long)c->nvfp4, (long long)c->int8, (long long)c->dense);
	put_text(c, table, text);
	for (int i = 0; i < CERTIFIED_WORST && c->worst[i].name; i++)
		table_note(table, "  largest error of weights: %.4f (%s)",
			   c->worst[i].error, c->worst[i].name);
}
