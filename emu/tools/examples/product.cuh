// SPDX-License-Identifier: Apache-2.0
// What the drivers of examples share: random matrices on the host and on the device,
// and a product that is compared with its sum in float64.
#pragma once
#include <cmath>
#include <cstring>
#include <random>

#include "driver.cuh"

inline std::mt19937 &source()
{
	static std::mt19937 bits(20261125);
	return bits;
}

// ROWS x COLUMNS elements of SIZE bytes: what the device has, and their values.
struct matrix {
	size_t rows, columns;
	std::vector<double> value;
	std::vector<unsigned char> bytes;

	double at(size_t row, size_t column) const
	{
		return value[row * columns + column];
	}
	unsigned char *on_device() const
	{
		return filled<unsigned char>(bytes.size(),
					     [&](size_t i) { return bytes[i]; });
	}
};

// Random values of a type between -4 and 4, of all magnitudes that it has there.
template <typename T>
matrix random_matrix(size_t rows, size_t columns)
{
	matrix m{
	    rows, columns, {}, std::vector<unsigned char>(rows * columns * sizeof(T))};
	for (size_t i = 0; i < rows * columns; i++) {
		const float x = std::ldexp(float(source()()) / 2147483648.0f - 1,
					   2 - int(source()() % 6));
		const T t(x);
		memcpy(&m.bytes[i * sizeof(T)], &t, sizeof(T));
		m.value.push_back(double(float(t)));
	}
	return m;
}

// Random 4-bit floats, two in a byte, the first in its low half.
inline matrix random_fp4(size_t rows, size_t columns)
{
	static const double values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
	matrix m{rows, columns, {}, std::vector<unsigned char>(rows * columns / 2)};
	for (size_t i = 0; i < rows * columns; i++) {
		const unsigned code = source()() % 16;
		m.bytes[i / 2] |= (unsigned char)(code << 4 * (i % 2));
		m.value.push_back(code & 8 ? -values[code & 7] : values[code & 7]);
	}
	return m;
}

// D[i][j] as a bf16 against the sum over k of A(i, k) * B(j, k). The bound: D's
// rounding, and LOST of the sum of magnitudes; by default two units of fp32's last
// place for each k. 0: all are within it.
template <typename A, typename B>
int compare(const void *device, size_t m, size_t n, size_t k, A a, B b, double lost = 0)
{
	lost = lost ? lost : std::ldexp(double(k), -22);
	std::vector<unsigned short> d(m * n);
	size_t wrong = 0;
	double worst = 0;
	if (finish())
		return 1;
	must(cudaMemcpy(d.data(), device, m * n * 2, cudaMemcpyDeviceToHost),
	     "cudaMemcpy");
	for (size_t i = 0; i < m; i++)
		for (size_t j = 0; j < n; j++) {
			double sum = 0, magnitudes = 0;
			for (size_t l = 0; l < k; l++) {
				const double x = a(i, l) * b(j, l);
				sum += x;
				magnitudes += std::fabs(x);
			}
			const unsigned bits = unsigned(d[i * n + j]) << 16;
			float got;
			memcpy(&got, &bits, 4);
			const double bound =
			    std::ldexp(std::fabs(sum), -8) + lost * magnitudes;
			const double error = std::fabs(got - sum) / bound;
			wrong += !(error <= 1);
			worst = error > worst ? error : worst;
		}
	printf("%s: %zu of %zu wrong, largest error %.3f of its bound\n",
	       wrong ? "wrong" : "right", wrong, m * n, worst);
	return wrong ? 1 : 0;
}
