/* SPDX-License-Identifier: Apache-2.0 */
/* test_file.c - the safetensors reader: good files, and every kind of bad one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/data.h"
#include "common/file.h"
#include "common/unit.h"

#define T(name, dtype, shape, offsets)                                                 \
	"\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape                      \
	"],\"data_offsets\":[" offsets "]}"

/* ---- good files ---------------------------------------------------------- */

static void reads_tensors_and_metadata(void **state)
{
	static const char header[] =
	    "{ \"__metadata__\" : {\"z\":\"last\",\"a\":\"\\u00e9\\n\"},\n"
	    "\t" T("late", "F32", "2,3", "16,40") ",\r\n" T(
		"early", "U8", "16",
		"0,16") ","
			"\"scalar\":{\"data_offsets\":[40,42],\"shape\":[],"
			"\"dtype\":\"BF16\"}}   ";
	struct test_image image = test_image_new(header, NULL, 42);
	const struct nib_file_tensor *t;
	struct nib_error err;
	struct nib_file *file;
	const char *key, *value;

	assert_ok(test_image_open(&image, &file, &err));
	assert_int_equal(nib_file_tensor_count(file), 3);
	t = nib_file_tensor_at(file, 0);
	assert_string_equal(t->name, "early");
	assert_string_equal(t->dtype, "U8");
	assert_int_equal(t->rank, 1);
	assert_int_equal(t->shape[0], 16);
	assert_int_equal(t->bytes, 16);
	assert_ptr_equal(t->data, image.bytes + image.n_bytes - 42);
	t = nib_file_tensor_at(file, 1);
	assert_string_equal(t->name, "late");
	assert_int_equal(t->rank, 2);
	assert_int_equal(t->shape[1], 3);
	assert_ptr_equal(t->data, image.bytes + image.n_bytes - 26);
	assert_ptr_equal(nib_file_find(file, "late"), t);
	assert_int_equal(nib_file_find(file, "scalar")->rank, 0);
	assert_int_equal(nib_file_find(file, "scalar")->bytes, 2);
	assert_null(nib_file_find(file, "lat"));
	assert_null(nib_file_find(file, "later"));
	assert_null(nib_file_find(file, "__metadata__"));
	assert_null(nib_file_tensor_at(file, 3));
	assert_null(nib_file_tensor_at(file, -1));
	assert_int_equal(nib_file_metadata_count(file), 2);
	nib_file_metadata_at(file, 0, &key, &value);
	assert_string_equal(key, "a");
	assert_string_equal(value, "\xC3\xA9\n");
	nib_file_metadata_at(file, 1, &key, &value);
	assert_string_equal(key, "z");
	assert_string_equal(value, "last");
	nib_file_metadata_at(file, 2, &key, &value);
	assert_null(key);
	assert_null(value);
	nib_file_close(file);
	test_image_free(&image);
}

static void reads_every_dtype(void **state)
{
	static const struct {
		const char *name;
		int bits;
	} dtypes[] = {
	    {"BOOL", 8},    {"F4", 4},		{"F6_E2M3", 6},	    {"F6_E3M2", 6},
	    {"U8", 8},	    {"I8", 8},		{"F8_E5M2", 8},	    {"F8_E4M3", 8},
	    {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
	    {"U16", 16},    {"F16", 16},	{"BF16", 16},	    {"I32", 32},
	    {"U32", 32},    {"F32", 32},	{"C64", 64},	    {"F64", 64},
	    {"I64", 64},    {"U64", 64},
	};

	for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
		/* 3 * 4 elements: whole bytes for 4 and 6 bits too. */
		size_t bytes = (size_t)(12 * dtypes[i].bits / 8);
		struct test_image image;
		struct nib_error err;
		struct nib_file *file;
		char header[128];

		snprintf(header, sizeof(header),
			 "{\"x\":{\"dtype\":\"%s\",\"shape\":[3,4],"
			 "\"data_offsets\":[0,%zu]}}",
			 dtypes[i].name, bytes);
		image = test_image_new(header, NULL, bytes);
		assert_ok(test_image_open(&image, &file, &err));
		assert_string_equal(nib_file_tensor_at(file, 0)->dtype, dtypes[i].name);
		nib_file_close(file);
		test_image_free(&image);
	}
}

