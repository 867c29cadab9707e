/* SPDX-License-Identifier: Apache-2.0 */
/*
 * selftest_recorded.c - digests of the results of nib selftest, one for each step and
 * kind of machine.  tests/cli/test_selftest.py compares them with this processor and
 * with the GPUs in software, and prints the lines of this table when they change.
 *
 * SiLU in fp32 uses ex2.approx, which a GPU in software rounds in another way: steps
 * with dual products have one digest of each.  cuda-sm90 was measured on an H100.
 */
#include "selftest.h"

#include <stddef.h>
#include <string.h>

static const struct recorded {
	const char *machine, *step, *digest;
} recorded[] = {
    {"cpu", "check bf16", "37f2972e89586929"},
    {"cpu", "check bf16", "89678b50b3daf1f1"},
    {"cpu", "check fp16", "31723ff83f15ff85"},
    {"cpu", "check fp32", "fbd3084598792705"},
    {"cpu", "check int8", "7f58aed5897be1cd"},
    {"cpu", "check nvfp4", "e81c2f38948f16cd"},
    {"cpu", "check sizes", "bd6bb6e1a13a3590"},
    {"cuda-sm100", "check nvfp4", "0d72f6b0d8967071"},
    {"cuda-sm100", "check sizes", "1f6de293e48e8615"},
    {"cuda-sm80", "check bf16", "1f01b523b7f82bd9"},
    {"cuda-sm80", "check bf16", "2296d8be0979b3b1"},
    {"cuda-sm80", "check fp16", "7506660110082195"},
    {"cuda-sm80", "check nvfp4", "9fb0ac79bca3daf1"},
    {"cuda-sm80", "check nvfp4", "fb244db722573651"},
    {"cuda-sm80", "check sizes", "4111b89fe13da4bd"},
    {"cuda-sm90", "check bf16", "3fe4c0a8e8e52601"},
    {"cuda-sm90", "check bf16", "feac38bfa0b1476d"},
    {"cuda-sm90", "check fp16", "08b726443978f89d"},
    {"cuda-sm90", "check nvfp4", "6e7315b450404af1"},
    {"cuda-sm90", "check nvfp4", "6eb33d2415688669"},
    {"cuda-sm90", "check sizes", "50d2292e71617de0"},
};

enum selftest_match selftest_match(const char *machine, const char *step,
				   const char *digest)
{
	enum selftest_match match = SELFTEST_UNRECORDED;

	for (size_t i = 0; i < sizeof(recorded) / sizeof(*recorded); i++) {
		const struct recorded *r = &recorded[i];

		if (strcmp(r->machine, machine) || strcmp(r->step, step))
			continue;
		if (!strcmp(r->digest, digest))
			return SELFTEST_SAME;
		match = SELFTEST_OTHER;
	}
	return match;
}
