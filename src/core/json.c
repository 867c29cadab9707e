/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - tokens of JSON text (RFC 8259), strict. */
#include "json.h"

#include <string.h>

#include "text.h"

void nib_json_init(struct nib_json *json, const char *text, size_t n_bytes,
		   char *strings)
{
	json->begin = json->at = text;
	json->end = text + n_bytes;
	json->problem = NULL;
	json->strings = strings;
}

bool nib_json_fail(struct nib_json *json, const char *problem)
{
	if (!json->problem)
		json->problem = problem;
	return false;
}

static void skip_space(struct nib_json *json)
{
	while (json->at < json->end && (*json->at == ' ' || *json->at == '\n' ||
					*json->at == '\r' || *json->at == '\t'))
		json->at++;
}

bool nib_json_take(struct nib_json *json, char c)
{
	skip_space(json);
	if (json->at == json->end || *json->at != c)
		return false;
	json->at++;
	return true;
}

bool nib_json_expect(struct nib_json *json, char c)
{
	if (nib_json_take(json, c))
		return true;
	switch (c) {
	case '{':
		return nib_json_fail(json, "expected '{'");
	case '}':
		return nib_json_fail(json, "expected ',' or '}'");
	case '[':
		return nib_json_fail(json, "expected '['");
	case ']':
		return nib_json_fail(json, "expected ',' or ']'");
	case ':':
		return nib_json_fail(json, "expected ':'");
	case ',':
		return nib_json_fail(json, "expected ','");
	default:
		return nib_json_fail(json, "expected a string");
	}
}

bool nib_json_end(struct nib_json *json)
{
	skip_space(json);
	if (json->at == json->end)
		return true;
	return nib_json_fail(json, "text after the closing '}'");
}

/* The four digits of \uXXXX; at is after the u. */
static bool hex4(struct nib_json *json, uint32_t *code)
{
	*code = 0;
	if (json->end - json->at < 4)
		return nib_json_fail(json, "cut-off \\u escape");
	for (int i = 0; i < 4; i++) {
		unsigned char c = (unsigned char)*json->at;
		uint32_t digit;

		if (c >= '0' && c <= '9')
			digit = c - (uint32_t)'0';
		else if (c >= 'a' && c <= 'f')
			digit = c - (uint32_t)'a' + 10;
		else if (c >= 'A' && c <= 'F')
			digit = c - (uint32_t)'A' + 10;
		else
			return nib_json_fail(json, "bad \\u escape");
		*code = *code << 4 | digit;
		json->at++;
	}
	return true;
}

static char *put_utf8(char *out, uint32_t code)
{
	if (code < 0x80) {
		*out++ = (char)code;
	} else if (code < 0x800) {
		*out++ = (char)(0xC0 | code >> 6);
		*out++ = (char)(0x80 | (code & 0x3F));
	} else if (code < 0x10000) {
		*out++ = (char)(0xE0 | code >> 12);
		*out++ = (char)(0x80 | (code >> 6 & 0x3F));
		*out++ = (char)(0x80 | (code & 0x3F));
	} else {
		*out++ = (char)(0xF0 | code >> 18);
		*out++ = (char)(0x80 | (code >> 12 & 0x3F));
		*out++ = (char)(0x80 | (code >> 6 & 0x3F));
		*out++ = (char)(0x80 | (code & 0x3F));
	}
	return out;
}

static bool unicode_escape(struct nib_json *json, char **out)
{
	uint32_t code, low;

	if (!hex4(json, &code))
		return false;
	if (code == 0)
		return nib_json_fail(json, "\\u0000 in a string");
	if (code >= 0xDC00 && code <= 0xDFFF)
		return nib_json_fail(json, "lone surrogate in a string");
	if (code >= 0xD800 && code <= 0xDBFF) {
		if (json->end - json->at < 2 || json->at[0] != '\\' ||
		    json->at[1] != 'u')
			return nib_json_fail(json, "lone surrogate in a string");
		json->at += 2;
		if (!hex4(json, &low))
			return false;
		if (low < 0xDC00 || low > 0xDFFF)
			return nib_json_fail(json, "lone surrogate in a string");
		code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
	}
	*out = put_utf8(*out, code);
	return true;
}

/* at is after the backslash. */
static bool escape(struct nib_json *json, char **out)
{
	static const char from[] = "\"\\/bfnrt";
	static const char to[] = "\"\\/\b\f\n\r\t";
	const char *found;

	if (json->at == json->end)
		return nib_json_fail(json, "string without an end");
	if (*json->at == 'u') {
		json->at++;
		return unicode_escape(json, out);
	}
	found = *json->at ? strchr(from, *json->at) : NULL;
	if (!found)
		return nib_json_fail(json, "bad escape in a string");
	*(*out)++ = to[found - from];
	json->at++;
	return true;
}

