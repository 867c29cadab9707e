/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program.c - see program.h.  Reads the program's ELF file.  Scripts and other files
 * get no suspicion, because the programs that they start are not known.
 */
#include "program.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* ---- finding it ---------------------------------------------------------- */

static bool is_file(const char *path)
{
	struct stat s;

	return stat(path, &s) == 0 && S_ISREG(s.st_mode);
}

static bool find_in_path(const char *name, char *to, size_t size)
{
	const char *at = getenv("PATH");

	for (; at && *at; at += strcspn(at, ":"), at += *at == ':') {
		const int length = (int)strcspn(at, ":");

		if (snprintf(to, size, "%.*s/%s", length, at, name) < (int)size &&
		    is_file(to) && access(to, X_OK) == 0)
			return true;
	}
	return false;
}

static bool check_start(const struct program *p, char *error, size_t size)
{
	struct stat s;

	if (stat(p->path, &s)) {
		snprintf(error, size, "%s: %s", p->path, strerror(errno));
		return false;
	}
	if (!S_ISREG(s.st_mode)) {
		snprintf(error, size, "%s: not a program, but a %s", p->path,
			 S_ISDIR(s.st_mode) ? "folder" : "special file");
		return false;
	}
	if (access(p->path, X_OK)) {
		snprintf(error, size,
			 "%s: may not be executed: is it the program that nvcc "
			 "built? (chmod +x)",
			 p->path);
		return false;
	}
	/* The loader ignores LD_LIBRARY_PATH for programs with privileges. */
	if ((s.st_mode & S_ISUID && s.st_uid != geteuid()) ||
	    (s.st_mode & S_ISGID && s.st_gid != getegid()) ||
	    getxattr(p->path, "security.capability", NULL, 0) > 0) {
		snprintf(error, size,
			 "%s: has privileges (setuid, setgid or capabilities), "
			 "for which the loader ignores LD_LIBRARY_PATH: run a "
			 "copy of it, which has none",
			 p->path);
		return false;
	}
	return true;
}

/* ---- its ELF file -------------------------------------------------------- */

struct elf {
	const uint8_t *data;
	size_t bytes;
	const Elf64_Ehdr *header;
	const Elf64_Phdr *segments;
	const char *strings; /* of the dynamic section */
	size_t strings_bytes;
	const Elf64_Dyn *dynamic;
	size_t n_dynamic;
};

static bool has(const struct elf *e, uint64_t at, uint64_t bytes)
{
	return at <= e->bytes && bytes <= e->bytes - at;
}

/* The offset in the file of an address in memory; the file's end: none. */
static uint64_t offset_of(const struct elf *e, uint64_t address)
{
	for (size_t i = 0; i < e->header->e_phnum; i++) {
		const Elf64_Phdr *s = &e->segments[i];

		if (s->p_type == PT_LOAD && address >= s->p_vaddr &&
		    address - s->p_vaddr < s->p_filesz)
			return address - s->p_vaddr + s->p_offset;
	}
	return e->bytes;
}

static void read_dynamic(struct elf *e, const Elf64_Phdr *s)
{
	uint64_t strings = e->bytes;

	if (!has(e, s->p_offset, s->p_filesz) || s->p_offset % 8)
		return;
	e->dynamic = (const void *)(e->data + s->p_offset);
	e->n_dynamic = s->p_filesz / sizeof(*e->dynamic);
	for (size_t i = 0; i < e->n_dynamic; i++) {
		if (e->dynamic[i].d_tag == DT_STRTAB)
			strings = offset_of(e, e->dynamic[i].d_un.d_ptr);
		if (e->dynamic[i].d_tag == DT_STRSZ)
			e->strings_bytes = e->dynamic[i].d_un.d_val;
	}
	if (!has(e, strings, e->strings_bytes) || !e->strings_bytes ||
	    e->data[strings + e->strings_bytes - 1])
		e->n_dynamic = 0;
	else
		e->strings = (const char *)e->data + strings;
}

/* False: not a readable 64-bit ELF file. */
static bool read_elf(struct elf *e)
{
	static const uint8_t magic[] = {ELFMAG0, ELFMAG1,    ELFMAG2,
					ELFMAG3, ELFCLASS64, ELFDATA2LSB};

	if (e->bytes < sizeof(*e->header) || memcmp(e->data, magic, sizeof(magic)) != 0)
		return false;
	e->header = (const void *)e->data;
	if (e->header->e_phoff % 8 ||
	    !has(e, e->header->e_phoff,
		 (uint64_t)e->header->e_phnum * sizeof(*e->segments)))
		return false;
	e->segments = (const void *)(e->data + e->header->e_phoff);
	for (size_t i = 0; i < e->header->e_phnum; i++)
		if (e->segments[i].p_type == PT_DYNAMIC)
			read_dynamic(e, &e->segments[i]);
	return true;
}