static void reads_odd_but_valid_headers(void **state)
{
	static const struct {
		const char *header;
		size_t data_bytes;
		int64_t tensors;
	} files[] = {
	    {"{}", 0, 0},
	    {"{}        ", 0, 0},
	    {"{\"__metadata__\":{}}", 0, 0},
	    /* Empty tensors may lie anywhere between others. */
	    {"{" T("a", "U8", "4", "0,4") "," T("e", "F32", "0,9",
						"4,4") "," T("b", "U8", "4", "4,8") "}",
	     8, 3},
	    {"{" T("a", "U8", "0", "0,0") "," T("b", "U8", "0", "0,0") "}", 0, 2},
	    {"{" T("", "U8", "1", "0,1") "}", 1, 1},
	    {"{" T("x", "U8", "1,1,1,1,1,1,1,1", "0,1") "}", 1, 1},
	    {"{" T("\\ud83d\\ude00", "U8", "1", "0,1") "}", 1, 1},
	    /* 0 * 2^62 * 8 does not overflow when it starts from 0. */
	    {"{" T("x", "U8", "0,4611686018427387904", "0,0") "}", 0, 1},
	};

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		struct test_image image =
		    test_image_new(files[i].header, NULL, files[i].data_bytes);
		struct nib_error err;
		struct nib_file *file;

		if (test_image_open(&image, &file, &err))
			fail_msg("%s: %s", files[i].header, err.message);
		assert_int_equal(nib_file_tensor_count(file), files[i].tensors);
		nib_file_close(file);
		test_image_free(&image);
	}
}

static void finds_each_of_many_tensors(void **state)
{
	const int n = 20000;
	char *header = malloc((size_t)n * 80);
	char *at = header;
	struct test_image image;
	struct nib_error err;
	struct nib_file *file;
	char name[32];

	*at++ = '{';
	for (int i = 0; i < n; i++)
		at += sprintf(at,
			      "%s\"t.%d\":{\"dtype\":\"U8\",\"shape\":[1],"
			      "\"data_offsets\":[%d,%d]}",
			      i ? "," : "", i, n - 1 - i, n - i);
	memcpy(at, "}", 2);
	image = test_image_new(header, NULL, (size_t)n);
	assert_ok(test_image_open(&image, &file, &err));
	for (int i = 0; i < n; i++) {
		sprintf(name, "t.%d", i);
		assert_ptr_equal(nib_file_find(file, name),
				 nib_file_tensor_at(file, n - 1 - i));
	}
	nib_file_close(file);
	test_image_free(&image);
	free(header);
}

/* ---- hostile headers ----------------------------------------------------- */

struct bad_header {
	const char *header;
	size_t data_bytes;
	const char *says;
};