const char *nib_json_string(struct nib_json *json)
{
	const char *begin = json->strings;
	char *out = json->strings;

	if (!nib_json_expect(json, '"'))
		return NULL;
	for (;;) {
		size_t length =
		    nib_utf8_char_bytes(json->at, (size_t)(json->end - json->at));
		unsigned char c;

		if (json->at == json->end) {
			nib_json_fail(json, "string without an end");
			return NULL;
		}
		if (length == 0) {
			nib_json_fail(json, "bytes that are not UTF-8");
			return NULL;
		}
		c = (unsigned char)*json->at;
		if (c < 0x20) {
			nib_json_fail(json, "control character in a string");
			return NULL;
		}
		if (c == '"')
			break;
		if (c == '\\') {
			json->at++;
			if (!escape(json, &out))
				return NULL;
			continue;
		}
		memcpy(out, json->at, length);
		out += length;
		json->at += length;
	}
	json->at++;
	*out++ = '\0';
	json->strings = out;
	return begin;
}

bool nib_json_int(struct nib_json *json, int64_t *value)
{
	int64_t sum = 0;
	bool leading_zero;

	skip_space(json);
	if (json->at == json->end || *json->at < '0' || *json->at > '9')
		return nib_json_fail(json, "expected an integer >= 0");
	leading_zero = *json->at == '0';
	for (int digits = 0; json->at < json->end; digits++, json->at++) {
		if (*json->at < '0' || *json->at > '9')
			break;
		if (leading_zero && digits > 0)
			return nib_json_fail(json, "integer with a leading 0");
		if (__builtin_mul_overflow(sum, 10, &sum) ||
		    __builtin_add_overflow(sum, *json->at - '0', &sum))
			return nib_json_fail(json, "integer above 2^63 - 1");
	}
	if (json->at < json->end &&
	    (*json->at == '.' || *json->at == 'e' || *json->at == 'E'))
		return nib_json_fail(json, "expected an integer, not a float");
	*value = sum;
	return true;
}

/* ---- values that are skipped --------------------------------------------- */

static bool skip_digits(struct nib_json *json)
{
	const char *begin = json->at;

	while (json->at < json->end && *json->at >= '0' && *json->at <= '9')
		json->at++;
	return json->at > begin || nib_json_fail(json, "expected a digit");
}

/* Takes c without the white space before it. */
static bool take_next(struct nib_json *json, char c)
{
	if (json->at == json->end || *json->at != c)
		return false;
	json->at++;
	return true;
}

static bool skip_number(struct nib_json *json)
{
	const char *first;

	take_next(json, '-');
	first = json->at;
	if (!skip_digits(json))
		return false;
	if (*first == '0' && json->at > first + 1)
		return nib_json_fail(json, "number with a leading 0");
	if (take_next(json, '.') && !skip_digits(json))
		return false;
	if (!take_next(json, 'e') && !take_next(json, 'E'))
		return true;
	if (!take_next(json, '+'))
		take_next(json, '-');
	return skip_digits(json);
}

/* A value that contains no other. */
static bool skip_scalar(struct nib_json *json)
{
	static const char *const words[] = {"true", "false", "null"};
	char *strings = json->strings;

	skip_space(json);
	if (json->at == json->end)
		return nib_json_fail(json, "expected a value");
	if (*json->at == '"') {
		if (!nib_json_string(json))
			return false;
		json->strings = strings;
		return true;
	}
	for (int i = 0; i < 3; i++) {
		size_t n = strlen(words[i]);

		if ((size_t)(json->end - json->at) >= n &&
		    memcmp(json->at, words[i], n) == 0) {
			json->at += n;
			return true;
		}
	}
	if (*json->at != '-' && (*json->at < '0' || *json->at > '9'))
		return nib_json_fail(json, "expected a value");
	return skip_number(json);
}

/* The key of an object's next value. */
static bool skip_key(struct nib_json *json)
{
	char *strings = json->strings;

	if (!nib_json_string(json))
		return false;
	json->strings = strings;
	return nib_json_expect(json, ':');
}

bool nib_json_skip(struct nib_json *json)
{
	char closers[NIB_JSON_DEPTH];
	int depth = 0;

	for (;;) {
		char closer = nib_json_take(json, '{')	 ? '}'
			      : nib_json_take(json, '[') ? ']'
							 : '\0';

		if (closer && depth == NIB_JSON_DEPTH)
			return nib_json_fail(json, "nested too deeply");
		if (closer)
			closers[depth++] = closer;
		else if (!skip_scalar(json))
			return false;
		if (closer && !nib_json_take(json, closer)) {
			if (closer == '}' && !skip_key(json))
				return false;
			continue;
		}
		depth -= closer != '\0';
		while (depth > 0 && !nib_json_take(json, ',')) {
			if (!nib_json_expect(json, closers[depth - 1]))
				return false;
			depth--;
		}
		if (depth == 0)
			return true;
		if (closers[depth - 1] == '}' && !skip_key(json))
			return false;
	}
}