/* The first text of this tag that begins so; NULL: none. */
static const char *find_text(const struct elf *e, Elf64_Sxword tag, const char *prefix)
{
	for (size_t i = 0; i < e->n_dynamic; i++) {
		const Elf64_Dyn *d = &e->dynamic[i];

		if (d->d_tag == tag && d->d_un.d_val < e->strings_bytes &&
		    strncmp(e->strings + d->d_un.d_val, prefix, strlen(prefix)) == 0)
			return e->strings + d->d_un.d_val;
	}
	return NULL;
}

/* ---- suspicions ---------------------------------------------------------- */

/* True if a folder has CUDA's libraries; $ORIGIN is the program's folder. */
static bool holds_cuda(const char *folder, int length, const char *program)
{
	static const char *const names[] = {"libcuda.so.1", "libcudart.so.13"};
	const char *slash = strrchr(program, '/');
	const bool is_relative = strncmp(folder, "$ORIGIN", 7) == 0;
	char path[4096];

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		if (is_relative && slash)
			snprintf(path, sizeof(path), "%.*s%.*s/%s",
				 (int)(slash - program), program, length - 7,
				 folder + 7, names[i]);
		else
			snprintf(path, sizeof(path), "%.*s/%s", length, folder,
				 names[i]);
		if (is_file(path))
			return true;
	}
	return false;
}

/* DT_RPATH comes before LD_LIBRARY_PATH, DT_RUNPATH after it. */
static void suspect_rpath(const struct elf *e, struct program *p)
{
	const char *at = find_text(e, DT_RPATH, "");

	if (find_text(e, DT_RUNPATH, ""))
		return;
	for (; at && *at; at += strcspn(at, ":"), at += *at == ':') {
		const int length = (int)strcspn(at, ":");

		if (!holds_cuda(at, length, p->path))
			continue;
		snprintf(p->suspicion, sizeof(p->suspicion),
			 "it has an RPATH, which comes before LD_LIBRARY_PATH, "
			 "and CUDA's libraries are in that folder (%.*s): link "
			 "it with -Xlinker --enable-new-dtags, or use patchelf "
			 "--remove-rpath",
			 length > 300 ? 300 : length, at);
		return;
	}
}

static void suspect_preload(struct program *p)
{
	const char *preload = getenv("LD_PRELOAD");

	if (preload && (strstr(preload, "libcuda.so") || strstr(preload, "libcudart")))
		snprintf(p->suspicion, sizeof(p->suspicion),
			 "LD_PRELOAD=%.300s comes before LD_LIBRARY_PATH: "
			 "unset it",
			 preload);
}

static void suspect_runtime(const struct elf *e, struct program *p)
{
	/* A text of NVIDIA's runtime library. */
	static const char mark[] = "cudaErrorCudartUnloading";
	const char *runtime = find_text(e, DT_NEEDED, "libcudart.so.");

	if (runtime && strcmp(runtime, "libcudart.so.13") != 0)
		snprintf(p->suspicion, sizeof(p->suspicion),
			 "it is built for %.60s, and the software GPU has the "
			 "runtime library of CUDA 13: build it with nvcc 13",
			 runtime);
	else if (!runtime && memmem(e->data, e->bytes, mark, sizeof(mark)))
		snprintf(p->suspicion, sizeof(p->suspicion),
			 "it holds NVIDIA's runtime library (nvcc's default is "
			 "-cudart static), which requires NVIDIA's "
			 "driver: build it with nvcc -cudart shared, with CMake "
			 "CUDA_RUNTIME_LIBRARY Shared");
	else if (!e->n_dynamic)
		snprintf(p->suspicion, sizeof(p->suspicion),
			 "it is linked statically, so that it loads no "
			 "libcuda.so.1: link it without -static");
}

static void suspect(struct program *p)
{
	const int file = open(p->path, O_RDONLY | O_CLOEXEC);
	struct elf e = {0};
	struct stat s;
	void *data;

	if (file < 0)
		return;
	data = fstat(file, &s) || s.st_size < 1
		   ? MAP_FAILED
		   : mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, file, 0);
	close(file);
	if (data == MAP_FAILED)
		return;
	e.data = data;
	e.bytes = (size_t)s.st_size;
	if (read_elf(&e)) {
		suspect_runtime(&e, p);
		if (!p->suspicion[0])
			suspect_rpath(&e, p);
	}
	munmap(data, (size_t)s.st_size);
}

bool program_find(struct program *p, const char *name, char *error, size_t size)
{
	p->suspicion[0] = '\0';
	if (strchr(name, '/')) {
		snprintf(p->path, sizeof(p->path), "%s", name);
	} else if (!find_in_path(name, p->path, sizeof(p->path))) {
		snprintf(error, size, "%s: not found in PATH%s%s", name,
			 is_file(name) ? ", but here: nibemu run ./" : "",
			 is_file(name) ? name : "");
		return false;
	}
	if (!check_start(p, error, size))
		return false;
	suspect_preload(p);
	if (!p->suspicion[0])
		suspect(p);
	return true;
}