static const struct bad_header bad_headers[] = {
    /* JSON */
    {" {}", 0, "begin with '{'"},
    {"[]", 0, "begin with '{'"},
    {"", 0, "begin with '{'"},
    {"{", 0, "expected a string"},
    {"{}x", 0, "text after"},
    {"{}{}", 0, "text after"},
    {"{,}", 0, "expected a string"},
    {"{\"x\"}", 0, "expected ':'"},
    {"{\"x\":}", 0, "expected '{'"},
    {"{\"x\":{}}", 0, "expected a string"},
    {"{\"x\":1}", 0, "expected '{'"},
    {"{\"x\":null}", 0, "expected '{'"},
    {"{" T("x", "U8", "1", "0,1") ",}", 1, "expected a string"},
    {"{" T("x", "U8", "1", "0,1"), 1, "expected ',' or '}'"},
    {"{\"x", 0, "string without an end"},
    {"{\"x\\", 0, "string without an end"},
    {"{\"x\\u12", 0, "\\u"},
    {"{\"\\u12g4\":{}}", 0, "\\u"},
    {"{\"\\x\":{}}", 0, "bad escape"},
    {"{\"\\u0000\":{}}", 0, "\\u0000"},
    {"{\"\\ud800\":{}}", 0, "surrogate"},
    {"{\"\\ud800\\u0041\":{}}", 0, "surrogate"},
    {"{\"\\udc00\":{}}", 0, "surrogate"},
    {"{\"a\nb\":{}}", 0, "control character"},
    {"{\"\x80\":{}}", 0, "UTF-8"},
    {"{\"\xC0\x80\":{}}", 0, "UTF-8"},
    {"{\"\xED\xA0\x80\":{}}", 0, "UTF-8"},
    {"{\"\xF5\x80\x80\x80\":{}}", 0, "UTF-8"},
    {"{\"\xE2\x82", 0, "UTF-8"},
    /* keys */
    {"{" T("x", "U8", "1", "0,1") "," T("x", "U8", "1", "1,2") "}", 2, "duplicate key"},
    {"{" T("x", "U8", "1", "0,1") "," T("\\u0078", "U8", "1", "1,2") "}", 2,
     "duplicate key"},
    {"{\"x\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}", 0, "duplicate key"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "duplicate key"},
    {"{\"__metadata__\":{\"a\":\"1\",\"b\":\"\",\"a\":\"2\"}}", 0, "duplicate key 'a'"},
    {"{\"x\":{\"more\":1}}", 0, "unknown key 'more'"},
    {"{\"x\":{\"dtype\":\"U8\",\"shape\":[0]}}", 0, "no data_offsets"},
    {"{\"x\":{\"dtype\":\"U8\",\"data_offsets\":[0,0]}}", 0, "no shape"},
    {"{\"x\":{\"shape\":[0],\"data_offsets\":[0,0]}}", 0, "no dtype"},
    /* metadata */
    {"{\"__metadata__\":null}", 0, "expected '{'"},
    {"{\"__metadata__\":[]}", 0, "expected '{'"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "expected a string"},
    {"{\"__metadata__\":{\"a\":{}}}", 0, "expected a string"},
    {"{\"__metadata__\":{\"a\":null}}", 0, "expected a string"},
    /* dtypes */
    {"{" T("x", "F33", "1", "0,4") "}", 4, "unknown dtype 'F33'"},
    {"{" T("x", "f32", "1", "0,4") "}", 4, "unknown dtype"},
    {"{" T("x", "", "1", "0,4") "}", 4, "unknown dtype"},
    {"{\"x\":{\"dtype\":8,\"shape\":[],\"data_offsets\":[0,1]}}", 1,
     "expected a string"},
    /* numbers */
    {"{" T("x", "U8", "-1", "0,1") "}", 1, "integer >= 0"},
    {"{" T("x", "U8", "1.0", "0,1") "}", 1, "not a float"},
    {"{" T("x", "U8", "1e0", "0,1") "}", 1, "not a float"},
    {"{" T("x", "U8", "01", "0,1") "}", 1, "leading 0"},
    {"{" T("x", "U8", "+1", "0,1") "}", 1, "integer >= 0"},
    {"{" T("x", "U8", "0x1", "0,1") "}", 1, "expected ',' or ']'"},
    {"{" T("x", "U8", "true", "0,1") "}", 1, "integer >= 0"},
    {"{" T("x", "U8", "[1]", "0,1") "}", 1, "integer >= 0"},
    {"{" T("x", "U8", "\\\"1\\\"", "0,1") "}", 1, "integer >= 0"},
    {"{" T("x", "U8", "1,", "0,1") "}", 1, "integer >= 0"},
    {"{" T("x", "U8", "9223372036854775808", "0,1") "}", 1, "2^63"},
    {"{" T("x", "U8", "99999999999999999999999999999999", "0,1") "}", 1, "2^63"},
    {"{" T("x", "U8", "1", "-1,0") "}", 1, "integer >= 0"},
    {"{" T("x", "U8", "1", "0,1.5") "}", 2, "not a float"},
    {"{" T("x", "U8", "1", "0") "}", 1, "expected ','"},
    {"{" T("x", "U8", "1", "0,1,2") "}", 1, "or ']'"},
    /* shape * dtype */
    {"{" T("x", "U8", "4294967296,4294967296", "0,0") "}", 0, "overflows"},
    {"{" T("x", "F64", "4611686018427387904", "0,0") "}", 0, "overflows"},
    {"{" T("x", "F32", "9223372036854775807", "0,4") "}", 4, "overflows"},
    {"{" T("x", "F4", "3", "0,2") "}", 2, "whole"},
    {"{" T("x", "F6_E2M3", "2", "0,2") "}", 2, "whole"},
    {"{" T("x", "F32", "2", "0,4") "}", 4, "make 8 bytes"},
    {"{" T("x", "F32", "1", "0,8") "}", 8, "make 4 bytes"},
    {"{" T("x", "U8", "", "0,0") "}", 0, "make 1 bytes"},
    {"{" T("x", "U8", "0", "0,1") "}", 1, "make 0 bytes"},
    /* data_offsets */
    {"{" T("x", "U8", "4", "4,0") "}", 4, "4..0"},
    {"{" T("x", "U8", "5", "0,5") "}", 4, "0..5"},
    {"{" T("x", "U8", "4", "4,8") "}", 4, "4..8"},
    {"{" T("x", "U8", "4", "9223372036854775803,9223372036854775807") "}", 4, "with 4"},
    {"{" T("x", "U8", "2", "1,3") "}", 3, "begins at 1"},
    {"{" T("x", "U8", "2", "0,2") "," T("y", "U8", "2", "3,5") "}", 5, "begins at 3"},
    {"{" T("x", "U8", "3", "0,3") "," T("y", "U8", "3", "2,5") "}", 5, "begins at 2"},
    {"{" T("x", "U8", "4", "0,4") "," T("y", "U8", "4", "0,4") "}", 4, "begins at 0"},
    {"{" T("x", "U8", "4", "0,4") "," T("e", "U8", "0", "2,2") "}", 4, "begins at 2"},
    {"{" T("x", "U8", "2", "0,2") "}", 3, "cover 2 of 3"},
    {"{}", 1, "cover 0 of 1"},
};

