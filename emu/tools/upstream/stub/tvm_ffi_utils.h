// SPDX-License-Identifier: Apache-2.0
// Stands in for the header of that name: the kernels under test need none of it.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

struct Shape {
	int64_t of[4];
	int64_t operator[](int i) const
	{
		return of[i];
	}
};
struct TensorView {
	void *data;
	Shape sizes;
	Shape shape() const
	{
		return sizes;
	}
	void *data_ptr() const
	{
		return data;
	}
	int device() const
	{
		return 0;
	}
};
inline cudaStream_t get_stream(int)
{
	return nullptr;
}

struct Check {
	bool right;
	template <typename T>
	Check &operator<<(const T &)
	{
		return *this;
	}
	Check &operator<<(const char *text)
	{
		if (!right)
			fprintf(stderr, "driver: %s", text);
		return *this;
	}
	~Check()
	{
		if (!right)
			exit(2);
	}
};
#define TVM_FFI_ICHECK(x)                                                              \
	Check                                                                          \
	{                                                                              \
		bool(x)                                                                \
	}
#define TVM_FFI_DLL_EXPORT_TYPED_FUNC(name, function)
