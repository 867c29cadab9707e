/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.c - finds the ggml that loads the plug-in, and takes its functions from it.
 *
 * The plug-in is linked with no ggml.  libggml-base.so has another soname in other
 * builds, and a Python process loads it where a linked plug-in would not see it
 * (RTLD_LOCAL).  So the plug-in asks the library that called ggml_backend_init():
 * dlsym() also searches the libraries that this one needs, libggml-base.so among them.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "plugin.h"

struct nib_ggml_host nib_host;

static void *open_library_of(const void *address)
{
	void *library = NULL;
	Dl_info info;

	if (dladdr(address, &info) && info.dli_fname)
		library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	/* The program itself: its path may be relative to a folder that it left. */
	return library ? library : dlopen(NULL, RTLD_LAZY);
}

/* The name of a function that the library lacks; NULL if it has all. */
static const char *take_functions(void *library, struct nib_ggml_host *host)
{
	const char *missing = NULL;
	void *function;

	memset(host, 0, sizeof(*host));
	/* A function's pointer is copied, because C converts none from void *. */
#define TAKE(name)                                                                     \
	function = dlsym(library, "ggml_" #name);                                      \
	memcpy(&host->name, &function, sizeof(function));                              \
	if (!function && !missing)                                                     \
		missing = "ggml_" #name;
	NIB_GGML_FUNCTIONS(TAKE)
#undef TAKE
	return missing;
}

static void refuse(const struct nib_ggml_host *host, const char *why, const char *what)
{
	if (!host->log_internal)
		return;
	host->log_internal(GGML_LOG_LEVEL_ERROR,
			   "nibblas: ggml-nibblas.so is not used: ggml %s %s%s\n",
			   host->version ? host->version() : "before 0.9.1", why, what);
}

bool nib_ggml_find_host(const void *caller)
{
	void *library = open_library_of(caller);
	struct nib_ggml_host host;
	const char *missing, *difference;

	if (!library)
		return false;
	missing = take_functions(library, &host);
	difference = missing ? NULL : nib_ggml_difference(&host);
	if (missing) {
		refuse(&host, "has no function ", missing);
	} else if (difference) {
		refuse(&host, "differs from the one it was built for: ", difference);
	} else if (nib_host.nbytes && nib_host.nbytes != host.nbytes) {
		refuse(&host, "is the second one of this process", "");
	} else {
		nib_host = host;
		return true;
	}
	dlclose(library);
	return false;
}