static void refuses_bad_headers(void **state)
{
	for (size_t i = 0; i < sizeof(bad_headers) / sizeof(*bad_headers); i++) {
		const struct bad_header *bad = &bad_headers[i];
		struct test_image image =
		    test_image_new(bad->header, NULL, bad->data_bytes);
		struct nib_file *file = (void *)&image;
		struct nib_error err = {0};
		enum nib_status status = test_image_open(&image, &file, &err);

		if (status != NIB_STATUS_BAD_FILE ||
		    err.status != NIB_STATUS_BAD_FILE || file ||
		    !strstr(err.message, bad->says))
			fail_msg("%s: status %d '%s', wanted '%s'", bad->header,
				 (int)status, err.message, bad->says);
		assert_int_equal(test_image_open(&image, &file, NULL),
				 NIB_STATUS_BAD_FILE);
		test_image_free(&image);
	}
}

/* Every beginning of a good file is a bad file, and reads no byte beyond. */
static void refuses_every_truncation(void **state)
{
	static const char header[] = "{\"__metadata__\":{\"k\":\"\\ud83d\\ude00\"}," T(
	    "a.weight", "U8", "2,8", "8,24") "," T("b", "F32", "2", "0,8") "}";
	struct test_image image = test_image_new(header, NULL, 24);
	struct nib_error err;
	struct nib_file *file;

	assert_ok(test_image_open(&image, &file, &err));
	nib_file_close(file);
	for (size_t n = 0; n < image.n_bytes; n++) {
		unsigned char *cut = guard_copy(image.bytes, n);

		assert_int_equal(nib_file_open_memory(cut, n, "cut", &file, &err),
				 NIB_STATUS_BAD_FILE);
		guard_free(cut, n);
	}
	/* And with the length saying that the header ends there. */
	for (size_t n = 0; n < strlen(header); n++) {
		unsigned char *cut = guard_copy(image.bytes, 8 + n);

		for (int i = 0; i < 8; i++)
			cut[i] = (unsigned char)((uint64_t)n >> 8 * i);
		assert_int_equal(nib_file_open_memory(cut, 8 + n, "cut", &file, &err),
				 NIB_STATUS_BAD_FILE);
		guard_free(cut, 8 + n);
	}
	test_image_free(&image);
}

/* The image is refused so, in such words; it is freed. */
static struct nib_error refused(struct test_image image, enum nib_status status,
				const char *says)
{
	struct nib_error err;
	struct nib_file *file;

	assert_int_equal(test_image_open(&image, &file, &err), status);
	assert_contains(err.message, says);
	test_image_free(&image);
	return err;
}

static void refuses_lengths_that_lie(void **state)
{
	static const struct {
		uint64_t length;
		const char *says;
	} lies[] = {
	    {100000001, "at most 100000000"},
	    {UINT64_MAX, "at most 100000000"},
	    {(uint64_t)1 << 63, "at most 100000000"},
	    {100000000, "in a file of 10 bytes"},
	    {3, "in a file of 10 bytes"},
	};

	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		struct test_image image = test_image_new("{}", NULL, 0);

		for (int b = 0; b < 8; b++)
			image.bytes[b] = (unsigned char)(lies[i].length >> 8 * b);
		refused(image, NIB_STATUS_BAD_FILE, lies[i].says);
	}
}

/* A million levels: no recursion, no stack to run out of. */
static void refuses_deep_json(void **state)
{
	static const char *const begins[] = {
	    "{\"x\":",
	    "{\"x\":{\"dtype\":",
	    "{\"x\":{\"shape\":[",
	    "{\"__metadata__\":{\"k\":",
	};
	const size_t depth = 1000000;

	for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++) {
		size_t n = strlen(begins[i]);
		char *header = malloc(n + depth + 1);

		memcpy(header, begins[i], n);
		memset(header + n, '[', depth);
		header[n + depth] = '\0';
		refused(test_image_new(header, NULL, 0), NIB_STATUS_BAD_FILE, "");
		free(header);
	}
}

static void refuses_more_dimensions(void **state)
{
	refused(
	    test_image_new("{" T("x", "U8", "1,1,1,1,1,1,1,1,1", "0,1") "}", NULL, 1),
	    NIB_STATUS_UNSUPPORTED, "more than 8 dimensions");
}

/* A message is one line of UTF-8 without control characters, whatever comes. */
static void shows_hostile_names_harmlessly(void **state)
{
	static const char *const names[] = {
	    "\\u001b[2Jx\\n",
	    "\\u007f\\u0085",
	    "long",
	    "a\\u061cb\\u200ec\\u200fd\\u202ae\\u202ef\\u2066g\\u2069",
	};

	for (size_t i = 0; i < 4; i++) {
		char header[2048], name[1024];
		struct nib_error err;

		snprintf(name, sizeof(name), "%s", names[i]);
		if (i == 2) { /* cut inside of two-byte characters */
			for (int j = 0; j < 500; j++)
				memcpy(name + 1 + 2 * j, "\xC3\xA9", 2);
			name[1001] = '\0';
		}
		snprintf(header, sizeof(header), "{\"%s\":{\"dtype\":\"?\"}}", name);
		err = refused(test_image_new(header, NULL, 0), NIB_STATUS_BAD_FILE,
			      "unknown dtype '?'");
		for (const char *c = err.message; *c; c++) {
			assert_true((unsigned char)*c >= 0x20 && *c != 0x7F);
			assert_true((unsigned char)*c != 0xD8 &&
				    (unsigned char)*c != 0xE2);
			if ((unsigned char)*c == 0xC2)
				assert_true((unsigned char)c[1] >= 0xA0);
			if ((unsigned char)*c == 0xC3)
				assert_int_equal((unsigned char)c[1], 0xA9);
		}
		if (i == 3)
			assert_contains(err.message, "'a?b?c?d?e?f?g?'");
	}
}

static void survives_null(void **state)
{
	struct nib_error err;
	struct nib_file *file;
	const char *key = "x", *value = "y";

	assert_int_equal(nib_file_open(NULL, &file, &err), NIB_STATUS_BAD_ARGUMENT);
	assert_int_equal(nib_file_open("x", NULL, &err), NIB_STATUS_BAD_ARGUMENT);
	assert_int_equal(nib_file_open_memory(NULL, 9, "x", &file, &err),
			 NIB_STATUS_BAD_ARGUMENT);
	assert_int_equal(nib_file_open_memory("", 0, NULL, &file, &err),
			 NIB_STATUS_BAD_FILE);
	nib_file_close(NULL);
	assert_int_equal(nib_file_tensor_count(NULL), 0);
	assert_int_equal(nib_file_layer_count(NULL), 0);
	assert_int_equal(nib_file_layer_defect_count(NULL), 0);
	assert_int_equal(nib_file_metadata_count(NULL), 0);
	assert_null(nib_file_tensor_at(NULL, 0));
	assert_null(nib_file_layer_at(NULL, 0));
	assert_null(nib_file_layer_defect_at(NULL, 0));
	assert_null(nib_file_find(NULL, "x"));
	assert_null(nib_file_find_layer(NULL, "x"));
	nib_file_metadata_at(NULL, 0, &key, &value);
	assert_null(key);
	assert_null(value);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(reads_tensors_and_metadata),
	    cmocka_unit_test(reads_every_dtype),
	    cmocka_unit_test(reads_odd_but_valid_headers),
	    cmocka_unit_test(finds_each_of_many_tensors),
	    cmocka_unit_test(refuses_bad_headers),
	    cmocka_unit_test(refuses_every_truncation),
	    cmocka_unit_test(refuses_lengths_that_lie),
	    cmocka_unit_test(refuses_deep_json),
	    cmocka_unit_test(refuses_more_dimensions),
	    cmocka_unit_test(shows_hostile_names_harmlessly),
	    cmocka_unit_test(survives_null),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
